//! Who stands at an end of a link: a process that joins a network before it has a second thread.

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

/// The hidden command that must lead to [`run_end_process`].
pub const END_COMMAND: &str = "__end";

const PATIENCE: Duration = Duration::from_secs(20);
const LARGEST_BUFFER_BYTES: u64 = 1 << 29;
const CHUNK_BYTES: usize = 1 << 20;
/// What a connection says first: that it wants an answer, or that it sends and wants none.
const WORD: u8 = b'w';
const FLOOD: u8 = b'f';

/// What is done at an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Listens, and says what it received so far whenever it is told a line.
    Serve(Ipv4Addr),
    /// Connects, so many times.
    Connect(SocketAddr, usize),
    /// Connects and has a first word answered, so many times.
    Talk(SocketAddr, usize),
    /// Has so many echoes sent back.
    Ping(Ipv4Addr, usize),
    /// Sends by so many connections for so long.
    Send(SocketAddr, usize, Duration),
    /// Lets the network's connections have as much under way as 10 Gbit/s at 170 ms are: 213 MB, of which buffers take
    /// double.
    EnlargeWindows,
}

#[derive(Serialize, Deserialize)]
struct Order {
    namespace: Option<Namespace>,
    task: Task,
}

/// The whole life of an end; `order` is what was behind its command.
pub fn run_end_process(order: &str) -> Result<()> {
    let Order { namespace, task } = serde_json::from_str(order)?;
    if let Some(namespace) = &namespace {
        ciphertoll_link::join(namespace).context("cannot join the network")?;
    }
    if matches!(task, Task::Connect(..) | Task::Talk(..) | Task::Ping(..)) {
        // It is the link that is looked at, and not who else wants the processor.
        ciphertoll_link::ask_for_real_time();
    }
    match task {
        Task::Serve(address) => serve(address),
        Task::Connect(address, count) => times(count, || connect(address).map(drop)),
        Task::Talk(address, count) => times(count, || talk(address)),
        Task::Ping(address, count) => {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect(&SocketAddr::from((address, 0)).into())?;
            let mut sequence = 0;
            times(count, || {
                sequence += 1;
                ping(&socket, sequence)
            })
        }
        Task::Send(address, streams, time) => send(address, streams, time),
        Task::EnlargeWindows => enlarge_windows(),
    }
}

fn command(program: &Path, namespace: Option<&Namespace>, task: Task) -> Result<Command> {
    let mut command = Command::new(program);
    let order = Order { namespace: namespace.cloned(), task };
    command.arg(END_COMMAND).arg(serde_json::to_string(&order)?).stdout(Stdio::piped());
    Ok(command)
}

/// Does it at the end that is in `namespace`; the numbers that it says.
pub fn at_end(program: &Path, namespace: Option<&Namespace>, task: Task) -> Result<Vec<u64>> {
    let output = command(program, namespace, task)?.stderr(Stdio::piped()).output()?;
    if !output.status.success() {
        bail!("an end of the link failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let said = String::from_utf8(output.stdout)?;
    said.lines().map(|line| line.parse().context("an end says what is no number")).collect()
}

/// Who listens at the servers' end.
pub struct Server {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where it listens.
    pub address: SocketAddr,
}

/// What a server had received at some time of its own.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    bytes: u64,
    at_ns: u64,
}

impl Received {
    /// Bits a second since `earlier`.
    pub fn bits_per_s_since(self, earlier: Self) -> f64 {
        let [bytes, nanos] =
            [self.bytes - earlier.bytes, self.at_ns - earlier.at_ns].map(|number| number as f64);
        bytes * 8e9 / nanos.max(1.0)
    }
}

impl Server {
    /// Starts it in `namespace`, at `address`.
    pub fn start(program: &Path, namespace: Option<&Namespace>, address: Ipv4Addr) -> Result<Self> {
        let mut process = command(program, namespace, Task::Serve(address))?.stdin(Stdio::piped()).spawn()?;
        let orders = process.stdin.take().context("it has no input")?;
        let mut answers = BufReader::new(process.stdout.take().context("it has no output")?);
        let address = line(&mut answers)?.parse().context("it does not say where it listens")?;
        Ok(Self { process, orders, answers, address })
    }

    /// What it has received by now.
    pub fn received(&mut self) -> Result<Received> {
        self.orders.write_all(b"\n")?;
        let said = line(&mut self.answers)?;
        let (bytes, at_ns) = said.split_once(' ').context("it does not say what it received")?;
        Ok(Received { bytes: bytes.parse()?, at_ns: at_ns.parse()? })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its stdin, too.
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
            // Who breaks off, or only connects, is done with.
            thread::spawn(move || drop(hear(stream, &counted)));
        }
    });
    for order in io::stdin().lock().lines() {
        order?;
        let bytes = received.load(Ordering::Acquire);
        writeln!(io::stdout(), "{bytes} {}", began.elapsed().as_nanos())?;
    }
    Ok(())
}

fn hear(mut stream: TcpStream, counted: &AtomicU64) -> io::Result<()> {
    let mut first = [0];
    stream.read_exact(&mut first)?;
    if first == [WORD] {
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

/// Says how long each of so many takes, ns; the first finds caches cold and does not count.
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

/// Not those of the machine: they are those of the network that this process is in.
fn enlarge_windows() -> Result<()> {
    for file in ["tcp_rmem", "tcp_wmem"] {
        let buffers = format!("4096 131072 {LARGEST_BUFFER_BYTES}");
        fs::write(format!("/proc/sys/net/ipv4/{file}"), buffers).context("cannot set buffers")?;
    }
    Ok(())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, PATIENCE)
}

fn talk(address: SocketAddr) -> io::Result<()> {
    let mut stream = connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[WORD])?;
    stream.read_exact(&mut [0])
}

/// An echo (RFC 792), sent and received.
fn ping(socket: &Socket, sequence: u16) -> io::Result<()> {
    const ECHO: u8 = 8;
    const ECHO_REPLY: u8 = 0;
    const LONGEST: usize = 256;
    let [high, low] = sequence.to_be_bytes();
    let identity = (std::process::id() as u16).to_be_bytes();
    let mut message = [ECHO, 0, 0, 0, identity[0], identity[1], high, low];
    let sum = check_sum(&message).to_be_bytes();
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

/// The sum over words of 16 bits that makes the message's own sum come out (RFC 1071).
fn check_sum(message: &[u8]) -> u16 {
    let words =
        message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Sends as much as it can, and says how many segments this network sent again, and how often it probed.
fn send(address: SocketAddr, streams: usize, time: Duration) -> Result<()> {
    let before = SentAgain::read()?;
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
    let after = SentAgain::read()?;
    writeln!(io::stdout(), "{}", after.segments.saturating_sub(before.segments))?;
    writeln!(io::stdout(), "{}", after.probes.saturating_sub(before.probes))?;
    Ok(())
}

fn flood(address: SocketAddr, ends: Instant) -> io::Result<()> {
    let mut stream = connect(address)?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    stream.write_all(&[FLOOD])?;
    let chunk = vec![0; CHUNK_BYTES];
    while Instant::now() < ends {
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    // What is under way would be in the way of what comes next.
    Socket::from(stream).set_linger(Some(Duration::ZERO))
}

/// What TCP counts in the network that this process is in.
#[derive(Clone, Copy)]
struct SentAgain {
    segments: u64,
    /// Those of them that only ask, when an answer is late, whether something was lost (RFC 8985, 7).
    probes: u64,
}

impl SentAgain {
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

/// Each group of counters has a line of names and one of numbers.
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
    fn a_message_with_its_check_sum_sums_up_to_nothing() {
        let mut message = [8, 0, 0, 0, 0x12, 0x34, 0, 1];
        let sum = check_sum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(check_sum(&message), 0);
    }

    #[test]
    fn a_counter_is_found_by_its_name() {
        let table = "Ip: A B\nIp: 1 2\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 17 0\n";
        assert_eq!(counter(table, "Tcp:", "RetransSegs"), Some(17));
        assert_eq!(counter(table, "Tcp:", "B"), None);
    }
}
