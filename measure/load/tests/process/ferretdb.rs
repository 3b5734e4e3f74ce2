//! Trials on a `FerretDB` of a test's own, in a directory of its own: what scripts for documents do on a server.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_load::work;
use ciphertoll_model::round_trips::{ServerProperties, of_session};
use ciphertoll_model::ycsb::{COLLECTION, FIELD_BYTES, FIELDS, key};
use ciphertoll_model::{
    Auth, Clients, Endpoint, Engine, Path as ModelPath, Phase, Scale, ServerLevel, TlsSpec, TrialOperation,
    TrialPace, TrialResult, TrialSpec, Workload, YcsbMix,
};
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_testing::missing;
use ciphertoll_wire::Secret;
use ciphertoll_wire::mongodb::MongoDbLogin;
use ciphertoll_wire::session;
use tempfile::TempDir;

use crate::{find, outcome};

/// A server that does not listen for longer will not.
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// Few: a find reads through them.
const RECORDS: u64 = 100;
/// Records of one insert.
const BATCH: u64 = 50;
const USER: &str = "toll";
const PASSWORD: &str = "hunter2hunter2";
const DATABASE: &str = "t";

/// A running server. Killed when dropped.
struct FerretDb {
    child: Child,
    directory: TempDir,
    plain: SocketAddr,
    tls: SocketAddr,
}

/// A server, or a word on why the test tests nothing.
fn server() -> Option<FerretDb> {
    let server = FerretDb::start();
    if server.is_none() {
        missing("no FerretDB, or no openssl");
    }
    server
}

impl FerretDb {
    /// `None` where this machine has none, or nothing that makes a certificate for it.
    fn start() -> Option<Self> {
        let (program, openssl) = (ferretdb()?, find("openssl")?);
        let directory = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").unwrap();
        let place = directory.path();
        fs::create_dir(place.join("data")).unwrap();
        make_certificate(&openssl, place);
        let free = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let [plain, tls] = free.map(|listener| listener.local_addr().unwrap());
        let log = fs::File::create(place.join("log")).expect("a file in our own directory");
        let child = Command::new(program)
            .env("FERRETDB_SETUP_PASSWORD", PASSWORD)
            .args(["--handler=sqlite", "--telemetry=disable", "--debug-addr=-"])
            .args(["--log-level=ERROR", "--test-enable-new-auth", "--setup-database=admin"])
            .arg(format!("--setup-username={USER}"))
            .arg(format!("--sqlite-url=file:{}/", place.join("data").display()))
            .arg(format!("--state-dir={}", place.display()))
            .arg(format!("--listen-unix={}", socket(place).display()))
            .arg(format!("--listen-addr={plain}"))
            .arg(format!("--listen-tls={tls}"))
            .arg(format!("--listen-tls-cert-file={}", place.join("cert.pem").display()))
            .arg(format!("--listen-tls-key-file={}", place.join("key.pem").display()))
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .expect("ferretdb is there");
        let mut server = Self { child, directory, plain, tls };
        server.wait_until_it_listens();
        server.load();
        Some(server)
    }

    fn wait_until_it_listens(&mut self) {
        let deadline = Instant::now() + TIME_LIMIT;
        let socket = socket(self.directory.path());
        let listens = || -> io::Result<()> {
            UnixStream::connect(&socket)?;
            TcpStream::connect(self.plain)?;
            TcpStream::connect(self.tls).map(drop)
        };
        while listens().is_err() {
            let ended = self.child.try_wait().expect("a child of ours");
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                panic!("ferretdb does not listen ({ended:?}):\n{log}");
            }
            thread::yield_now();
        }
    }

    fn client(&self) -> Client {
        let login = MongoDbLogin {
            database: DATABASE.to_owned(),
            ..MongoDbLogin::new(USER, Secret::new(PASSWORD.as_bytes().to_vec()))
        };
        let address = Address::Unix(socket(self.directory.path()));
        Client::connect(&address, session::Login::MongoDb(Arc::new(login)), None).unwrap()
    }

    /// YCSB's records.
    fn load(&self) {
        let mut client = self.client();
        for first in (0..RECORDS).step_by(BATCH as usize) {
            let documents: Vec<String> = (first..first + BATCH).map(record).collect();
            let documents = documents.join(",");
            client.execute(&format!(r#"{{"insert":"{COLLECTION}","documents":[{documents}]}}"#)).unwrap();
        }
    }

    /// The keys of all records.
    fn keys(&self) -> Vec<session::Row> {
        let find = format!(r#"{{"find":"{COLLECTION}","projection":{{"_id":1}},"batchSize":1000000}}"#);
        self.client().query(&find).unwrap()
    }

    /// A trial on it: four clients, two threads, a second.
    fn spec(&self, workload: Workload) -> TrialSpec {
        let scale: Scale = RECORDS.to_string().parse().unwrap();
        let spec = crate::spec(self.directory.path());
        fs::write(&spec.password_file, PASSWORD).unwrap();
        TrialSpec {
            engine: Engine::FerretDb,
            auth: Auth::default_of(Engine::FerretDb),
            endpoint: Endpoint::Unix(socket(self.directory.path())),
            database: Some(DATABASE.to_owned()),
            work: work(Engine::FerretDb, workload, scale, Some(r#"{"ping":1}"#)),
            clients: Clients::new(4).unwrap(),
            warm_up_ns: 50_000_000,
            window_ns: 1_000_000_000,
            ..spec
        }
    }

    fn tls(&self) -> (Endpoint, Option<TlsSpec>) {
        let ca_file = Some(self.directory.path().join("cert.pem"));
        let tls = TlsSpec { ca_file, ..crate::tls() };
        (Endpoint::Tcp(self.tls), Some(tls))
    }
}

impl Drop for FerretDb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ferretdb() -> Option<PathBuf> {
    ciphertoll_lab::find(&ServerLevel::of(Engine::FerretDb)).ok().map(|build| build.server_program)
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

fn record(number: u64) -> String {
    let value = "v".repeat(FIELD_BYTES as usize);
    let fields: Vec<String> = (0..FIELDS).map(|field| format!(r#""field{field}":"{value}""#)).collect();
    format!(r#"{{"_id":"{}",{}}}"#, key(number), fields.join(","))
}

fn make_certificate(openssl: &Path, place: &Path) {
    let made = Command::new(openssl)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"])
        .args(["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(place)
        .stderr(Stdio::null())
        .status()
        .expect("openssl is there");
    assert!(made.success(), "openssl: {made}");
}

fn operations(workload: Workload, result: &TrialResult) -> u64 {
    assert_eq!(result.errors, [], "{workload}");
    assert!(result.operations > 0, "{workload}: {result:?}");
    result.operations
}

/// With time for a few hundred operations, where that there are some of each kind is a matter of chance.
fn enough(spec: TrialSpec) -> TrialSpec {
    TrialSpec { window_ns: 4_000_000_000, ..spec }
}

pub(crate) fn every_workload_runs() {
    let Some(server) = server() else { return };
    let possible =
        Workload::ALL.into_iter().filter(|workload| workload.impossible(Engine::FerretDb).is_none());
    for workload in possible {
        let is_mixed = workload == Workload::Ycsb(YcsbMix::F);
        let spec = if is_mixed { enough(server.spec(workload)) } else { server.spec(workload) };
        let result = outcome(&spec).unwrap_or_else(|error| panic!("{workload}: {error}"));
        let operations = operations(workload, &result);
        println!("  {workload}: {operations} operations, p50 {} µs", result.latency.p50_ns / 1_000);
        assert_eq!(result.statements.is_some(), is_mixed, "{workload}");
        if let Some(statements) = result.statements {
            assert!(statements > operations && statements < 2 * operations, "half of them are two");
        }
        for leg in &result.legs {
            assert_eq!(leg.leg.auth.as_deref(), Some("scram-15000"), "{workload}");
        }
    }
}

/// Its context, its handshake and then the greeting are in a connect's phases, and add up to its time.
pub(crate) fn connects_are_made_of_phases() {
    let Some(server) = server() else { return };
    for auth in [Auth::default_of(Engine::FerretDb), Auth::ScramSha1] {
        let (endpoint, tls) = server.tls();
        let spec = TrialSpec { endpoint, tls, auth, ..server.spec(Workload::CONNECT_QUERY) };
        let result = outcome(&spec).unwrap();
        let operations = operations(Workload::CONNECT_QUERY, &result);
        assert_eq!(result.phase_sums_ns.values().sum::<u64>(), result.latency.sum_ns);
        for phase in
            [Phase::TcpConnect, Phase::TlsHandshake, Phase::ServerGreeting, Phase::Auth, Phase::FirstQuery]
        {
            assert!(result.phase_sums_ns.contains_key(&phase), "{phase:?}: {:?}", result.phase_sums_ns);
        }
        assert!(!result.phase_sums_ns.contains_key(&Phase::TlsRequest), "{:?}", result.phase_sums_ns);
        let [leg] = result.legs.as_slice() else { panic!("{:?}", result.legs) };
        println!("  {auth}: {operations} connects, {:?}, {:?}", leg.leg, result.phase_sums_ns);
        assert_eq!(leg.leg.tls_version.as_deref(), Some("tls1.3"));
    }
}

/// What a trial inserts is there, and in nobody's way: not even in that of the same trial, done again.
pub(crate) fn what_is_inserted_is_there() {
    let Some(server) = server() else { return };
    let workload = Workload::Ycsb(YcsbMix::D);
    let spec = enough(server.spec(workload));
    for turn in 1..=2 {
        operations(workload, &outcome(&spec).unwrap());
        let keys = server.keys();
        assert!(keys.len() as u64 > RECORDS + turn, "{} records", keys.len());
    }
}

/// Nobody takes an answer without its document for a read.
pub(crate) fn a_record_that_is_not_there() {
    let Some(server) = server() else { return };
    let scale = (RECORDS * 2).to_string().parse().unwrap();
    for workload in [Workload::FindOne, Workload::CONNECT_QUERY] {
        let work = work(Engine::FerretDb, workload, scale, None);
        let spec = TrialSpec { work, pace: TrialPace::Closed, ..server.spec(workload) };
        let result = outcome(&spec).unwrap();
        let message = "the answer's documents are 0 bytes, and 1000 were asked for";
        assert!(result.errors.iter().any(|error| error.message.starts_with(message)), "{:?}", result.errors);
    }
}

/// A password that is not the account's is the user's or the server's fault, and is not retried for ever.
pub(crate) fn a_wrong_password() {
    let Some(server) = server() else { return };
    let spec = server.spec(Workload::FindOne);
    fs::write(&spec.password_file, "wrong").unwrap();
    let error = outcome(&spec).unwrap_err();
    assert!(!error.to_string().contains("wrong"), "{error}");
    println!("  {error}");
    assert!(matches!(spec.work, TrialOperation::Transactions(_)));
}

/// Passes bytes between clients and the server, and counts how often each connection waits: how often the server says
/// something after the client has.
struct Relay {
    address: SocketAddr,
    waits: Arc<Mutex<Vec<u32>>>,
}

/// Who has said something last on a connection, and whether the client has ended it.
#[derive(Default)]
struct Talk {
    waits: u32,
    client_spoke: bool,
    is_over: bool,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, waits) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u32>>>::default());
        let counted = Arc::clone(&waits);
        thread::spawn(move || {
            for client in listener.incoming() {
                let counted = Arc::clone(&counted);
                thread::spawn(move || {
                    let talk = pass(&client?, &TcpStream::connect(server)?)?;
                    counted.lock().unwrap().push(talk);
                    io::Result::Ok(())
                });
            }
        });
        Self { address, waits }
    }

    /// Of most connections: the last is cut off, and what is sent in two pieces may be answered in two.
    fn usual(&self) -> Option<u32> {
        let mut connections = BTreeMap::<u32, u32>::new();
        for waits in self.waits.lock().unwrap().drain(..) {
            *connections.entry(waits).or_default() += 1;
        }
        connections.into_iter().max_by_key(|(_, count)| *count).map(|(waits, _)| waits)
    }
}

/// Until both have ended; how often the client waited.
fn pass(client: &TcpStream, server: &TcpStream) -> io::Result<u32> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let talk = Mutex::new(Talk::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            copy(server, client, || {
                let mut talk = talk.lock().unwrap();
                talk.waits += u32::from(talk.client_spoke && !talk.is_over);
                talk.client_spoke = false;
            });
        });
        copy(client, server, || talk.lock().unwrap().client_spoke = true);
        talk.lock().unwrap().is_over = true;
        let _ = server.shutdown(Shutdown::Write);
    });
    Ok(talk.into_inner().unwrap().waits)
}

/// Pieces that nobody waited between travel together, as on a long link: else a ticket that answers the first of them
/// looks like something that the second had waited for.
fn copy(from: &TcpStream, mut to: &TcpStream, heard: impl Fn()) {
    while let Ok(bytes @ [_, ..]) = read_together(from).as_deref() {
        heard();
        if to.write_all(bytes).is_err() {
            return;
        }
    }
}

/// What comes next, and what follows it closely; nothing at the end.
fn read_together(mut from: &TcpStream) -> io::Result<Vec<u8>> {
    const CLOSELY: Duration = Duration::from_millis(20);
    let mut piece = vec![0; 1 << 16];
    from.set_read_timeout(None)?;
    let length = from.read(&mut piece)?;
    let mut together = piece[..length].to_vec();
    from.set_read_timeout(Some(CLOSELY))?;
    while let Ok(length @ 1..) = from.read(&mut piece) {
        together.extend_from_slice(&piece[..length]);
    }
    Ok(together)
}

pub(crate) fn a_login_waits_as_often_as_the_model_says() {
    let Some(server) = server() else { return };
    let peer = ServerProperties {
        engine: Engine::FerretDb,
        version: "1.24.2",
        hello_retry: None,
        first_flight_bytes: None,
    };
    for (server_port, path) in
        [(server.plain, "plain"), (server.tls, "tls1.3-p256"), (server.tls, "tls1.2-p256")]
    {
        let relay = Relay::to(server_port);
        let path: ModelPath = path.parse().unwrap();
        let tls = path.as_tls().map(|tls| TlsSpec { parameters: tls.parameters, ..server.tls().1.unwrap() });
        for auth in [Auth::Trust, Auth::default_of(Engine::FerretDb), Auth::ScramSha1] {
            let spec = TrialSpec {
                endpoint: Endpoint::Tcp(relay.address),
                tls: tls.clone(),
                auth,
                clients: Clients::ONE,
                ..enough(server.spec(Workload::Connect))
            };
            operations(Workload::Connect, &outcome(&spec).unwrap());
            let expected = of_session(&peer, path, auth);
            println!("  {path} {auth}: {expected:?}");
            let usual = relay.usual();
            assert_eq!(usual, expected, "{path} {auth}");
        }
    }
}
