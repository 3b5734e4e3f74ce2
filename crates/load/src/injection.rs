//! The known effect that the truth experiment puts in and must find again.

use std::time::{Duration, Instant};

/// Burns `delay` of CPU; nothing where it is zero.
pub(crate) fn spin(delay: Duration) {
    if delay.is_zero() {
        return;
    }
    let until = Instant::now() + delay;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
