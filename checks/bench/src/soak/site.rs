//! A private server, and the sidecar in front of it, which can be reloaded and upgraded.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ciphertoll_lab::{Lab, Server, ServerStart, Tables};
use ciphertoll_model::{Auth, Endpoint, Engine, SecurityLevel, ServerKey, ServerLevel};
use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub const POOL_SIZE: usize = 20;
/// How long anything may take that the sidecar does at once on an idle machine.
const LIMIT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The process that serves, and those that were upgraded and still serve their clients.
pub struct Sidecar {
    /// The first process, which is this program's child.
    child: Child,
    current: ProcessIdentity,
    log: PathBuf,
    config: PathBuf,
    socket: PathBuf,
    reloads: usize,
}

/// Starts a private server of this engine.
pub fn start_server(lab: &Lab, engine: Engine) -> Result<Server> {
    let build = ciphertoll_lab::find(&ServerLevel::of(engine))?;
    let template = lab.template(&build, &Tables::default(), &mut |_| (), &|| false)?;
    let start = ServerStart {
        build: &build,
        template: &template,
        name: "s1",
        key: ServerKey::P256,
        log: lab.scratch().path().join("server.log"),
        preferred_port: None,
        processors: None,
        strength: SecurityLevel::Default,
    };
    Ok(lab.start(&start)?)
}

impl Sidecar {
    /// Starts `program` in transaction mode.
    pub fn start(program: &Path, lab: &Lab, server: &Server) -> Result<Self> {
        let place = lab.scratch().make_directory("soak", 0o700)?;
        let engine = server.engine();
        let (scheme, ca, socket_name) = match engine {
            Engine::Postgres => ("postgres", "sslrootcert", ".s.PGSQL.6432"),
            _ => ("mysql", "ssl-ca", "mysqld.sock"),
        };
        let Endpoint::Tcp(address) = server.tcp_endpoint() else {
            bail!("the server does not listen on TCP")
        };
        let account = server.account(Auth::default_of(engine));
        let url = format!(
            "{scheme}://{}@{address}/{}?{ca}={}",
            account.user,
            server.database(),
            server.ca_file().display()
        );
        let password = fs::read_to_string(&account.password_file).context("cannot read the password")?;
        let [log, config, socket] = ["log", "proxy.toml", socket_name].map(|name| place.join(name));
        fs::write(&config, settings(0)).context("cannot write the settings")?;
        let mut command = Command::new(program);
        command.args([
            "--listen",
            &format!("unix:{}", socket.display()),
            "--server",
            &url,
            "--mode",
            "transaction",
        ]);
        command.arg("--config").arg(&config).env("CIPHERTOLL_PASSWORD", password.trim_end());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log).context("cannot make a log")?);
        let child = command.spawn().context("cannot start ciphertoll-proxy")?;
        let current =
            ProcessIdentity::of(child.id().cast_signed()).context("cannot find ciphertoll-proxy")?;
        let mut sidecar = Self { child, current, log, config, socket, reloads: 0 };
        sidecar.await_line("event=listening", 1)?;
        Ok(sidecar)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process that serves new clients.
    pub fn pid(&self) -> i32 {
        self.current.pid
    }

    pub fn check(&mut self) -> Result<()> {
        if self.current.is_alive() {
            return Ok(());
        }
        bail!("the sidecar has ended; its log ends: {}", self.end_of_log())
    }

    /// Changes a setting and reloads.
    pub fn reload(&mut self) -> Result<()> {
        self.reloads += 1;
        fs::write(&self.config, settings(self.reloads)).context("cannot write the settings")?;
        self.signal(Signal::SIGHUP)?;
        self.await_line("event=reloaded", self.reloads)
    }

    /// Starts a new process, which takes the sockets over.
    pub fn upgrade(&mut self) -> Result<()> {
        self.signal(Signal::SIGUSR2)?;
        self.await_line("event=upgraded", 1)?;
        let log = fs::read_to_string(&self.log).context("cannot read the log")?;
        let line =
            log.lines().find(|line| line.contains("event=upgraded")).context("no upgrade in the log")?;
        let (_, pid) = line.split_once("pid=").context("no process id in the log")?;
        let pid = pid.split_whitespace().next().unwrap_or_default().parse().context("a process id")?;
        self.current = ProcessIdentity::of(pid).context("cannot find the new process")?;
        Ok(())
    }

    /// Waits until the first process has ended, because all its clients have left: its exit code.
    pub fn await_end_of_old(&mut self) -> Result<i32> {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().context("cannot wait for the sidecar")? {
                return status.code().context("a signal ended the old process");
            }
            thread::sleep(POLL_INTERVAL);
        }
        bail!("the old process still runs {} s after its clients were asked to leave", LIMIT.as_secs())
    }

    /// Lines of the log with a level above info that are not about lost server connections.
    pub fn warnings(&self) -> usize {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains("panicked") || line.contains("level=error")).count()
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid()), signal).with_context(|| format!("cannot send {signal}"))
    }

    fn await_line(&mut self, event: &str, count: usize) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let log = fs::read_to_string(&self.log).context("cannot read the log")?;
            if log.lines().filter(|line| line.contains(event)).count() >= count {
                return Ok(());
            }
            self.check()?;
            if Instant::now() >= deadline {
                bail!("no {event} within {} s; the log ends: {}", LIMIT.as_secs(), self.end_of_log());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn end_of_log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let mut last: Vec<&str> = log.lines().rev().take(5).collect();
        last.reverse();
        last.join(" | ")
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.current.end(Duration::from_secs(1));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each reload changes how long clients wait.
fn settings(reloads: usize) -> String {
    let queue_time = if reloads.is_multiple_of(2) { 10 } else { 11 };
    format!(
        "threads = 2\n[limits]\npool-size = {POOL_SIZE}\nmax-clients = 20000\n\
         queue-time = \"{queue_time}s\"\n"
    )
}
