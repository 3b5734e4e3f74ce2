//! The page in a real browser: it says nothing on the console, asks for nothing, and its script runs.
//! Skipped, with the reason, where there is no Chromium.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ciphertoll_report::html;
use ciphertoll_testing::missing;
use serde_json::Value;

use crate::at_rest::by_its_cache;
use crate::fixture::{Run, hostile, keys, one_block, quick, troubled};
use crate::simulated::simulated;
use crate::what_if::calibrated;

/// Names a browser that is not on the PATH.
const BROWSER: &str = "CIPHERTOLL_CHROMIUM";

#[test]
fn a_page_with_every_chart_is_whole_by_itself() {
    let Some(seen) = seen(&simulated()) else { return };
    seen.assert_quiet();
    seen.assert_alone();
    let figures: Vec<&str> = seen.dom.split("<figure").skip(1).collect();
    assert_eq!(figures.len(), 19);
    for figure in figures {
        let figure = figure.split_once("</figure>").expect("figures end").0;
        let (svg, beside) = figure.split_once("</svg>").expect("a figure has a picture");
        let svg = svg.split_once("<svg").expect("a picture begins").1;
        assert!(svg.split_once('>').expect("a tag ends").0.contains("role=\"img\""), "{svg}");
        for element in ["<title id=", "<desc id="] {
            let text = svg.split_once(element).expect("a picture is named and described").1;
            let text = text.split_once('>').expect("a tag ends").1.split('<').next();
            assert!(text.is_some_and(|text| text.trim().len() > 10), "{element} {text:?}");
        }
        assert!(beside.contains("<table") && beside.contains("<caption"), "numbers stand beside: {beside}");
    }
    assert_eq!(seen.dom.matches("<svg").count(), 2 * 19, "a figure has a picture for each width");
}

#[test]
fn what_a_connect_is_made_of_can_be_read_without_seeing_it() {
    let Some(seen) = seen(&keys()) else { return };
    seen.assert_quiet();
    seen.assert_alone();
    let figure = seen.dom.split_once("<figure id=\"connect-cost-1\"").expect("there is such a figure").1;
    let figure = figure.split_once("</figure>").expect("figures end").0;
    let words = figure.split_once("<desc id=").expect("a picture is described").1;
    let words = words.split_once('>').expect("a tag ends").1.split_once('<').expect("a text ends").0;
    for key in ["tls1.3-p256", "tls1.3-rsa2048", "tls1.3-rsa4096", "tls1.2-p256"] {
        let bar = words.split_once(key).expect("every key is described").1;
        let bar = bar.split(';').next().unwrap_or_default();
        for part in ["signature", "certificate chain", "key exchange", "TLS context", "authentication"] {
            assert!(bar.contains(part) && bar.contains('%'), "{key}: {part}: {bar}");
        }
    }
    let plain = words.split_once("plain").expect("plain is described").1;
    assert!(!plain.split(';').next().unwrap_or_default().contains("signature"), "{plain}");
    assert!(figure.contains("<caption") && figure.contains("of it is the signature"), "{figure}");
}

/// Wide tables scroll inside their own boxes, and details are closed.
#[test]
fn a_page_fits_a_phone_and_is_short_on_a_desktop() {
    for run in [simulated(), quick(), troubled(), by_its_cache()] {
        let [Some(phone), Some(desktop)] = [390, 1280].map(|width| laid_out(&run, width)) else { return };
        assert!(phone.0 <= 390, "{phone:?}");
        assert!(desktop.0 <= 1280 && desktop.1 <= 3_000, "{desktop:?}");
    }
}

#[test]
fn the_what_if_panel_fits_a_phone() {
    let Some((width, _)) = laid_out(&calibrated(), 390) else { return };
    assert!(width <= 390, "{width}");
}

/// Width and height of the page in a window of this width, px.
fn laid_out(run: &Run, width: u32) -> Option<(u32, u32)> {
    page_laid_out(&html(&run.report()), width)
}

pub(crate) fn page_laid_out(page: &str, width: u32) -> Option<(u32, u32)> {
    let title = evaluated(page, width, "page.scrollWidth + ' ' + page.scrollHeight")?;
    let (width, height) = title.split_once(' ').expect("the script ran");
    Some((width.parse().expect("a width"), height.parse().expect("a height")))
}

/// The value of an expression about `page`, the root of a page in a window of this width, px.
pub(crate) fn evaluated(page: &str, width: u32, expression: &str) -> Option<String> {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!DOCTYPE html><title>-</title><iframe style=\"width: {width}px; height: 600px; border: 0\" srcdoc=\"{page}\">\
         </iframe><script>const frame = document.querySelector('iframe'); frame.onload = () => {{ \
         const page = frame.contentDocument.documentElement; \
         document.title = {expression}; }};</script>"
    );
    let dom = seen_page(&frame)?.dom;
    let title = dom.split_once("<title>").expect("a page has a title").1.split('<').next()?;
    Some(title.to_owned())
}

#[test]
fn the_script_runs_under_the_policy_and_shows_the_button() {
    let Some(seen) = seen(&one_block()) else { return };
    seen.assert_quiet();
    seen.assert_alone();
    let button = seen.dom.split_once("<button").expect("there is a button").1;
    let tag = button.split_once('>').expect("a tag ends").0;
    assert!(!tag.contains("hidden"), "a script that the policy blocks leaves it hidden: {tag}");
}

#[test]
fn foreign_markup_does_nothing() {
    let Some(seen) = seen(&hostile()) else { return };
    seen.assert_quiet();
    seen.assert_alone();
    assert_eq!(seen.dom.matches("<script").count(), 1, "the page's own");
    assert!(!seen.dom.contains("<img"));
}

#[test]
fn a_request_would_have_been_seen() {
    let page = "<!DOCTYPE html><title>not alone</title><img src=\"http://elsewhere.invalid/a.png\">";
    let Some(seen) = seen_page(page) else { return };
    assert_eq!(seen.requested, ["http://elsewhere.invalid/a.png"]);
}

/// What a browser made of a page.
pub(crate) struct Seen {
    pub(crate) dom: String,
    log: String,
    requested: Vec<String>,
}

impl Seen {
    pub(crate) fn assert_quiet(&self) {
        let said: Vec<&str> = self.log.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(said.is_empty(), "{said:#?}");
    }

    /// The page asked for nothing; it itself is a file, which is no request.
    pub(crate) fn assert_alone(&self) {
        assert_eq!(self.requested, Vec::<String>::new());
    }
}

fn seen(run: &Run) -> Option<Seen> {
    seen_page(&html(&run.report()))
}

pub(crate) fn seen_page(markup: &str) -> Option<Seen> {
    seen_at(markup, "")
}

/// At an address with this fragment.
pub(crate) fn seen_at(markup: &str, fragment: &str) -> Option<Seen> {
    let Some(browser) = browser() else {
        missing(&format!("no chromium on the PATH, and {BROWSER} names none"));
        return None;
    };
    let directory = tempfile::tempdir().expect("a scratch directory can be made");
    let page = directory.path().join("report.html");
    std::fs::write(&page, markup).expect("the page can be written");
    let net_log = directory.path().join("net.json");
    let output = dump_dom(&browser, directory.path(), (&page, fragment), &net_log);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {log}", output.status);
    let requested = requested(&std::fs::read_to_string(&net_log).expect("the browser logs its requests"));
    Some(Seen { dom: String::from_utf8_lossy(&output.stdout).into_owned(), log, requested })
}

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(BROWSER) {
        return Some(PathBuf::from(named));
    }
    let directories: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let all = names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// `timeout` ends a browser that hangs; nothing can be resolved, so nothing can be fetched either.
fn dump_dom(browser: &Path, scratch: &Path, (page, fragment): (&Path, &str), net_log: &Path) -> Output {
    const SECONDS: &str = "300";
    let with = |flag: &str, path: &Path| format!("{flag}={}", path.display());
    Command::new("timeout")
        .arg(SECONDS)
        .arg(browser)
        // Root has no sandbox, and the page is our own.
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        // A browser asks for things by itself: as few as can be.
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-default-apps", "--disable-extensions", "--no-first-run", "--disable-breakpad"])
        .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000"])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(with("--user-data-dir", &scratch.join("profile")))
        .arg(with("--log-net-log", net_log))
        .arg("--dump-dom")
        .arg(format!("file://{}{fragment}", page.display()))
        .env("HOME", scratch)
        .output()
        .expect("timeout(1) and the browser can be started")
}

/// Every address that the page asked for. What a browser asks for by itself begins at no origin.
fn requested(net_log: &str) -> Vec<String> {
    let log: Value = serde_json::from_str(net_log).expect("the log of requests is JSON");
    let started = &log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"];
    assert!(started.is_number(), "the log names its events");
    let events = log["events"].as_array().expect("the log has events");
    let by_itself = |event: &&Value| event["params"]["initiator"] == "not an origin";
    let requests = events.iter().filter(|event| event["type"] == *started && !by_itself(event));
    requests.filter_map(|event| event["params"]["url"].as_str().map(str::to_owned)).collect()
}
