//! The process at an endpoint of a link. It joins its network namespace while it is single-threaded.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ciphertoll_model::Namespace;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

/// The hidden command that [`run_endpoint_process`] implements.
pub const ENDPOINT_COMMAND: &str = "__end";

const TIME_LIMIT: Duration = Duration::from_secs(20);
const LARGEST_BUFFER_BYTES: u64 = 1 << 29;
const CHUNK_BYTES: usize = 1 << 20;
/// The first byte of a connection: a request that needs a response, or a stream of data.
const REQUEST: u8 = b'w';
const STREAM: u8 = b'f';

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EndpointTask {
    /// Listens. For each line on stdin, prints how much it has received.
    Serve(Ipv4Addr),
    Connect(SocketAddr, usize),
    /// Connects, sends a request and receives the response, this many times.
    Talk(SocketAddr, usize),
    Ping(Ipv4Addr, usize),
    /// Sends over this many connections for this long.
    Send(SocketAddr, usize, Duration),
    /// Enlarges the TCP buffers to twice the bandwidth-delay product of 10 Gbit/s and 170 ms, which is 213 MB.
    EnlargeWindows,
}

#[derive(Serialize, Deserialize)]
struct EndpointRequest {
    namespace: Option<Namespace>,
    task: EndpointTask,
}

/// Runs an endpoint; `request` is the argument of its command.
pub fn run_endpoint_process(request: &str) -> Result<()> {
    let EndpointRequest { namespace, task } = serde_json::from_str(request)?;
    if let Some(namespace) = &namespace {
        ciphertoll_link::join(namespace).context("cannot join the network")?;
    }
    if matches!(task, EndpointTask::Connect(..) | EndpointTask::Talk(..) | EndpointTask::Ping(..)) {
        // The measurement is of the link, not of the scheduler.
        ciphertoll_link::ask_for_real_time();
    }
    match task {
        EndpointTask::Serve(address) => serve(address),
        EndpointTask::Connect(address, count) => times(count, || connect(address).map(drop)),
        EndpointTask::Talk(address, count) => times(count, || talk(address)),
        EndpointTask::Ping(address, count) => {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
            socket.set_read_timeout(Some(TIME_LIMIT))?;
            socket.connect(&SocketAddr::from((address, 0)).into())?;
            let mut sequence = 0;
            times(count, || {
                sequence += 1;
                ping(&socket, sequence)
            })
        }
        EndpointTask::Send(address, streams, time) => send(address, streams, time),
        EndpointTask::EnlargeWindows => enlarge_windows(),
    }
}

fn command(program: &Path, namespace: Option<&Namespace>, task: EndpointTask) -> Result<Command> {
    let mut command = Command::new(program);
    let request = EndpointRequest { namespace: namespace.cloned(), task };
    command.arg(ENDPOINT_COMMAND).arg(serde_json::to_string(&request)?).stdout(Stdio::piped());
    Ok(command)
}

/// Runs a task in `namespace`. Returns the numbers that it prints.
pub fn run_at_endpoint(
    program: &Path,
    namespace: Option<&Namespace>,
    task: EndpointTask,
) -> Result<Vec<u64>> {
    let output = command(program, namespace, task)?.stderr(Stdio::piped()).output()?;
    if !output.status.success() {
        bail!("an endpoint of the link failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let said = String::from_utf8(output.stdout)?;
    said.lines().map(|line| line.parse().context("an endpoint printed an invalid number")).collect()
}

/// The listening process at the server end.
pub struct LinkServer {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub address: SocketAddr,
}

/// How much a server had received, and when by its own clock.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    bytes: u64,
    at_ns: u64,
}

impl Received {
    pub fn bits_per_s_since(self, earlier: Self) -> f64 {
        let [bytes, nanos] =
            [self.bytes - earlier.bytes, self.at_ns - earlier.at_ns].map(|number| number as f64);
        bytes * 8e9 / nanos.max(1.0)
    }
}

impl LinkServer {
    pub fn start(program: &Path, namespace: Option<&Namespace>, address: Ipv4Addr) -> Result<Self> {
        let mut process =
            command(program, namespace, EndpointTask::Serve(address))?.stdin(Stdio::piped()).spawn()?;
        let orders = process.stdin.take().context("no stdin")?;
        let mut answers = BufReader::new(process.stdout.take().context("no stdout")?);
        let address = line(&mut answers)?.parse().context("the server printed no address")?;
        Ok(Self { process, orders, answers, address })
    }

    pub fn received(&mut self) -> Result<Received> {
        self.orders.write_all(b"\n")?;
        let said = line(&mut self.answers)?;
        let (bytes, at_ns) = said.split_once(' ').context("the server printed no count")?;
        Ok(Received { bytes: bytes.parse()?, at_ns: at_ns.parse()? })
    }
}

impl Drop for LinkServer {
    fn drop(&mut self) {
        // It also exits when its stdin is closed.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

fn line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

fn serve(address: Ipv4Addr) -> Result<()> {
    let listener = TcpListener::bind((address, 0))?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    let (received, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let counted = Arc::clone(&received);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let counted = Arc::clone(&counted);
            // Ignores connections that are closed early.
            thread::spawn(move || drop(receive(stream, &counted)));
        }
    });
    for request in io::stdin().lock().lines() {
        request?;
        let bytes = received.load(Ordering::Acquire);
        writeln!(io::stdout(), "{bytes} {}", began.elapsed().as_nanos())?;
    }
    Ok(())
}

fn receive(mut stream: TcpStream, counted: &AtomicU64) -> io::Result<()> {
    let mut first = [0];
    stream.read_exact(&mut first)?;
    if first == [REQUEST] {
        stream.set_nodelay(true)?;
        return stream.write_all(&first);
    }
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => counted.fetch_add(bytes as u64, Ordering::AcqRel),
        };
    }
}

/// Prints the duration of each exchange in ns, after a warm-up exchange.
fn times(count: usize, mut exchange: impl FnMut() -> io::Result<()>) -> Result<()> {
    exchange()?;
    for _ in 0..count {
        let began = Instant::now();
        exchange()?;
        let took = began.elapsed();
        writeln!(io::stdout(), "{}", took.as_nanos())?;
    }
    Ok(())
}

/// Changes the settings of this process's network namespace only.
fn enlarge_windows() -> Result<()> {
    for file in ["tcp_rmem", "tcp_wmem"] {
        let buffers = format!("4096 131072 {LARGEST_BUFFER_BYTES}");
        fs::write(format!("/proc/sys/net/ipv4/{file}"), buffers).context("cannot set buffers")?;
    }
    Ok(())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, TIME_LIMIT)
}

fn talk(address: SocketAddr) -> io::Result<()> {
    let mut stream = connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    stream.write_all(&[REQUEST])?;
    stream.read_exact(&mut [0])
}

/// Sends an ICMP echo request and receives its reply (RFC 792).
fn ping(socket: &Socket, sequence: u16) -> io::Result<()> {
    const ECHO: u8 = 8;
    const ECHO_REPLY: u8 = 0;
    const LONGEST: usize = 256;
    let [high, low] = sequence.to_be_bytes();
    let identity = (std::process::id() as u16).to_be_bytes();
    let mut message = [ECHO, 0, 0, 0, identity[0], identity[1], high, low];
    let sum = checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    socket.send(&message)?;
    let mut buffer = [0; LONGEST];
    let mut socket = socket;
    loop {
        let length = socket.read(&mut buffer)?;
        let packet = &buffer[..length];
        let header = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
        if packet.get(header) == Some(&ECHO_REPLY)
            && packet.get(header + 4..header + 8) == Some(&message[4..])
        {
            return Ok(());
        }
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(message: &[u8]) -> u16 {
    let words =
        message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Sends at full speed. Prints the retransmitted segments and the loss probes of this network namespace.
fn send(address: SocketAddr, streams: usize, time: Duration) -> Result<()> {
    let before = RetransmissionCounters::read()?;
    let ends = Instant::now() + time;
    let all: Result<Vec<()>> = thread::scope(|scope| {
        let senders: Vec<_> = (0..streams).map(|_| scope.spawn(move || flood(address, ends))).collect();
        let join = |sender: thread::ScopedJoinHandle<'_, io::Result<()>>| match sender.join() {
            Ok(sent) => sent.context("cannot send"),
            Err(_) => bail!("a sender panicked"),
        };
        senders.into_iter().map(join).collect()
    });
    all?;
    let after = RetransmissionCounters::read()?;
    writeln!(io::stdout(), "{}", after.segments.saturating_sub(before.segments))?;
    writeln!(io::stdout(), "{}", after.probes.saturating_sub(before.probes))?;
    Ok(())
}

fn flood(address: SocketAddr, ends: Instant) -> io::Result<()> {
    let mut stream = connect(address)?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    stream.write_all(&[STREAM])?;
    let chunk = vec![0; CHUNK_BYTES];
    while Instant::now() < ends {
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    // Resets the connection, so that its data does not disturb the next measurement.
    Socket::from(stream).set_linger(Some(Duration::ZERO))
}

/// TCP counters of this network namespace.
#[derive(Clone, Copy)]
struct RetransmissionCounters {
    segments: u64,
    /// Retransmissions that are only tail loss probes (RFC 8985, section 7).
    probes: u64,
}

impl RetransmissionCounters {
    fn read() -> Result<Self> {
        let of = |file, group, name| {
            let table =
                fs::read_to_string(format!("/proc/self/net/{file}")).context("cannot read counters")?;
            counter(&table, group, name).with_context(|| format!("no {name} in /proc/self/net/{file}"))
        };
        Ok(Self {
            segments: of("snmp", "Tcp:", "RetransSegs")?,
            probes: of("netstat", "TcpExt:", "TCPLossProbes")?,
        })
    }
}

/// Reads a counter. Each group has a line of names and a line of numbers.
fn counter(table: &str, group: &str, name: &str) -> Option<u64> {
    let mut rows = table.lines().filter_map(|line| line.strip_prefix(group));
    let (names, numbers) = (rows.next()?, rows.next()?);
    let at = names.split_whitespace().position(|column| column == name)?;
    numbers.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_its_checksum_sums_to_zero() {
        let mut message = [8, 0, 0, 0, 0x12, 0x34, 0, 1];
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&message), 0);
    }

    #[test]
    fn a_counter_is_found_by_its_name() {
        let table = "Ip: A B\nIp: 1 2\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 17 0\n";
        assert_eq!(counter(table, "Tcp:", "RetransSegs"), Some(17));
        assert_eq!(counter(table, "Tcp:", "B"), None);
    }
}
