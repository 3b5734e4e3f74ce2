//! A private server, and the programs and files for measurements on it.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::{Lab, Server, ServerStart, Tables};
use ciphertoll_model::{Auth, Endpoint, Engine, Scale, SecurityLevel, ServerKey, ServerLevel};

use crate::arm::{OperationKind, Route, Tools};
use crate::{ciphertoll_program, peers_directory};

pub struct BenchSetup<'a> {
    pub lab: &'a Lab,
    pub server: &'a Server,
    pub program: PathBuf,
    /// The compiled C peers.
    pub peers: PathBuf,
    pub tools: &'a Tools,
    /// A private directory for files with passwords.
    pub private: PathBuf,
    /// Rows of the sysbench table, or records of the YCSB collection.
    pub rows: Scale,
    /// Length of the measurement window. Tools round it up to whole seconds.
    pub seconds: f64,
}

/// Measures on a private server with a P-256 key, these tables, and an account for each of `auths`.
pub fn on_server(
    level: &ServerLevel,
    tables: &Tables,
    auths: &[Auth],
    tools: &Tools,
    (rows, seconds): (Scale, f64),
    measure: impl FnOnce(&BenchSetup<'_>) -> Result<()>,
) -> Result<()> {
    let program = ciphertoll_program()?;
    let lab = Lab::open(program.clone())?;
    let build = ciphertoll_lab::find(level)?;
    let template = lab.template(&build, tables, &mut |_| (), &|| false)?;
    let log = lab.scratch().path().join("server.log");
    let start = ServerStart {
        build: &build,
        template: &template,
        name: "s1",
        key: ServerKey::P256,
        log,
        preferred_port: None,
        processors: None,
        strength: SecurityLevel::Default,
    };
    let mut server = lab.start(&start)?;
    for auth in auths {
        server.prepare_auth(*auth)?;
    }
    let private = lab.scratch().make_directory("bench", 0o700)?;
    let (lab, peers) = (&lab, peers_directory()?);
    measure(&BenchSetup { lab, server: &server, program, peers, tools, private, rows, seconds })?;
    server.stop()?;
    Ok(())
}

impl BenchSetup<'_> {
    pub(crate) fn engine(&self) -> Engine {
        self.server.engine()
    }

    /// Rows of `pgbench_accounts`.
    pub(crate) fn accounts(&self) -> Scale {
        self.rows.in_whole_branches()
    }

    /// The number of rows or documents that an operation needs.
    pub(crate) fn scale(&self, work: OperationKind) -> Scale {
        match work {
            OperationKind::ConnectSelect | OperationKind::SelectOnly(_) => self.accounts(),
            OperationKind::Connect
            | OperationKind::PointSelect
            | OperationKind::OltpReadOnly
            | OperationKind::FindOne => self.rows,
        }
    }

    pub(crate) fn endpoint(&self, route: Route) -> Endpoint {
        if route == Route::Unix { self.server.unix_endpoint() } else { self.server.tcp_endpoint() }
    }

    pub(crate) fn address(&self) -> Result<(String, String)> {
        match self.server.tcp_endpoint() {
            Endpoint::Tcp(address) => Ok((address.ip().to_string(), address.port().to_string())),
            Endpoint::Host { .. } | Endpoint::Unix(_) => bail!("the server does not listen on TCP"),
        }
    }

    pub(crate) fn password(&self, auth: Auth) -> Result<String> {
        let file = self.server.account(auth).password_file;
        std::fs::read_to_string(file).context("cannot read the password")
    }
}
