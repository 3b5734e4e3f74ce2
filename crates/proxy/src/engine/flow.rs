//! What is known of one socket between two of its edges, and the tokens of the readiness loop.

use ciphertoll_net::{Channel, Error, Reactor, WatchedEvents};

const KIND_BITS: u32 = 2;

#[derive(Clone, Copy, Default)]
pub(super) struct Flow {
    /// An edge reported bytes that were not read, because there was no room for them.
    pub(super) unread: bool,
    pub(super) held_back: HeldBack,
    /// The peer has closed its side; no edge will report that again.
    pub(super) ended: bool,
    /// The peer does not read either.
    pub(super) gone: bool,
    /// What was received waits until the server has answered everything.
    pub(super) awaits_answers: bool,
    /// Watched for room to send.
    pub(super) watched: bool,
}

/// Whether received bytes were not processed: the client had no connection, or too many responses were owed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum HeldBack {
    #[default]
    Nothing,
    Something,
}

impl Flow {
    /// Waits for room to send only while output is pending.
    pub(super) fn watch(
        &mut self,
        channel: &mut Channel,
        reactor: &Reactor,
        token: usize,
    ) -> Result<(), Error> {
        let blocked = channel.is_blocked();
        if blocked == self.watched {
            return Ok(());
        }
        self.watched = blocked;
        let watch = if blocked { WatchedEvents::Both } else { WatchedEvents::Reading };
        reactor.watch(channel, token, watch)
    }

    /// Whether there may be input that no edge will report.
    pub(super) fn has_more(self) -> bool {
        self.unread || self.ended || self.held_back == HeldBack::Something
    }
}

/// What a token of the readiness loop stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Client,
    Server,
    Cancel,
    Fixed,
}

pub(super) fn token_of(kind: TokenKind, index: usize) -> usize {
    index << KIND_BITS | kind as usize
}

/// The kind and the index of a token.
pub(super) fn parse_token(token: usize) -> (TokenKind, usize) {
    let kinds = [TokenKind::Client, TokenKind::Server, TokenKind::Cancel, TokenKind::Fixed];
    (kinds[token & (kinds.len() - 1)], token >> KIND_BITS)
}
