//! The arguments of servers at URLs.

use clap::Args;

#[derive(Args, Debug)]
#[command(
    next_help_heading = "Your own server (limits unless overridden: 4 clients, 20 connects and 1000 queries per second)"
)]
pub(crate) struct UrlArguments {
    /// A running server, as a connection URL of libpq, MySQL or MongoDB; may be repeated. If the URL sets neither
    /// sslmode, ssl-mode or tls nor a TLS file, both plaintext and TLS are measured. For options and passwords see
    /// docs/measure/url.md
    #[arg(long, value_name = "NAME=URL")]
    pub(crate) url: Vec<String>,
    /// Create the workloads' tables or documents on the server, in a database named ciphertoll; without this option
    /// nothing is written
    #[arg(long, requires = "url")]
    pub(crate) prepare: bool,
    /// Maximum operations per second, over all clients [default: 20 connects, 1000 queries, 16.8 MB of results]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_rate: Option<u32>,
    /// The statement of the workload `query`: SQL, or a JSON command for a document database
    #[arg(long, value_name = "TEXT")]
    pub(crate) query: Option<String>,
}
