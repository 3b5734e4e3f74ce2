//! The trial specification of a cell.

use std::path::PathBuf;

use ciphertoll_lab::{Credentials, Remote, Server};
use ciphertoll_model::{
    Cell, ClientCertificate, Clients, Ctx, Endpoint, Identity, Path, TlsSpec, TrialPace, TrialSpec,
    TrialStart, Verification,
};

use crate::trial::TrialRequest;

/// The most threads of a load process whose clients resolve names: each waits only for its own answers.
const MOST_WAITING_THREADS: u16 = 16;

pub(crate) fn credentials(cell: &Cell) -> Credentials {
    let tls = cell.treatment.path.as_tls();
    let client_certificate = tls.map_or_else(ClientCertificate::default, |tls| tls.client_certificate);
    Credentials { auth: cell.treatment.auth, client_certificate }
}

pub(crate) fn endpoint(cell: &Cell, server: &Server) -> Endpoint {
    match cell.treatment.path {
        Path::Unix => server.unix_endpoint(),
        Path::Tls(_) => server.tls_endpoint_over(cell.treatment.link),
        // The endpoint of a tunnel or proxy is known only after its start.
        Path::Plain | Path::Compressed(_) | Path::Tunnel(_) | Path::Proxy(_) => {
            server.endpoint_over(cell.treatment.link)
        }
    }
}

/// A trial on a private server at `endpoint`.
pub(crate) fn here(
    request: &TrialRequest<'_>,
    server: &Server,
    endpoint: Endpoint,
    repeated_share: f64,
) -> TrialSpec {
    let cell = request.cell;
    let account = server.account(credentials(cell));
    let server_name = name_of(&endpoint, server);
    let tls = tls(cell, Some(server.ca_file()), Verification::Full, server_name, account.identity.clone());
    TrialSpec {
        endpoint,
        user: account.user,
        password_file: account.password_file,
        database: Some(server.database().to_owned()),
        tls,
        repeated_share,
        ..location_independent(request)
    }
}

fn tls(
    cell: &Cell,
    ca_file: Option<PathBuf>,
    verification: Verification,
    server_name: String,
    identity: Option<Identity>,
) -> Option<TlsSpec> {
    let tls = cell.treatment.path.as_tls()?;
    Some(TlsSpec {
        parameters: tls.parameters,
        ca_file,
        verification,
        server_name,
        ctx: cell.treatment.ctx.unwrap_or(Ctx::PerConnect),
        start: tls.start,
        security_level: tls.security_level(),
        resumption: tls.resumption,
        identity,
    })
}

/// The names in its certificate.
fn name_of(endpoint: &Endpoint, server: &Server) -> String {
    match endpoint {
        Endpoint::Tcp(address) => address.ip().to_string(),
        Endpoint::Unix(_) | Endpoint::Host { .. } => server.server_name().to_owned(),
    }
}

pub(crate) fn at_url(request: &TrialRequest<'_>, remote: &Remote) -> TrialSpec {
    let (cell, url) = (request.cell, remote.url());
    let server_name = url.host().unwrap_or_default().to_owned();
    let tls =
        tls(cell, url.tls.ca_file.clone(), url.tls.verification(), server_name, url.tls.identity.clone());
    TrialSpec {
        endpoint: remote.endpoint(),
        user: url.user.clone(),
        password_file: remote.password_file().to_owned(),
        database: remote.database().map(ToOwned::to_owned),
        startup: url.startup.clone(),
        documents: url.documents.as_deref().map(|told| told.login.clone()),
        tls,
        threads: cell.clients.count().min(MOST_WAITING_THREADS),
        ..location_independent(request)
    }
}

/// The parts that do not depend on the server's location.
fn location_independent(request: &TrialRequest<'_>) -> TrialSpec {
    let TrialRequest { cell, pace, timing, seed, max_per_s, query, .. } = *request;
    let work = ciphertoll_load::work(cell.treatment.server.engine, cell.workload, cell.scale, query);
    TrialSpec {
        engine: cell.treatment.server.engine,
        auth: cell.treatment.auth,
        endpoint: Endpoint::Unix(PathBuf::new()),
        user: String::new(),
        password_file: PathBuf::new(),
        database: None,
        startup: Vec::new(),
        documents: None,
        tls: None,
        compressor: cell.treatment.path.compressor(),
        work,
        pace,
        clients: cell.clients,
        threads: threads(cell.clients),
        warm_up_ns: timing.warm_up.duration().as_nanos() as u64,
        window_ns: timing.window.duration().as_nanos() as u64,
        seed,
        first_insert: None,
        max_per_s: max_per_s.filter(|_| pace == TrialPace::Closed).map(f64::from),
        processors: None,
        namespace: None,
        injected_delay_ns: 0,
        repeated_share: 0.0,
        start: TrialStart::AtOnce,
    }
}

/// One thread per processor, but not more than clients.
fn threads(clients: Clients) -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u16);
    clients.count().min(processors)
}
