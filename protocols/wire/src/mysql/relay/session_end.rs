//! Finds what only the end of a session undoes: its connection cannot be handed on.

use crate::mysql::sql::unresettable::Scanner;

const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;

/// Observes the commands of one client.
#[derive(Debug, Default)]
pub(crate) struct SessionEndObserver {
    reason: Option<&'static str>,
    text: Text,
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
                self.reason = Scanner::of(piece.get(1..).unwrap_or_default());
                self.text = Text::None;
            }
            Text::Begins => {
                let mut scanner = Scanner::default();
                scanner.read(piece.get(1..).unwrap_or_default());
                self.text = Text::Partial(Box::new(scanner));
            }
            Text::Partial(scanner) => {
                scanner.read(piece);
                if is_complete {
                    self.reason = scanner.found();
                    self.text = Text::None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
