//! The login, the readers of replies, and the search for a member of a replica set.

pub(crate) mod authenticator;
pub(crate) mod connect;
pub(crate) mod hello;
pub(crate) mod login;
pub(crate) mod reply;
pub(crate) mod response;
pub(crate) mod rows;
pub(crate) mod server_info;
pub mod topology;

pub use connect::MongoDbConnect;
pub use login::{MIN_ITERATIONS, Mechanism, MongoDbLogin, MongoDbTlsMode};
pub use response::MongoDbResponseReader;
pub use rows::{Documents, DocumentsReader, version_of};
pub use server_info::{MongoDbAuthMethod, MongoDbServerInfo};
pub use topology::{Discovery, DiscoveryError, HostFindings, SelectedServer};
