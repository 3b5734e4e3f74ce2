//! A connect's phases: each where it belongs, and no moment lost between them.

use std::fs;
use std::time::{Duration, Instant};

use ciphertoll_net::tls::Context;
use ciphertoll_net::{ContextSource, Error, Phase, PhaseTimes, Stopwatch};

use crate::certificates::{Authority, Offer, ServerTls};
use crate::drivers::{LoopClient, dialer};
use crate::server::{Goodbye, Server};

/// The phases of one connect, and how long it took by a clock around it.
fn connect(authority: &Authority, tls: Option<ContextSource>) -> (PhaseTimes, Duration) {
    let acceptor = tls.is_some().then(|| authority.acceptor(ServerTls::default()));
    let server = Server::tcp(move |listener| listener.accept().log_in(acceptor.as_ref()).goodbye());
    let dialer = dialer(&server.address, tls);
    let began = Instant::now();
    let mut client = LoopClient::connect(&dialer, None).unwrap();
    let took = began.elapsed();
    client.server.encode_goodbye(client.channel.output());
    client.channel.close().unwrap();
    assert_eq!(server.join(), Goodbye::Orderly);
    (client.phases, took)
}

#[track_caller]
fn expect_phases((times, took): (PhaseTimes, Duration), expected: &[Phase]) {
    let there: Vec<Phase> = Phase::ALL.into_iter().filter(|phase| !times.of(*phase).is_zero()).collect();
    assert_eq!(there, expected);
    let sum: Duration = Phase::ALL.into_iter().map(|phase| times.of(phase)).sum();
    assert_eq!(sum, times.total());
    assert!(times.total() <= took, "phases of {:?} in a connect of {took:?}", times.total());
}

#[test]
fn of_a_plain_connect() {
    let times = connect(&Authority::new(), None);
    expect_phases(times, &[Phase::TcpConnect, Phase::ServerGreeting, Phase::Auth]);
}

#[test]
fn a_context_costs_time_only_where_each_connect_builds_one() {
    let authority = Authority::new();
    for offer in Offer::ALL {
        let settings = authority.settings(offer);
        let shared = ContextSource::Shared(Context::build(&settings).unwrap());
        let with_tls =
            [Phase::TcpConnect, Phase::ServerGreeting, Phase::TlsRequest, Phase::TlsHandshake, Phase::Auth];
        expect_phases(connect(&authority, Some(shared)), &with_tls);
        let per_connect = ContextSource::per_connect(settings);
        let mut with_context = with_tls.to_vec();
        with_context.insert(2, Phase::TlsContext);
        expect_phases(connect(&authority, Some(per_connect)), &with_context);
    }
}

/// A context that were kept would not notice that its authorities are gone.
#[test]
fn a_context_of_each_connect_reads_its_files_again() {
    for offer in Offer::ALL {
        let authority = Authority::new();
        let source = || ContextSource::per_connect(authority.settings(offer));
        let kept = source();
        connect(&authority, Some(kept.clone()));
        fs::remove_file(authority.file()).unwrap();
        for source in [kept, source()] {
            let server = Server::tcp(|listener| {
                let mut peer = listener.accept();
                peer.greet();
                peer.read_to_end()
            });
            let outcome = LoopClient::connect(&dialer(&server.address, Some(source)), None);
            assert!(matches!(outcome, Err(Error::TlsSettings(_))), "{offer:?}");
            assert_eq!(server.join(), b"", "{offer:?}: something was sent");
        }
    }
}

/// What comes after the connect is measured by the same stopwatch, so it adds up with the rest.
#[test]
fn laps_add_up_to_the_time_between_start_and_the_last_of_them() {
    let before = Instant::now();
    let mut stopwatch = Stopwatch::start();
    let started = Instant::now();
    for phase in Phase::ALL.into_iter().chain([Phase::Auth]) {
        stopwatch.lap(phase);
    }
    let total = stopwatch.times().total();
    assert!(total <= before.elapsed());
    let last = Instant::now();
    stopwatch.lap(Phase::Close);
    assert!(stopwatch.times().total() >= last - started);
}
