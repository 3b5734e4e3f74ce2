//! `doctor`: what works on this machine, and how to fix the rest.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process;

use ciphertoll_lab::doctor::{self, CheckOutcome, CheckPurpose, Finding, Need, Probe};
use ciphertoll_load::driver::{self, Error as DriverError};
use ciphertoll_model::ExitCode;
use console::Color;
use serde_json::json;

use crate::ascii::on_screen;
use crate::failure::Failure;
use crate::output::print_document;
use crate::program::program;
use crate::report;

/// Prefix of the names of driver probes, before the driver's name.
const DRIVER: &str = "driver ";
const INDENT: usize = 2;
const STATE_COLUMNS: usize = 9;

pub(crate) fn doctor(as_json: bool, scratch_directory: Option<&Path>) -> Result<ExitCode, Failure> {
    let probes = [doctor::probes(), driver_probes()].concat();
    let findings = doctor::examine(&program()?, &probes, scratch_directory);
    let able = doctor::can_measure(&findings);
    print_document(&if as_json {
        serde_json::to_string_pretty(&json!({ "can_measure": able, "checks": findings }))?
    } else {
        on_screen(&listing(&findings, able)).into_owned()
    })?;
    Ok(if able { ExitCode::Done } else { ExitCode::NothingRan })
}

/// The hidden command: runs one check and prints its findings.
pub(crate) fn probe(name: Option<OsString>, directory: Option<OsString>) -> process::ExitCode {
    doctor::begin_probe();
    let name = name.unwrap_or_default().to_string_lossy().into_owned();
    let directory = directory.map_or_else(env::temp_dir, PathBuf::from);
    let findings = match name.strip_prefix(DRIVER) {
        Some(driver) => Some(vec![check_driver(driver, &directory)]),
        None => doctor::run_probe(&name, &directory),
    };
    let document = findings.and_then(|findings| serde_json::to_string(&findings).ok());
    match document.map(|document| print_document(&document)) {
        Some(Ok(_)) => process::ExitCode::SUCCESS,
        _ => process::ExitCode::FAILURE,
    }
}

fn driver_probes() -> Vec<Probe> {
    let probe = |name| Probe { name, purpose: CheckPurpose::Drivers, need: Need::Sometimes };
    driver::available().into_iter().map(|listed| probe(format!("{DRIVER}{}", listed.name))).collect()
}

/// Prepares a driver as a run would; compiles it in `directory`.
fn check_driver(name: &str, directory: &Path) -> Finding {
    let found = driver::find(name);
    let about = found.as_ref().map_or("", |driver| driver.file().about()).to_owned();
    let about = about.split([';', ':']).next().unwrap_or_default();
    if let Some(packages) = found.as_ref().ok().and_then(|driver| driver.installs(directory)) {
        let packages = packages.split(" into ").next().unwrap_or_default();
        let seen = format!("installed on first use: {packages}");
        return Finding::ok(CheckPurpose::Drivers, name, seen);
    }
    match found.and_then(|driver| driver.prepare(directory)) {
        Ok(_) => Finding::ok(CheckPurpose::Drivers, name, format!("ready: {about}")),
        Err(DriverError::Missing { needs, reason, .. }) => {
            Finding::no(CheckPurpose::Drivers, name, reason, format!("install {needs}"))
        }
        Err(error) => Finding::no(CheckPurpose::Drivers, name, error, "see docs/measure/drivers.md"),
    }
}

fn heading(purpose: CheckPurpose) -> &'static str {
    match purpose {
        CheckPurpose::Measure => "basic measurements",
        CheckPurpose::LongLinks => "long links",
        CheckPurpose::Tunnels => "tunnels and proxies",
        CheckPurpose::AtRest => "encryption at rest",
        CheckPurpose::Drivers => "drivers",
    }
}

fn state(verdict: &CheckOutcome) -> (&'static str, Color) {
    match verdict {
        CheckOutcome::Ok => ("ok", Color::Green),
        CheckOutcome::Limited { .. } => ("limited", Color::Yellow),
        CheckOutcome::No { .. } => ("no", Color::Red),
    }
}

/// Lines in groups; the fix follows each line that is not `ok`.
fn listing(findings: &[Finding], able: bool) -> String {
    let layout = Layout {
        names: findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0),
        width: usize::from(report::width()),
        colours: report::style() == ciphertoll_report::Style::Colour,
    };
    let mut text = String::new();
    let mut group = None;
    for finding in findings {
        if group.replace(finding.purpose) != Some(finding.purpose) {
            text += if text.is_empty() { "" } else { "\n" };
            text = text + heading(finding.purpose) + "\n";
        }
        text += &layout.lines(finding);
    }
    text + "\n" + &conclusion(findings, able)
}

fn conclusion(findings: &[Finding], able: bool) -> String {
    let names = |need: Need, works: bool| {
        let selected = |finding: &&Finding| matches!(finding.verdict, CheckOutcome::No { .. }) != works;
        let of_need = findings.iter().filter(move |finding| finding.need == need).filter(selected);
        of_need.map(|finding| finding.name.as_str()).collect::<Vec<_>>()
    };
    if able {
        return format!("This machine can measure: {}.\n", names(Need::OneServer, true).join(", "));
    }
    let mut missing = names(Need::Always, false);
    if names(Need::OneServer, true).is_empty() {
        missing.insert(0, "a server");
    }
    format!("This machine cannot measure anything; missing: {}.\n", missing.join(", "))
}

struct Layout {
    /// Width of the column of names.
    names: usize,
    /// Columns of the terminal.
    width: usize,
    colours: bool,
}

impl Layout {
    fn lines(&self, Finding { name, verdict, seen, .. }: &Finding) -> String {
        let (word, colour) = state(verdict);
        let word = console::style(format!("{word:STATE_COLUMNS$}")).fg(colour).force_styling(self.colours);
        let (margin, names) = (" ".repeat(INDENT), self.names);
        let start = INDENT + STATE_COLUMNS + names + INDENT;
        let below = " ".repeat(start);
        let width = self.width.saturating_sub(start);
        let mut text = String::new();
        let mut first = format!("{margin}{word}{name:names$}{margin}");
        for line in wrap(seen, width) {
            text = text + &first + &line + "\n";
            first.clone_from(&below);
        }
        if let CheckOutcome::Limited { cure } | CheckOutcome::No { cure } = verdict {
            let mut arrow = "→ ";
            for line in wrap(cure, width.saturating_sub(INDENT)) {
                text = text + &below + arrow + &line + "\n";
                arrow = "  ";
            }
        }
        text
    }
}

/// Returns at least one line. A line is longer than `width` characters only if its one word is.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().map(|line| (line.chars().count(), line));
        match last {
            Some((0, line)) => line.push_str(word),
            Some((used, line)) if used + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Layout = Layout { names: 8, width: 40, colours: false };

    #[test]
    fn long_texts_wrap_within_their_column() {
        let finding =
            Finding::no(CheckPurpose::AtRest, "fuse", "it cannot be opened", "modprobe fuse and again");
        let expected = "  no       fuse      it cannot be opened\n                     → modprobe fuse and\n                       again\n";
        assert_eq!(NARROW.lines(&finding), expected);
        let finding = Finding::ok(CheckPurpose::AtRest, "disk", "");
        assert_eq!(NARROW.lines(&finding), "  ok       disk      \n");
    }

    #[test]
    fn groups_have_headings_and_the_last_line_concludes() {
        let server =
            |name| Finding::no(CheckPurpose::Measure, name, "none", "install it").needed(Need::OneServer);
        let scratch = Finding::no(CheckPurpose::Measure, "scratch", "full", "space").needed(Need::Always);
        let ssh = Finding::ok(CheckPurpose::Tunnels, "ssh", "9.2");
        let text = listing(&[server("mariadb"), scratch.clone(), ssh], false);
        assert!(text.starts_with("basic measurements"), "{text}");
        assert_eq!(text.matches("\n\n").count(), 2, "{text}");
        assert!(text.ends_with("missing: a server, scratch.\n"), "{text}");
        let here = Finding { verdict: CheckOutcome::Ok, ..server("mariadb") };
        let line = conclusion(&[here, server("postgres"), scratch], true);
        assert_eq!(line, "This machine can measure: mariadb.\n");
    }

    #[test]
    fn an_unknown_driver_is_reported_as_no() {
        let finding = check_driver("no-such-driver", Path::new("/nonexistent"));
        assert!(matches!(finding.verdict, CheckOutcome::No { .. }), "{finding:?}");
        assert!(finding.seen.contains("no-such-driver"));
    }
}
