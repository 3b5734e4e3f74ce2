//! Measures what a link itself adds to a round trip, by exchanges over it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::LinkShape;

use crate::Error;
use crate::messages::LinkCalibration;
use crate::namespace::{Networks, SERVER};
use crate::realtime;

/// How often the correction is refined.
const MOST_CORRECTIONS: usize = 3;
/// The accepted error: this, or `1/EXACT_PART` of the round trip, whichever is more.
const EXACT_NS: u64 = 20_000;
const EXACT_PART: u64 = 500;
/// Exchanges per measurement, and its time limit.
const EXCHANGES: usize = 61;
const BUDGET: Duration = Duration::from_millis(1_500);
const FEWEST: usize = 5;
const TIME_LIMIT: Duration = Duration::from_secs(15);

/// Round trips over a link, ns.
#[derive(Clone, Copy)]
pub(crate) struct RoundTrips {
    p10: u64,
    p50: u64,
}

impl RoundTrips {
    /// `times` are sorted and not empty; each has `exchanges` round trips.
    fn of(times: &[Duration], exchanges: u64) -> Self {
        let at = |percent: usize| times[times.len() * percent / 100].as_nanos() as u64 / exchanges;
        Self { p10: at(10), p50: at(50) }
    }

    /// The median on a quiet machine. On a busy one the median has delays that later trials may not have: to subtract them would
    /// make the link shorter than configured.
    fn undisturbed_ns(self, exact_ns: u64) -> u64 {
        self.p50.min(self.p10 + exact_ns)
    }
}

/// Sets a link to `shape` by `set`, less what `round_trips` finds the link to add.
///
/// The overhead is measured without loss, jitter and rate: losses would add TCP's retransmission timeouts, and to
/// subtract the transmission time of a slow link would make it a fast one.
pub(crate) fn calibrate(
    shape: LinkShape,
    set: impl Fn(LinkShape, u64) -> Result<(), Error>,
    round_trips: impl Fn() -> Result<RoundTrips, Error>,
) -> Result<LinkCalibration, Error> {
    let target_ns = shape.rtt_ns();
    let exact_ns = EXACT_NS.max(target_ns / EXACT_PART);
    let plain = LinkShape::of_rtt_us((target_ns / 1_000) as u32);
    let measure = |overhead_ns| {
        set(plain, overhead_ns)?;
        Ok::<_, Error>((overhead_ns, round_trips()?))
    };
    let undisturbed_ns = |(_, found): (u64, RoundTrips)| found.undisturbed_ns(exact_ns);
    let error_ns = |found| undisturbed_ns(found).abs_diff(target_ns);
    let mut last = measure(0)?;
    let mut best = last;
    for _ in 0..MOST_CORRECTIONS {
        // Further refinement would only follow noise.
        if error_ns(last) <= exact_ns {
            break;
        }
        let overhead_ns = (last.0 + undisturbed_ns(last)).saturating_sub(target_ns).min(target_ns);
        last = measure(overhead_ns)?;
        if error_ns(last) < error_ns(best) {
            best = last;
        }
    }
    let (overhead_ns, mut made) = best;
    set(shape, overhead_ns)?;
    if shape != plain {
        made = round_trips()?;
    }
    Ok(LinkCalibration { overhead_ns, round_trip_ns_p50: made.p50 })
}

/// Round trips of connects between two networks.
pub(crate) fn time_connects(networks: &Networks) -> Result<RoundTrips, Error> {
    let listen = || {
        networks.servers.enter()?;
        TcpListener::bind(SocketAddrV4::new(SERVER[0], 0)).map_err(Error::process("listen"))
    };
    // The backlog takes all connections; nothing needs to accept them.
    measure_between(
        listen,
        |_| (),
        |address| {
            networks.clients.enter()?;
            time_exchanges(|| connect(address).map(drop)).map_err(Error::process("connect over the link"))
        },
    )
    .map(|times| RoundTrips::of(&times, 1))
}

/// Measures a relay: `lead` returns the address that is relayed to a local port. A connect to the relay itself takes no
/// time; a connect and the reply to the first byte take two round trips.
pub(crate) fn time_first_bytes(
    lead: impl FnOnce(u16) -> io::Result<SocketAddr> + Send,
) -> Result<RoundTrips, Error> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::process("listen"));
    let times = measure_between(listen, answer, |address| {
        let times = lead(address.port()).and_then(|relay| time_exchanges(|| talk(relay)));
        // A connection without a byte ends the server.
        let _ = connect(address);
        times.map_err(Error::process("exchange bytes through the relay"))
    })?;
    Ok(RoundTrips::of(&times, 2))
}

fn talk(address: SocketAddr) -> io::Result<()> {
    let mut stream = connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])
}

/// Echoes one byte per connection until a connection sends none.
fn answer(listener: &TcpListener) {
    let mut word = [0];
    while let Ok((mut stream, _)) = listener.accept() {
        let heard = stream.set_nodelay(true).and_then(|()| stream.read(&mut word));
        match heard {
            Ok(1) => {
                // The client may be gone already.
                let _ = stream.write_all(&word);
            }
            _ => return,
        }
    }
}

/// The sorted times that `visit` measures of a server, each in a thread of its own that may enter a network.
fn measure_between(
    listen: impl FnOnce() -> Result<TcpListener, Error> + Send,
    serve: impl FnOnce(&TcpListener) + Send,
    visit: impl FnOnce(SocketAddr) -> Result<Vec<Duration>, Error> + Send,
) -> Result<Vec<Duration>, Error> {
    thread::scope(|scope| {
        let (address, listening) = mpsc::channel();
        let (over, is_over) = mpsc::channel::<()>();
        let server = scope.spawn(move || {
            realtime::ask_for();
            let listener = listen()?;
            let local = listener.local_addr().map_err(Error::process("listen"))?;
            // If the receiver is gone, the client thread has failed and reports why.
            let _ = address.send(local);
            serve(&listener);
            let _ = is_over.recv();
            Ok::<_, Error>(())
        });
        let client = scope.spawn(move || {
            // The link is to be measured, not competition for the processor.
            realtime::ask_for();
            let address = listening.recv().map_err(|_| Error::Down("its calibration did not listen"))?;
            let times = visit(address);
            drop(over);
            times
        });
        let panicked = |_| Error::Down("its calibration failed");
        let times = client.join().map_err(panicked)??;
        server.join().map_err(panicked)??;
        Ok(times)
    })
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, TIME_LIMIT)
}

/// Sorted times of exchanges.
fn time_exchanges(mut exchange: impl FnMut() -> io::Result<()>) -> io::Result<Vec<Duration>> {
    let began = Instant::now();
    let mut times = Vec::new();
    // The first exchange runs with cold caches.
    exchange()?;
    while times.len() < EXCHANGES && (times.len() < FEWEST || began.elapsed() < BUDGET) {
        let start = Instant::now();
        exchange()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A simulated link that adds `own_ns` to a round trip, and `else_ns` if `shape` has more than a round trip.
    fn found(level: &str, own_ns: u64, else_ns: u64) -> (LinkCalibration, LinkShape, u64) {
        found_beside(level, own_ns, else_ns, 0)
    }

    /// The same on a machine that delays nine exchanges of ten by `busy_ns`.
    fn found_beside(
        level: &str,
        own_ns: u64,
        else_ns: u64,
        busy_ns: u64,
    ) -> (LinkCalibration, LinkShape, u64) {
        let shape: LinkShape = level.parse().unwrap();
        let is = Cell::new((shape, 0));
        let set = |shape, overhead_ns| {
            is.set((shape, overhead_ns));
            Ok(())
        };
        let round_trips = || {
            let (now, overhead_ns) = is.get();
            let more_ns =
                if now == LinkShape::of_rtt_us((now.rtt_ns() / 1_000) as u32) { 0 } else { else_ns };
            let p10 = now.rtt_ns() - overhead_ns + own_ns + more_ns;
            Ok(RoundTrips { p10, p50: p10 + busy_ns })
        };
        let found = calibrate(shape, set, round_trips).unwrap();
        (found, is.get().0, is.get().1)
    }

    #[test]
    fn overhead_is_subtracted() {
        let (made, shape, overhead_ns) = found("10ms", 150_000, 0);
        assert_eq!((made.overhead_ns, made.round_trip_ns_p50), (150_000, 10_000_000));
        assert_eq!((shape, overhead_ns), ("10ms".parse().unwrap(), 150_000));
        // A link without overhead is left alone.
        assert_eq!(found("10ms", 0, 0).0.overhead_ns, 0);
    }

    #[test]
    fn delays_of_a_busy_machine_are_not_subtracted() {
        let (made, _, overhead_ns) = found_beside("50ms", 150_000, 0, 2_000_000);
        assert!((150_000..=250_000).contains(&overhead_ns), "{made:?}");
        assert!(made.round_trip_ns_p50 > 51_000_000, "{made:?}");
        // As exactly as the calibration is.
        let (made, _, overhead_ns) = found_beside("10ms", 150_000, 0, 10_000);
        assert_eq!((overhead_ns, made.round_trip_ns_p50), (160_000, 10_000_000));
    }

    #[test]
    fn configured_rate_is_not_subtracted() {
        let (made, shape, overhead_ns) = found("10ms+rate=1mbit", 150_000, 1_400_000);
        assert_eq!((made.overhead_ns, made.round_trip_ns_p50), (150_000, 11_400_000));
        assert_eq!((shape, overhead_ns), ("10ms+rate=1mbit".parse().unwrap(), 150_000));
    }
}
