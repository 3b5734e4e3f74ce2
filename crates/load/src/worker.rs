//! One thread's clients on one readiness loop.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use ciphertoll_model::{TrialOperation, TrialPace, TrialSpec};
use ciphertoll_net::{Dialer, Reactor, SourceAddresses};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::churn::{ChurnClient, ChurnShared, ConnectOperation, Query};
use crate::drive::{EventLoop, LoadClient};
use crate::legs::Legs;
use crate::limit::RateLimit;
use crate::recorder::Recorder;
use crate::schedule::Schedule;
use crate::script::CompiledScript;
use crate::transaction::{TransactionClient, TransactionShared};
use crate::window::MeasurementWindow;
use crate::ycsb::Inserts;

/// Time for clients to connect before the window.
pub(crate) const SET_UP_LIMIT: Duration = Duration::from_secs(20);

/// Makes the schedule's random numbers differ from those of the keys.
const SCHEDULE_SEED: u64 = 0x006f_7065_6e20_6c6f;

/// The assignment of a thread.
pub(crate) struct ThreadAssignment<'a> {
    pub(crate) spec: &'a TrialSpec,
    pub(crate) dialer: &'a Dialer,
    pub(crate) lane: u16,
    /// Clients of this thread.
    pub(crate) clients: usize,
    /// The records inserted by all clients of the trial.
    pub(crate) inserts: Arc<Inserts>,
}

/// Where threads synchronise before the window: each reports that it is ready, then all learn when the window opens.
pub(crate) struct StartBarrier {
    pub(crate) ready: Sender<Result<(), Error>>,
    pub(crate) window: Receiver<MeasurementWindow>,
}

/// Drives the thread's clients through a trial; `None` if the trial never started.
pub(crate) fn run(assignment: &ThreadAssignment<'_>, start: &StartBarrier) -> Option<Recorder> {
    let result = match assignment.purpose() {
        Ok(Some(purpose)) => run_churn(assignment, purpose, start),
        Ok(None) => run_pool(assignment, start),
        Err(error) => Err(error),
    };
    match result {
        Ok(recorder) => recorder,
        Err(error) => {
            // If another thread has failed, the receiver is gone and that error is reported.
            let _ = start.ready.send(Err(error));
            None
        }
    }
}

impl ThreadAssignment<'_> {
    /// What a connection is opened for; `None` if connections stay open.
    fn purpose(&self) -> Result<Option<ConnectOperation>, Error> {
        let query = |script| {
            let inserts = Arc::clone(&self.inserts);
            let program = CompiledScript::first_as_text(self.spec.engine, script, inserts)?;
            Ok::<_, Error>(Query::new(program, self.random()))
        };
        Ok(match &self.spec.work {
            TrialOperation::Connect => Some(ConnectOperation::Connect),
            TrialOperation::ConnectQuery(script) => Some(ConnectOperation::ConnectQuery(query(script)?)),
            TrialOperation::FirstQuery(script) => Some(ConnectOperation::FirstQuery(query(script)?)),
            TrialOperation::Transactions(_) => None,
        })
    }

    fn program(&self) -> Result<CompiledScript, Error> {
        match &self.spec.work {
            TrialOperation::Transactions(script)
            | TrialOperation::ConnectQuery(script)
            | TrialOperation::FirstQuery(script) => {
                CompiledScript::of(self.spec.engine, script, Arc::clone(&self.inserts))
            }
            TrialOperation::Connect => Err(Error::Script("it has no step".to_owned())),
        }
    }

    fn random(&self) -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(self.spec.seed.wrapping_add(u64::from(self.lane)))
    }

    fn injected_delay(&self) -> Duration {
        Duration::from_nanos(self.spec.injected_delay_ns)
    }

    /// The thread's share of the rate is its share of the clients.
    fn share(&self, per_s: f64) -> f64 {
        per_s * self.clients as f64 / f64::from(self.spec.clients.count())
    }

    fn schedule(&self, window: MeasurementWindow, per_s: f64) -> Schedule {
        let seed = self.spec.seed.wrapping_add(u64::from(self.lane)) ^ SCHEDULE_SEED;
        Schedule::new(window, self.share(per_s), self.clients, seed)
    }

    fn limit(&self, window: MeasurementWindow) -> Option<RateLimit> {
        Some(RateLimit::new(window.starts, self.share(self.spec.max_per_s?), self.clients))
    }

    fn drive<C: LoadClient>(
        &self,
        window: MeasurementWindow,
        mut drive: EventLoop<'_, '_, C>,
    ) -> Result<Vec<C>, Error> {
        match self.spec.pace {
            TrialPace::Closed => drive.closed(window, self.limit(window))?,
            TrialPace::Open { per_s } => drive.open(window, self.schedule(window, per_s))?,
        }
        Ok(drive.clients)
    }
}

fn run_churn(
    assignment: &ThreadAssignment<'_>,
    purpose: ConnectOperation,
    start: &StartBarrier,
) -> Result<Option<Recorder>, Error> {
    let mut reactor = Reactor::new()?;
    let mut churn = ChurnShared {
        dialer: assignment.dialer,
        sources: SourceAddresses::lane(assignment.lane),
        purpose,
        injected_delay: assignment.injected_delay(),
        legs: Legs::default(),
    };
    let clients: Vec<_> = (0..assignment.clients).map(ChurnClient::new).collect();
    let Some(window) = start.line_up() else { return Ok(None) };
    let mut recorder = Recorder::new(window, assignment.spec.pace);
    let (reactor, shared) = (&mut reactor, &mut churn);
    assignment.drive(window, EventLoop { clients, shared, reactor, recorder: &mut recorder })?;
    recorder.legs(churn.legs);
    Ok(Some(recorder))
}

fn run_pool(assignment: &ThreadAssignment<'_>, start: &StartBarrier) -> Result<Option<Recorder>, Error> {
    let mut reactor = Reactor::new()?;
    let mut pool = TransactionShared {
        dialer: assignment.dialer,
        program: assignment.program()?,
        random: assignment.random(),
        legs: Legs::default(),
        injected_delay: assignment.injected_delay(),
        sql: String::new(),
    };
    let mut clients: Vec<_> = (0..assignment.clients).map(TransactionClient::new).collect();
    set_up(&mut reactor, &mut pool, &mut clients)?;
    let Some(window) = start.line_up() else { return Ok(None) };
    let mut recorder = Recorder::new(window, assignment.spec.pace);
    let (reactor, shared) = (&mut reactor, &mut pool);
    let clients =
        assignment.drive(window, EventLoop { clients, shared, reactor, recorder: &mut recorder })?;
    clients.into_iter().for_each(TransactionClient::close);
    recorder.legs(pool.legs);
    Ok(Some(recorder))
}

/// Connects all clients and prepares their statements.
fn set_up(
    reactor: &mut Reactor,
    pool: &mut TransactionShared<'_>,
    clients: &mut [TransactionClient],
) -> Result<(), Error> {
    for client in clients.iter_mut() {
        client.connect(pool, reactor)?;
    }
    let deadline = Instant::now() + SET_UP_LIMIT;
    loop {
        let waiting = clients.iter().filter(|client| !client.is_prepared()).count();
        if waiting == 0 {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = SET_UP_LIMIT.as_secs();
            return Err(Error::NotReady { waiting, clients: clients.len(), seconds });
        }
        for ready in reactor.wait(left)? {
            clients[ready.key].set_up(ready.readiness, pool)?;
        }
    }
}

impl StartBarrier {
    fn line_up(&self) -> Option<MeasurementWindow> {
        self.ready.send(Ok(())).ok()?;
        self.window.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use ciphertoll_model::{Auth, Clients, Endpoint, Engine, ErrorKind, Scale, TrialResult, Workload};
    use ciphertoll_net::{Address, Transport};
    use ciphertoll_wire::mysql::err::ErrPacket;
    use ciphertoll_wire::mysql::greeting::Greeting;
    use ciphertoll_wire::mysql::ok::OkPacket;
    use ciphertoll_wire::mysql::{self, Capabilities, server};
    use ciphertoll_wire::{Secret, session::Login};
    use nix::sys::resource::{UsageWho, getrusage};

    use super::*;

    const CLIENTS: u16 = 8;
    const LENGTH: Duration = Duration::from_millis(500);
    /// Longer than any wait here.
    const LONG: Duration = Duration::from_mins(1);

    /// A server that accepts every login, up to a number of connections in all.
    struct Server {
        address: SocketAddr,
        connections: Arc<AtomicUsize>,
    }

    impl Server {
        fn with_room_for(room: usize) -> Self {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let connections = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&connections);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let is_full = counted.fetch_add(1, Ordering::SeqCst) >= room;
                    // A client may disconnect at any time.
                    thread::spawn(move || stream.and_then(|stream| serve(stream, is_full)));
                }
            });
            Self { address, connections }
        }

        /// Runs a thread with some of the trial's clients.
        fn run(
            &self,
            spec: &TrialSpec,
            clients: usize,
            max_per_s: Option<f64>,
        ) -> Result<TrialResult, Error> {
            let login = mysql::MySqlLogin::new("toll", Secret::new(Vec::new()));
            let dialer = Dialer {
                address: Address::Tcp(self.address),
                login: Login::MySql(Arc::new(login)),
                tls: None,
                transport: Transport::NonBlocking,
            };
            let spec = &TrialSpec { max_per_s, ..spec.clone() };
            let inserts = Arc::new(Inserts::from(ciphertoll_model::ycsb::first_insert(spec.seed, 0)));
            let assignment = ThreadAssignment { spec, dialer: &dialer, lane: 0, clients, inserts };
            let (ready, readiness) = mpsc::channel();
            let (start, window) = mpsc::channel();
            let length = Duration::from_nanos(spec.window_ns);
            start.send(MeasurementWindow::starting_at(Instant::now(), Duration::ZERO, length)).unwrap();
            let recorder = run(&assignment, &StartBarrier { ready, window });
            readiness.into_iter().collect::<Result<(), Error>>()?;
            Ok(recorder.expect("a thread that was ready has a result").result())
        }
    }

    fn serve(mut stream: TcpStream, is_full: bool) -> io::Result<()> {
        let mut out = Vec::new();
        if is_full {
            let packet = ErrPacket { code: 1040, sql_state: *b"08004", message: b"Too many connections" };
            server::write_err(&mut out, 0, &packet).unwrap();
            return stream.write_all(&out);
        }
        let greeting = Greeting {
            version: b"11.8.2-MariaDB",
            connection_id: 1,
            nonce: *b"abcdefghijklmnopqrst",
            capabilities: Capabilities::LONG_PASSWORD
                .with(Capabilities::PROTOCOL_41)
                .with(Capabilities::TRANSACTIONS)
                .with(Capabilities::SECURE_CONNECTION)
                .with(Capabilities::MULTI_RESULTS)
                .with(Capabilities::PLUGIN_AUTH)
                .with(Capabilities::PLUGIN_AUTH_LENENC)
                .with(Capabilities::DEPRECATE_EOF),
            character_set: 45,
            status: 2,
            plugin: b"mysql_native_password",
        };
        server::write_greeting(&mut out, &greeting).unwrap();
        stream.write_all(&out)?;
        let mut received = [0; 4096];
        if stream.read(&mut received)? == 0 {
            return Ok(());
        }
        out.clear();
        server::write_ok(&mut out, 2, &OkPacket::default()).unwrap();
        stream.write_all(&out)?;
        while stream.read(&mut received)? > 0 {}
        Ok(())
    }

    fn spec(window: Duration, work: TrialOperation, pace: TrialPace) -> TrialSpec {
        TrialSpec {
            engine: Engine::MariaDb,
            // The dialer is made here: nobody reads these.
            endpoint: Endpoint::Unix(PathBuf::new()),
            auth: Auth::Native,
            user: String::new(),
            password_file: PathBuf::new(),
            database: None,
            documents: None,
            tls: None,
            work,
            pace,
            clients: Clients::new(CLIENTS).unwrap(),
            threads: 1,
            warm_up_ns: 0,
            window_ns: window.as_nanos() as u64,
            seed: 1,
            compressor: None,
            first_insert: None,
            max_per_s: None,
            processors: None,
            namespace: None,
            injected_delay_ns: 0,
        }
    }

    fn cpu() -> Duration {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        let micros =
            [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
        Duration::from_micros(micros.iter().sum::<i64>() as u64)
    }

    #[test]
    fn a_limit_is_kept_without_spinning() {
        let server = Server::with_room_for(usize::MAX);
        let spec = spec(LENGTH, TrialOperation::Connect, TrialPace::Closed);
        // All clients, and a quarter of them with a quarter of the limit.
        for (clients, allowed) in [(8, 51), (2, 13)] {
            let attempt = || {
                let unlimited = server.run(&spec, clients, None).unwrap();
                let before = cpu();
                let limited = server.run(&spec, clients, Some(100.0)).unwrap();
                let spent = cpu().saturating_sub(before);
                assert!(limited.operations <= allowed, "{} of {allowed}", limited.operations);
                assert_eq!(limited.errors, []);
                // Eight clients that wait for turns of 10 ms wait 80 ms each; that is not the server's latency.
                let is_quiet = spent < LENGTH / 2 && limited.latency.p50_ns < 40_000_000;
                is_quiet && (1..unlimited.operations).contains(&limited.operations)
            };
            // A spinning loop fails every attempt; a busy machine does not.
            assert!((0..5).any(|_| attempt()), "{clients} clients never waited quietly for their turn");
        }
    }

    #[test]
    fn a_server_at_its_connection_limit_is_left_alone() {
        let open = TrialPace::Open { per_s: 2_000.0 };
        let closed = TrialPace::Closed;
        for (pace, max_per_s) in [(closed, None), (closed, Some(2_000.0)), (open, None)] {
            let server = Server::with_room_for(30);
            let began = Instant::now();
            let result = server.run(&spec(LONG, TrialOperation::Connect, pace), 8, max_per_s).unwrap();
            assert!(began.elapsed() < LONG / 2, "{pace:?}: it waited for clients that had stopped");
            let [error] = result.errors.as_slice() else { panic!("{:?}", result.errors) };
            assert_eq!((error.kind, error.count), (ErrorKind::TooManyConnections, 1), "{error:?}");
            assert!(error.message.contains("Too many connections"), "{error:?}");
            // Connects in progress when the first was refused.
            let asked = server.connections.load(Ordering::SeqCst);
            assert!(asked <= 30 + usize::from(CLIENTS), "{pace:?}: it connected {asked} times");
        }
    }

    #[test]
    fn a_pool_larger_than_the_limit_does_not_start() {
        let server = Server::with_room_for(3);
        let work = crate::work(Engine::MariaDb, Workload::PointSelect, Scale::DEFAULT, None);
        let error = server.run(&spec(LONG, work, TrialPace::Closed), 8, None).unwrap_err();
        assert!(error.is_too_many_connections(), "{error}");
    }
}
