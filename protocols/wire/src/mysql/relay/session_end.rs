//! Finds what only the end of a session undoes: its connection cannot be handed on.

use crate::mysql::sql::unresettable::{SOCKET_LIMIT, Scanner};

const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;

/// Observes the commands of one client.
#[derive(Debug, Default)]
pub(crate) struct SessionEndObserver {
    reason: Option<&'static str>,
    socket_limits: SocketLimits,
    text: Text,
}

/// The server's limits for this connection's socket. A reset restores the variables, but not the socket. The time limit of
/// reads is set again for each command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SocketLimits {
    #[default]
    AtLogin,
    /// A text may have set `net_write_timeout` or `net_retry_count`.
    Changed,
}

/// The text of the client's current command.
#[derive(Debug, Default)]
enum Text {
    /// It has none.
    #[default]
    None,
    Begins,
    Partial(Box<Scanner>),
}

impl SessionEndObserver {
    /// Why the connection must be closed. A text that has not ended is not known.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    pub(crate) fn socket_limits(&self) -> SocketLimits {
        self.socket_limits
    }

    pub(crate) fn set_socket_limits(&mut self, socket_limits: SocketLimits) {
        self.socket_limits = socket_limits;
    }

    /// What was found in a text.
    #[inline]
    fn record(&mut self, found: Option<&'static str>) {
        match found {
            None => {}
            Some(SOCKET_LIMIT) => self.socket_limits = SocketLimits::Changed,
            Some(reason) => self.reason = Some(reason),
        }
    }

    /// A command starts.
    #[inline]
    pub(crate) fn begin_command(&mut self, kind: u8) {
        let has_text = matches!(kind, COM_QUERY | COM_STMT_PREPARE) && self.reason.is_none();
        self.text = if has_text { Text::Begins } else { Text::None };
    }

    /// The next bytes of the command's payload, and whether it is complete.
    #[inline]
    pub(crate) fn payload(&mut self, piece: &[u8], is_complete: bool) {
        match &mut self.text {
            Text::None => {}
            // The first byte is the command's.
            Text::Begins if is_complete => {
                let found = Scanner::of(piece.get(1..).unwrap_or_default());
                self.text = Text::None;
                self.record(found);
            }
            Text::Begins => {
                let mut scanner = Scanner::default();
                scanner.read(piece.get(1..).unwrap_or_default());
                self.text = Text::Partial(Box::new(scanner));
            }
            Text::Partial(scanner) => {
                scanner.read(piece);
                if is_complete {
                    let found = scanner.found();
                    self.text = Text::None;
                    self.record(found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_socket_can_be_restored() {
        let mut observer = SessionEndObserver::default();
        for (command, limits, reason) in [
            (&b"\x03SELECT @@net_write_timeout"[..], SocketLimits::AtLogin, None),
            (b"\x03SET net_write_timeout = 1", SocketLimits::Changed, None),
            (b"\x03SET ROLE admin, net_write_timeout = 1", SocketLimits::Changed, Some("SET ROLE")),
        ] {
            observer.begin_command(command[0]);
            observer.payload(command, true);
            assert_eq!((observer.socket_limits(), observer.reason()), (limits, reason));
        }
    }

    #[test]
    fn commands_are_read_in_any_pieces() {
        for (command, expected) in [
            (&b"\x03SELECT 1"[..], None),
            (b"\x03SET ROLE admin", Some("SET ROLE")),
            (b"\x16SET ROLE admin", Some("SET ROLE")),
            (b"\x02SET ROLE admin", None),
            (b"\x03", None),
        ] {
            for piece_bytes in 1..=command.len() {
                let mut observer = SessionEndObserver::default();
                observer.begin_command(command[0]);
                let mut left = command.len();
                for piece in command.chunks(piece_bytes) {
                    left -= piece.len();
                    observer.payload(piece, left == 0);
                }
                assert_eq!(observer.reason(), expected, "{}", String::from_utf8_lossy(command));
            }
        }
    }
}
