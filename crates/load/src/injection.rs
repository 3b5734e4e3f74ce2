//! The known effect that the truth experiment injects and must find again.

use std::time::{Duration, Instant};

/// Burns `delay` of CPU time.
pub(crate) fn spin(delay: Duration) {
    if delay.is_zero() {
        return;
    }
    let until = Instant::now() + delay;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
