//! A loop over the observer's ring that only counts packets.

use std::time::Duration;

use anyhow::{Context, Result};
use ciphertoll_experiment::Interrupt;
use ciphertoll_link::{HAND_OVER, LiveCapture};
use serde_json::json;

use crate::print_line;

/// The hidden command.
pub const BARE_COMMAND: &str = "__bare";
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Counts packets of a port on the loopback interface until `interrupt`; prints the count as the observer does.
#[expect(clippy::print_stderr, reason = "the signal that it has begun")]
pub fn run_bare_process(port: &str, interrupt: &Interrupt) -> Result<()> {
    let port = port.parse().context("no port")?;
    let mut live = LiveCapture::open(Some("lo"), &[port]).context("cannot capture packets")?;
    eprintln!("observing");
    let (mut packets, mut bytes) = (0_u64, 0_u64);
    loop {
        let is_over = interrupt.ending().is_some();
        if let Some(packet) = live.take() {
            packets += 1;
            bytes += packet.data.len() as u64;
            continue;
        }
        if is_over {
            break;
        }
        live.wait(LONGEST_WAIT.max(HAND_OVER))?;
    }
    let document = json!({ "segments": packets, "bytes": bytes, "dropped": live.take_dropped() });
    print_line(&document.to_string())
}
