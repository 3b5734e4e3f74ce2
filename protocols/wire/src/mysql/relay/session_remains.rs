//! What a session may leave on its connection: decided by the texts of its commands, and by what the server reports.

use crate::mysql::{
    codec::{capabilities::Capabilities, command::NO_ATTRIBUTES, ok::OkPacket},
    sql::remains::{Remains, RemainsReader},
};

const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;

/// Follows one session. [`Remains::Anything`] is final.
#[derive(Debug)]
pub(crate) struct RemainsObserver {
    remains: Remains,
    /// If more than this remains, nothing more is read.
    limit: Remains,
    /// The text of the current command.
    text: Option<CommandText>,
}

#[derive(Debug, Default)]
struct CommandText {
    reader: RemainsReader,
    /// Bytes of the payload before the text, as far as they were read.
    prefix_bytes: usize,
}

impl Default for RemainsObserver {
    /// Reads nothing, so anything may remain.
    fn default() -> Self {
        Self { remains: Remains::Anything, limit: Remains::Anything, text: None }
    }
}

impl RemainsObserver {
    pub(crate) fn up_to(limit: Remains) -> Self {
        Self { remains: Remains::Nothing, limit, text: None }
    }

    /// What remains. The text of a command that has not ended is not known.
    pub(crate) fn remains(&self) -> Remains {
        if self.text.is_some() { Remains::Anything } else { self.remains }
    }

    pub(crate) fn raise(&mut self, remains: Remains) {
        self.remains = self.remains.max(remains);
        if self.remains > self.limit {
            self.remains = Remains::Anything;
        }
        if self.remains == Remains::Anything {
            self.text = None;
        }
    }

    /// A command starts.
    #[inline]
    pub(crate) fn begin_command(&mut self, kind: u8) {
        if self.remains == Remains::Anything {
            return;
        }
        match kind {
            // The text of the command before was replaced.
            _ if self.text.is_some() => self.raise(Remains::Anything),
            COM_QUERY => self.text = Some(CommandText::default()),
            COM_PING => {}
            _ => self.raise(Remains::Anything),
        }
    }

    /// The next bytes of the command's payload, and whether it is complete.
    #[inline]
    pub(crate) fn payload(&mut self, piece: &[u8], is_complete: bool, capabilities: Capabilities) {
        let Some(text) = &mut self.text else { return };
        let has_attributes = capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
        let prefix = [COM_QUERY, NO_ATTRIBUTES[0], NO_ATTRIBUTES[1]];
        let prefix = if has_attributes { &prefix[..] } else { &prefix[..1] };
        let expected = &prefix[text.prefix_bytes..];
        let (start, piece) = piece.split_at(expected.len().min(piece.len()));
        if start != &expected[..start.len()] {
            return self.raise(Remains::Anything);
        }
        text.prefix_bytes += start.len();
        text.reader.read(piece);
        let at_least = text.reader.at_least();
        if is_complete && let Some(text) = self.text.take() {
            self.raise(text.reader.end());
        } else if at_least > self.limit {
            self.raise(Remains::Anything);
        }
    }

    /// A command, or a part of its result, has ended with this packet, as far as it has arrived.
    #[inline]
    pub(crate) fn record_ok(&mut self, ok: OkPacket, payload: &[u8], capabilities: Capabilities) {
        // Warnings and generated keys can be asked for later. Without autocommit, savepoints and metadata locks can be
        // left of a transaction that is not reported.
        let has_values = ok.warnings > 0 || ok.last_insert_id != 0 || !ok.commits_automatically();
        if has_values || ok.session_state_changed() && OkPacket::reports_changes(payload, capabilities) {
            self.raise(Remains::Anything);
        }
    }
}

#[cfg(test)]
mod tests;
