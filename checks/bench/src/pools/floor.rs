//! The process of a relay floor, a C program of `peers/`.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, Endpoint, Engine};

use super::route::FloorReset;
use crate::setup::BenchSetup;

/// A running relay; killed when dropped.
pub struct RelayFloor {
    child: Child,
    socket: PathBuf,
}

impl RelayFloor {
    /// Starts a relay with so many connections to the server, and waits until it listens.
    pub fn start(reset: FloorReset, connections: u16, setup: &BenchSetup<'_>) -> Result<Self> {
        let name = program(setup.engine())?;
        let program = setup.peers.join(name);
        if !program.is_file() {
            bail!("{name} is not built: run scripts/build-peers");
        }
        let directory = setup.private.join(format!("{name}-{}", reset.argument()));
        std::fs::create_dir_all(&directory).context("cannot create a directory")?;
        // libpq takes the port from the name.
        let socket = directory.join(".s.PGSQL.5432");
        let (host, port) = setup.address()?;
        let account = setup.server.account(Auth::default_of(setup.engine()));
        let mut command = Command::new(program);
        command.arg("--listen").arg(&socket).args(["--reset", reset.argument()]);
        command.args(["--connections", &connections.to_string(), "--host", &host, "--port", &port]);
        command.args(["--user", &account.user, "--database", setup.server.database()]);
        command.arg("--password-file").arg(account.password_file);
        command.args(["--tls", "1.3"]).arg("--ca").arg(setup.server.ca_file());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut floor = Self { child: child.with_context(|| format!("cannot run {name}"))?, socket };
        let mut line = String::new();
        let stdout = floor.child.stdout.take().context("no stdout")?;
        BufReader::new(stdout).read_line(&mut line).context("cannot read from the relay")?;
        if line.trim_end() != "ready" {
            bail!("{name} has ended: {}", floor.complaint());
        }
        Ok(floor)
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.socket.clone())
    }

    pub fn pid(&self) -> Result<i32> {
        i32::try_from(self.child.id()).context("a process id")
    }

    /// Fails if the process has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot wait for the relay")? {
            None => Ok(()),
            Some(status) => bail!("the relay has ended: {status}: {}", self.complaint()),
        }
    }

    /// What an ended process has written to stderr.
    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = self.child.stderr.as_mut() {
            // Without it, the exit status remains.
            let _ = stderr.read_to_string(&mut text);
        }
        text.trim_end().to_owned()
    }
}

fn program(engine: Engine) -> Result<&'static str> {
    match engine {
        Engine::Postgres => Ok("relay_floor_postgres"),
        Engine::MariaDb | Engine::MySql => Ok("relay_floor_mariadb"),
        engine => bail!("there is no such floor for {}", engine.display_name()),
    }
}

impl Drop for RelayFloor {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
