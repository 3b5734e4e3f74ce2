//! MySQL's and MariaDB's protocol in front of clients.

mod carried;
mod front;
mod numbers;
mod protocol;
mod refusal;
mod session;
mod shared;
mod wanted;

pub use front::{Admission, Front, Gate, Greeter, Way};
pub use numbers::Numbers;
pub use protocol::MySql;
pub use session::{Facts, Session};
pub use wanted::{Entry, Wanted};
