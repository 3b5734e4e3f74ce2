//! Runs on real servers, without a record on disk.

use std::path::PathBuf;

use anyhow::{Context, Result};
use ciphertoll_experiment::{Injection, Interrupt, LabTestbed, Run, Sink, TestbedError};
use ciphertoll_model::{Arm, Event, LinkKind, Plan, TimestampedEvent};

use crate::ciphertoll_program;

pub struct RealRuns {
    program: PathBuf,
    logs: PathBuf,
    link_kind: Option<LinkKind>,
}

impl RealRuns {
    /// Removes the remains of killed runs and creates a directory for server logs, named after `purpose`. Links are of
    /// `link_kind`; default: the best kind that this machine supports.
    pub fn begin(purpose: &str, link_kind: Option<LinkKind>) -> Result<Self> {
        let program = ciphertoll_program()?;
        ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
        let logs = std::env::temp_dir().join(format!("ciphertoll-{purpose}-{}", std::process::id()));
        std::fs::create_dir_all(&logs).context("cannot create a directory for logs")?;
        Ok(Self { program, logs, link_kind })
    }

    /// Runs `plan` on private servers, with an optional known effect.
    pub fn carry_out(&self, plan: &Plan, injection: Option<Injection>) -> Result<Vec<TimestampedEvent>> {
        let interrupt = Interrupt::default();
        let mut testbed =
            LabTestbed::new(self.program.clone(), interrupt.clone()).with_logs(self.logs.clone());
        if let Some(injection) = injection {
            testbed = testbed.with_injection(injection);
        }
        if let Some(kind) = self.link_kind {
            testbed = testbed.with_links_by(kind);
        }
        Run::new(plan, &mut testbed, &mut DiscardingSink, &interrupt)
            .carry_out(env!("CARGO_PKG_VERSION"))
            .map_err(anyhow::Error::new)
    }

    /// Removes the logs. After a failed run they are kept.
    pub fn end(self) -> Result<()> {
        std::fs::remove_dir_all(&self.logs).context("cannot remove the logs")
    }
}

/// Discards everything, because `carry_out` returns the events.
struct DiscardingSink;

impl Sink for DiscardingSink {
    fn event(&mut self, event: &Event) -> Result<TimestampedEvent, TestbedError> {
        Ok(TimestampedEvent { at_unix_ms: 0, event: event.clone() })
    }

    fn histogram(&mut self, _: u32, _: usize, _: Arm, _: &str) -> Result<(), TestbedError> {
        Ok(())
    }
}
