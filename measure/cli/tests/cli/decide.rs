//! `predict` and `advise` on recorded calibrations: their answers, their refusals, and whether real programs accept the
//! settings that they print.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_lab::{Authority, find, proxy};
use ciphertoll_model::{Engine, ServerLevel, ServerUrl, TlsDemand, Verification};
use ciphertoll_testing::missing;
use serde_json::Value;

use crate::support::{Answer, answer, ciphertoll, is_root, items, one_document, text};
use crate::url::{Elsewhere, engines_here};

/// A recorded calibration.
fn calibration(engine: Engine) -> PathBuf {
    let name = if engine.is_mysql_family() { "calibration-mariadb" } else { "calibration-postgres" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(name)
}

#[track_caller]
fn document(arguments: &[&str]) -> Value {
    let answer = answer(arguments, Path::new("."));
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    one_document(&answer.stdout)
}

fn first_choice(record: &Path, arguments: &[&str]) -> Value {
    let document = document(&[&["advise", text(record), "--json"], arguments].concat());
    let [server] = items(&document, "servers") else { panic!("one server: {document:#}") };
    assert!(server.get("missing").is_none(), "{server:#}");
    items(server, "choices").first().cloned().unwrap_or(Value::Null)
}

#[test]
fn a_prediction_has_every_value_with_its_interval() {
    for engine in [Engine::MariaDb, Engine::Postgres] {
        let record = calibration(engine);
        let load =
            ["--connects", "50/s", "--queries-per-connection", "3", "--rtt", "45ms", "--clients", "200"];
        let document = document(&[&["predict", text(&record), "--json", "--cores", "8"], &load[..]].concat());
        let predictions = items(&document, "predictions");
        assert!(predictions.len() >= 5, "{document:#}");
        for prediction in predictions {
            let memory = (engine == Engine::MariaDb).then_some(&prediction["memory_bytes"]["server"]);
            let is_memory = |term: &Value| term.as_str().is_some_and(|term| term.contains("memory"));
            let lacks_memory = items(prediction, "missing").iter().any(is_memory);
            let missing = items(prediction, "missing").len();
            assert_eq!(
                (missing, lacks_memory),
                if memory.is_some() { (0, false) } else { (1, true) },
                "{prediction:#}"
            );
            for value in [
                &prediction["connect_ns"],
                &prediction["query_ns"],
                &prediction["session_ns"],
                &prediction["most_sessions_per_s"],
                &prediction["cpu_us_per_session"]["total"],
                &prediction["cores"]["total"],
            ]
            .into_iter()
            .chain(memory)
            {
                let number = |key: &str| value[key].as_f64();
                let (low, high) = (number("ci_low"), number("ci_high"));
                let is_sound = low.zip(number("value")).zip(high);
                assert!(
                    is_sound.is_some_and(|((low, value), high)| low <= value && value <= high),
                    "{prediction:#}"
                );
            }
        }
        let text = answer(&["predict", text(&record), "--terms"], Path::new(".")).stdout;
        for term in ["full TLS handshake", "first query", "KiB of a long result", "round trips of a connect"]
        {
            assert!(text.contains(term), "{term}: {text}");
        }
    }
}

#[test]
fn the_advice_follows_the_load_and_the_needs() {
    let record = calibration(Engine::MariaDb);
    let path = |arguments: &[&str]| first_choice(&record, arguments)["path"].clone();
    assert_eq!(path(&["--queries-per-connection", "1"]), "proxy");
    assert_eq!(path(&["--queries-per-connection", "100000"]), "tls1.3-p256");
    assert_eq!(path(&["--need", "end-to-end,no-driver-change"]), "tls1.3-p256");
    assert_eq!(path(&["--need", "at-rest"]), Value::Null);
    let priced = first_choice(&record, &["--connects", "1000/s", "--core-price", "30/month"]);
    let number = |key: &str| priced[key].as_f64().expect("a number");
    assert!((number("price_per_month") / number("cores_total") - 30.0).abs() < 1e-6, "{priced:#}");
}

#[test]
fn bad_loads_are_refused_in_one_line() {
    let record = calibration(Engine::MariaDb);
    for (arguments, line) in [
        (["--connects", "0"], "not a rate"),
        (["--connects", "nan"], "not a rate"),
        (["--rtt", "45ms+loss=1%"], "loss, jitter and rate of a link are not predicted"),
        (["--cores", "0"], "not a number of cores"),
        (["--row-bytes", "2048m"], "not a size"),
        (["--clients", "0"], "0"),
        (["--queries-per-connection", "-1"], "-1"),
    ] {
        let answer = answer(&[&["predict", text(&record)], &arguments[..]].concat(), Path::new("."));
        assert_eq!(answer.code, Some(2), "{arguments:?}");
        assert!(answer.one_line().contains(line), "{arguments:?}: {answer:?}");
    }
    let both = ["predict", text(&record), "--cores", "8", "--shared-cores", "2"];
    assert_eq!(answer(&both, Path::new(".")).code, Some(2));
    let need = answer(&["advise", text(&record), "--need", "verfy"], Path::new("."));
    assert!(need.code == Some(2) && need.one_line().contains("verify"), "{need:?}");
    let price = answer(&["advise", text(&record), "--core-price", "30"], Path::new("."));
    assert!(price.code == Some(2) && price.one_line().contains("30/month"), "{price:?}");
}

/// The settings of the first choice, with real files instead of the examples.
struct Pasted {
    place: tempfile::TempDir,
    files: Vec<(String, String)>,
}

impl Pasted {
    fn from(engine: Engine, arguments: &[&str]) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let authority = Authority::generate().expect("an authority");
        let put = |name: &str, bytes: &[u8]| {
            let path = place.path().join(name);
            fs::write(&path, bytes).expect("a file");
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode");
            text(&path).to_owned()
        };
        let ca = put("ca.pem", &authority.certificate_pem().expect("PEM"));
        let password = put("app", b"secret");
        let document = document(&[&["advise", text(&calibration(engine)), "--json"], arguments].concat());
        let [server] = items(&document, "servers") else { panic!("one server: {document:#}") };
        let files = items(server, "settings").iter().map(|file| {
            let content = file["text"].as_str().expect("a text").replace("/etc/ssl/db-ca.pem", &ca);
            let content = content.replace("/run/credentials/ciphertoll-proxy.service/app", &password);
            (file["place"].as_str().expect("a place").to_owned(), content)
        });
        Self { files: files.collect(), place }
    }

    fn file(&self, place: &str) -> &str {
        let found = self.files.iter().find(|(known, _)| known.ends_with(place));
        &found.unwrap_or_else(|| panic!("no {place}: {:?}", self.files)).1
    }

    fn written(&self, place: &str) -> PathBuf {
        let path = self.place.path().join(place);
        fs::write(&path, self.file(place)).expect("a file");
        path
    }
}

#[test]
fn the_sidecar_accepts_the_settings() {
    let Ok(program) = proxy::sidecar_program() else { return missing("ciphertoll-proxy is not built") };
    for engine in [Engine::MariaDb, Engine::Postgres] {
        let pasted = Pasted::from(engine, &["--queries-per-connection", "1"]);
        let file = pasted.written("ciphertoll-proxy.toml");
        let checked =
            Command::new(&program).arg("--config").arg(&file).arg("--check").output().expect("it starts");
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success() && said.starts_with("ok"), "{engine:?}: {checked:?}");
        assert!(pasted.file("ciphertoll-proxy.service").contains("ExecStart="));
    }
}

#[test]
fn servers_accept_the_settings() {
    for engine in engines_here().filter(|engine| *engine != Engine::MySql) {
        let build = find(&ServerLevel::of(engine)).expect("a build");
        let pasted = Pasted::from(engine, &["--need", "end-to-end"]);
        let (output, expected) = if engine == Engine::Postgres {
            pasted.written("postgresql.conf");
            // PostgreSQL refuses to run as root.
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(pasted.place.path(), open).expect("a mode");
            let mut command = Command::new("setpriv");
            if is_root() {
                command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
            }
            command.arg(&build.server_program).arg("-D").arg(pasted.place.path());
            (command.args(["-C", "ssl_min_protocol_version"]).output(), "TLSv1.3")
        } else {
            let file = pasted.written("my.cnf");
            let defaults = format!("--defaults-file={}", file.display());
            let output =
                Command::new(&build.server_program).args([&defaults, "--verbose", "--help"]).output();
            (output, "require-secure-transport TRUE")
        };
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let is_said = said.lines().any(|line| line.split_whitespace().eq(expected.split_whitespace()));
        assert!(output.status.success() && is_said, "{engine:?}: {output:?}");
    }
}

#[test]
fn the_driver_url_requires_a_verified_server() {
    for engine in [Engine::MariaDb, Engine::Postgres] {
        let pasted = Pasted::from(engine, &["--need", "end-to-end"]);
        let url: ServerUrl =
            pasted.file("driver URL").trim().parse().expect("a URL that ciphertoll understands");
        assert_eq!(url.tls.verification(), Verification::Full);
        assert!(matches!(url.tls.demand, TlsDemand::Always(_)), "{:?}", url.tls);
    }
}

#[test]
fn the_load_of_a_running_server_is_read() {
    for engine in engines_here().filter(|engine| *engine != Engine::MySql) {
        let there = Elsewhere::start(engine);
        let ca = if engine == Engine::Postgres {
            "sslmode=verify-ca&sslrootcert"
        } else {
            "ssl-mode=VERIFY_CA&ssl-ca"
        };
        let url = there.url("127.0.0.1", &format!("{ca}={}", there.ca_file()));
        let record = calibration(engine);
        let advise_at = |url: &str, more: &[&str]| -> Answer {
            let fixed = ["advise", text(&record), "--url", url, "--interval", "1s"];
            let mut command = ciphertoll(&[&fixed, more].concat());
            let output =
                command.env("CIPHERTOLL_PASSWORD_THERE", there.password()).output().expect("it starts");
            Answer {
                code: output.status.code(),
                stdout: String::from_utf8(output.stdout).expect("UTF-8"),
                stderr: String::from_utf8(output.stderr).expect("UTF-8"),
            }
        };
        let advise = |more: &[&str]| advise_at(&url, more);
        // Without its authority, the server is not verified, and no password is sent.
        let unverified = advise_at(&there.url("127.0.0.1", ""), &[]);
        assert_eq!(unverified.code, Some(7), "{unverified:?}");
        // Nothing connects meanwhile.
        let idle = advise(&["--queries-per-connection", "2"]);
        assert_eq!(idle.code, Some(2), "{idle:?}");
        assert!(idle.stderr.contains("counted no connects"), "{idle:?}");
        let told = advise(&["--queries-per-connection", "2", "--connects", "100/s"]);
        assert_eq!(told.code, Some(0), "{told:?}");
        assert!(told.stdout.contains("there: "), "{told:?}");
        // A run of another engine says nothing about this one.
        let other = if engine == Engine::Postgres { Engine::MariaDb } else { Engine::Postgres };
        let other = calibration(other);
        let refused = answer(&["advise", text(&other), "--url", &url], Path::new("."));
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.one_line().contains("ciphertoll run calibrate --server"), "{refused:?}");
    }
}

/// Two paths and few blocks: whether every workload and link of the preset can be measured.
#[test]
fn a_short_calibration_measures_every_kind_of_term() {
    if !crate::url::real_server(Engine::MariaDb) || !crate::support::real_link() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let short =
        ["--path", "plain,tls1.3-p256", "--blocks", "2", "--trial-time", "60ms", "--server", "mariadb"];
    let fixed = ["run", "calibrate", "-q", "--run-dir", text(place.path())];
    let run = answer(&[&fixed[..], &short].concat(), Path::new("."));
    // On a busy machine no operation may end within a short window.
    assert!(matches!(run.code, Some(0 | 6)), "{run:?}");
    assert!(run.stdout.lines().count() <= 25, "{}", run.stdout);
    let times = answer(&["predict", "--run-dir", text(place.path()), "--rtt", "45ms"], Path::new("."));
    assert!(times.code == Some(0) && times.stdout.contains("tls1.3-p256"), "{times:?}");
}
