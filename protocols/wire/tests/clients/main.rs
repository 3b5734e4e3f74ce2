//! Password files, option files and URLs, compared with what the servers' own clients make of them.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod option_files;
mod password_files;
mod urls;
