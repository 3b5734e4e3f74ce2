//! A private `my.cnf`: everything a server of the lab is told, in a file that only it can read.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use ciphertoll_model::Clients;

use crate::find::Build;

/// Churning clients do not wait for the server to be done with the last connection: many times as
/// many as there are clients may still be on their way out.
const CONNECTIONS: u16 = Clients::MAX * 16;
/// Threads that wait for the next connection.
const CACHED_THREADS: u16 = Clients::MAX + 50;
/// Of the socket; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: u16 = 1024;

/// What the options depend on.
pub(crate) struct Config<'a> {
    pub(crate) build: &'a Build,
    pub(crate) data: &'a Path,
    /// Where the server may put sockets and temporary files.
    pub(crate) run: &'a Path,
    pub(crate) network: Network,
    /// Statements to be run before the first login.
    pub(crate) init_file: Option<&'a Path>,
}

/// Whether and how a server listens beside its unix socket.
pub(crate) enum Network {
    /// Not at all.
    SocketOnly,
    /// On this port of 127.0.0.1, with TLS from this directory.
    Loopback { port: u16, tls: PathBuf },
}

/// Where the unix socket is.
pub(crate) fn socket_path(run: &Path) -> PathBuf {
    run.join("socket")
}

/// File names within a directory of TLS files.
pub(crate) const CA_FILE: &str = "ca.pem";
pub(crate) const CERTIFICATE_FILE: &str = "certificate.pem";
pub(crate) const KEY_FILE: &str = "key.pem";

impl Config<'_> {
    /// The file's text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("[mariadbd]\n");
        for (name, value) in self.options() {
            // Writing to a string cannot fail.
            let _ = match value {
                Some(value) => writeln!(text, "{name}={value}"),
                None => writeln!(text, "{name}"),
            };
        }
        text
    }

    fn options(&self) -> Vec<(&'static str, Option<String>)> {
        let path = |path: &Path| Some(path.display().to_string());
        let mut options = vec![
            ("basedir", path(&self.build.base_directory)),
            ("datadir", path(self.data)),
            ("tmpdir", path(self.run)),
            ("socket", path(&socket_path(self.run))),
            ("pid-file", path(&self.run.join("pid"))),
            ("skip-name-resolve", None),
            ("skip-log-bin", None),
            // Never tells anybody that it ran, never reads what it was not asked to.
            ("loose-feedback", Some("OFF".to_owned())),
            ("local-infile", Some("OFF".to_owned())),
            ("max_connections", Some(CONNECTIONS.to_string())),
            ("thread_cache_size", Some(CACHED_THREADS.to_string())),
            ("back_log", Some(BACKLOG.to_string())),
            ("performance_schema", Some("OFF".to_owned())),
            ("innodb_buffer_pool_size", Some("128M".to_owned())),
            // A trial must not depend on what the buffers held when the template was made.
            ("innodb_buffer_pool_dump_at_shutdown", Some("OFF".to_owned())),
            ("innodb_buffer_pool_load_at_startup", Some("OFF".to_owned())),
        ];
        if let Some(init_file) = self.init_file {
            options.push(("init-file", path(init_file)));
        }
        match &self.network {
            Network::SocketOnly => options.push(("skip-networking", None)),
            Network::Loopback { port, tls } => options.extend([
                ("bind-address", Some("127.0.0.1".to_owned())),
                ("port", Some(port.to_string())),
                ("ssl-ca", path(&tls.join(CA_FILE))),
                ("ssl-cert", path(&tls.join(CERTIFICATE_FILE))),
                ("ssl-key", path(&tls.join(KEY_FILE))),
                ("tls_version", Some("TLSv1.2,TLSv1.3".to_owned())),
            ]),
        }
        options
    }
}
