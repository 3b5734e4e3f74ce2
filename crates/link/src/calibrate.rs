//! What the line itself adds to a round trip, measured over it by connects of its own.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::LinkShape;

use crate::Error;
use crate::line::Line;
use crate::namespace::{Networks, SERVER};

/// Connects of a calibration, and the longest that it may take.
const CONNECTS: usize = 31;
const BUDGET: Duration = Duration::from_secs(2);
const FEWEST: usize = 5;
/// Of a connect that is answered at all.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a round trip takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    pub(crate) median_ns: u64,
}

/// Sets the line to `shape`, less what it is found to add; what it adds, and what a round trip takes then.
pub(crate) fn set(networks: &Networks, line: &Line, shape: LinkShape) -> Result<(u64, RoundTrip), Error> {
    line.set(shape, 0);
    // Half of the jitter is what the mean packet has of it, each way; lost ones are waited for by TCP's own clock.
    let expected_ns = shape.rtt_ns() + shape.jitter_ns();
    let bare = round_trip(networks)?;
    let overhead_ns = bare.median_ns.saturating_sub(expected_ns).min(shape.rtt_ns());
    line.set(shape, overhead_ns);
    let set = round_trip(networks)?;
    line.take();
    Ok((overhead_ns, set))
}

fn round_trip(networks: &Networks) -> Result<RoundTrip, Error> {
    let times = thread::scope(|scope| {
        let (address, listening) = mpsc::channel();
        let (over, is_over) = mpsc::channel::<()>();
        let server = scope.spawn(move || serve(networks, &address, &is_over));
        let client = scope.spawn(move || {
            networks.clients.enter()?;
            let address = listening.recv().map_err(|_| Error::Down("its calibration did not listen"))?;
            let times = connects(address).map_err(Error::process("connect over the line"));
            drop(over);
            times
        });
        let panicked = |_| Error::Down("its calibration failed");
        let times = client.join().map_err(panicked)??;
        server.join().map_err(panicked)??;
        Ok::<_, Error>(times)
    })?;
    Ok(RoundTrip { median_ns: times[times.len() / 2].as_nanos() as u64 })
}

/// Listens on the servers' end until told that it is over. Who is accepted does not matter.
fn serve(
    networks: &Networks,
    address: &mpsc::Sender<SocketAddr>,
    is_over: &mpsc::Receiver<()>,
) -> Result<(), Error> {
    networks.servers.enter()?;
    let listener = TcpListener::bind(SocketAddrV4::new(SERVER[0], 0)).map_err(Error::process("listen"))?;
    let local = listener.local_addr().map_err(Error::process("listen"))?;
    // Who does not listen any more has failed, and says so itself.
    let _ = address.send(local);
    // The backlog takes them all: nobody needs to accept.
    let _ = is_over.recv();
    Ok(())
}

/// Sorted times of connects.
fn connects(address: SocketAddr) -> io::Result<Vec<Duration>> {
    let began = Instant::now();
    let mut times = Vec::new();
    // The first finds caches cold.
    let warm_up = TcpStream::connect_timeout(&address, PATIENCE)?;
    drop(warm_up);
    while times.len() < CONNECTS && (times.len() < FEWEST || began.elapsed() < BUDGET) {
        let start = Instant::now();
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        times.push(start.elapsed());
        drop(stream);
    }
    times.sort_unstable();
    Ok(times)
}
