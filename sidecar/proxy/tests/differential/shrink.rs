//! Makes a failing session smaller while it still fails.

use std::time::Instant;

use crate::options::{SHRINK_TIME, SHRINK_TRIES};
use crate::session::{Session, Step};

/// `fails` runs a session. The result is the smallest one found that still fails.
pub(crate) fn shrink<M: Clone, L: Clone + Default + PartialEq>(
    session: &Session<M, L>,
    fails: &mut dyn FnMut(&Session<M, L>) -> bool,
) -> Session<M, L> {
    let mut best = session.clone();
    let (begun, mut tries) = (Instant::now(), 0);
    let mut size = best.steps.len().div_ceil(2).max(1);
    loop {
        let mut smaller = false;
        let candidates = if size > 1 { without_runs(&best, size) } else { smaller_by_one(&best) };
        for candidate in candidates {
            if tries == SHRINK_TRIES || begun.elapsed() > SHRINK_TIME {
                return best;
            }
            tries += 1;
            if fails(&candidate) {
                (best, smaller) = (candidate, true);
                break;
            }
        }
        match (smaller, size) {
            (false, 1) => return best,
            (false, _) => size /= 2,
            (true, _) => size = size.min(best.steps.len().div_ceil(2).max(1)),
        }
    }
}

/// Without `size` neighbouring steps.
fn without_runs<M: Clone, L: Clone>(session: &Session<M, L>, size: usize) -> Vec<Session<M, L>> {
    let starts = (0..session.steps.len()).step_by(size);
    let shorter = starts.map(|start| {
        let mut shorter = session.clone();
        shorter.steps.drain(start..(start + size).min(session.steps.len()));
        shorter
    });
    shorter.collect()
}

/// Without one step, one message, the cuts of a step, or the options of a login.
fn smaller_by_one<M: Clone, L: Clone + Default + PartialEq>(session: &Session<M, L>) -> Vec<Session<M, L>> {
    let mut candidates = without_runs(session, 1);
    candidates.reverse();
    for (at, step) in session.steps.iter().enumerate() {
        let Step::Send { client, messages, cuts } = step else { continue };
        let replace = |messages: Vec<M>, cuts: Vec<u16>| {
            let mut smaller = session.clone();
            smaller.steps[at] = Step::Send { client: *client, messages, cuts };
            smaller
        };
        if !cuts.is_empty() {
            candidates.push(replace(messages.clone(), Vec::new()));
        }
        for message in (0..messages.len()).filter(|_| messages.len() > 1) {
            let mut fewer = messages.clone();
            fewer.remove(message);
            candidates.push(replace(fewer, cuts.clone()));
        }
    }
    for client in 0..session.logins.len() {
        let mut plain = session.clone();
        plain.logins[client] = L::default();
        if plain.logins[client] != session.logins[client] {
            candidates.push(plain);
        }
    }
    candidates
}
