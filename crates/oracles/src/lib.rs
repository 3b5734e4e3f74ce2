//! Our clients held against independent drivers, on real servers; this crate is its tests.
