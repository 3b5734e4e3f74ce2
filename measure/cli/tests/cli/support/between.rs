//! Tunnels and proxies between clients and server that are killed or stopped during a trial.

use std::time::Duration;

use ciphertoll_model::Path;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Attack, Session, assert_gone, is};

pub(crate) struct Between {
    pub what: &'static str,
    /// The event that reports that one of them works.
    pub tried: &'static str,
    /// Duration of a trial, including warm-up.
    pub trial: Duration,
}

/// A signal to one of their processes.
#[derive(Clone, Copy)]
pub(crate) struct Interruption {
    pub path: &'static str,
    /// The name of the process in the ledger.
    pub process: &'static str,
    pub signal: Signal,
}

impl Between {
    /// The paths of `all` that work here. In CI all must work, except those of programs that it cannot install and those
    /// without time for calibration.
    pub(crate) fn here<T: Copy>(
        &self,
        session: &Session,
        all: &[(&'static str, T)],
    ) -> Vec<(&'static str, T)> {
        let named = |event: &Value, path: &str| is(event, self.tried) && event["path"] == path;
        let works = |path: &str| session.events().iter().any(|event| named(event, path));
        let (mut here, absent): (Vec<_>, Vec<_>) = all.iter().copied().partition(|(path, _)| works(path));
        for (path, _) in absent {
            let why = format!("{} {path}: {:?}", self.what, session.events());
            match path.parse::<Path>().ok().and_then(Path::as_proxy) {
                Some(proxy) => ciphertoll_testing::no_proxy(proxy.program, &why),
                None => ciphertoll_testing::missing(&why),
            }
        }
        let none = here.is_empty();
        here.retain(|(path, _)| !session.lost_path_to_noise(path));
        assert!(none || !here.is_empty(), "no time for any: {:?}", session.events());
        here
    }

    /// Sends each signal in a separate trial, which must be voided. The run must continue and leave nothing behind.
    pub(crate) fn each_voids_its_trial(&self, mut session: Session, mut ahead: Vec<Interruption>) {
        let mut done = Vec::new();
        while !ahead.is_empty() {
            done.push(self.interrupt(&mut session, &mut ahead));
        }
        if !done.is_empty() {
            session.wait_for("the end of its block", |event| is(event, "block_finished"));
        }
        let (processes, scratch) = (session.identities(), session.scratch().to_owned());
        session.signal(Signal::SIGINT);
        let finished = session.finish();
        assert_gone(&processes, &scratch);
        for (voided, Interruption { process, signal, .. }) in done {
            let happened = if signal == Signal::SIGKILL { "ended" } else { "stopped" };
            let reason = voided["reason"].to_string();
            let says_so = [self.what, process, happened].iter().all(|word| reason.contains(word));
            assert!(says_so, "{process} {happened}: {reason}");
            let same =
                |event: &&Value| ["cell", "block", "arm"].iter().all(|key| event[*key] == voided[*key]);
            let again = finished.named("trial_finished").into_iter().any(|event| same(&event));
            assert!(again, "{process}: not tried again");
        }
    }

    /// Waits for the next trial of a path to which something is still to be done, and does it: how it was voided.
    fn interrupt(&self, session: &mut Session, ahead: &mut Vec<Interruption>) -> (Value, Interruption) {
        loop {
            let of_path = |event: &Value| {
                let cell = event["cell"].as_str().unwrap_or_default();
                ahead.iter().position(|next| cell.contains(&format!("/{}/", next.path)))
            };
            let begun = session.next_trial(|event| of_path(event).is_some());
            let at = of_path(&begun).expect("it was asked for");
            let next = ahead[at];
            let chosen = |session: &mut Session| {
                let noted = session.processes();
                let process = noted.iter().rfind(|noted| noted.what == next.process);
                let process = process.expect("it is in the ledger").identity;
                Attack { process, signal: next.signal, gate: self.what, trial: self.trial }
            };
            if let Some(voided) = session.attack(&begun, chosen) {
                return (voided, ahead.remove(at));
            }
        }
    }
}
