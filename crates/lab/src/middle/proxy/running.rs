//! Proxies of the lab's own: real programs beside the client, with a configuration and a directory of their own. What is
//! the same for every program is here, the rest in the program's own module.

mod door;
pub(crate) mod mysqlrouter;
mod pgbouncer;
pub(crate) mod proxysql;
mod sidecar;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ciphertoll_model::{Clients, Endpoint, Engine, Leg, Namespace, Proxy, ProxyFront, ProxyProgram};
use ciphertoll_wire::Secret;

use self::door::Door;
use crate::accounting::CpuMeter;
use crate::error::{Context, Error};
use crate::exec::Provisions;
use crate::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE};
use crate::lab::Lab;
use crate::programs;
use crate::server::{Account, Server};
use crate::spawn::{Child, Launch};
use crate::user::RunAs;

/// Others pass through to what is theirs in it.
const PASS_THROUGH: u32 = 0o711;

/// Where the sidecar is: beside this program, or on PATH; else how to get it.
pub fn sidecar() -> Result<PathBuf, Error> {
    let program = env::current_exe().context("find", Path::new("/proc/self/exe"))?;
    programs::find_sidecar(&program)
}

/// What to start.
pub struct ProxyStart<'a> {
    /// Which.
    pub proxy: Proxy,
    /// In front of which server.
    pub server: &'a Server,
    /// Where the proxy finds it.
    pub behind: SocketAddr,
    /// Whom clients are, and whom the proxy logs in as.
    pub account: &'a Account,
    /// What it asks of clients at its unix socket, if it has one.
    pub admission: Admission,
    /// How many clients come at once: what its pool is made for.
    pub clients: Clients,
    /// Tells it apart from others of the run.
    pub name: &'a str,
    /// The network that it is in; ours, where absent.
    pub namespace: Option<&'a Namespace>,
    /// The processors that it keeps to; all, where absent. It is on the client's side.
    pub processors: Option<&'a [u16]>,
    /// Where it logs.
    pub logs: &'a Path,
}

/// What a client must do to come in by a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nothing: only we can reach the socket, or the kernel says that it is us.
    Free,
    /// Prove, as its protocol does, that it knows the account's password.
    Password,
}

/// A proxy that runs and has a connection to the server. Ended, and its files removed, when dropped.
pub struct RunningProxy {
    child: Child,
    door: Door,
    endpoint: Endpoint,
    leg: Leg,
    set_up: Duration,
    place: PathBuf,
}

/// What every program is started in.
pub(crate) struct Wiring<'a> {
    pub(crate) lab: &'a Lab,
    /// For configurations; each belongs to whom the program runs as.
    pub(crate) place: &'a Path,
    /// The program's own, for sockets.
    pub(crate) run: &'a Path,
    pub(crate) password: &'a Secret,
}

/// A program that is to be started.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// Variables, and the files that have their values.
    pub(crate) secrets: BTreeMap<String, PathBuf>,
}

impl RunningProxy {
    /// Starts a proxy; a client has got through it to the server when this returns, so that its first connection is no
    /// part of what is measured. Where its program is missing, that is told with the cure. To be called on the
    /// coordinator's main thread.
    pub fn start(lab: &Lab, start: &ProxyStart<'_>) -> Result<Self, Error> {
        let mode = if lab.run_as == RunAs::Ourselves { PRIVATE_DIRECTORY } else { PASS_THROUGH };
        let place = lab.scratch.make_directory(start.name, mode)?;
        Self::start_in(lab, start, &place).inspect_err(|_| drop(fs::remove_dir_all(&place)))
    }

    fn start_in(lab: &Lab, start: &ProxyStart<'_>, place: &Path) -> Result<Self, Error> {
        let run = place.join("run");
        files::make_directory(&run, PRIVATE_DIRECTORY, lab.run_as)?;
        let password_file = &start.account.password_file;
        let password = Secret::new(fs::read(password_file).context("read", password_file)?);
        let wiring = Wiring { lab, place, run: &run, password: &password };
        let began = Instant::now();
        let (mut child, endpoint) = match start.proxy.front {
            ProxyFront::Unix => {
                let socket = run.join(socket_name(start.server.engine()));
                let mut child = wiring.spawn(start, &Endpoint::Unix(socket.clone()))?;
                door::wait_for_socket(&mut child, &socket)?;
                (child, Endpoint::Unix(socket))
            }
            ProxyFront::Tcp => door::on_a_port(&wiring, start)?,
        };
        let door = Door::new(start, &endpoint, &password);
        let encryption = door.go_through(&mut child)?;
        let (from, library) = (start.proxy.program.label(), start.proxy.program.display_name());
        let leg = Leg {
            from: from.to_owned(),
            library: Some(library.to_owned()),
            ..start.server.leg_of(encryption)
        };
        Ok(Self { child, door, endpoint, leg, set_up: began.elapsed(), place: place.to_owned() })
    }

    /// Where its clients go.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// What its first connection has agreed on with the server, as the server tells it.
    pub fn leg(&self) -> &Leg {
        &self.leg
    }

    /// Goes through it once more, and asks the server what that connection has agreed on. Whoever was broken off may have
    /// taken the pool's last connection along: now there is one.
    pub fn go_through(&mut self, server: &Server) -> Result<Leg, Error> {
        let encryption = self.door.go_through(&mut self.child)?;
        let (from, library) = (self.leg.from.clone(), self.leg.library.clone());
        Ok(Leg { from, library, ..server.leg_of(encryption) })
    }

    /// How long it took from its start until a client had got through it.
    pub fn set_up(&self) -> Duration {
        self.set_up
    }

    /// What its CPU time is read from. All of these are one process.
    pub fn cpu_meter(&self) -> CpuMeter {
        CpuMeter::of_process(self.child.pid())
    }

    /// The process whose memory is the proxy's.
    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// What its program says that it is; empty where it does not.
    pub fn version(lab: &Lab, program: ProxyProgram) -> String {
        let file = match program {
            ProxyProgram::Sidecar => programs::find_sidecar(&lab.helper).ok(),
            other => programs::search(other.label()),
        };
        let version =
            file.and_then(|file| programs::version_of(&file, &["--version"], lab.scratch.path()).ok());
        version.unwrap_or_default()
    }

    /// Fails if it does nothing any more.
    pub fn check(&mut self) -> Result<(), Error> {
        self.child.check()
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        const GRACE: Duration = Duration::from_millis(500);
        // What does not end by itself is killed when it is dropped; what is left of files goes with the lab.
        let _ = self.child.stop(GRACE);
        let _ = fs::remove_dir_all(&self.place);
    }
}

impl Wiring<'_> {
    /// Starts the program with clients at `front`.
    pub(crate) fn spawn(&self, start: &ProxyStart<'_>, front: &Endpoint) -> Result<Child, Error> {
        let program = match start.proxy.program {
            ProxyProgram::Sidecar => sidecar::program(self, start, front)?,
            ProxyProgram::PgBouncer => pgbouncer::program(self, start, front)?,
            ProxyProgram::ProxySql => proxysql::program(self, start, front)?,
            ProxyProgram::MySqlRouter => mysqlrouter::program(self, start, front)?,
        };
        let name = start.proxy.to_string().replace(['+', '='], "-");
        let launch = Launch {
            what: start.proxy.program.display_name().to_owned(),
            program: program.file,
            arguments: program.arguments,
            environment: program.environment,
            directory: "/".into(),
            run_as: self.lab.run_as,
            processors: start.processors.map(<[u16]>::to_vec),
            namespace: start.namespace.cloned(),
            provisions: Provisions { secrets: program.secrets, ..Provisions::default() },
            log: start.logs.join(format!("{name}.log")),
        };
        Child::spawn(&self.lab.scratch, &self.lab.helper, &launch)
    }

    /// Writes a file that only the program can read. Another one of this name is from a port that was taken.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.place.join(name);
        if path.exists() {
            fs::remove_file(&path).context("remove", &path)?;
        }
        files::write(&path, text.as_bytes(), PRIVATE_FILE, self.lab.run_as)?;
        Ok(path)
    }

    /// The password as text; those of the lab are hexadecimal, so that no configuration has to escape them.
    pub(crate) fn password_text(&self) -> String {
        String::from_utf8_lossy(self.password.expose()).into_owned()
    }
}

impl ProxyStart<'_> {
    /// Server connections that it may have: twice the clients, one in use and one that is made ready for the next.
    pub fn pool_size(&self) -> u32 {
        2 * u32::from(self.clients.count())
    }

    /// Clients that come before those that have left are gone.
    pub(crate) fn most_clients(&self) -> u32 {
        const ON_THEIR_WAY_OUT: u32 = 200;
        self.pool_size() + ON_THEIR_WAY_OUT
    }
}

/// As each engine's clients look for it where they are given the directory.
fn socket_name(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb | Engine::MySql => "mysqld.sock",
        Engine::Postgres => ".s.PGSQL.5432",
        Engine::MongoDb | Engine::FerretDb => "mongodb-27017.sock",
    }
}

/// The directory of a unix socket.
pub(crate) fn directory_of(socket: &Path) -> String {
    socket.parent().unwrap_or(Path::new("/")).display().to_string()
}
