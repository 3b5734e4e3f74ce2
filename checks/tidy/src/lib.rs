//! Rules of the project; this crate's tests check them.
