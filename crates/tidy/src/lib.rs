//! The house rules that a tool can check; they are this crate's tests.
