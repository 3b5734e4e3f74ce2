//! A session that starts a program as Python does: by a child that shares the server's memory, and that closes all
//! descriptors. The session must go on to write ciphertext, and lose nothing.

use ciphertoll_skip::not_for_all;

use crate::files::holding;
use crate::stand::{Cluster, Stand, Under};

const MARKER: &str = "marker-of-a-child-91c4";
const STARTS_A_PROGRAM: &str = "CREATE FUNCTION child() RETURNS int LANGUAGE plpython3u AS
    $$ import subprocess; return subprocess.run(['true']).returncode $$";

#[test]
fn a_session_that_starts_a_program_still_writes_ciphertext() {
    let mut tried = 0;
    for stand in Stand::all(&[]) {
        for forgets in ["", "1"] {
            tried += usize::from(starts_a_program(&stand, forgets));
        }
    }
    if tried == 0 {
        not_for_all(
            "no PostgreSQL has plpython3u; install it (Debian and Ubuntu: postgresql-plpython3-VERSION)",
        );
    }
}

/// Returns whether this PostgreSQL has Python. With `forgets`, no descriptor is remembered.
fn starts_a_program(stand: &Stand, forgets: &str) -> bool {
    let cluster: Cluster<'_> = stand.cluster(&format!("parent{forgets}"));
    let (kek, kek_file) = stand.kek(&format!("kek{forgets}"));
    stand.make_keys(&cluster.data, &kek);
    let under = if forgets.is_empty() { Under::Library(&kek_file) } else { Under::Forgetting(&kek_file) };
    cluster.init(under);
    let server = cluster.start(under, &[]);
    if !server.psql("CREATE EXTENSION plpython3u").status.success() {
        return false;
    }
    server.ask("CREATE TABLE rows (id int PRIMARY KEY, text text)");
    server.ask("INSERT INTO rows SELECT n, repeat('x', 200) FROM generate_series(1, 20000) n");
    server.ask("CHECKPOINT");
    server.ask(STARTS_A_PROGRAM);
    // One session, each statement a transaction.
    let session = [
        "INSERT INTO rows VALUES (100001, 'before')".to_owned(),
        "INSERT INTO rows SELECT n, 'warm' || n FROM generate_series(300001, 300300) n".to_owned(),
        "SELECT child()".to_owned(),
        format!("INSERT INTO rows SELECT n, '{MARKER}' || n FROM generate_series(200001, 200300) n"),
        format!("INSERT INTO rows SELECT n, '{MARKER}' || n FROM generate_series(200301, 200600) n"),
        "SELECT count(*) FROM rows".to_owned(),
    ];
    assert_eq!(server.session(&session), "0\n20901");
    assert_eq!(holding(&cluster.data, MARKER), Vec::<std::path::PathBuf>::new());
    server.crash();
    let server = cluster.start(under, &[]);
    assert_eq!(server.ask("SELECT count(*) FROM rows"), "20901");
    server.ask("CHECKPOINT");
    assert_eq!(holding(&cluster.data, MARKER), Vec::<std::path::PathBuf>::new());
    server.stop();
    true
}
