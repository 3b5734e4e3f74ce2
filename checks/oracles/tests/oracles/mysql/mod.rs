//! Features of the MySQL protocol only.

mod effects;
mod refusals;
mod rows;

use crate::Case;
use crate::fixture::Fixture;
use crate::oracle::{MySqlOracle, Oracle};

pub(crate) const CASES: [Case; 10] = [
    ("rows: values of every type", rows::values_of_every_type),
    ("rows: many of them", rows::many_rows),
    ("rows: larger than a packet", rows::larger_than_a_packet),
    ("rows: several results in one answer", rows::several_results),
    ("rows: prepared statements", rows::prepared_statements),
    ("rows: counts of rows changed", rows::counts_of_rows_changed),
    ("effects: settings among literals", effects::settings_are_found_where_the_server_finds_them),
    ("refusals: of statements", refusals::of_statements),
    ("refusals: in the middle of rows", refusals::in_the_middle_of_rows),
    ("refusals: of logins", refusals::of_logins),
];

fn oracle(fixture: &Fixture) -> MySqlOracle {
    match fixture.oracle() {
        Oracle::MySql(oracle) => *oracle,
        Oracle::Postgres(_) => unreachable!("another protocol's driver"),
    }
}
