//! The cases of a protocol as tests that are listed and run by their names.

use std::sync::Arc;

use ciphertoll_testing::Pool;
use libtest_mimic::Trial;

use crate::fixture::Mode;

/// A sentence, and a function that panics if it is false.
pub(crate) type Case<F> = (&'static str, fn(&mut F));

pub(crate) const BOTH: &[Mode] = &[Mode::Session, Mode::Transaction];
pub(crate) const SESSION: &[Mode] = &[Mode::Session];
pub(crate) const TRANSACTION: &[Mode] = &[Mode::Transaction];

/// Cases that run in the same pooling modes.
pub(crate) struct Topic<F: 'static> {
    /// `make test` runs the cases of a group in one process.
    group: &'static str,
    modes: &'static [Mode],
    threads: usize,
    cases: Vec<Case<F>>,
    is_bench: bool,
}

/// Whose proxies are started in a pooling mode with a number of worker threads.
pub(crate) trait StartsProxies {
    fn set_mode(&mut self, mode: Mode, threads: usize);
}

impl<F> Topic<F> {
    pub(crate) fn new(group: &'static str, modes: &'static [Mode], cases: &[Case<F>]) -> Self {
        Self { group, modes, threads: 1, cases: cases.to_vec(), is_bench: false }
    }

    /// Cases that measure: they run only if they are asked for (`--ignored`).
    pub(crate) fn bench(group: &'static str, modes: &'static [Mode], cases: &[Case<F>]) -> Self {
        Self { is_bench: true, ..Self::new(group, modes, cases) }
    }

    /// Cases of which each proxy has two threads.
    pub(crate) fn on_two_threads(modes: &'static [Mode], cases: &[Case<F>]) -> Self {
        Self { threads: 2, ..Self::new("threads", modes, cases) }
    }
}

/// The topics, and those of their cases that also run on two threads.
pub(crate) fn with_two_threads<F>(topics: Vec<Topic<F>>, doubled: &[&str]) -> Vec<Topic<F>> {
    let of = |topic: &Topic<F>| -> Vec<Case<F>> {
        topic.cases.iter().copied().filter(|(sentence, _)| doubled.contains(sentence)).collect()
    };
    let again: Vec<_> = topics.iter().map(|topic| Topic::on_two_threads(topic.modes, &of(topic))).collect();
    for sentence in doubled {
        let is_it = |topic: &Topic<F>| topic.cases.iter().any(|(known, _)| known == sentence);
        assert!(again.iter().any(is_it), "no case is called {sentence:?}");
    }
    topics.into_iter().chain(again).collect()
}

/// A test for each case in each of its modes.
pub(crate) fn tests<F: StartsProxies>(
    server: &str,
    topics: Vec<Topic<F>>,
    pool: &Arc<Pool<F>>,
) -> Vec<Trial> {
    let mut tests = Vec::new();
    for Topic { group, modes, threads, cases, is_bench } in topics {
        let suffix = if threads == 1 { "" } else { ", on two threads" };
        for (&mode, (sentence, case)) in
            modes.iter().flat_map(|mode| cases.iter().map(move |case| (mode, *case)))
        {
            let pool = Arc::clone(pool);
            let name = format!("{sentence}{}{suffix}", mode.suffix());
            let test = Trial::test(name, move || {
                pool.run(move |fixture| {
                    fixture.set_mode(mode, threads);
                    case(fixture);
                });
                Ok(())
            });
            tests.push(test.with_kind(format!("{server} {group}")).with_ignored_flag(is_bench));
        }
    }
    tests
}
