//! Runs sessions: directly, through each proxy, and the failing ones again until they are small.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::time::Instant;

use crate::documented::Documented;
use crate::options::Options;
use crate::say;
use crate::session::{Counts, Failure, Session};
use crate::shrink::shrink;

/// A server with proxies in front of it.
pub(crate) trait Bench {
    type Message: Clone + Display;
    type Login: Clone + Debug + Default + PartialEq;
    /// The answers of a direct session.
    type Transcript;

    fn name(&self) -> String;
    fn generate(&self, seed: u64) -> Session<Self::Message, Self::Login>;
    fn routes(&self) -> Vec<String>;
    /// `None` if the session has no definite answers.
    fn direct(&mut self, session: &Session<Self::Message, Self::Login>) -> Option<Self::Transcript>;
    fn proxied(
        &mut self,
        route: usize,
        session: &Session<Self::Message, Self::Login>,
        transcript: &Self::Transcript,
    ) -> Result<Counts, Box<Failure>>;
    /// Starts the proxies of a route anew.
    fn renew(&mut self, route: usize);
}

/// Long runs say after as many sessions how far they are.
const PROGRESS: u64 = 1000;
/// How often a session is repeated that may have been late, or that has met a lock of the server's own: with
/// `lock_wait_timeout = 0`, one that is held for a moment makes a command fail.
const REPEATS: usize = 4;

/// The number of failures.
pub(crate) fn run<B: Bench>(bench: &mut B, options: &Options) -> usize {
    let (begun, mut undecided, mut done) = (Instant::now(), 0_u64, 0);
    let routes = bench.routes();
    let mut counts = vec![Counts::default(); routes.len()];
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in (options.seed..).take(usize::try_from(options.sessions).expect("not that many")) {
        if options.time.is_some_and(|limit| begun.elapsed() > limit) || seen.len() >= options.failures {
            break;
        }
        done += 1;
        if done % PROGRESS == 0 {
            say(&format!("{}: {done} sessions, {} kinds of differences", bench.name(), seen.len()));
        }
        let session = bench.generate(seed);
        let Some(transcript) = bench.direct(&session) else {
            undecided += 1;
            continue;
        };
        for (route, name) in routes.iter().enumerate() {
            match bench.proxied(route, &session, &transcript) {
                Ok(more) => counts[route].add(more),
                Err(failure) => {
                    bench.renew(route);
                    let Some(failure) = repeated(bench, route, &session, &transcript, failure) else {
                        say(&format!("{} {name}: seed {seed} was late once", bench.name()));
                        continue;
                    };
                    let signature = format!("{:?}: {}", failure.kind, failure.signature);
                    let times = seen.entry(signature.clone()).or_default();
                    *times += 1;
                    if *times == 1 {
                        report(bench, seed, route, name, &session, *failure);
                    }
                }
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    say(&format!(
        "{}: {done} sessions from seed {} in {seconds:.1} s, {undecided} without definite answers",
        bench.name(),
        options.seed
    ));
    for (name, Counts { sessions, messages, moves, documented }) in routes.iter().zip(counts) {
        say(&format!(
            "{} {name}: {sessions} sessions equal, {messages} messages, {moves} moves, {documented} documented differences",
            bench.name()
        ));
    }
    if options.trace {
        for documented in Documented::ALL {
            say(&format!("documented: {documented:?}: {}", documented.place()));
        }
    }
    for (signature, times) in &seen {
        say(&format!("{}: {times} × {signature}", bench.name()));
    }
    seen.len()
}

/// The same failure, unless it may come from a machine that does much else, and does not come again.
fn repeated<B: Bench>(
    bench: &mut B,
    route: usize,
    session: &Session<B::Message, B::Login>,
    transcript: &B::Transcript,
    failure: Box<Failure>,
) -> Option<Box<Failure>> {
    let mut failure = failure;
    for _ in 0..REPEATS {
        if !failure.may_be_late() {
            break;
        }
        failure = bench.proxied(route, session, transcript).err()?;
        bench.renew(route);
    }
    Some(failure)
}

/// Shrinks a failing session and prints it.
fn report<B: Bench>(
    bench: &mut B,
    seed: u64,
    route: usize,
    name: &str,
    session: &Session<B::Message, B::Login>,
    failure: Failure,
) {
    let mut last = failure;
    let (kind, first) = (last.kind, last.signature.clone());
    let small = shrink(session, &mut |candidate| {
        let Some(transcript) = bench.direct(candidate) else { return false };
        let Err(failure) = bench.proxied(route, candidate, &transcript) else { return false };
        bench.renew(route);
        // Another difference would hide this one.
        let is_same = failure.kind == kind && failure.signature == first;
        if is_same {
            last = *failure;
        }
        is_same
    });
    say(&format!("\n{} {name}: seed {seed}: {kind:?}: {first}", bench.name()));
    let end = last.step.map_or(String::from("after the last step"), |step| format!("in step {step}"));
    for line in small.text() {
        say(&format!("  {line}"));
    }
    say(&format!("  differs {end}: {}", last.signature));
    for (title, lines) in [("direct", &last.direct), ("proxied", &last.proxied)] {
        say(&format!("  {title}:"));
        for line in lines {
            say(&format!("    {line}"));
        }
    }
}
