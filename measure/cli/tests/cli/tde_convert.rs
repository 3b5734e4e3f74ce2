//! `ciphertoll tde convert`: a real cluster becomes an encrypted one and comes back; interrupted anywhere, and refused.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_model::Engine;

use crate::support::{is_root, real_server_of, text};
use crate::tde::Workspace;

/// In rows, and in the name of a table.
const MARKER: &str = "zanzibarmarker";
/// Not every processor's kernel has each of them.
const RENAME: &str = "?rename,?renameat,?renameat2";
const UNLINK: &str = "?unlink,?unlinkat";
const JOURNAL: &str = "ciphertoll-convert.journal";
const SUMS: &str = "SELECT (SELECT count(*) || md5(string_agg(md5, '' ORDER BY n)) FROM spaced), \
                    (SELECT sum(length(long)) || md5(string_agg(md5(long), '' ORDER BY n)) FROM zanzibarmarker), \
                    (SELECT count(*) FROM unlogged), (SELECT count(*) FROM pg_prepared_xacts), \
                    (SELECT count(*) FROM pg_logical_slot_peek_changes('slot', NULL, NULL)), \
                    (SELECT sum(n) FROM locked)";
const SETTINGS: &str = "listen_addresses = ''\nmax_prepared_transactions = 3\nwal_level = logical\n";

impl Workspace {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    #[track_caller]
    pub(crate) fn succeeds(&self, line: &str) -> String {
        let output = self.shell(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    #[track_caller]
    pub(crate) fn ask(&self, sql: &str) -> String {
        let work = self.work();
        self.succeeds(&format!(
            "psql -XAtq -v ON_ERROR_STOP=1 -h {} -U user -d postgres -c \"{sql}\"",
            text(&work)
        ))
    }

    /// A plain cluster that is stopped.
    fn plain(&self, options: &str) {
        self.done("keygen kek", "");
        self.succeeds(&format!("initdb -D plain -U user -A trust --data-checksums --no-sync {options}"));
        let settings = format!("{SETTINGS}unix_socket_directories = '{}'\n", text(&self.work()));
        let path = self.path("plain/postgresql.conf");
        fs::write(&path, fs::read_to_string(&path).expect("settings") + &settings).expect("settings");
    }

    fn start(&self, data: &str) {
        self.succeeds(&format!("pg_ctl -D {data} -w -t 600 -l {data}.log start >/dev/null"));
    }

    pub(crate) fn stop(&self, data: &str, mode: &str) {
        self.succeeds(&format!("pg_ctl -D {data} -w -t 600 -m {mode} stop"));
    }

    pub(crate) fn start_sealed(&self, data: &str) {
        self.succeeds(&format!(
            "../ciphertoll tde exec -D {data} --key-file kek -- pg_ctl -D {data} -w -t 600 -l {data}.log start >/dev/null"
        ));
    }

    /// Sends a signal when the command makes one of these system calls for the `when`th time: in `rename` a file is complete,
    /// in `fadvise64` the next file is verified.
    #[track_caller]
    fn interrupted(&self, arguments: &str, calls: &str, when: usize, signal: &str) -> (Option<i32>, String) {
        let output = self.shell(&format!(
            "exec strace -f -o /dev/null -e trace={calls} -e inject={calls}:signal={signal}:when={when} \
             ../ciphertoll tde convert {arguments}"
        ));
        assert!(!output.status.success(), "it was done before call {when} of {calls}: {output:?}");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[track_caller]
    fn killed(&self, arguments: &str, calls: &str, when: usize) {
        let (code, said) = self.interrupted(arguments, calls, when, "SIGKILL");
        assert!(code.is_none(), "{code:?}: {said}");
    }

    /// Refused with nothing written.
    #[track_caller]
    fn refuses(&self, arguments: &str, why: &str) {
        let said = self.refused(&format!("convert {arguments}"));
        assert!(said.contains(why), "{said}");
        for name in ["sealed", "sealed.tde", "back", "space-2"] {
            assert!(!self.path(name).exists(), "{arguments}: {name} was made");
        }
    }
}

/// Content, mode, owner and time of every file, by its path; directories too.
fn tree(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, u32, i64)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            let (path, metadata) = (entry.path(), entry.metadata().expect("metadata"));
            let below = path.strip_prefix(root).expect("below").to_owned();
            if metadata.is_dir() {
                directories.push(path);
                found.insert(below, (Vec::new(), metadata.mode(), metadata.uid(), 0));
            } else if metadata.is_file() {
                let content = fs::read(&path).expect("readable");
                found.insert(below, (content, metadata.mode(), metadata.uid(), metadata.mtime()));
            }
        }
    }
    found
}

fn has_marker(root: &Path) -> bool {
    let marker = MARKER.as_bytes();
    tree(root).into_values().any(|(content, ..)| memchr::memmem::find(&content, marker).is_some())
}

/// What is not taken along: it belongs to the last run of a server.
fn is_left_behind(path: &Path) -> bool {
    let name = path.file_name().expect("a name").to_string_lossy();
    let below = path.to_string_lossy();
    name.starts_with("pg_internal.init")
        || ["postmaster.opts", "current_logfiles", "pgsql_tmp1.0", "t3_16000", "xlogtemp.7"].contains(&&*name)
        || below.starts_with("pg_notify/")
        || below.starts_with("pg_stat_tmp/")
}

#[track_caller]
fn assert_same(plain: &Path, back: &Path, what: &str) {
    let mut expected = tree(plain);
    expected.retain(|path, _| !is_left_behind(path));
    let found = tree(back);
    assert!(expected.keys().eq(found.keys()), "{what}: {:?}", {
        let differs = |path: &&PathBuf| expected.contains_key(*path) != found.contains_key(*path);
        expected.keys().chain(found.keys()).filter(differs).collect::<Vec<_>>()
    });
    let differing: Vec<_> =
        expected.iter().filter(|(path, file)| found[*path] != **file).map(|(path, _)| path).collect();
    assert!(differing.is_empty(), "{what}: {differing:?}");
}

fn fill(workspace: &Workspace) {
    let space = workspace.path("space");
    workspace.succeeds("mkdir space");
    workspace.ask(&format!("CREATE TABLESPACE space LOCATION '{}'", text(&space)));
    workspace.ask(
        "CREATE TABLE spaced TABLESPACE space AS SELECT n, md5(n::text) FROM generate_series(1, 20000) n",
    );
    workspace.ask("CREATE INDEX ON spaced (md5) TABLESPACE space; CREATE EXTENSION amcheck");
    workspace.ask("CREATE TABLE zanzibarmarker (n int PRIMARY KEY, long text)");
    workspace.ask("ALTER TABLE zanzibarmarker ALTER long SET STORAGE EXTERNAL");
    workspace.ask(
        "INSERT INTO zanzibarmarker SELECT n, repeat('zanzibarmarker', 1000) FROM generate_series(1, 20) n",
    );
    workspace.ask("CREATE UNLOGGED TABLE unlogged AS SELECT n FROM generate_series(1, 1000) n");
    workspace.ask("CREATE TABLE locked AS SELECT n FROM generate_series(1, 100) n");
    // A lock and an update of one transaction's parts make a multixact.
    workspace
        .ask("BEGIN; SELECT FROM locked FOR KEY SHARE; SAVEPOINT s; UPDATE locked SET n = n + 1; COMMIT");
    workspace.ask("SELECT pg_create_logical_replication_slot('slot', 'test_decoding')");
    workspace.ask("UPDATE locked SET n = n + 1");
    workspace.ask("BEGIN; INSERT INTO locked VALUES (1000); PREPARE TRANSACTION 'prepared'");
}

/// Files that a server, or its user, may have left in a data directory.
fn leave_others(workspace: &Workspace) {
    let plain = workspace.path("plain");
    fs::write(plain.join("notes.txt"), "notes of the user's\n").expect("written");
    fs::create_dir(plain.join("empty")).expect("a directory");
    symlink("/nonexistent", plain.join("link")).expect("a link");
    fs::create_dir_all(plain.join("base/pgsql_tmp")).expect("a directory");
    for name in ["base/pgsql_tmp/pgsql_tmp1.0", "base/1/t3_16000", "pg_wal/xlogtemp.7"] {
        fs::write(plain.join(name), MARKER).expect("written");
    }
    // Larger than what is converted at a time, and with holes and a short end.
    let sparse = fs::File::create(plain.join("pg_logical/mappings/map-1-2-3_4-5-6")).expect("a file");
    sparse.write_all_at(b"content", 300_000).expect("written");
    sparse.set_len(2_000_003).expect("a length");
    // A server that keeps no commit timestamps removes it when it starts.
    let pages = fs::File::create(plain.join("pg_commit_ts/0001")).expect("a file");
    pages.write_all_at(&[7; 8192], 128 << 10).expect("written");
    pages.set_len(256 << 10).expect("a length");
}

/// Runs as root if it can: files belong to the source's owner then.
fn convert_as_root(workspace: &Workspace, arguments: &str) -> String {
    let mut command = if is_root() {
        let mut command = Command::new(workspace.work().join("../ciphertoll"));
        command.current_dir(workspace.work());
        command
    } else {
        workspace.command(&workspace.work().join("../ciphertoll"))
    };
    let output =
        command.args(["tde", "convert"]).args(arguments.split_whitespace()).output().expect("it starts");
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_cluster_is_encrypted_and_comes_back() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    let [space, space_2, space_3] =
        ["space", "space-2", "space-3"].map(|name| text(&workspace.path(name)).to_owned());
    workspace.plain(&format!("-X {}", text(&workspace.path("wal"))));
    workspace.start("plain");
    fill(&workspace);
    let sums = workspace.ask(SUMS);
    workspace.stop("plain", "fast");
    leave_others(&workspace);
    if is_root() {
        let base = fs::metadata(workspace.path("plain/base")).expect("metadata");
        let user = format!("{}:{}", base.uid(), base.gid());
        let status = Command::new("chown").args(["-hR", &user]).arg(workspace.path("plain")).status();
        assert!(status.expect("chown").success());
    }
    assert!(
        has_marker(&workspace.path("plain")) && has_marker(&workspace.path("wal")),
        "the marker can be found"
    );
    let before = tree(&workspace.path("plain"));

    let said = convert_as_root(
        &workspace,
        &format!(
            "-D plain --to sealed --key-file kek --tablespace-mapping {space}={space_2} --waldir {}/wal-2",
            text(&workspace.work())
        ),
    );
    assert!(said.contains("pg_checksums: all checksums are valid") && said.contains("notes.txt"), "{said}");
    assert!(before == tree(&workspace.path("plain")), "the source was changed");
    for name in ["sealed", "space-2", "wal-2"] {
        assert!(!has_marker(&workspace.path(name)), "the marker is in {name}");
    }
    let owner = before[Path::new("PG_VERSION")].2;
    for (path, file) in tree(&workspace.path("sealed")) {
        assert_eq!(file.2, owner, "{}", path.display());
    }
    let sparse = fs::metadata(workspace.path("sealed/pg_commit_ts/0001")).expect("metadata");
    assert!(sparse.blocks() * 512 < sparse.len(), "holes stay holes");
    assert_eq!(fs::metadata(workspace.path("sealed.tde")).expect("metadata").uid(), owner);
    assert!(workspace.done("status -D sealed", "").contains("an encrypted cluster, sealed"));

    let said = workspace.done(
        &format!("convert --decrypt -D sealed --to back --key-file kek --tablespace-mapping {space_2}={space_3} --waldir {}/wal-3", text(&workspace.work())),
        "",
    );
    assert!(said.contains("pg_checksums: all checksums are valid"), "{said}");
    for (plain, back) in [("plain", "back"), ("space", "space-3"), ("wal", "wal-3")] {
        assert_same(&workspace.path(plain), &workspace.path(back), back);
    }

    workspace.start_sealed("sealed");
    assert_eq!(workspace.ask(SUMS), sums);
    workspace
        .succeeds(&format!("pg_amcheck -h {} -U user -d postgres --heapallindexed", text(&workspace.work())));
    workspace.ask("COMMIT PREPARED 'prepared'");
    assert_eq!(workspace.ask("SELECT count(*) FROM locked WHERE n = 1000"), "1");
    workspace.stop("sealed", "fast");
    assert!(
        !has_marker(&workspace.path("sealed")) && !has_marker(&workspace.path("wal-2")),
        "the server writes ciphertext"
    );

    workspace.start("back");
    assert_eq!(workspace.ask(SUMS), sums);
    workspace.stop("back", "fast");
}

/// Killed at its beginning, in the middle, while it verifies, and at its last steps.
#[test]
fn an_interrupted_conversion_continues() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.plain("");
    workspace.succeeds("initdb -D other -U user -A trust --data-checksums --no-sync");
    let to_sealed = "-D plain --to sealed --key-file kek";
    for when in [1, 2, 300] {
        workspace.killed(to_sealed, RENAME, when);
        cannot_start(&workspace, "sealed");
    }
    let (code, said) = workspace.interrupted(to_sealed, RENAME, 100, "SIGINT");
    assert!(code == Some(130) && said.contains("run the same command again"), "{code:?}: {said}");

    // Another conversion does not continue this one.
    let said = workspace.refused("convert -D other --to sealed --key-file kek");
    assert!(said.contains("another conversion"), "{said}");

    // What changed on the disk after it was written is found.
    let journal = fs::read_to_string(workspace.path("sealed").join(JOURNAL)).expect("a journal");
    let relation = journal.lines().find_map(|line| {
        line.split(' ').nth(2).filter(|path| path.starts_with("base/") && line.starts_with("8192 "))
    });
    let path = workspace.path("sealed").join(relation.expect("a relation of one page"));
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).expect("a file");
    let modified = file.metadata().and_then(|metadata| metadata.modified()).expect("a time");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5000).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], 5000).expect("written");
    let damaged = workspace.tde(&format!("convert {to_sealed}"), "");
    let said = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert!(damaged.status.code() == Some(9) && said.contains("is not verified"), "{said}");
    cannot_start(&workspace, "sealed");
    file.write_all_at(&byte, 5000).and_then(|()| file.set_modified(modified)).expect("written");

    // So is a file that is not of the source.
    let other = workspace.path("sealed/base/1/1259.plain");
    fs::copy(workspace.path("plain/base/1/1259"), &other).expect("copied");
    let found = workspace.tde(&format!("convert {to_sealed}"), "");
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    assert!(found.status.code() == Some(9) && said.contains("is not in the source"), "{said}");
    fs::remove_file(other).expect("removed");

    // During verification; at the last two files; and when only the journal is left to remove.
    let files =
        fs::read_to_string(workspace.path("sealed").join(JOURNAL)).expect("a journal").lines().count() - 1;
    for (calls, when) in [("fadvise64", 100), (RENAME, 1), (RENAME, 2)] {
        workspace.killed(to_sealed, calls, when);
        cannot_start(&workspace, "sealed");
    }
    let drafts = files + 2;
    workspace.killed(to_sealed, UNLINK, drafts + 1);
    assert!(
        workspace.path("sealed/global/pg_control").exists()
            && workspace.path("sealed").join(JOURNAL).exists()
    );
    let done = workspace.tde(&format!("convert {to_sealed}"), "");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && said.contains("continuing"), "{done:?}");
    assert!(!workspace.path("sealed").join(JOURNAL).exists());

    let to_back = "--decrypt -D sealed --to back --key-file kek";
    for when in [1, 400] {
        workspace.killed(to_back, RENAME, when);
        cannot_start(&workspace, "back");
    }
    workspace.done(&format!("convert {to_back}"), "");
    assert_same(&workspace.path("plain"), &workspace.path("back"), "back");
}

#[test]
fn pages_that_are_damaged_in_the_source_are_told() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.plain("");
    fs::write(workspace.path("plain/base/1/999999"), [7; 8192]).expect("written");
    if is_root() {
        let owned = fs::metadata(workspace.path("plain")).expect("metadata");
        chown(workspace.path("plain/base/1/999999"), Some(owned.uid()), Some(owned.gid()))
            .expect("given away");
    }
    let output = workspace.tde("convert -D plain --to sealed --key-file kek", "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("damaged there too"), "{said}");
}

/// No server starts on an incomplete copy, with or without the library.
fn cannot_start(workspace: &Workspace, data: &str) {
    let stock = workspace.shell(&format!("postgres -D {data} --single postgres </dev/null"));
    assert!(!stock.status.success(), "{stock:?}");
    if workspace.path(&format!("{data}.tde")).exists() {
        let under = workspace
            .tde(&format!("exec -D {data} --key-file kek -- postgres -D {data} --single postgres"), "");
        assert!(!under.status.success(), "{under:?}");
    }
}

#[test]
fn what_cannot_be_converted_is_refused_before_anything_is_written() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.plain("");
    workspace.start("plain");
    workspace.succeeds("mkdir space");
    let space = text(&workspace.path("space")).to_owned();
    workspace.ask(&format!("CREATE TABLESPACE space LOCATION '{space}'"));
    let mapped = format!("-D plain --to sealed --key-file kek --tablespace-mapping {space}={space}-2");
    workspace.refuses(&mapped, "a server is running");
    workspace.stop("plain", "immediate");
    workspace.refuses(&mapped, "was not shut down cleanly");
    workspace.start("plain");
    workspace.stop("plain", "fast");

    workspace
        .refuses("-D plain --to sealed --key-file kek", "set its new directory with --tablespace-mapping");
    workspace
        .refuses(&format!("{mapped} --tablespace-mapping /srv/none=/srv/new"), "not a tablespace directory");
    workspace.refuses(
        &format!("-D plain --to sealed --key-file kek --tablespace-mapping {space}={space}/in"),
        "overlaps",
    );
    workspace.refuses(
        &format!("-D plain --to plain/in --key-file kek --tablespace-mapping {space}={space}-2"),
        "overlaps",
    );
    workspace.refuses(&format!("{mapped} --waldir wal"), "--waldir cannot be used");
    workspace.refuses("-D space --to sealed --key-file kek", "no cluster found");
    workspace.refuses(&format!("{mapped} --bin space"), "pg_checksums");
    workspace.refuses(
        &format!("--decrypt -D plain --to back --key-file kek --tablespace-mapping {space}={space}-2"),
        "not found: the cluster is not encrypted",
    );
    fs::create_dir(workspace.path("full")).expect("a directory");
    fs::write(workspace.path("full/mine"), "mine").expect("written");
    workspace.refuses(&mapped.replace("sealed", "full"), "is not empty");
    assert!(!workspace.path("full.tde").exists());
    for (name, why) in [
        ("base/1/1259.bak", "copied unencrypted"),
        ("recovery.signal", "needs recovery"),
        ("backup_label", "needs recovery"),
    ] {
        fs::write(workspace.path("plain").join(name), "x").expect("written");
        workspace.refuses(&mapped, why);
        fs::remove_file(workspace.path("plain").join(name)).expect("removed");
    }

    // A conversion of a source that was used meanwhile cannot be continued.
    workspace.killed(&mapped, RENAME, 100);
    workspace.start("plain");
    workspace.stop("plain", "fast");
    let said = workspace.refused(&format!("convert {mapped}"));
    assert!(said.contains("the source was used since"), "{said}");
    fs::remove_dir_all(workspace.path("sealed")).expect("removed");
    fs::remove_dir_all(workspace.path("space-2")).expect("removed");
    // The key file is still there, and is used.
    workspace.done(&format!("convert {mapped}"), "");

    let decrypt =
        format!("--decrypt -D sealed --to back --key-file KEK --tablespace-mapping {space}-2={space}-3");
    workspace.done("keygen other", "");
    let said = workspace.refused(&format!("convert {}", decrypt.replace("KEK", "other")));
    assert!(said.contains("wrong key-encryption key") && !workspace.path("back").exists(), "{said}");
    let said = workspace.refused("convert -D sealed --to twice --key-file kek");
    assert!(said.contains("encrypted already") && !workspace.path("twice").exists(), "{said}");
    assert_eq!(fs::metadata(workspace.path("sealed")).expect("metadata").permissions().mode() & 0o777, 0o700);
}
