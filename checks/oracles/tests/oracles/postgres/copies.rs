//! COPY FROM STDIN: both clients read what one has written.

use std::fmt::Write;

use crate::answer::{assert_refused, assert_same};
use crate::fixture::Fixture;
use crate::ours::{self, Bare};

const IN: &str = "COPY copied FROM STDIN";
const OUT: &str = "COPY (SELECT * FROM copied ORDER BY id) TO STDOUT";
const ROWS: u64 = 5_000;
/// Rows are cut anywhere.
const PIECE_BYTES: usize = 777;

pub(super) fn in_and_out(fixture: &mut Fixture) {
    let mut client = ours::client(&fixture.plain()).expect("ours logs in");
    let mut bare = Bare::connect(&fixture.plain());
    let mut oracle = super::oracle(fixture);
    let data = data();

    create(fixture);
    let pieces = data.chunks(PIECE_BYTES).map(<[u8]>::to_vec);
    assert_eq!(ours::refused(client.copy_in(IN, pieces)), Ok(ROWS));
    let rows = oracle.query("SELECT * FROM copied ORDER BY id");
    assert_same("copied by ours", &bare.query("SELECT * FROM copied ORDER BY id"), &rows);
    assert_eq!(oracle.copy_out(OUT).as_ref(), Ok(&data));

    create(fixture);
    assert_eq!(oracle.copy_in(IN, data), Ok(ROWS));
    assert_same("copied by the oracle", &bare.query("SELECT * FROM copied ORDER BY id"), &rows);

    create(fixture);
    assert_eq!(ours::refused(client.copy_in(IN, [])), Ok(0));
}

pub(super) fn refused(fixture: &mut Fixture) {
    create(fixture);
    let mut client = ours::client(&fixture.plain()).expect("ours logs in");
    let mut bare = Bare::connect(&fixture.plain());
    let mut oracle = super::oracle(fixture);
    let wrong = b"1\tone\nnot a number\ttwo\n";
    let ours = ours::refused(client.copy_in(IN, [wrong.to_vec()]));
    assert_refused("wrong data", "22P02", ours, oracle.copy_in(IN, wrong.to_vec()));
    for (sql, state) in [("COPY absent FROM STDIN", "42P01"), ("COPY copied FRM STDIN", "42601")] {
        let ours = ours::refused(client.copy_in(sql, []));
        // The driver loses synchronization after a COPY that is refused before any data, as the next COPY shows.
        let mut oracle = super::oracle(fixture);
        assert_refused(sql, state, ours, oracle.copy_in(sql, Vec::new()));
    }
    // After some of the data.
    let sql = "COPY (SELECT 1 / (5000 - n) FROM generate_series(1, 9000) n) TO STDOUT";
    assert_refused(sql, "22012", bare.query(sql), oracle.copy_out(sql));
    for answer in [ours::query(&mut client, "SELECT 1"), bare.query("SELECT 1")] {
        assert_same("SELECT 1", &answer, &oracle.query("SELECT 1"));
    }
}

fn create(fixture: &Fixture) {
    fixture.prepare(&["DROP TABLE IF EXISTS copied", "CREATE TABLE copied (id INTEGER, word TEXT)"]);
}

/// Rows as COPY writes them.
fn data() -> Vec<u8> {
    let word = |n: u64| match n % 4 {
        0 => "\\N".to_owned(),
        1 => String::new(),
        2 => "a\\tb\\nc\\\\d".to_owned(),
        _ => "🦀".repeat((n % 50) as usize),
    };
    let mut data = String::new();
    for n in 0..ROWS {
        // Writing to a string cannot fail.
        let _ = writeln!(data, "{n}\t{}", word(n));
    }
    data.into_bytes()
}
