//! MySQL's and MariaDB's protocol in front of clients.

mod front;
mod numbers;
mod protocol;
mod refusal;
mod session;
mod wanted;

pub use front::{Admission, Front, Gate, Greeter};
pub use numbers::Numbers;
pub use protocol::MySql;
pub use session::{Facts, Session};
pub use wanted::Wanted;
