//! Damaged files: PostgreSQL reports corruption or returns correct results. It never returns wrong rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Cluster, Fixture, Under, succeeds};

/// Number of damages per kind of file.
const DAMAGES: u64 = 6;
const ROWS: usize = 20_000;

/// The effect of a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The server does not start.
    Refused,
    /// A statement fails.
    Failed,
    /// All rows are correct.
    Whole,
    /// All returned rows are correct; some are missing, which only an index detects.
    Shorter,
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { at: u64, bit: u8 },
    Cut { to: u64 },
}

/// A pseudo-random number with a fixed seed, so that all runs are equal.
fn chosen(seed: u64, below: u64) -> u64 {
    let mut mixed = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^= mixed >> 31;
    mixed = mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ mixed >> 29) % below
}

impl Damage {
    fn of(seed: u64, file: &Path) -> Self {
        let length = fs::metadata(file).expect("a file").len();
        let at = chosen(seed, length);
        if seed.is_multiple_of(2) {
            Self::Flip { at, bit: chosen(seed + 1000, 8) as u8 }
        } else if seed % 4 == 1 {
            Self::Cut { to: at }
        } else {
            Self::Cut { to: at / 8192 * 8192 }
        }
    }

    fn apply(self, path: &Path) {
        let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
        match self {
            Self::Flip { at, bit } => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).expect("read");
                file.write_all_at(&[byte[0] ^ 1 << bit], at).expect("written");
            }
            Self::Cut { to } => file.set_len(to).expect("cut off"),
        }
    }
}

#[test]
fn damage_is_reported_and_never_shown_as_rows() {
    for fixture in Fixture::all(&[]) {
        damages(&fixture);
    }
}

fn damages(fixture: &Fixture) {
    let cluster = fixture.cluster("damaged");
    let (kek, kek_file) = fixture.kek("kek");
    fixture.make_keys(&cluster.data, &kek);
    let under = Under::Library(&kek_file);
    cluster.init(under);
    let server = cluster.start(under, &["autovacuum=off"]);
    server.ask("CREATE TABLE rows (id int PRIMARY KEY, text text)");
    server.ask(&format!("INSERT INTO rows SELECT n, md5(n::text) FROM generate_series(1, {ROWS}) n"));
    server.ask("CREATE TABLE commits (id int)");
    let heap = cluster.data.join(server.ask("SELECT pg_relation_filepath('rows')"));
    let index = cluster.data.join(server.ask("SELECT pg_relation_filepath('rows_pkey')"));
    let statuses = cluster.data.join("pg_xact/0000");
    server.ask("VACUUM (FREEZE) rows");
    server.stop();
    cluster.is_damaged.set(true);
    let kept = keep(&cluster.data, "kept");
    let mut all: BTreeMap<(&str, &str), BTreeMap<Outcome, usize>> = BTreeMap::new();
    let mut tell = |what, damage, outcome| {
        let kind = if matches!(damage, Damage::Flip { .. }) { "flip" } else { "cut" };
        *all.entry((what, kind)).or_default().entry(outcome).or_default() += 1;
    };
    for (what, file) in [("heap", &heap), ("index", &index), ("pg_xact", &statuses)] {
        for seed in 0..DAMAGES {
            let damage = Damage::of(seed, file);
            damage.apply(file);
            let outcome = outcome(&cluster, under, what, damage);
            tell(what, damage, outcome);
            restore(&cluster.data, &kept);
        }
    }
    for seed in 0..DAMAGES {
        let (damage, outcome) = damaged_log(&cluster, under, seed);
        tell("pg_wal", damage, outcome);
        restore(&cluster.data, &kept);
    }
    fixture.tell("what damage is reported as", &all);
}

fn keep(data: &Path, name: &str) -> PathBuf {
    let kept = data.with_extension(name);
    succeeds(Command::new("cp").arg("-a").arg(data).arg(&kept));
    kept
}

fn restore(data: &Path, kept: &Path) {
    succeeds(Command::new("rm").arg("-rf").arg(data));
    succeeds(Command::new("cp").arg("-a").arg(kept).arg(data));
}

/// Starts a server on a cluster with a damaged file.
fn outcome(cluster: &Cluster<'_>, under: Under<'_>, what: &str, damage: Damage) -> Outcome {
    let Ok(server) = cluster.try_start(under, &["autovacuum=off"], &[]) else { return Outcome::Refused };
    let by_rows = server.psql(
        "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT id, text = md5(id::text) FROM rows",
    );
    let by_index = server
        .psql("SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT id, text = md5(id::text) FROM rows ORDER BY id");
    let mut worst = Outcome::Whole;
    for answer in [&by_rows, &by_index] {
        let rows = String::from_utf8_lossy(&answer.stdout);
        if !answer.status.success() {
            let said = String::from_utf8_lossy(&answer.stderr);
            let known = [
                "invalid page in block",
                "could not read block",
                "could not access status of transaction",
                "is not a btree",
                "contains unexpected zero page",
                "contains corrupted page",
                "could not open file",
                "unexpected data beyond EOF",
                "missing chunk",
            ];
            assert!(known.iter().any(|known| said.contains(known)), "{what}, {damage:?}: {said}");
            worst = Outcome::Failed;
            continue;
        }
        let count = right(&rows, what, damage);
        if count < ROWS && worst == Outcome::Whole {
            worst = Outcome::Shorter;
        }
    }
    // A truncation that one scan does not detect, the other does.
    if worst == Outcome::Shorter && what == "heap" {
        assert!(!by_index.status.success(), "{what}, {damage:?}: nothing notices that rows are missing");
    }
    worst
}

/// The number of rows. Fails if a row is wrong or duplicate.
fn right(rows: &str, what: &str, damage: Damage) -> usize {
    let mut seen = BTreeSet::new();
    for row in rows.lines() {
        let (id, same) = row.split_once('|').expect("two columns");
        let id: usize = id.parse().expect("a number");
        assert!((1..=ROWS).contains(&id) && same == "t", "{what}, {damage:?}: a wrong row {row}");
        assert!(seen.insert(id), "{what}, {damage:?}: a row twice, {row}");
    }
    seen.len()
}

/// Damages the end of WAL after a crash: exactly the transactions before some point are recovered.
fn damaged_log(cluster: &Cluster<'_>, under: Under<'_>, seed: u64) -> (Damage, Outcome) {
    let server = cluster.start(under, &["autovacuum=off"]);
    let from = server.ask("SELECT pg_walfile_name_offset(pg_current_wal_lsn())");
    server.ask("DO $$ BEGIN FOR n IN 1..300 LOOP INSERT INTO commits VALUES (n); COMMIT; END LOOP; END $$");
    let to = server.ask("SELECT pg_walfile_name_offset(pg_current_wal_lsn())");
    server.crash();
    let place = |said: &str| {
        let (name, offset) = said.trim_matches(['(', ')']).split_once(',').expect("a name and an offset");
        (name.to_owned(), offset.parse::<u64>().expect("a number"))
    };
    let ((name, from), (last, to)) = (place(&from), place(&to));
    assert_eq!(name, last, "one segment");
    let file = cluster.data.join("pg_wal").join(name);
    let at = from + chosen(seed, to - from);
    let damage = match seed % 2 {
        0 => Damage::Flip { at, bit: chosen(seed + 1000, 8) as u8 },
        _ => Damage::Cut { to: at },
    };
    damage.apply(&file);
    let Ok(server) = cluster.try_start(under, &["autovacuum=off"], &[]) else {
        return (damage, Outcome::Refused);
    };
    let rows = server.ask("SELECT id FROM commits");
    let expected: Vec<String> = (1..=rows.lines().count()).map(|n| n.to_string()).collect();
    assert!(
        rows.lines().eq(expected.iter().map(String::as_str)),
        "{damage:?}: not a prefix of what was committed"
    );
    let whole = server.ask("SELECT id, text = md5(id::text) FROM rows");
    assert_eq!(right(&whole, "pg_wal", damage), ROWS);
    let ended = [
        "invalid record length",
        "incorrect resource manager data checksum",
        "invalid magic number",
        "invalid resource manager",
        "unexpected pageaddr",
        "record with incorrect prev-link",
        "invalid info bits",
        "contrecord",
        "could not read",
        "read too few",
        "record with",
        "there is no",
    ];
    let said = cluster.said();
    assert!(ended.iter().any(|ended| said.contains(ended)), "{damage:?}: {said}");
    drop(server);
    let outcome = if expected.len() == 300 { Outcome::Whole } else { Outcome::Shorter };
    (damage, outcome)
}
