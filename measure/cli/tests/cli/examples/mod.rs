//! Runs every example of the documents and of `--help`, with short trials.

mod found;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ciphertoll_fetch::Fetchable;
use ciphertoll_model::ServerLevel;
use ciphertoll_skip::not_for_all;
use found::{Example, every_example};
use serde_json::Value;

use crate::support::{Answer, is, is_noise, real_server, text};

/// Builds that `make test` does not fetch: too large, or the same kind as another.
const NOT_FETCHED: [&str; 3] = ["mysql-8.0", "debian-13:postgres-17", "pgbouncer"];

/// An example that is not run, or that may exit with another code than 0.
struct Exception {
    command: &'static str,
    how: How,
    why: &'static str,
}

enum How {
    /// Only its plan is made.
    Planned,
    /// It exits with one of these codes.
    Ends(&'static [i32]),
    /// It is run if this is installed.
    Needs(fn() -> bool),
    /// The same, for programs that are too large for CI.
    MayNeed(fn() -> bool),
}

const EXCEPTIONS: [Exception; 45] = [
    Exception {
        command: "ciphertoll run calibrate",
        how: How::Planned,
        why: "it takes ten minutes: a separate test runs a short one",
    },
    Exception {
        command: "ciphertoll advise calibrate --url prod=postgres://app@db.example/shop",
        how: How::Planned,
        why: "the URL stands for one of the reader's: a separate test reads a real server",
    },
    Exception {
        command: "ciphertoll tde init -D data --key-file kek",
        how: How::Planned,
        why: "a separate test runs these in sequence",
    },
    Exception {
        command: "ciphertoll tde exec -D data --key-file kek -- initdb -D data --data-checksums",
        how: How::Planned,
        why: "a separate test runs these in sequence",
    },
    Exception {
        command: "ciphertoll tde exec -D data --key-command 'pass show kek' -- pg_ctl -D data -l log start",
        how: How::Planned,
        why: "the command stands for the reader's own",
    },
    Exception {
        command: "ciphertoll tde verify -D data --key-file kek --max-rate 50",
        how: How::Planned,
        why: "separate tests run it on real clusters",
    },
    Exception {
        command: "ciphertoll tde verify -D data --key-file kek",
        how: How::Planned,
        why: "separate tests run it on real clusters",
    },
    Exception {
        command: "ciphertoll tde verify -D data --key-file kek --max-rate 50 --state data.verify",
        how: How::Planned,
        why: "separate tests run it on real clusters",
    },
    Exception {
        command: "ciphertoll tde verify -D data --key-file kek --allow-plaintext serverlog --json",
        how: How::Planned,
        why: "separate tests run it on real clusters",
    },
    Exception {
        command: "ciphertoll tde rotate -D data --key-file kek --new-key-file kek-2",
        how: How::Planned,
        why: "a separate test runs these in sequence",
    },
    Exception {
        command: "ciphertoll tde convert -D plain --to sealed --key-file kek",
        how: How::Planned,
        why: "a separate test runs it on a real cluster",
    },
    Exception {
        command: "ciphertoll tde convert -D plain --to sealed --key-file kek --tablespace-mapping /srv/a=/srv/b",
        how: How::Planned,
        why: "a separate test runs it on a real cluster",
    },
    Exception {
        command: "ciphertoll tde convert --decrypt -D sealed --to plain --key-file kek",
        how: How::Planned,
        why: "a separate test runs it on a real cluster",
    },
    Exception {
        command: "ciphertoll run --server mariadb,postgres --path plain --at-rest none,native,tde,gocryptfs --workload \
                  oltp-read-write",
        how: How::Ends(&[0, 6]),
        why: "MariaDB's plugin for its keys is in a package that would start a service",
    },
    Exception {
        command: "ciphertoll run mongodb-tls-2024 --size small",
        how: How::Planned,
        why: "no registry has MongoDB: a separate test runs it on FerretDB",
    },
    Exception {
        command: "ciphertoll run postgres-tde-2021 --size small",
        how: How::Planned,
        why: "gocryptfs may not be here, and two servers have more to do than a moment",
    },
    Exception {
        command: "ciphertoll run mysql-tls-2013 --size small",
        how: How::Planned,
        why: "a separate test runs it",
    },
    Exception {
        command: "ciphertoll run mysql-wan-2013 --size small",
        how: How::Planned,
        why: "a connect takes longer than such a short trial: a separate test runs it",
    },
    Exception {
        command: "ciphertoll run --url prod=postgres://app@db.example/shop --load-hosts ssh:load1,load2",
        how: How::Planned,
        why: "the URL and the hosts stand for the reader's: separate tests have real hosts",
    },
    Exception {
        command: "ciphertoll run --url prod=postgres://app@db.example/shop --load-hosts ssh:load1,load2 --clients 64 \
                  --server-host ssh:db.example",
        how: How::Planned,
        why: "the URL and the hosts stand for the reader's: separate tests have real hosts",
    },
    Exception {
        command: "ciphertoll run --url there=postgres://app@db.example/shop \
                  --load-hosts k8s:load+pods=8+image=registry.example/ciphertoll:0.1.0",
        how: How::Planned,
        why: "the URL and the cluster stand for the reader's: make test-full has a real cluster",
    },
    Exception {
        command: "ciphertoll run --url staging=postgres://app@db.example/shop",
        how: How::Planned,
        why: "the URL stands for one of the reader's",
    },
    Exception {
        command: "ciphertoll run --url staging=postgres://app@db.example/shop --query 'SELECT count(*) FROM orders'",
        how: How::Planned,
        why: "the URL stands for one of the reader's",
    },
    Exception {
        command: "ciphertoll run --url staging=postgres://app@db.example:5432/shop?sslmode=verify-full",
        how: How::Planned,
        why: "the URL stands for one of the reader's",
    },
    Exception {
        command: "ciphertoll run --url a=mysql://app@10.0.0.5/shop --url b=mysql://app@10.0.0.6/shop",
        how: How::Planned,
        why: "the URL stands for one of the reader's",
    },
    Exception {
        command: "ciphertoll run --url 'set=mongodb://app@db1.example,db2.example/shop?replicaSet=rs0&readPreference=nearest'",
        how: How::Planned,
        why: "the URL stands for one of the reader's",
    },
    Exception {
        command: "ciphertoll run --server old:mariadb-10.11,new:mariadb=/opt/mariadb-11.4",
        how: How::Planned,
        why: "the directory stands for one of the reader's",
    },
    Exception {
        command: "ciphertoll run --server mariadb=/opt/mariadb-11.4 --ctx per-connect,shared --json > cost.json",
        how: How::Planned,
        why: "the directory stands for one of the reader's",
    },
    Exception {
        command: "ciphertoll run --server postgres-18",
        how: How::Needs(postgres_18),
        why: "PostgreSQL 18 was not fetched",
    },
    Exception {
        command: "ciphertoll run --server postgres-18 --path plain,tls1.3-p256,tls1.3-p256+direct",
        how: How::Needs(postgres_18),
        why: "PostgreSQL 18 was not fetched",
    },
    Exception {
        command: "ciphertoll run post-quantum --server mariadb-11.8 --size small",
        how: How::Needs(mariadb_11),
        why: "mariadb-11.8 was not fetched",
    },
    Exception {
        command: "ciphertoll run post-quantum --size small",
        how: How::Needs(mariadb_11),
        why: "mariadb-11.8 was not fetched",
    },
    Exception {
        command: "ciphertoll run --server mysql-8.0,mariadb",
        how: How::MayNeed(mysql_8),
        why: "MySQL 8.0 was not fetched: make test-full does",
    },
    Exception {
        command: "ciphertoll run proxysql-2017 --size small",
        how: How::Ends(&[0, 6]),
        why: "ProxySQL is in no package of Debian's: what goes through it is left out",
    },
    Exception {
        command: "ciphertoll servers fetch NAME",
        how: How::Ends(&[2]),
        why: "NAME is a placeholder for a name that the error lists",
    },
    Exception {
        command: "ciphertoll runs rm --older-than 30d",
        how: How::Planned,
        why: "other examples need the runs; a separate test removes some",
    },
    Exception {
        command: "ciphertoll runs rm 20261121T011500Z-quick-a3f1",
        how: How::Planned,
        why: "other examples need the runs; a separate test removes some",
    },
    Exception {
        command: "ciphertoll runs rm --older-than 8w",
        how: How::Planned,
        why: "other examples need the runs; a separate test removes some",
    },
    Exception {
        command: "ciphertoll runs rm --older-than 8w --yes",
        how: How::Planned,
        why: "other examples need the runs; a separate test removes some",
    },
    Exception {
        command: "ciphertoll runs rm --all --run-dir nightly",
        how: How::Planned,
        why: "other examples need the runs; a separate test removes some",
    },
    Exception {
        command: "ciphertoll run --server postgres --workload oltp-read-write --scratch-dir /mnt/nvme",
        how: How::Planned,
        why: "the directory stands for one of the reader's",
    },
    Exception {
        command: "ciphertoll compare BASE NEW",
        how: How::Ends(&[0, 2, 3, 4]),
        why: "two runs of a moment say whatever they say, and of one block nothing",
    },
    Exception {
        command: "ciphertoll compare",
        how: How::Ends(&[2]),
        why: "a heading that names the command",
    },
    Exception {
        command: "ciphertoll compare before after",
        how: How::Ends(&[0, 2, 3, 4]),
        why: "two runs of a moment say whatever they say, and of one block nothing",
    },
    Exception {
        command: "ciphertoll compare baseline.run latest --allow-inconclusive --json",
        how: How::Ends(&[0, 2, 3]),
        why: "two runs of a moment say whatever they say, and of one block nothing",
    },
];

/// The options that shorten examples.
const LONG_TRIAL: &str = "1s";
const SHORT: [(&str, &str); 3] = [("--size", "smoke"), ("--blocks", "1"), ("--trial-time", "200ms")];
/// The run that an example names.
const NAMED_RUN: &str = "20261121T011500Z-quick-a3f1";
/// Timeout of an example, with others running on a busy machine.
const TIME_LIMIT: &str = "600s";

fn postgres_18() -> bool {
    is_here("postgres-18")
}

/// The build that an example fetches.
fn fetch_of(command: &str) -> Option<&'static Fetchable> {
    Fetchable::named(command.strip_prefix("ciphertoll servers fetch ")?)
}

fn mariadb_11() -> bool {
    is_here("mariadb-11.8")
}

fn mysql_8() -> bool {
    is_here("mysql-8.0")
}

fn is_here(server: &str) -> bool {
    let level: ServerLevel = server.parse().expect("a level of --server");
    ciphertoll_lab::find(&level).is_ok()
}

#[test]
fn every_example_does_what_it_says() {
    if !real_server() {
        return;
    }
    let examples = every_example();
    assert!(examples.len() > 30, "examples are not found as they should be: {examples:#?}");
    for exception in &EXCEPTIONS {
        let known = examples.iter().any(|example| example.command == exception.command);
        assert!(known, "no document has this example any more: {}", exception.command);
    }
    let reader = Reader::new();
    // Plans are written before they are run, and runs are made before they are shown.
    let (plans, rest): (Vec<&Example>, Vec<&Example>) =
        examples.iter().partition(|example| example.command.contains("--dry-run"));
    let (runs, rest): (Vec<&Example>, Vec<&Example>) =
        rest.into_iter().partition(|example| words(&example.command).get(1) == Some(&"run"));
    for example in plans {
        reader.follow(example);
    }
    side_by_side(&runs, |example| reader.follow(example));
    reader.keep_runs();
    for example in rest {
        reader.follow(example);
    }
}

/// In parallel, because the figures of these runs do not matter and they mostly wait.
fn side_by_side(examples: &[&Example], follow: impl Fn(&Example) + Sync) {
    const ABREAST: usize = 4;
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..ABREAST {
            scope.spawn(|| {
                while let Some(example) = examples.get(next.fetch_add(1, Ordering::Relaxed)) {
                    follow(example);
                }
            });
        }
    });
}

/// A user with an empty home directory who types the examples.
struct Reader {
    place: tempfile::TempDir,
    followed: AtomicUsize,
}

impl Reader {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let made = |name: &str| fs::create_dir_all(place.path().join(name)).expect("make a directory");
        // The directories of completions must exist.
        for name in
            ["bin", "work", ".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"]
        {
            made(name);
        }
        let program = place.path().join("bin/ciphertoll");
        symlink(env!("CARGO_BIN_EXE_ciphertoll"), program).expect("put the program into PATH");
        Self { place, followed: AtomicUsize::new(0) }
    }

    /// Types the shortened example, and checks its exit code.
    fn follow(&self, example: &Example) {
        let exception = EXCEPTIONS.iter().find(|exception| exception.command == example.command);
        let mut ends: &[i32] = &[0];
        let mut planned = false;
        match exception.map(|exception| (&exception.how, exception.why)) {
            Some((How::Ends(codes), _)) => ends = codes,
            Some((How::Planned, why)) => {
                not_for_all(&reason(example, why));
                planned = true;
            }
            Some((How::Needs(here), why)) if !here() => {
                ciphertoll_skip::missing(&reason(example, why));
                planned = true;
            }
            Some((How::MayNeed(here), why)) if !here() => {
                not_for_all(&reason(example, why));
                planned = true;
            }
            Some((How::Needs(_) | How::MayNeed(_), _)) | None => {}
        }
        if planned && words(&example.command).get(1) != Some(&"run") {
            return;
        }
        if let Some(fetchable) = fetch_of(&example.command).filter(|fetchable| !fetchable.is_here()) {
            // This test asks no registry.
            let why = reason(example, &format!("{} was not fetched", fetchable.name));
            let is_for_all = !NOT_FETCHED.contains(&fetchable.name);
            return if is_for_all { ciphertoll_skip::missing(&why) } else { not_for_all(&why) };
        }
        let missing = if planned { None } else { missing(&example.command) };
        if let Some(missing) = missing {
            return ciphertoll_skip::missing(&reason(example, &format!("{missing} is not installed")));
        }
        let command = shortened(&example.command, planned);
        let answer = self.types(&command);
        let noise = matches!(answer.code, Some(5 | 6)) && only_noise(&self.events_of(&command, &answer));
        assert!(
            noise || answer.code.is_some_and(|code| ends.contains(&code)),
            "{} ({}), run as {command}, did not end with one of {ends:?}: {answer:#?}",
            example.command,
            example.place
        );
        if let Some(file) = redirected(&command) {
            let written = fs::read(self.work().join(file)).expect("what the example writes");
            assert!(!written.is_empty(), "{command} wrote nothing");
        }
        self.followed.fetch_add(1, Ordering::Relaxed);
    }

    fn types(&self, command: &str) -> Answer {
        let home = self.place.path();
        let path = std::env::var("PATH").expect("a PATH");
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after", "20s", TIME_LIMIT, "sh", "-c", command]).current_dir(self.work());
        shell.env("PATH", format!("{}:{path}", text(&home.join("bin")))).env("HOME", home);
        shell.env("XDG_CACHE_HOME", cache()).env("GITHUB_STEP_SUMMARY", home.join("summary.md"));
        shell.env("CIPHERTOLL_MAX_STEAL", "100%").env("CIPHERTOLL_MAX_LATENESS", "100%");
        shell.env("COLUMNS", "100").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
        let output = shell.output().expect("a shell starts");
        Answer {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
        }
    }

    fn work(&self) -> PathBuf {
        self.place.path().join("work")
    }

    /// The events of a run, from stderr, or from the record if it was resumed.
    fn events_of(&self, command: &str, answer: &Answer) -> Vec<Value> {
        let words = words(command);
        if words.get(1) != Some(&"resume") {
            return answer.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        }
        let runs = self.work().join("ciphertoll-runs");
        let named = words.get(2).map(|name| runs.join(name));
        events_in(&named.unwrap_or_else(|| runs_in(&runs).pop().expect("a run")))
    }

    /// Gives runs the names that examples use: the oldest, the newest, and an interrupted one. Prefers runs without cells
    /// that were lost to noise.
    fn keep_runs(&self) {
        let runs = self.work().join("ciphertoll-runs");
        let mut quick = runs_in(&runs);
        quick.retain(|run| run.to_string_lossy().contains("-quick-"));
        let whole = quick.iter().filter(|run| lost_cells(&events_in(run)).is_empty());
        let whole: Vec<PathBuf> = whole.cloned().collect();
        if whole.len() > 1 {
            quick = whole;
        }
        let [oldest, .., newest] = &quick[..] else { panic!("two runs called quick: {quick:?}") };
        for (name, run) in [
            ("before", oldest),
            ("BASE", oldest),
            ("baseline.run", oldest),
            ("after", newest),
            ("NEW", newest),
        ] {
            symlink(run, self.work().join(name)).expect("name a run");
        }
        cut_short(oldest, &runs.join(NAMED_RUN));
        // Older than all others, so that it is not the latest.
        symlink(calibration(), runs.join("20200101T000000Z-calibrate-0000")).expect("name a run");
    }
}

impl Drop for Reader {
    #[expect(clippy::print_stderr, reason = "output of a test")]
    fn drop(&mut self) {
        eprintln!("{} examples were run", self.followed.load(Ordering::Relaxed));
    }
}

/// The recorded run that has every term of the cost model.
fn calibration() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/calibration-mariadb")
}

/// Why an example is not run as written.
fn reason(example: &Example, why: &str) -> String {
    format!("{} ({}): {why}", example.command, example.place)
}

fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

/// Shortens a command: fewer blocks, shorter trials; or only the plan.
fn shortened(command: &str, planned: bool) -> String {
    // An ellipsis stands for more arguments, and for none.
    let mut words: Vec<&str> = words(command).into_iter().filter(|word| *word != "…").collect();
    if words.get(1) != Some(&"run") || words.contains(&"--dry-run") {
        return words.join(" ");
    }
    for (option, value) in SHORT {
        // A connect over a long link takes longer than the shortest trial.
        let value = if option == "--trial-time" && words.contains(&"--link") { LONG_TRIAL } else { value };
        if let Some(at) = words.iter().position(|word| *word == option) {
            words[at + 1] = value;
        } else {
            words.splice(2..2, [option, value]);
        }
    }
    let more: &[&str] = if planned { &["--dry-run"] } else { &["--progress", "json"] };
    words.splice(2..2, more.iter().copied());
    words.join(" ")
}

/// A server, driver tool or program after a pipe that the example needs and that is not installed.
fn missing(command: &str) -> Option<&str> {
    const TOOLS: [&str; 3] = ["pgbench", "sysbench", "mysqlslap"];
    let words = words(command);
    let levels = |option: &str| {
        let value = words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1));
        value.into_iter().flat_map(|value| value.split(','))
    };
    let server = levels("--server").find(|level| !is_here(level));
    let driver = levels("--driver").find(|driver| TOOLS.contains(driver) && !is_in_path(driver));
    let behind_a_pipe = command.split_once('|').and_then(|(_, tool)| tool.split_whitespace().next());
    server.or(driver).or(behind_a_pipe.filter(|tool| !is_in_path(tool)))
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// The file to which the example redirects stdout.
fn redirected(command: &str) -> Option<&str> {
    command.split_once("> ").map(|(_, file)| file.trim()).filter(|file| !file.contains(['"', '~']))
}

/// The run directories, the oldest first.
fn runs_in(runs: &Path) -> Vec<PathBuf> {
    let mut runs: Vec<PathBuf> =
        fs::read_dir(runs).expect("the runs").flatten().map(|entry| entry.path()).collect();
    runs.sort();
    runs
}

fn events_in(run: &Path) -> Vec<Value> {
    let events = fs::read_to_string(run.join("events.jsonl")).expect("the events");
    events.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
}

/// Whether all lost cells were lost to noise of the machine.
fn only_noise(events: &[Value]) -> bool {
    const NOISE: [&str; 2] = ["overload", "ports_exhausted"];
    let no_fault = |voided: &Value| {
        is_noise(voided) || voided["reason"]["gate"].as_str().is_some_and(|gate| NOISE.contains(&gate))
    };
    let lost = lost_cells(events);
    let voided = events.iter().filter(|event| is(event, "trial_voided"));
    let mut of_lost = voided.filter(|event| event["cell"].as_str().is_some_and(|cell| lost.contains(cell)));
    !lost.is_empty() && of_lost.all(no_fault)
}

/// The ids of cells with voided trials and without a valid one.
fn lost_cells(events: &[Value]) -> BTreeSet<&str> {
    let of = |name: &'static str| events.iter().filter(move |event| is(event, name));
    let counted = of("trial_finished").filter(|event| event["block"] != 0 && event["arm"] == "main");
    let counted: BTreeSet<&str> = counted.filter_map(|event| event["cell"].as_str()).collect();
    let voided: BTreeSet<&str> = of("trial_voided").filter_map(|event| event["cell"].as_str()).collect();
    voided.difference(&counted).copied().collect()
}

/// The cache directory, so that templates are not created again for the empty home directory.
fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from)
}

/// Copies a run as a power failure in its last block would leave it.
fn cut_short(run: &Path, copy: &Path) {
    fs::create_dir(copy).expect("a directory");
    for name in ["histograms", "logs"] {
        fs::create_dir(copy.join(name)).expect("a directory");
    }
    for name in ["spec.toml", "plan.json"] {
        fs::copy(run.join(name), copy.join(name)).expect("copy the record");
    }
    let events = fs::read_to_string(run.join("events.jsonl")).expect("the events");
    let read = |line: &str| serde_json::from_str::<Value>(line).expect("an event");
    let last_block = |line: &&str| !(is(&read(line), "block_started") && read(line)["block"] == 1);
    let kept: Vec<&str> = events.lines().take_while(last_block).collect();
    assert!(kept.len() < events.lines().count(), "the run has a block");
    fs::write(copy.join("events.jsonl"), kept.join("\n") + "\n").expect("write the events");
}
