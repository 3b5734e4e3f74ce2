//! Tests of page encryption and key files.

mod files;
mod keys;
mod torn;
mod wal;
