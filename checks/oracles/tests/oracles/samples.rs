//! Random rows, inserted by one driver and read by the other.

use std::fmt::Write;

use ciphertoll_model::Engine;
use ciphertoll_wire::session::Value;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::answer::{Rows, assert_same};
use crate::fixture::Fixture;
use crate::ours::{self, Bare};

/// Our client inserts one half, the oracle the other.
const SAMPLES: i64 = 200;
/// A fixed seed, so that failures can be reproduced.
const SEED: u64 = 0x0_7ac1e;
const LONGEST_WORD: usize = 60;
/// Above 65,535, where MySQL encodes a length in three bytes.
const LONGEST_BYTES: usize = 70_000;

const MANY_COLUMNS: usize = 20;

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) id: i64,
    pub(crate) number: Option<i64>,
    pub(crate) word: Option<String>,
    pub(crate) bytes: Option<Vec<u8>>,
}

pub(crate) fn written_by_one_and_read_by_the_other(fixture: &mut Fixture) {
    let engine = fixture.server.engine();
    let (text, bytes) = match engine {
        Engine::MariaDb | Engine::MySql => ("TEXT CHARACTER SET utf8mb4", "LONGBLOB"),
        Engine::Postgres => ("TEXT", "BYTEA"),
        engine @ (Engine::MongoDb | Engine::FerretDb) => panic!("{engine} is not asked in SQL"),
    };
    let create =
        format!("CREATE TABLE samples (id BIGINT PRIMARY KEY, n BIGINT, word {text}, bytes {bytes})");
    fixture.prepare(&["DROP TABLE IF EXISTS samples", &create]);
    let insert = match engine {
        Engine::MariaDb | Engine::MySql => "INSERT INTO samples VALUES (?, ?, ?, ?)",
        Engine::Postgres => "INSERT INTO samples VALUES ($1, $2, $3, $4)",
        engine @ (Engine::MongoDb | Engine::FerretDb) => panic!("{engine} is not asked in SQL"),
    };
    let samples = samples();
    let (mut bare, mut oracle) = (Bare::connect(&fixture.plain()), fixture.oracle());
    let prepared = bare.prepare(insert).expect("ours prepares");
    for sample in &samples {
        let inserted = if sample.id % 2 == 0 {
            oracle.insert(insert, sample)
        } else {
            let bytes = sample.bytes.as_deref().map(|bytes| literal(engine, bytes));
            let params = [
                Value::I64(sample.id),
                sample.number.map_or(Value::Null, Value::I64),
                sample.word.as_deref().map_or(Value::Null, |word| Value::Text(word.as_bytes())),
                bytes.as_deref().map_or(Value::Null, Value::Text),
            ];
            bare.execute(prepared, &params).map(|summary| summary.affected_rows)
        };
        assert_eq!(inserted, Ok(1), "sample {}", sample.id);
    }
    let read = "SELECT * FROM samples ORDER BY id";
    let expected: Rows = samples.iter().map(|sample| row(engine, sample)).collect();
    let mut client = ours::client(&fixture.plain()).expect("ours logs in");
    assert_same("samples, as ours reads them", &ours::query(&mut client, read), &Ok(expected.clone()));
    assert_same("samples, as the oracle reads them", &Ok(expected), &oracle.query(read));
}

/// More NULLs than a byte has bits, and more parameters than are converted without allocating.
pub(crate) fn many_parameters(fixture: &mut Fixture) {
    let engine = fixture.server.engine();
    let columns: Vec<String> = (0..MANY_COLUMNS).map(|column| format!("c{column} VARCHAR(20)")).collect();
    fixture.prepare(&["DROP TABLE IF EXISTS wide", &format!("CREATE TABLE wide ({})", columns.join(", "))]);
    let marks: Vec<String> = (1..=MANY_COLUMNS)
        .map(|number| match engine {
            Engine::MariaDb | Engine::MySql => "?".to_owned(),
            Engine::Postgres => format!("${number}"),
            engine @ (Engine::MongoDb | Engine::FerretDb) => panic!("{engine} is not asked in SQL"),
        })
        .collect();
    let mut bare = Bare::connect(&fixture.plain());
    let prepared =
        bare.prepare(&format!("INSERT INTO wide VALUES ({})", marks.join(", "))).expect("ours prepares");
    let mut expected = Rows::new();
    for shift in 0..3 {
        let value = |column| match (column + shift) % 3 {
            0 => (Value::Null, None),
            1 => (Value::I64(-7), Some(b"-7".to_vec())),
            _ => (Value::Text(b"word"), Some(b"word".to_vec())),
        };
        let (params, row): (Vec<Value<'_>>, _) = (0..MANY_COLUMNS).map(value).unzip();
        assert_eq!(bare.execute(prepared, &params).map(|summary| summary.affected_rows), Ok(1));
        expected.push(row);
    }
    assert_same("wide rows", &Ok(expected), &fixture.oracle().query("SELECT * FROM wide"));
}

fn samples() -> Vec<Sample> {
    let mut random = StdRng::seed_from_u64(SEED);
    (0..SAMPLES).map(|id| sample(&mut random, id)).collect()
}

fn sample(random: &mut StdRng, id: i64) -> Sample {
    // Small numbers as often as large ones.
    let number = random.random::<i64>() >> random.random_range(0..64);
    let length = random.random_range(0..=LONGEST_WORD);
    // PostgreSQL text cannot contain a NUL.
    let word: String = (0..length).map(|_| random.random_range('\u{1}'..=char::MAX)).collect();
    let longest = LONGEST_BYTES >> random.random_range(0..17);
    let bytes = (0..random.random_range(0..=longest)).map(|_| random.random()).collect();
    let mut there = || random.random_ratio(4, 5);
    Sample {
        id,
        number: there().then_some(number),
        word: there().then_some(word),
        bytes: there().then_some(bytes),
    }
}

/// The row as text, as its server writes it.
fn row(engine: Engine, sample: &Sample) -> Vec<Option<Vec<u8>>> {
    vec![
        Some(sample.id.to_string().into_bytes()),
        sample.number.map(|number| number.to_string().into_bytes()),
        sample.word.clone().map(String::into_bytes),
        sample.bytes.as_deref().map(|bytes| literal(engine, bytes)),
    ]
}

/// Bytes as text.
fn literal(engine: Engine, bytes: &[u8]) -> Vec<u8> {
    match engine {
        Engine::MariaDb | Engine::MySql => bytes.to_vec(),
        Engine::Postgres => {
            let mut text = String::from("\\x");
            for byte in bytes {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
            text.into_bytes()
        }
        engine @ (Engine::MongoDb | Engine::FerretDb) => panic!("{engine} is not asked in SQL"),
    }
}
