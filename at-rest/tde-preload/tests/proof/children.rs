//! Sessions whose code starts programs, forks, closes and replaces descriptors in every way that it has. Some children share
//! the server's memory, and close all descriptors. The session must go on to write ciphertext, and lose nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_testing::not_for_all;

use crate::files::holding;
use crate::fixture::{Cluster, Fixture, Server, Under, succeeds};

const MARKER: &str = "marker-of-a-child-91c4";
/// Rows that are there before.
const ROWS: usize = 20_000;
/// Rows of each transaction.
const BATCH: usize = 300;

/// A language whose functions are not restricted.
struct Language {
    extension: &'static str,
    package: &'static str,
    ways: &'static [&'static str],
}

const LANGUAGES: [Language; 3] = [
    Language {
        extension: "plpython3u",
        package: "postgresql-plpython3",
        ways: &[
            "import subprocess\nsubprocess.run(['true'])",
            "import os\nos.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
            "import os\nos.system('true')",
            "import os\nos.waitpid(os.spawnlp(os.P_NOWAIT, 'true', 'true'), 0)",
            "import os\nchild = os.fork()\nif child == 0:\n  os.closerange(3, 4096)\n  os._exit(0)\nos.waitpid(child, 0)",
            "import os\none = os.open('/dev/null', os.O_WRONLY)\nos.dup2(one, 200)\nos.close(200)\nos.close(one)",
            "import tempfile, threading\ndef use():\n  for n in range(50):\n    tempfile.TemporaryFile().write(b'x')\n\
             threads = [threading.Thread(target=use) for n in range(4)]\n\
             [thread.start() for thread in threads]\n[thread.join() for thread in threads]",
        ],
    },
    Language {
        extension: "plperlu",
        package: "postgresql-plperl",
        ways: &[
            "system('true'); return;",
            "my $said = `echo said`; return;",
            "open(my $pipe, '-|', 'true'); close($pipe); return;",
            "use POSIX; my $child = fork; if (!$child) { POSIX::close($_) for 3 .. 1024; POSIX::_exit(0); } \
             waitpid($child, 0); return;",
            "use POSIX; my $one = POSIX::open('/dev/null', POSIX::O_WRONLY()); POSIX::dup2($one, 200); \
             POSIX::close($_) for (200, $one); return;",
        ],
    },
    Language {
        extension: "pltclu",
        package: "postgresql-pltcl",
        ways: &[
            "exec true",
            "close [open {|true}]",
            "set file [open /dev/null w]; puts $file x; close $file",
        ],
    },
];

#[test]
fn a_session_that_starts_programs_still_writes_ciphertext() {
    for fixture in Fixture::all(&[]) {
        for forgets in ["", "1"] {
            code_of_guests_changes_nothing(&fixture, forgets);
        }
    }
}

/// With `forgets`, no descriptor is remembered.
fn code_of_guests_changes_nothing(fixture: &Fixture, forgets: &str) {
    let cluster: Cluster<'_> = fixture.cluster(&format!("parent{forgets}"));
    let (kek, kek_file) = fixture.kek(&format!("kek{forgets}"));
    fixture.make_keys(&cluster.data, &kek);
    let under = if forgets.is_empty() { Under::Library(&kek_file) } else { Under::Forgetting(&kek_file) };
    cluster.init(under);
    let server = cluster.start(under, &[]);
    server.ask("CREATE TABLE rows (id int PRIMARY KEY, text text)");
    server.ask(&format!("INSERT INTO rows SELECT n, repeat('x', 200) FROM generate_series(1, {ROWS}) n"));
    server.ask("CHECKPOINT");
    let extension = compiled(&fixture.directory(&format!("extension{forgets}")));
    // The server refuses it when its code has run.
    let load = format!(
        "DO $$ BEGIN LOAD '{}'; EXCEPTION WHEN internal_error THEN NULL; END $$",
        extension.display()
    );
    let ways = [made(&server), vec![load]].concat();
    // One session, each statement a transaction.
    let mut session = vec!["INSERT INTO rows VALUES (0, 'before')".to_owned()];
    for (number, way) in ways.iter().enumerate() {
        let first = (number + 1) * 100_000;
        session.push(way.clone());
        session.push(format!(
            "INSERT INTO rows SELECT n, '{MARKER}' || n FROM generate_series({first}, {}) n",
            first + BATCH - 1
        ));
    }
    session.push("SELECT count(*) FROM rows".to_owned());
    let expected = (ROWS + 1 + ways.len() * BATCH).to_string();
    assert_eq!(server.session(&session).lines().last(), Some(expected.as_str()));
    assert_eq!(holding(&cluster.data, MARKER), Vec::<PathBuf>::new());
    server.crash();
    let server = cluster.start(under, &[]);
    assert_eq!(server.ask("SELECT count(*) FROM rows"), expected);
    server.ask("CHECKPOINT");
    assert_eq!(holding(&cluster.data, MARKER), Vec::<PathBuf>::new());
    server.stop();
}

/// A function for each way of each language, and how it is called.
fn made(server: &Server<'_>) -> Vec<String> {
    let mut calls = Vec::new();
    for Language { extension, package, ways } in LANGUAGES {
        if !server.psql(&format!("CREATE EXTENSION {extension}")).status.success() {
            not_for_all(&format!("no {extension}; install it (Debian and Ubuntu: {package}-VERSION)"));
            continue;
        }
        for (number, way) in ways.iter().enumerate() {
            let name = format!("{extension}_{number}");
            server.ask(&format!(
                "CREATE FUNCTION {name}() RETURNS void LANGUAGE {extension} AS $way${way}$way$"
            ));
            calls.push(format!("SELECT {name}()"));
        }
    }
    calls
}

fn compiled(directory: &Path) -> PathBuf {
    let library = directory.join("guest.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proof/ways/guest.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Werror", "-pthread", "-shared", "-fPIC", "-o"]);
    succeeds(compiler.arg(&library).arg(source));
    library
}
