//! Page encryption held against plain files, and key files against those who tamper with them.

mod files;
mod keys;
mod wal;
