//! What is known of one socket between two of its edges, and the tokens of the readiness loop.

use ciphertoll_net::{Channel, Error, Reactor, Readiness, WatchedEvents};

const KIND_BITS: u32 = 2;
/// Reads of one side per turn.
pub(super) const READS: usize = 16;

#[derive(Clone, Copy, Default)]
pub(super) struct Flow {
    /// An edge reported bytes that were not read, because there was no room for them.
    pub(super) unread: bool,
    pub(super) held_back: HeldBack,
    pub(super) peer: Peer,
    /// What was received waits until the server has answered everything.
    pub(super) awaits_answers: bool,
    /// Watched for room to send.
    pub(super) watched: bool,
}

/// What a peer still does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Peer {
    #[default]
    Sends,
    /// It has closed its side; no edge will report that again.
    Ended,
    /// It does not read either.
    Gone,
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

    /// Records what an edge says of the peer.
    pub(super) fn record(&mut self, readiness: Readiness) {
        match readiness {
            Readiness::Gone => self.peer = Peer::Gone,
            Readiness::ReadableToEnd => self.ends(),
            Readiness::Readable | Readiness::Writable => {}
        }
    }

    /// The peer sends nothing more.
    pub(super) fn ends(&mut self) {
        if self.peer == Peer::Sends {
            self.peer = Peer::Ended;
        }
    }

    pub(super) fn has_ended(self) -> bool {
        self.peer != Peer::Sends
    }

    pub(super) fn is_gone(self) -> bool {
        self.peer == Peer::Gone
    }

    /// Whether there may be input that no edge will report.
    pub(super) fn has_more(self) -> bool {
        self.unread || self.has_ended() || self.held_back == HeldBack::Something
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
