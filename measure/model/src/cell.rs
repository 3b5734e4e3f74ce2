//! A treatment is one level of each factor; a cell is a treatment under a load.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::factor::{
    AtRest, Auth, ClientCertificate, Clients, Compressor, ConnectionUse, Ctx, Dataset, Driver, Engine,
    Factor, Link, Pace, Path, Proxy, ProxyFront, ProxyProgram, RelativeScale, Resumption, Scale, ScaleLevel,
    ServerKey, ServerLevel, ServerUrl, TlsDemand, TlsLibrary, TlsPath, TlsStart, Tunnel, UrlPlace,
    Verification, Workload,
};

/// What is compared: one level of each factor that is not part of the load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Treatment {
    pub server: ServerLevel,
    pub path: Path,
    pub auth: Auth,
    /// `None` if the path has no TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ctx: Option<Ctx>,
    pub driver: Driver,
    pub link: Link,
    pub at_rest: AtRest,
}

/// A treatment under a load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    #[serde(flatten)]
    pub treatment: Treatment,
    pub workload: Workload,
    pub clients: Clients,
    pub scale: Scale,
    /// The configured relative scale, if any; `scale` is then the number of rows on this server.
    #[serde(rename = "relative_scale", default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<RelativeScale>,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub pace: Pace,
}

/// A cell's levels joined by `/`: the key by which two runs are compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CellId(pub String);

/// Which copy of a cell. Every block measures a stratum's baseline twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    Main,
    /// The baseline again, for the A/A comparison: any difference is noise.
    Repeat,
}

/// A requested measurement that is not made, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The cell's id, or a level if no cell could be formed.
    pub id: String,
    /// The name of the cell's server; absent in older records, and if there is no cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// In one line.
    pub reason: String,
}

impl Skipped {
    pub fn cell(cell: &Cell, reason: impl Into<String>) -> Self {
        let server = Some(cell.treatment.server.short_name());
        Self { id: cell.to_string(), server, reason: reason.into() }
    }
}

impl Treatment {
    /// Fills in what is implied: the key of a private server's certificate; `as-is` levels for a server at a URL.
    #[must_use]
    pub fn normalised(mut self) -> Self {
        if self.server.url.is_some() {
            if self.link == Link::Local {
                self.link = Link::AsIs;
            }
            if self.at_rest == AtRest::None {
                self.at_rest = AtRest::AsIs;
            }
        } else if let Path::Tls(tls) = &mut self.path {
            tls.key.get_or_insert(ServerKey::P256);
        }
        self
    }
}

impl Cell {
    /// The levels joined by `/`, in the order of [`crate::Factor::ALL`]; `-` where none applies.
    pub fn id(&self) -> CellId {
        CellId(self.to_string())
    }

    /// A level as the command line writes it, a server by its short name; `None` if the factor does not apply.
    pub fn level(&self, factor: Factor) -> Option<String> {
        let treatment = &self.treatment;
        Some(match factor {
            Factor::Server => treatment.server.short_name(),
            Factor::Path => treatment.path.to_string(),
            Factor::Auth => treatment.auth.to_string(),
            Factor::Ctx => treatment.ctx?.to_string(),
            Factor::Driver => treatment.driver.to_string(),
            Factor::Link => treatment.link.to_string(),
            Factor::AtRest => treatment.at_rest.to_string(),
            Factor::Workload => self.workload.to_string(),
            Factor::Clients => self.clients.to_string(),
            Factor::Scale => self.scale_level().to_string(),
            Factor::Pace => self.pace.to_string(),
        })
    }

    /// Why no server can run this cell, if so. Servers themselves may refuse more.
    pub fn impossibility(&self) -> Option<String> {
        match &self.treatment.server.url {
            Some(url) => self.impossible_at(url),
            None => self.impossible_here(),
        }
        .or_else(|| self.impossible_for_engine())
    }

    /// Why load hosts cannot run this cell: it needs what only the coordinator's machine has.
    pub fn impossible_on_hosts(&self) -> Option<String> {
        let Treatment { path, link, driver, .. } = &self.treatment;
        let reason = match path {
            Path::Unix => "load hosts have no unix socket of the server",
            Path::Tunnel(_) => "a tunnel begins on this machine, and the clients are on load hosts",
            Path::Proxy(_) => "a proxy runs on this machine, and the clients are on load hosts",
            Path::Tls(tls) if tls.parameters.library == TlsLibrary::OpenSsl35 => {
                "load hosts have no OpenSSL 3.5 of ciphertoll: their clients use the OpenSSL of the host"
            }
            _ if matches!(link, Link::Emulated(_)) => {
                "an emulated link begins on this machine, and the clients are on load hosts"
            }
            _ if *driver != Driver::Native => "load hosts have the driver native only",
            _ => return None,
        };
        Some(reason.to_owned())
    }

    /// Constraints of a private server.
    fn impossible_here(&self) -> Option<String> {
        let Treatment { server, auth, path, link, driver, at_rest, .. } = &self.treatment;
        let made = matches!(link, Link::Emulated(_));
        let reason = if *auth == Auth::AsAsked {
            "as-asked is for servers at a URL: name an authentication"
        } else if self.clients.count() > Clients::MOST_OF_PRIVATE_SERVERS {
            "private servers have connections for 256 clients: measure a server at a URL"
        } else if made && *path == Path::Unix {
            "a unix socket has no network: no --link"
        } else if path.as_tunnel().is_some_and(Tunnel::joins_networks) && !made {
            "a VPN joins two networks, and loopback is only one: use --link 0ms or longer"
        } else if made && path.as_proxy().is_some_and(|proxy| proxy.front == ProxyFront::Tcp) {
            "with --link, clients reach a proxy only by its unix socket"
        } else if made && *driver != Driver::Native {
            "external drivers do not support emulated links yet"
        } else {
            return at_rest.impossible(server.engine);
        };
        Some(reason.to_owned())
    }

    /// Constraints of a server at a URL: levels that the client alone cannot choose.
    fn impossible_at(&self, url: &ServerUrl) -> Option<String> {
        let Treatment { server, path, auth, driver, link, at_rest, .. } = &self.treatment;
        let name = server.short_name();
        let tls = path.as_tls();
        let between = path.as_tunnel().map(|_| "tunnel").or(path.as_proxy().map(|_| "proxy"));
        let reason = if let Some(process) = between {
            format!("a {process} needs a server that is started here, and {name} is at a URL")
        } else if tls.is_some_and(|tls| tls.key.is_some()) {
            format!(
                "the certificate of {name} cannot be chosen: write {}",
                tls.map_or("", |tls| tls.parameters.version.label())
            )
        } else if tls.is_some_and(|tls| tls.chain.is_some()) {
            format!("the certificates of {name} cannot be chosen: leave out +chain")
        } else if tls.is_some_and(|tls| tls.client_certificate != ClientCertificate::None) {
            format!(
                "the client certificate for {name} is named in its URL (sslcert, ssl-cert or tlsCertificateKeyFile): leave out +mtls"
            )
        } else if tls.is_some() && url.tls.demand == TlsDemand::Never {
            format!("the URL of {name} disables TLS")
        } else if tls.is_none() && matches!(url.tls.demand, TlsDemand::Always(_)) {
            format!("the URL of {name} requires TLS; {} measures plaintext, too", url.compare_option())
        } else if matches!(path, Path::Unix) != matches!(url.place, UrlPlace::Socket(_)) {
            format!("the URL of {name} is for either TCP or a unix socket: use one URL for each")
        } else if tls.is_some_and(|tls| tls.parameters.library == TlsLibrary::Rustls)
            && url.tls.verification() != Verification::Full
        {
            "rustls always verifies CA and name, and the URL asks for less".to_owned()
        } else if *auth != Auth::AsAsked {
            format!("the authentication of {name} is recorded, not chosen")
        } else if *driver != Driver::Native {
            "external drivers do not support servers at a URL yet".to_owned()
        } else if *link != Link::AsIs || *at_rest != AtRest::AsIs {
            format!("the network and the storage of {name} cannot be changed")
        } else {
            return None;
        };
        Some(reason)
    }

    fn impossible_for_engine(&self) -> Option<String> {
        let Treatment { server, path, auth, .. } = &self.treatment;
        let tls = path.as_tls();
        tls.and_then(|tls| impossible_start(server.engine, tls.start))
            .or_else(|| tls.and_then(TlsPath::impossible))
            .or_else(|| tls.and_then(|tls| self.impossible_with(tls)))
            .or_else(|| path.server_tls().and_then(|tls| self.impossible_for_release(tls)))
            .or_else(|| path.as_proxy().and_then(|proxy| self.impossible_through(proxy)))
            .or_else(|| path.compressor().and_then(|compressor| self.impossible_compressed(compressor)))
            .or_else(|| auth.impossible(server.engine, *path))
            .or_else(|| self.workload.impossible(server.engine))
    }

    /// Constraints of a server whose level has a version.
    fn impossible_for_release(&self, tls: TlsPath) -> Option<String> {
        let ServerLevel { engine, version, .. } = &self.treatment.server;
        let version = version.as_deref()?;
        tls.impossible_for_release(*engine, version, &format!("{} {version}", engine.display_name()))
    }

    /// Constraints of message compression.
    fn impossible_compressed(&self, compressor: Compressor) -> Option<String> {
        let Treatment { server, driver, .. } = &self.treatment;
        let external = "external drivers do not support compressed messages yet";
        let unsupported = (*driver != Driver::Native).then(|| external.to_owned());
        compressor.impossible(server.engine).or(unsupported)
    }

    /// Constraints of proxies, which log in to the server in the client's place.
    fn impossible_through(&self, proxy: Proxy) -> Option<String> {
        let Treatment { server, auth, .. } = &self.treatment;
        let asks_in_front = (proxy.program, proxy.front) == (ProxyProgram::SIDECAR, ProxyFront::Tcp);
        if asks_in_front && *auth == Auth::Trust {
            let name = proxy.program.display_name();
            return Some(format!("over TCP, {name} requires a password, and auth=trust has none"));
        }
        if *auth == Auth::Cert {
            return Some("a proxy cannot present a client certificate yet".to_owned());
        }
        proxy.impossible(server.engine)
    }

    /// Constraints of a TLS path together with other factors.
    fn impossible_with(&self, tls: TlsPath) -> Option<String> {
        let Treatment { auth, ctx, .. } = &self.treatment;
        let shows_one = tls.client_certificate == ClientCertificate::Demanded;
        let resumes = tls.resumption != Resumption::Never;
        let reason = if shows_one && *auth == Auth::Cert {
            "auth=cert presents a client certificate already: leave out +mtls"
        } else if resumes && tls.parameters.library == TlsLibrary::Rustls && *ctx != Some(Ctx::Shared) {
            "rustls resumes sessions within one context only: use ctx=shared"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }

    /// Why another cell measures the same already, if so.
    pub fn redundancy(&self, first_ctx: Ctx) -> Option<&'static str> {
        let ctx = self.treatment.ctx?;
        if self.treatment.path.as_tls().is_none() {
            return (ctx != first_ctx).then_some("this path builds no TLS context: measured once");
        }
        let pooled = self.workload.connection_use() == ConnectionUse::Pooled;
        (pooled && ctx != first_ctx).then_some(
            "its connections are opened before the window, where the context costs nothing: measured once",
        )
    }

    /// The scale as configured.
    pub fn scale_level(&self) -> ScaleLevel {
        self.relative.map_or(ScaleLevel::Rows(self.scale), ScaleLevel::Relative)
    }

    /// Whether both were configured alike: the rows of a relative scale differ between servers.
    pub(crate) fn is_asked_as(&self, other: &Self) -> bool {
        let is_like = Self { scale: other.scale, ..self.clone() } == *other;
        is_like && (self.relative.is_some() || self.scale == other.scale)
    }

    /// Removes `ctx` if the path builds no TLS context, and rounds the scale to what the tables can have.
    #[must_use]
    pub fn normalised(mut self) -> Self {
        self.treatment = self.treatment.normalised();
        if self.treatment.path.as_tls().is_none() {
            self.treatment.ctx = None;
        }
        if self.workload.dataset(self.treatment.server.engine) == Some(Dataset::Pgbench) {
            self.scale = self.scale.in_whole_branches();
        }
        self
    }
}

/// Why `engine` does not support this start of TLS, if so.
fn impossible_start(engine: Engine, start: TlsStart) -> Option<String> {
    let name = engine.display_name();
    match (engine, start) {
        (_, TlsStart::Requested)
        | (Engine::Postgres, TlsStart::Direct | TlsStart::Eager)
        | (Engine::MariaDb | Engine::MySql, TlsStart::Eager) => None,
        (Engine::MariaDb | Engine::MySql, TlsStart::Direct) => {
            Some(format!("{name} starts every connection in plaintext: leave out +direct"))
        }
        (Engine::MongoDb | Engine::FerretDb, TlsStart::Direct | TlsStart::Eager) => {
            Some(format!("with {name}, TLS always starts with the first byte: leave out +direct and +eager"))
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = Factor::ALL.into_iter().filter(|factor| match factor {
            // A closed loop is not printed, so that older ids stay the same.
            Factor::Pace => !self.pace.is_closed(),
            _ => true,
        });
        let levels = levels.map(|factor| self.level(factor).unwrap_or_else(|| "-".to_owned()));
        formatter.write_str(&levels.collect::<Vec<_>>().join("/"))
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
