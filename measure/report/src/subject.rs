//! The subject and object of a sentence: "A TLS 1.3 connect (P-256 certificate)" and "a plain one".

use ciphertoll_model::{
    AtRest, Cell, ClientCertificate, ConnectionUse, Ctx, Factor, FindAny, OpenVpnCipher, Path, PoolMode,
    Proxy, ProxyFront, Resumption, ServerKey, SshSession, SshTunnel, TlsLibrary, TlsStart, TlsVersion,
    Tunnel, Workload,
};

use crate::names;

/// The beginning of a sentence, without the levels in the heading above it.
pub(crate) fn subject(cell: &Cell, rows: &[Factor], heading: &[Factor]) -> String {
    let path = (!heading.contains(&Factor::Path)).then_some(cell.treatment.path);
    let naming = if path.is_some() { Naming::Full } else { Naming::UnderItsPath };
    let details = details(cell, rows, naming);
    match cell.workload.connection_use() {
        ConnectionUse::PerOperation => {
            let what = match cell.workload {
                Workload::CONNECT_QUERY => "connect with one query".to_owned(),
                Workload::ConnectQuery { queries } => format!("connect with {} queries", queries.count()),
                Workload::FirstQuery => "connection's first query".to_owned(),
                Workload::FindAny(FindAny::Connect) => "connect with one find".to_owned(),
                Workload::FindAny(FindAny::First) => "connection's first find".to_owned(),
                _ => "connect".to_owned(),
            };
            let (adjective, through) = path.map_or_else(Default::default, words_of);
            let operation = format!("{adjective}{what}{through}{}{details}", server("to", cell, rows));
            if cell.clients.count() == 1 && names::pace(cell).is_empty() {
                format!("A{}{operation}", n_before(&operation))
            } else {
                format!("At {}, a{}{operation}", names::concurrency(cell), n_before(&operation))
            }
        }
        ConnectionUse::Pooled => {
            let over = path.map_or_else(String::new, |path| format!(" {}", by(path)));
            let (doing, server) = (doing(cell.workload), server("on", cell, rows));
            format!("At {}, {doing}{over}{server}{details}", names::concurrency(cell))
        }
    }
}

/// The workload on open connections, by its name or, for unclear names, in words.
fn doing(workload: Workload) -> String {
    match workload {
        Workload::FindOne => "reading one document".to_owned(),
        Workload::FindAny(_) => "reading the first document".to_owned(),
        Workload::Ycsb(mix) => format!("YCSB workload {}", mix.letter()),
        _ => workload.to_string(),
    }
}

/// The end of the article: `a` or `an`.
fn n_before(words: &str) -> &'static str {
    if words.starts_with("SSH") || words.starts_with("OpenVPN") { "n " } else { " " }
}

/// The baseline, named by the factors that vary.
pub(crate) fn object(baseline: &Cell, rows: &[Factor]) -> String {
    let details = details(baseline, rows, Naming::Differences);
    let [to, on] = ["to", "on"].map(|preposition| server(preposition, baseline, rows));
    let path = rows.contains(&Factor::Path).then_some(baseline.treatment.path);
    match (baseline.workload.connection_use(), path) {
        (ConnectionUse::PerOperation, Some(Path::Proxy(proxy))) => {
            format!("one {}{to}{details}", by(Path::Proxy(proxy)))
        }
        (ConnectionUse::PerOperation, Some(path)) => {
            let adjective = adjective(path);
            format!("a{}{adjective} one{to}{details}", n_before(adjective))
        }
        (ConnectionUse::PerOperation, None) => format!("one{to}{details}"),
        (ConnectionUse::Pooled, Some(Path::Plain)) => format!("plain{on}{details}"),
        (ConnectionUse::Pooled, Some(path)) => format!("{}{on}{details}", noun(path)),
        (ConnectionUse::Pooled, None) => format!("the same{on}{details}"),
    }
}

/// The advised path: `TLS 1.3 with a P-256 certificate and one shared TLS context`.
pub(crate) fn choice(cell: &Cell, rows: &[Factor]) -> String {
    let path = cell.treatment.path;
    let mut details = detail_list(cell, rows, Naming::Full);
    if let (Some(key), Some(certificate)) = (path.as_tls().and_then(|tls| tls.key), details.first_mut()) {
        *certificate = format!("{} {certificate}", article(key));
    }
    let server = server("on", cell, rows);
    if details.is_empty() {
        return format!("{}{server}", noun(path));
    }
    format!("{}{server} with {}", noun(path), details.join(" and "))
}

/// Whether to name everything, everything except the path, or only the factors that vary in the stratum.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    Full,
    UnderItsPath,
    Differences,
}

/// ` to NAME`; empty if there is only one server.
fn server(preposition: &str, cell: &Cell, rows: &[Factor]) -> String {
    if rows.contains(&Factor::Server) {
        format!(" {preposition} {}", cell.treatment.server.short_name())
    } else {
        String::new()
    }
}

/// ` (P-256 certificate, one shared TLS context)`, or ` with one shared TLS context`.
fn details(cell: &Cell, rows: &[Factor], naming: Naming) -> String {
    let details = detail_list(cell, rows, naming);
    match naming {
        _ if details.is_empty() => String::new(),
        Naming::Full | Naming::UnderItsPath => format!(" ({})", details.join(", ")),
        // An interval in parentheses follows.
        Naming::Differences => format!(" with {}", details.join(" and ")),
    }
}

fn detail_list(cell: &Cell, rows: &[Factor], naming: Naming) -> Vec<String> {
    let named = |factor: Factor| naming == Naming::Full || rows.contains(&factor);
    let mut details: Vec<String> = Vec::new();
    if let Some(tls) = cell.treatment.path.as_tls()
        && named(Factor::Path)
    {
        details.extend(tls.key.map(|key| certificate(key).to_owned()));
        details.extend(tls.parameters.suite.map(|suite| suite.label().to_owned()));
        details.extend(tls.parameters.group.map(|group| format!("group {group}")));
        details.extend(match tls.resumption {
            Resumption::Never => None,
            Resumption::Always => Some("resumed".to_owned()),
            Resumption::BySessionId => Some("resumed by session id".to_owned()),
        });
        details.extend((tls.client_certificate == ClientCertificate::Demanded).then(|| "mutual".to_owned()));
        details.extend(match tls.start {
            TlsStart::Requested => None,
            TlsStart::Direct => Some("direct".to_owned()),
            TlsStart::Eager => Some("eager".to_owned()),
        });
        details.extend(tls.chain.map(|chain| format!("chain of {chain}")));
        details.extend(
            (tls.parameters.library != TlsLibrary::OpenSsl)
                .then(|| library(tls.parameters.library).to_owned()),
        );
        details.extend(tls.compressor.map(|compressor| format!("{compressor} compression")));
    }
    if let Some(tunnel) = cell.treatment.path.as_tunnel()
        && named(Factor::Path)
    {
        details.extend(tunnel_details(tunnel).into_iter().map(ToOwned::to_owned));
    }
    if let Some(proxy) = cell.treatment.path.as_proxy()
        && named(Factor::Path)
    {
        details.extend(proxy_details(proxy));
    }
    for factor in rows {
        match factor {
            Factor::Server | Factor::Path | Factor::Workload | Factor::Clients | Factor::Pace => {}
            Factor::Ctx => details.extend(cell.treatment.ctx.map(|ctx| context(ctx).to_owned())),
            Factor::AtRest => details.push(at_rest(cell.treatment.at_rest)),
            other => {
                details.extend(cell.level(*other).map(|level| format!("{} {level}", other.label())));
            }
        }
    }
    details
}

/// The settings of a tunnel.
fn tunnel_details(tunnel: Tunnel) -> Vec<&'static str> {
    match tunnel {
        Tunnel::Ssh(SshTunnel { cipher, session: SshSession::Open }) => vec![cipher.label()],
        Tunnel::Ssh(SshTunnel { cipher, session: SshSession::None }) => vec![cipher.label(), "no session"],
        Tunnel::OpenVpn(OpenVpnCipher::None) => vec!["no cipher"],
        Tunnel::OpenVpn(cipher) => vec![cipher.label()],
        Tunnel::WireGuard | Tunnel::Stunnel => Vec::new(),
    }
}

/// The settings of a proxy that differ from its defaults.
fn proxy_details(proxy: Proxy) -> Vec<String> {
    let usual = Proxy::of(proxy.program);
    let mut details = Vec::new();
    if proxy.front == ProxyFront::Tcp {
        details.push("clients connect over TCP".to_owned());
    }
    if (proxy.version, proxy.key) != (usual.version, usual.key) {
        details.push(format!("{} and {} to the server", protocol(proxy.version), certificate(proxy.key)));
    }
    if proxy.mode == PoolMode::Transaction {
        details.push("transaction pooling".to_owned());
    }
    details
}

/// The words before and after an operation: `plain `, or ` through PgBouncer`.
fn words_of(path: Path) -> (String, String) {
    match path {
        Path::Proxy(_) => (String::new(), format!(" {}", by(path))),
        _ => (format!("{} ", adjective(path)), String::new()),
    }
}

/// `over TLS 1.3`, `through PgBouncer`.
fn by(path: Path) -> String {
    let preposition = if path.as_proxy().is_some() { "through" } else { "over" };
    format!("{preposition} {}", noun(path))
}

fn adjective(path: Path) -> &'static str {
    match path {
        Path::Plain => "plain",
        Path::Compressed(_) => "compressed",
        Path::Unix => "unix-socket",
        Path::Tunnel(_) | Path::Proxy(_) | Path::Tls(_) => noun(path),
    }
}

fn noun(path: Path) -> &'static str {
    match path {
        Path::Plain => "plain TCP",
        Path::Compressed(_) => "compressed TCP",
        Path::Unix => "a unix socket",
        Path::Tunnel(tunnel) => tunnel.display_name(),
        Path::Proxy(proxy) => proxy.program.display_name(),
        Path::Tls(tls) => protocol(tls.parameters.version),
    }
}

/// The usual name of a TLS version.
pub(crate) fn protocol(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::Tls10 => "TLS 1.0",
        TlsVersion::Tls11 => "TLS 1.1",
        TlsVersion::Tls12 => "TLS 1.2",
        TlsVersion::Tls13 => "TLS 1.3",
    }
}

/// A certificate by the usual name of its key.
pub(crate) fn certificate(key: ServerKey) -> &'static str {
    match key {
        ServerKey::P256 => "P-256 certificate",
        ServerKey::P384 => "P-384 certificate",
        ServerKey::Ed25519 => "Ed25519 certificate",
        ServerKey::Rsa1024 => "RSA-1024 certificate",
        ServerKey::Rsa2048 => "RSA-2048 certificate",
        ServerKey::Rsa3072 => "RSA-3072 certificate",
        ServerKey::Rsa4096 => "RSA-4096 certificate",
        ServerKey::MlDsa44 => "ML-DSA-44 certificate",
        ServerKey::MlDsa65 => "ML-DSA-65 certificate",
    }
}

/// The article before a key's name: `a P-256 certificate`.
pub(crate) fn article(key: ServerKey) -> &'static str {
    match key {
        ServerKey::P256 | ServerKey::P384 => "a",
        ServerKey::Ed25519
        | ServerKey::Rsa1024
        | ServerKey::Rsa2048
        | ServerKey::Rsa3072
        | ServerKey::Rsa4096
        | ServerKey::MlDsa44
        | ServerKey::MlDsa65 => "an",
    }
}

fn library(library: TlsLibrary) -> &'static str {
    match library {
        TlsLibrary::OpenSsl => "OpenSSL",
        TlsLibrary::OpenSsl35 => "OpenSSL 3.5",
        TlsLibrary::Rustls => "rustls",
    }
}

fn at_rest(level: AtRest) -> String {
    match level {
        AtRest::None => "no encryption at rest".to_owned(),
        AtRest::Tde(_) if !level.encrypts() => format!("at rest: {level} (not encrypted)"),
        AtRest::AsIs | AtRest::Native | AtRest::Gocryptfs | AtRest::Fscrypt | AtRest::Tde(_) => {
            format!("at rest: {level}")
        }
    }
}

fn context(ctx: Ctx) -> &'static str {
    match ctx {
        Ctx::PerConnect => "a TLS context per connect",
        Ctx::Shared => "one shared TLS context",
        Ctx::PerConnectSystemCa => "a TLS context with the system's CAs per connect",
    }
}
