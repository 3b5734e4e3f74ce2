//! Factors whose levels are a bare name or number.

use super::{Factor, as_label, as_number, bounded};
use crate::labelled;

labelled! {
    /// When the client's TLS context is built, which can cost more than the handshake.
    pub enum Ctx {
        /// A new context with a CA file for each connect, as in libmysqlclient and libpq.
        PerConnect = "per-connect",
        /// One context for the whole process.
        Shared = "shared",
        /// A new context for each connect, which also loads the system's trust store.
        PerConnectSystemCa = "per-connect-systemca",
    }
}

as_label!(Ctx of Factor::Ctx.label());

bounded! {
    /// The number of concurrent clients.
    Clients(u16) up to 10_000, read by count
}

impl Clients {
    pub const ONE: Self = Self(1);
    /// Private servers have connections for so many. More clients need more than one machine.
    pub const MOST_OF_PRIVATE_SERVERS: u16 = 256;
}

as_number!(Clients of Factor::Clients.label(), "a whole number from 1 to 10000");
