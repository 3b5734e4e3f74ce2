//! The start of a proxy: its arguments and its private directory.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ciphertoll_host::files::{self, PRIVATE_FILE};
use ciphertoll_model::{Clients, Namespace, Proxy, ProxyConfiguration, SocketAuth};
use ciphertoll_record::Context;
use ciphertoll_wire::Secret;

use crate::error::Error;
use crate::servers::server::Server;
use crate::tls::credentials::ClientAccount;
use crate::workspace::Workspace;

pub struct ProxyStart<'a> {
    pub proxy: Proxy,
    pub server: &'a Server,
    /// The server's address as seen by the proxy.
    pub behind: SocketAddr,
    /// The account of clients, and of the proxy's server login.
    pub account: &'a ClientAccount,
    /// What the proxy requires of clients on its Unix socket.
    pub admission: SocketAuth,
    /// More arguments of ciphertoll-proxy, for settings that are not levels. Other programs ignore them.
    pub arguments: &'a [String],
    /// Number of concurrent clients, which determines the size of the pool.
    pub clients: Clients,
    /// Unique in the run.
    pub name: &'a str,
    /// Network namespace; ours if absent.
    pub namespace: Option<&'a Namespace>,
    /// CPU affinity, on the client's side; all processors if absent.
    pub processors: Option<&'a [u16]>,
    pub logs: &'a Path,
}

pub(crate) struct ProxyContext<'a> {
    pub(crate) workspace: &'a Workspace,
    /// For configuration files, which belong to the user of the proxy.
    pub(crate) directory: &'a Path,
    /// The proxy's own directory, for sockets.
    pub(crate) run: &'a Path,
    pub(crate) password: &'a Secret,
}

pub(crate) struct ProxyCommand {
    pub(crate) file: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// Environment variables whose values are in files.
    pub(crate) secrets: BTreeMap<String, PathBuf>,
}

impl ProxyCommand {
    pub(crate) fn new(file: PathBuf, arguments: Vec<String>) -> Self {
        Self { file, arguments, environment: BTreeMap::new(), secrets: BTreeMap::new() }
    }
}

impl ProxyContext<'_> {
    /// Writes a file that only the proxy can read. Replaces the file of an attempt on another port.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.directory.join(name);
        if path.exists() {
            fs::remove_file(&path).context("remove", &path)?;
        }
        files::write(&path, text.as_bytes(), PRIVATE_FILE, self.workspace.run_as)?;
        Ok(path)
    }

    /// Writes its files, which come before a program that is started with its arguments.
    pub(crate) fn configured(&self, program: PathBuf, by: ProxyConfiguration) -> Result<ProxyCommand, Error> {
        for (name, text) in &by.files {
            self.write(name, text)?;
        }
        Ok(ProxyCommand::new(program, by.arguments))
    }

    /// The password as text. The lab's passwords are hexadecimal, so configuration files need no escaping.
    pub(crate) fn password_text(&self) -> String {
        String::from_utf8_lossy(self.password.expose()).into_owned()
    }
}

impl ProxyStart<'_> {
    /// Maximum number of server connections: per client, one in use and one that is reset for the next client.
    pub fn pool_size(&self) -> u32 {
        2 * u32::from(self.clients.count())
    }

    /// Maximum number of clients. It is not what is measured, and new clients may connect before closed connections are
    /// removed.
    pub(crate) fn max_clients(&self) -> u32 {
        self.pool_size().max(20_000)
    }
}
