//! Stock programs on sealed clusters: primary, standby and base backup, after a clean stop and after a crash. Every program
//! fails without changing the data directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_tde::{Kek, KeyFile};

use crate::files::contents;
use crate::fixture::{Cluster, Fixture, Server, Under, succeeds};

/// A standby retries its connection every 5 s.
const TIME_LIMIT: Duration = Duration::from_mins(4);

#[derive(Clone, Copy, Debug)]
enum Ended {
    Stopped,
    Killed,
}

#[test]
fn no_stock_program_works_on_a_sealed_cluster() {
    for fixture in Fixture::all(&["pg_basebackup", "psql"]) {
        refuses_stock_programs(&fixture);
    }
}

fn refuses_stock_programs(fixture: &Fixture) {
    let (kek, kek_file) = fixture.kek("kek");
    let under = Under::Library(&kek_file);
    let primary = fixture.cluster("primary");
    fixture.make_keys(&primary.data, &kek);
    primary.init(under);
    // A second cluster, which pg_rewind and pg_upgrade need.
    let plain = fixture.cluster("plain");
    plain.init(Under::Nothing);

    // Without a slot, the primary may remove WAL that the standby needs.
    let server = primary.start(under, &["max_replication_slots=4", "wal_keep_size=1GB"]);
    server.ask("CREATE TABLE rows AS SELECT n, md5(n::text) FROM generate_series(1, 10000) n");
    let standby = backup(&server, &primary, "standby", under, &["-R"]);
    let restored = backup(&server, &primary, "restored", under, &[]);
    refused_by_all(&restored, &plain, "a base backup");
    // An old server does not accept the connection options that a newer `pg_basebackup -R` writes.
    let connection = format!("primary_conninfo={}", server.connection());
    for ended in [Ended::Killed, Ended::Stopped] {
        let following = standby.start(under, &[&connection]);
        streams(&following, &standby, &primary);
        end(following, ended);
        refused_by_all(&standby, &plain, &format!("a standby, {ended:?}"));
        let recovered = restored.start(under, &[]);
        recovered.ask("UPDATE rows SET n = n + 1");
        end(recovered, ended);
        refused_by_all(&restored, &plain, &format!("a restored base backup, {ended:?}"));
    }
    end(server, Ended::Killed);
    refused_by_all(&primary, &plain, "a primary, killed");
    // Without slots, a stock server would not detect anything by itself.
    end(primary.start(under, &["max_replication_slots=0"]), Ended::Stopped);
    refused_by_all(&primary, &plain, "a primary, stopped");

    refused_by_control(&primary, &plain);
    control_is_authentic(&primary, &restored, &kek, under);
    // The clusters still work.
    for cluster in [&primary, &standby, &restored] {
        let server = cluster.start(under, &[]);
        assert_eq!(server.ask("SELECT count(*) FROM rows"), "10000");
        server.stop();
    }
}

/// Waits until a standby receives WAL. Shows the logs of both servers if it does not.
fn streams(following: &Server<'_>, standby: &Cluster<'_>, primary: &Cluster<'_>) {
    let deadline = Instant::now() + TIME_LIMIT;
    while following.ask("SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'") != "1" {
        assert!(
            Instant::now() < deadline,
            "the standby does not stream: {}\nthe primary: {}",
            standby.said(),
            primary.said()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn end(server: Server<'_>, ended: Ended) {
    match ended {
        Ended::Stopped => server.stop(),
        Ended::Killed => server.crash(),
    }
}

fn backup<'a>(
    server: &Server<'_>,
    primary: &Cluster<'a>,
    name: &str,
    under: Under<'_>,
    arguments: &[&str],
) -> Cluster<'a> {
    let target = primary.fixture.cluster(name);
    let keys = (KeyFile::path_beside(&primary.data), KeyFile::path_beside(&target.data));
    succeeds(Command::new("cp").arg("-a").arg(keys.0).arg(keys.1));
    let mut command = primary.program("pg_basebackup", Under::Nothing);
    target.set(&mut command, under);
    command.args(["-Fp", "-Xstream", "-cfast", "--no-sync", "-d", &server.connection(), "-D"]);
    succeeds(command.arg(&target.data).args(arguments));
    target
}

/// Programs and arguments. `{data}` is the cluster, `{plain}` an unencrypted cluster, `{bin}` the directory of programs,
/// `{new}` a directory that does not exist.
const STOCK: [&str; 17] = [
    "postgres -D {data} -c listen_addresses= -k {new}",
    "postgres --single -D {data} postgres",
    "pg_ctl start -w -t 60 -s -D {data}",
    "pg_ctl promote -D {data}",
    "pg_resetwal {data}",
    "pg_resetwal -n {data}",
    "pg_resetwal -f {data}",
    "pg_checksums --check -D {data}",
    "pg_checksums --enable -D {data}",
    "pg_checksums --disable -D {data}",
    "pg_rewind --no-ensure-shutdown --target-pgdata={data} --source-pgdata={plain}",
    "pg_rewind --target-pgdata={data} --source-pgdata={plain}",
    "pg_rewind --target-pgdata={plain} --source-pgdata={data}",
    "pg_upgrade --check -d {data} -D {plain} -b {bin} -B {bin}",
    "pg_upgrade -d {data} -D {plain} -b {bin} -B {bin}",
    "pg_combinebackup {data} -o {new}",
    "pg_createsubscriber -D {data} -d postgres -P host=/nowhere",
];

fn refused_by_all(cluster: &Cluster<'_>, plain: &Cluster<'_>, what: &str) {
    refused_by(&STOCK, cluster, plain, what);
    let before = contents(&cluster.data);
    shows_nothing(cluster, what);
    unchanged(&before, &cluster.data, "pg_controldata", what);
}

/// With the stock content of `PG_VERSION`, programs still fail on `pg_control`; only `pg_resetwal` can be forced to ignore
/// it, and `-n` to say what it would do.
fn refused_by_control(cluster: &Cluster<'_>, plain: &Cluster<'_>) {
    let version = cluster.data.join("PG_VERSION");
    let kept = fs::read(&version).expect("a file");
    fs::write(&version, format!("{}\n", cluster.fixture.version.major)).expect("replaced");
    let ignores_control = ["pg_resetwal -f", "pg_resetwal -n"];
    let others: Vec<&str> =
        STOCK.into_iter().filter(|line| !ignores_control.iter().any(|one| line.starts_with(one))).collect();
    refused_by(&others, cluster, plain, "a primary whose PG_VERSION was replaced");
    fs::write(&version, kept).expect("restored");
}

fn refused_by(lines: &[&str], cluster: &Cluster<'_>, plain: &Cluster<'_>, what: &str) {
    let fixture = cluster.fixture;
    let before = contents(&cluster.data);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let new = cluster.data.with_extension("new");
    let mut tried = 0;
    for line in lines {
        let (name, arguments) = line.split_once(' ').expect("a program and arguments");
        if !fixture.version.has(name) {
            continue;
        }
        tried += 1;
        let arguments = arguments.split(' ').map(|argument| {
            argument
                .replace("{data}", &text(&cluster.data))
                .replace("{plain}", &text(&plain.data))
                .replace("{bin}", &text(&fixture.version.bin))
                .replace("{new}", &text(&new))
        });
        let mut command = cluster.program(name, Under::Nothing);
        let output = command.args(arguments).output().expect("it runs");
        assert!(!output.status.success(), "{line} works on {what}: {output:?}");
        unchanged(&before, &cluster.data, line, what);
        assert!(!new.exists(), "{line} made something of {what}");
    }
    assert!(tried >= 4, "only {tried} programs of {}", fixture.version.name);
}

/// This program always exits with 0. It must report wrong data, and print none of the cluster's.
fn shows_nothing(cluster: &Cluster<'_>, what: &str) {
    if !cluster.fixture.version.has("pg_controldata") {
        return;
    }
    let mut command = cluster.program("pg_controldata", Under::Nothing);
    let output = command.arg("-D").arg(&cluster.data).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).to_lowercase();
    assert!(!output.status.success() || said.contains("checksum does not match"), "{what}: {said}");
}

fn unchanged(before: &BTreeMap<PathBuf, Vec<u8>>, data: &Path, program: &str, what: &str) {
    let after = contents(data);
    let changed: Vec<_> =
        before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path)).collect();
    assert!(changed.is_empty(), "{program} changed {changed:?} of {what}");
}

/// The library refuses `pg_control` of another cluster, of an unencrypted one, and a changed one.
fn control_is_authentic(cluster: &Cluster<'_>, other: &Cluster<'_>, kek: &Kek, under: Under<'_>) {
    let (control, version) = (cluster.data.join("global/pg_control"), cluster.data.join("PG_VERSION"));
    let (kept, kept_version) = (fs::read(&control).expect("a file"), fs::read(&version).expect("a file"));
    let mut flipped = kept.clone();
    flipped[300] ^= 1;
    let mut behind = kept.clone();
    behind[5000] = 1;
    // A cluster with the same data-encryption keys: its pg_control is authentic here, too.
    let siblings = fs::read(other.data.join("global/pg_control")).expect("a file");
    assert_ne!(siblings, kept);
    let foreign = {
        let stranger = cluster.fixture.cluster("stranger");
        cluster.fixture.make_keys(&stranger.data, kek);
        stranger.init(under);
        fs::read(stranger.data.join("global/pg_control")).expect("a file")
    };
    let plain = fs::read(cluster.data.with_file_name("plain").join("global/pg_control")).expect("a file");
    for (bytes, why) in [
        (&flipped, "was changed, or belongs to another cluster"),
        (&behind, "was changed, or belongs to another cluster"),
        (&kept[..4096].to_vec(), "was changed, or belongs to another cluster"),
        (&[kept.clone(), vec![0]].concat(), "was changed, or belongs to another cluster"),
        (&foreign, "was changed, or belongs to another cluster"),
        (&plain, "is not sealed: it was replaced"),
        (&kept[..100].to_vec(), "was changed, or belongs to another cluster"),
        (&Vec::new(), "is missing"),
    ] {
        fs::write(&control, bytes).expect("replaced");
        let before = contents(&cluster.data);
        let said = cluster.refuses(under);
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        unchanged(&before, &cluster.data, "postgres under the library", why);
    }
    fs::write(&control, &kept).expect("restored");
    fs::write(&version, format!("{}\n", cluster.fixture.version.major)).expect("replaced");
    assert!(cluster.refuses(under).contains("PG_VERSION is not sealed"));
    fs::write(&version, &kept_version).expect("restored");
    // A cluster of another version of ciphertoll.
    let path = KeyFile::path_beside(&cluster.data);
    let keys = fs::read(&path).expect("a key file");
    let with = |kept: &[u8], at: usize, byte: u8| {
        let mut other = kept.to_vec();
        other[at] = byte;
        other
    };
    for (path, kept, other) in [
        (&path, &keys, with(&keys, 8, 2)),
        (&path, &keys, with(&keys, 10, 2)),
        (&control, &kept, with(&kept, 15, b'2')),
    ] {
        fs::write(path, other).expect("replaced");
        let before = contents(&cluster.data);
        let said = cluster.refuses(under);
        assert!(said.contains("ciphertoll tde convert --decrypt") && said.lines().count() == 1, "{said}");
        unchanged(&before, &cluster.data, "postgres under the library", &said);
        fs::write(path, kept).expect("restored");
    }
}
