//! What a client's handshake waits for, on another thread.

use std::fmt;

/// Called on that thread, with the label of the outcome, when the handshake can go on.
pub(crate) type Report = Box<dyn FnOnce(&'static str) + Send>;

/// Starts work that must not be done by a worker. The handshake is stepped again when it is done.
pub struct LookUp(Box<dyn FnOnce(Report) + Send>);

impl LookUp {
    pub(crate) fn new(start: impl FnOnce(Report) + Send + 'static) -> Self {
        Self(Box::new(start))
    }

    pub(crate) fn start(self, report: Report) {
        (self.0)(report);
    }
}

impl fmt::Debug for LookUp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LookUp(..)")
    }
}

/// Unique for each look-up.
impl PartialEq for LookUp {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for LookUp {}
