//! The account that a client logs in with.

use std::path::PathBuf;

use ciphertoll_model::Identity;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAccount {
    pub user: String,
    /// A private file (0600) whose whole content is the password; empty if the account has none.
    pub password_file: PathBuf,
    /// The client certificate, if the account requires one.
    pub identity: Option<Identity>,
}
