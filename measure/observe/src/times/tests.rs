use super::*;

#[test]
fn phases_are_those_of_the_client_wherever_the_observer_is() {
    // A round trip of 10; the client's steps at 0, 10 (ACK, hello), 20 + 3 (Finished and login), 33 + 3 (ready).
    let at = |to_client: u64| {
        let client = |time: u64| SeenAt::new(time + to_client);
        let server = |time: u64| SeenAt::new(time - to_client);
        StepTimes {
            syn: client(0),
            syn_ack: server(10),
            ack: client(10),
            request: client(10),
            client_hello: client(10),
            client_finished: client(23),
            login_started: client(23),
            logged_in: server(36),
            ..StepTimes::default()
        }
    };
    for to_client in [0, 2, 5] {
        let times = at(to_client);
        assert_eq!(times.round_trip_ns(), Some(10));
        assert_eq!(times.phase_ns(Phase::TlsHandshake), Some(13));
        assert_eq!(times.phase_ns(Phase::Auth), Some(13));
        assert_eq!(times.connect_ns(), Some(36));
        assert_eq!(times.client_ns(), Some(0));
    }
}

#[test]
fn the_phases_and_the_clients_own_time_are_the_whole_connect() {
    let times = StepTimes {
        syn: SeenAt::new(0),
        syn_ack: SeenAt::new(10),
        ack: SeenAt::new(11),
        // A request for TLS that is refused; the client thinks for 4, and begins its login.
        request: SeenAt::new(15),
        login_started: SeenAt::new(26),
        logged_in: SeenAt::new(40),
        ..StepTimes::default()
    };
    assert_eq!(times.phase_ns(Phase::TlsRequest), Some(11));
    let phases: u64 = CONNECT_PHASES.into_iter().filter_map(|phase| times.phase_ns(phase)).sum();
    assert_eq!((times.client_ns(), times.connect_ns()), (Some(4), Some(41)));
    assert_eq!(phases + 4, 41);
}

#[test]
fn any_time_is_kept_and_none_is_none() {
    assert_eq!(SeenAt::default().ns(), None);
    assert_eq!([0, 7, u64::MAX - 1].map(|ns| SeenAt::new(ns).ns()), [Some(0), Some(7), Some(u64::MAX - 1)]);
}

#[test]
fn what_a_client_does_between_the_consent_to_tls_and_its_hello_is_the_handshakes() {
    // A round trip of 10: the request at 10, the consent at 20, the hello after 4, Finished at 40.
    for to_client in [0, 2, 5] {
        let client = |time: u64| SeenAt::new(time + to_client);
        let server = |time: u64| SeenAt::new(time - to_client);
        let times = StepTimes {
            syn: client(0),
            syn_ack: server(10),
            ack: client(10),
            request: client(10),
            server_first: server(20),
            client_hello: client(24),
            client_finished: client(40),
            ..StepTimes::default()
        };
        assert_eq!(times.phase_ns(Phase::TlsRequest), Some(10));
        assert_eq!(times.phase_ns(Phase::TlsHandshake), Some(20));
        // In TLS 1.2 the server ends it.
        let times = StepTimes { server_finished: server(45), ..times };
        assert_eq!(times.phase_ns(Phase::TlsHandshake), Some(25));
    }
}
