use super::*;

/// Far longer than any wait here should take.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn the_timer_is_precise_and_never_early() {
    let mut reactor = Reactor::new().unwrap();
    // Several times: each expiry must be an edge although nothing reads the timer.
    for micros in [300, 1_500, 40] {
        let at = Instant::now() + Duration::from_micros(micros);
        reactor.wake_at(at).unwrap();
        assert_eq!(reactor.wait(LONG).unwrap().count(), 0);
        let woke = Instant::now();
        assert!(woke >= at, "{:?} too soon", at - woke);
        assert!(woke - at < LONG / 2);
    }
}

#[test]
fn a_time_in_the_past_wakes_at_once() {
    let mut reactor = Reactor::new().unwrap();
    let began = Instant::now();
    reactor.wake_at(began).unwrap();
    assert_eq!(reactor.wait(LONG).unwrap().count(), 0);
    assert!(began.elapsed() < LONG / 2);
}

#[test]
fn every_wait_until_a_time_ends() {
    let mut reactor = Reactor::new().unwrap();
    let at = Instant::now() + Duration::from_millis(2);
    for _ in 0..3 {
        assert_eq!(reactor.wait_until(at).unwrap().count(), 0);
        assert!(Instant::now() >= at && at.elapsed() < LONG / 2);
    }
}

#[test]
fn a_waker_ends_a_wait_from_another_thread_and_is_not_lost() {
    let mut reactor = Reactor::new().unwrap();
    let waker = reactor.wake_handle(7).unwrap();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake().unwrap());
            let keys: Vec<usize> = reactor.wait(LONG).unwrap().map(|ready| ready.key).collect();
            assert_eq!(keys, [7]);
        });
    }
    waker.wake().unwrap();
    waker.wake().unwrap();
    assert_eq!(reactor.wait(LONG).unwrap().count(), 1);
    assert_eq!(reactor.wait(Duration::ZERO).unwrap().count(), 0);
}

#[test]
fn two_reactors_share_a_listener_and_none_of_its_connections_is_lost() {
    let mut reactors = [Reactor::new().unwrap(), Reactor::new().unwrap()];
    let first = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
    let mut listeners = [first.try_clone().unwrap(), first];
    for (reactor, listener) in reactors.iter().zip(&listeners) {
        reactor.register_listener(listener, 3, Trigger::Edge).unwrap();
    }
    let address = listeners[0].address().unwrap();
    let _client = std::net::TcpStream::connect(address).unwrap();
    // The kernel chooses which reactor is woken, and when.
    let until = Instant::now() + LONG;
    while reactors.iter_mut().all(|reactor| reactor.wait(Duration::ZERO).unwrap().count() == 0) {
        assert!(Instant::now() < until, "no reactor is woken");
    }
    let accepted = listeners.iter_mut().filter_map(|listener| listener.accept().unwrap()).count();
    assert_eq!(accepted, 1);
}

#[test]
fn a_level_triggered_listener_is_reported_until_its_connections_are_accepted() {
    let mut reactor = Reactor::new().unwrap();
    let mut listener = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
    reactor.register_listener(&listener, 3, Trigger::Level).unwrap();
    let address = listener.address().unwrap();
    let _clients = [(); 2].map(|()| std::net::TcpStream::connect(address).unwrap());
    for _ in 0..2 {
        assert_eq!(reactor.wait(LONG).unwrap().count(), 1);
        assert!(listener.accept().unwrap().is_some());
    }
    assert_eq!(reactor.wait(Duration::ZERO).unwrap().count(), 0);
    reactor.deregister_listener(&listener).unwrap();
    let _third = std::net::TcpStream::connect(address).unwrap();
    assert_eq!(reactor.wait(Duration::ZERO).unwrap().count(), 0);
    reactor.register_listener(&listener, 3, Trigger::Level).unwrap();
    assert_eq!(reactor.wait(LONG).unwrap().count(), 1);
}

#[test]
fn a_channel_moves_from_one_reactor_to_another() {
    let (mut first, mut second) = (Reactor::new().unwrap(), Reactor::new().unwrap());
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut channel = Channel::from_unix(ours).unwrap();
    first.register(&mut channel, 1, WatchedEvents::Reading).unwrap();
    first.deregister(&mut channel).unwrap();
    io::Write::write_all(&mut theirs, b"x").unwrap();
    assert_eq!(first.wait(Duration::ZERO).unwrap().count(), 0);
    // Bytes that arrived in between are reported.
    second.register(&mut channel, 2, WatchedEvents::Reading).unwrap();
    let keys: Vec<usize> = second.wait(LONG).unwrap().map(|ready| ready.key).collect();
    assert_eq!(keys, [2]);
}

#[test]
fn the_last_setting_counts() {
    let mut reactor = Reactor::new().unwrap();
    let began = Instant::now();
    reactor.wake_at(began + LONG).unwrap();
    reactor.wake_at(began + Duration::from_millis(1)).unwrap();
    assert_eq!(reactor.wait(LONG).unwrap().count(), 0);
    assert!(began.elapsed() < LONG / 2);
}
