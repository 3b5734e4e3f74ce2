//! Progress messages of a load, and its interruption.

use crate::error::Error;

/// Receives the progress of a load and may interrupt it.
pub(crate) struct LoadProgress<'a> {
    pub(crate) progress: &'a mut dyn FnMut(&str),
    pub(crate) stop: &'a dyn Fn() -> bool,
}

impl LoadProgress<'_> {
    pub(crate) fn report(&mut self, message: &str) {
        (self.progress)(message);
    }

    /// Fails with [`Error::Interrupted`] once `stop` returns true.
    pub(crate) fn check_interrupt(&self) -> Result<(), Error> {
        if (self.stop)() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
