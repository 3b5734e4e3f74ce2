//! What all protocols have in common: one side's bytes, message by message, until they are TLS or cannot be read.

use crate::passive::event::{Content, Event};
use crate::passive::messages::{MessageLayout, Messages, Next};
use crate::side::ConnectionSide;

/// What a protocol's messages mean.
pub(super) trait PassiveMachine {
    /// What this side's next bytes are. `are_between` says of each side whether its next byte begins a message.
    fn expected(&mut self, side: ConnectionSide, are_between: [bool; 2], content: &Content<'_>) -> NextPart;

    fn message(
        &mut self,
        side: ConnectionSide,
        message: &PassiveMessage<'_>,
        events: &mut dyn FnMut(Event),
    ) -> AfterMessage;

    /// Allocated memory.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// A message's header, and the start of its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassiveMessage<'a> {
    pub(super) layout: MessageLayout,
    pub(super) header: &'a [u8],
    pub(super) body: &'a [u8],
    pub(super) body_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextPart {
    Message(MessageLayout),
    /// TLS, from here on, on this side only.
    TlsOfSide,
    /// TLS, from here on, on both sides.
    Tls,
}

/// What follows a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterMessage {
    /// More messages.
    More,
    /// TLS, on both sides.
    Tls,
    /// Nothing that can be read.
    Opaque,
    /// The message is not one of this protocol.
    Lost,
}

/// Both sides of a connection of one protocol.
#[derive(Clone, Debug)]
pub(super) struct MessageLoop<M> {
    machine: M,
    messages: [Messages; 2],
    /// Whose next byte is TLS.
    tls: [bool; 2],
    is_opaque: bool,
}

impl<M: PassiveMachine> MessageLoop<M> {
    pub(super) fn new(machine: M) -> Self {
        Self { machine, messages: Default::default(), tls: [false; 2], is_opaque: false }
    }

    /// Reads one side's next bytes. Returns what is TLS.
    pub(super) fn read<'a>(
        &mut self,
        side: ConnectionSide,
        mut content: Content<'a>,
        events: &mut dyn FnMut(Event),
    ) -> Option<Content<'a>> {
        let Self { machine, messages, tls, is_opaque } = self;
        loop {
            if tls[side as usize] {
                return Some(content);
            }
            if *is_opaque {
                return None;
            }
            messages[side as usize].skip(&mut content);
            let are_between = messages.each_ref().map(Messages::is_between);
            let layout = match machine.expected(side, are_between, &content) {
                NextPart::Message(layout) => layout,
                NextPart::TlsOfSide => {
                    tls[side as usize] = true;
                    continue;
                }
                NextPart::Tls => {
                    *tls = [true; 2];
                    continue;
                }
            };
            let after = match messages[side as usize].next(&mut content, layout) {
                Next::Message { header, body, body_bytes } => {
                    machine.message(side, &PassiveMessage { layout, header, body, body_bytes }, events)
                }
                Next::Starved => return None,
                Next::Lost => AfterMessage::Lost,
            };
            match after {
                AfterMessage::More => {}
                AfterMessage::Tls => *tls = [true; 2],
                AfterMessage::Opaque => *is_opaque = true,
                AfterMessage::Lost => {
                    *is_opaque = true;
                    events(Event::Lost);
                }
            }
        }
    }

    /// Whether all that follows is TLS, on both sides.
    pub(super) fn is_tls(&self) -> bool {
        self.tls == [true; 2]
    }

    /// Allocated memory.
    pub(super) fn heap_bytes(&self) -> usize {
        self.machine.heap_bytes() + self.messages.iter().map(Messages::heap_bytes).sum::<usize>()
    }
}
