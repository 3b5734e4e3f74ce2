//! Features of the PostgreSQL protocol only.

mod copies;
mod effects;
mod refusals;
mod rows;

use crate::Case;
use crate::fixture::Fixture;
use crate::oracle::{Oracle, PostgresOracle};

pub(crate) const CASES: [Case; 11] = [
    ("rows: values of every type", rows::values_of_every_type),
    ("rows: many of them, and large ones", rows::many_and_large_rows),
    ("rows: several results in one answer", rows::several_results),
    ("rows: prepared statements", rows::prepared_statements),
    ("rows: counts of rows changed", rows::counts_of_rows_changed),
    ("copies: in and out", copies::in_and_out),
    ("copies: refused", copies::refused),
    ("effects: statements among literals", effects::statements_are_found_where_the_server_finds_them),
    ("refusals: of statements", refusals::of_statements),
    ("refusals: in the middle of rows", refusals::in_the_middle_of_rows),
    ("refusals: of logins", refusals::of_logins),
];

fn oracle(fixture: &Fixture) -> PostgresOracle {
    match fixture.oracle() {
        Oracle::Postgres(oracle) => *oracle,
        Oracle::MySql(_) => unreachable!("another protocol's driver"),
    }
}
