//! Passwords that a command prints: IAM tokens, Vault's dynamic users.
//!
//! - [`command`] runs a command within bounds of time and output, [`output`] reads what it has printed.
//! - A [`PasswordCell`] has one user's command and its last result. Workers read it when they open a server connection.
//! - [`AnyUserPasswords`] has the cells of users whom the settings do not name.
//! - [`Credentials`] decides when a command runs, on threads that exist only while one does.

mod any_user;
mod cell;
mod command;
mod fetcher;
mod output;
mod template;

pub use any_user::AnyUserPasswords;
pub(crate) use cell::{AfterRefusal, Availability};
pub use cell::{FetchError, PasswordCell, PasswordCommand};
pub use command::RunningCommands;
pub use fetcher::{Credentials, PasswordSources};
pub use template::{CommandTemplate, WordPart};
