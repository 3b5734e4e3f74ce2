//! A session whose messages are forwarded unread, such as replication: it ends with its client, so only the
//! boundaries of messages matter.

use crate::{
    postgres::{
        codec::kind,
        error::Error,
        relay::{backend_model::SentKind, framer::Framer},
    },
    relay::{ClientInput, Goodbye},
};

/// Splits both directions into messages, and recognizes the client's last one.
#[derive(Debug, Default)]
pub struct PassThrough {
    client: Framer,
    server: Framer,
    error_was_last: bool,
}

impl PassThrough {
    /// How much of the client's bytes to forward. Fails for input that is not a client message, such as a
    /// second startup message.
    pub fn process_client(&mut self, input: &[u8]) -> Result<ClientInput, Error> {
        let mut at = 0;
        loop {
            self.client.read(input, &mut at);
            let goodbye = match self.client.next_header(&input[at..])? {
                None => Goodbye::None,
                Some(header) if header.kind == kind::TERMINATE => Goodbye::Said,
                Some(header) if header.kind == kind::FLUSH || SentKind::of(header.kind).is_some() => {
                    self.client.begin(header, &mut at);
                    continue;
                }
                Some(_) => return Err(Error::protocol("command", "an unknown kind of message")),
            };
            return Ok(ClientInput { pass_bytes: at, goodbye });
        }
    }

    /// How much of the server's bytes to forward.
    pub fn process_server(&mut self, input: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            self.server.read(input, &mut at);
            let Some(header) = self.server.next_header(&input[at..])? else { return Ok(at) };
            self.error_was_last = header.kind == kind::ERROR_RESPONSE;
            self.server.begin(header, &mut at);
        }
    }

    /// Whether an error message can be sent to the client now: the server's last message is complete, and was not one.
    pub fn can_send_error(&self) -> bool {
        self.server.is_between_messages() && !self.error_was_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{command::encode_query, startup::encode_startup};

    fn query() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_query(&mut bytes, "IDENTIFY_SYSTEM").unwrap();
        bytes
    }

    #[test]
    fn everything_up_to_the_clients_last_message_is_forwarded_however_it_arrives() {
        let bytes = [query(), b"d\0\0\0\x06xy".to_vec(), b"c\0\0\0\x04X\0\0\0\x04later".to_vec()].concat();
        let last = bytes.len() - b"X\0\0\0\x04later".len();
        for piece in 1..bytes.len() {
            let (mut relay, mut passed, mut held) = (PassThrough::default(), 0, Vec::new());
            for chunk in bytes.chunks(piece) {
                held.extend_from_slice(chunk);
                let input = relay.process_client(&held).unwrap();
                passed += input.pass_bytes;
                held.drain(..input.pass_bytes);
                if input.goodbye == Goodbye::Said {
                    break;
                }
            }
            assert_eq!(passed, last, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_startup_message_in_a_session_is_refused() {
        let mut startup = query();
        let before = startup.len();
        encode_startup(&mut startup, &[("user", "postgres"), ("replication", "database")]).unwrap();
        assert_eq!(PassThrough::default().process_client(&startup[..before]).unwrap().pass_bytes, before);
        assert!(PassThrough::default().process_client(&startup).is_err());
        assert!(PassThrough::default().process_client(b"p\0\0\0\x05x").is_err(), "a password, too");
    }

    #[test]
    fn an_error_can_be_sent_between_the_servers_messages() {
        let mut relay = PassThrough::default();
        assert!(relay.can_send_error());
        assert_eq!(relay.process_server(b"W\0\0\0\x07\0").unwrap(), 6);
        assert!(!relay.can_send_error());
        assert_eq!(relay.process_server(b"\0\0d\0").unwrap(), 2, "a header waits until it is complete");
        assert!(relay.can_send_error());
        assert_eq!(relay.process_server(b"E\0\0\0\x05\0").unwrap(), 6);
        assert!(!relay.can_send_error(), "the server has sent one");
        assert!(relay.process_server(b"d\0\0\0\x01").is_err(), "an impossible length");
    }
}
