//! Our MongoDB client compared with two drivers: the official one for Rust, and pymongo.
//!
//! The official driver 3.9 does not log in by SCRAM to a `FerretDB` 1: see [`logins::the_official_drivers_scram`]. It is
//! tested without authentication; pymongo with a password.

mod convert;
mod encryption;
mod finds;
mod logins;
mod official;
mod oracle;
mod ours;
mod pymongo;
mod refusals;
mod samples;

use ciphertoll_model::{Auth, Engine};

use crate::Case;

pub(crate) const CASES: [Case; 9] = [
    ("documents: each type, written by one and read by the others", samples::each_type),
    ("documents: random ones, written by one and read by the others", samples::random_ones),
    ("documents: finds", finds::side_by_side),
    ("documents: refusals", refusals::side_by_side),
    ("documents: logins", logins::side_by_side),
    ("documents: the official driver's SCRAM", logins::the_official_drivers_scram),
    ("documents: TLS", encryption::tls),
    ("documents: certificates of clients", encryption::certificates_of_clients),
    ("documents: plaintext where TLS is expected", encryption::plaintext_where_tls_is_expected),
];

/// What a server's accounts have unless they are asked otherwise.
fn scram() -> Auth {
    Auth::default_of(Engine::FerretDb)
}
