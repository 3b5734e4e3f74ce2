//! What a session is doing.

use super::{ClientPayload, MySqlRelay, Transaction};
use crate::relay::SessionProgress;

impl MySqlRelay {
    pub fn progress(&self) -> SessionProgress {
        let is_within =
            !self.client_framer.is_between_messages() || !self.server_framer.is_between_messages();
        match self.transaction {
            _ if self.doubt.is_some() => SessionProgress::Unknown,
            _ if is_within || self.current.is_some() || self.client_payload == ClientPayload::File => {
                SessionProgress::Busy
            }
            Transaction::Open => SessionProgress::InTransaction,
            Transaction::None => SessionProgress::Idle,
        }
    }
}
