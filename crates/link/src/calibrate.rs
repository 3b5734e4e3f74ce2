//! What a link itself adds to a round trip, measured over it by exchanges of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::LinkShape;

use crate::Error;
use crate::namespace::{Networks, SERVER};
use crate::realtime;

/// How often what was found is tried and found anew.
const MOST_CORRECTIONS: usize = 3;
/// What is close enough: this, or such a part of the round trip, whichever is more.
const EXACT_NS: u64 = 20_000;
const EXACT_PART: u64 = 500;
/// Exchanges by which a round trip is found, and the longest that they may take.
const EXCHANGES: usize = 61;
const BUDGET: Duration = Duration::from_millis(1_500);
const FEWEST: usize = 5;
/// Of an exchange that is answered at all.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a link was found to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// What of a round trip is its own.
    pub(crate) overhead_ns: u64,
    /// The median of those that it takes, less that.
    pub(crate) round_trip_ns_p50: u64,
}

/// Sets a link to `shape` by `set`, less what it is found to add by `round_trip`, which gives a median in ns.
///
/// What it adds is found without what the shape has beside its round trip: what gets lost is waited for by TCP's own
/// clock, and to take off what a slow link takes would make it a fast one.
pub(crate) fn calibrate(
    shape: LinkShape,
    set: impl Fn(LinkShape, u64) -> Result<(), Error>,
    round_trip: impl Fn() -> Result<u64, Error>,
) -> Result<Found, Error> {
    let target_ns = shape.rtt_ns();
    let plain = LinkShape::of_rtt_us((target_ns / 1_000) as u32);
    let measure = |overhead_ns| {
        set(plain, overhead_ns)?;
        Ok::<_, Error>(Found { overhead_ns, round_trip_ns_p50: round_trip()? })
    };
    let mut tried = vec![measure(0)?];
    while tried.len() <= MOST_CORRECTIONS {
        let Some(last) = tried.last().filter(|last| !last.is_exact(target_ns)) else { break };
        let overhead_ns =
            (last.overhead_ns + last.round_trip_ns_p50).saturating_sub(target_ns).min(target_ns);
        tried.push(measure(overhead_ns)?);
    }
    let best = tried.into_iter().min_by_key(|found| found.round_trip_ns_p50.abs_diff(target_ns));
    let best = best.ok_or(Error::Down("its calibration found nothing"))?;
    set(shape, best.overhead_ns)?;
    if shape == plain {
        return Ok(best);
    }
    Ok(Found { round_trip_ns_p50: round_trip()?, ..best })
}

impl Found {
    /// A better one would be an accident.
    fn is_exact(&self, target_ns: u64) -> bool {
        let error_ns = self.round_trip_ns_p50.abs_diff(target_ns);
        error_ns <= EXACT_NS.max(target_ns / EXACT_PART)
    }
}

/// The median round trip of connects between two networks, ns.
pub(crate) fn of_connects(networks: &Networks) -> Result<u64, Error> {
    let listen = || {
        networks.servers.enter()?;
        TcpListener::bind(SocketAddrV4::new(SERVER[0], 0)).map_err(Error::process("listen"))
    };
    // The backlog takes them all: nobody needs to accept.
    between(
        listen,
        |_| (),
        |address| {
            networks.clients.enter()?;
            times(|| connect(address).map(drop)).map_err(Error::process("connect over the line"))
        },
    )
}

/// The same by a relay, which leads to a port of this machine by the one that `lead` gives: connects take nothing there,
/// a connect and the answer to a first word two round trips.
pub(crate) fn of_words(lead: impl FnOnce(u16) -> io::Result<SocketAddr> + Send) -> Result<u64, Error> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::process("listen"));
    let both = between(listen, answer, |address| {
        let times = lead(address.port()).and_then(|relay| times(|| talk(relay)));
        // It ends with who says nothing.
        let _ = connect(address);
        times.map_err(Error::process("talk by the relay"))
    })?;
    Ok(both / 2)
}

fn talk(address: SocketAddr) -> io::Result<()> {
    let mut stream = connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])
}

/// Says one word to each who says one; ends with who says none.
fn answer(listener: &TcpListener) {
    let mut word = [0];
    while let Ok((mut stream, _)) = listener.accept() {
        let heard = stream.set_nodelay(true).and_then(|()| stream.read(&mut word));
        match heard {
            Ok(1) => {
                // Who has gone does not want an answer.
                let _ = stream.write_all(&word);
            }
            _ => return,
        }
    }
}

/// The median of what a client finds of a server, each in a thread of its own that may enter a network.
fn between(
    listen: impl FnOnce() -> Result<TcpListener, Error> + Send,
    serve: impl FnOnce(&TcpListener) + Send,
    visit: impl FnOnce(SocketAddr) -> Result<Vec<Duration>, Error> + Send,
) -> Result<u64, Error> {
    let times = thread::scope(|scope| {
        let (address, listening) = mpsc::channel();
        let (over, is_over) = mpsc::channel::<()>();
        let server = scope.spawn(move || {
            realtime::ask_for();
            let listener = listen()?;
            let local = listener.local_addr().map_err(Error::process("listen"))?;
            // Who does not listen any more has failed, and says so itself.
            let _ = address.send(local);
            serve(&listener);
            let _ = is_over.recv();
            Ok::<_, Error>(())
        });
        let client = scope.spawn(move || {
            // It is the link that is looked at, and not who else wants the processor.
            realtime::ask_for();
            let address = listening.recv().map_err(|_| Error::Down("its calibration did not listen"))?;
            let times = visit(address);
            drop(over);
            times
        });
        let panicked = |_| Error::Down("its calibration failed");
        let times = client.join().map_err(panicked)??;
        server.join().map_err(panicked)??;
        Ok::<_, Error>(times)
    })?;
    Ok(times[times.len() / 2].as_nanos() as u64)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, PATIENCE)
}

/// Sorted times of exchanges.
fn times(mut exchange: impl FnMut() -> io::Result<()>) -> io::Result<Vec<Duration>> {
    let began = Instant::now();
    let mut times = Vec::new();
    // The first finds caches cold.
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

    /// A link that adds `own_ns` to a round trip, and what else `shape` makes it.
    fn found(level: &str, own_ns: u64, else_ns: u64) -> (Found, LinkShape, u64) {
        let shape: LinkShape = level.parse().unwrap();
        let is = Cell::new((shape, 0));
        let set = |shape, overhead_ns| {
            is.set((shape, overhead_ns));
            Ok(())
        };
        let round_trip = || {
            let (now, overhead_ns) = is.get();
            let more_ns =
                if now == LinkShape::of_rtt_us((now.rtt_ns() / 1_000) as u32) { 0 } else { else_ns };
            Ok(now.rtt_ns() - overhead_ns + own_ns + more_ns)
        };
        let found = calibrate(shape, set, round_trip).unwrap();
        (found, is.get().0, is.get().1)
    }

    #[test]
    fn what_a_link_adds_is_taken_off() {
        let (made, shape, overhead_ns) = found("10ms", 150_000, 0);
        assert_eq!((made.overhead_ns, made.round_trip_ns_p50), (150_000, 10_000_000));
        assert_eq!((shape, overhead_ns), ("10ms".parse().unwrap(), 150_000));
        // One that adds nothing is left alone.
        assert_eq!(found("10ms", 0, 0).0.overhead_ns, 0);
    }

    #[test]
    fn what_is_asked_for_is_not_taken_off() {
        let (made, shape, overhead_ns) = found("10ms+rate=1mbit", 150_000, 1_400_000);
        assert_eq!((made.overhead_ns, made.round_trip_ns_p50), (150_000, 11_400_000));
        assert_eq!((shape, overhead_ns), ("10ms+rate=1mbit".parse().unwrap(), 150_000));
    }
}
