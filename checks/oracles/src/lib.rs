//! Compares our clients with independent drivers on real servers. The crate consists of tests.
