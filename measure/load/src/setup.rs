//! From a trial's specification to the settings of `net`'s clients.

use std::fs;
use std::sync::Arc;
use std::thread;

use ciphertoll_model::{
    Auth, ChannelBinding, Compressor, Ctx, Endpoint, Engine, LoginMechanism, TlsSpec, TlsStart, TlsVersion,
    TrialSpec,
};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::{
    Context, PeerName, Resumption, ResumptionMethod, Sessions, Settings, TrustAnchors,
};
use ciphertoll_net::{Address, ContextSource, Dialer, SourceAddresses, Transport};
use ciphertoll_wire::Secret;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{mongodb, mysql, postgres};

use crate::Error;

/// Threads that fetch TLS sessions; each mostly waits for the network.
const MOST_VISITORS: usize = 16;

/// The dialer of the trial's clients.
pub(crate) fn dialer(spec: &TrialSpec) -> Result<Dialer, Error> {
    check_start(spec)?;
    let password = fs::read(&spec.password_file).map_err(Error::io("cannot read the password file"))?;
    let login = login(spec, Secret::new(password));
    let address = match &spec.endpoint {
        Endpoint::Tcp(address) => Address::Tcp(*address),
        Endpoint::Unix(path) => Address::Unix(path.clone()),
        Endpoint::Host { host, port, family } => {
            Address::Host { name: host.clone(), port: *port, family: Some(*family) }
        }
    };
    let tls = spec.tls.as_ref().map(context_source).transpose()?;
    Ok(Dialer { address, login, tls, transport: Transport::NonBlocking })
}

/// Checks that the engine supports how TLS is to begin.
fn check_start(spec: &TrialSpec) -> Result<(), Error> {
    match (spec.engine, spec.tls.as_ref().map(|tls| tls.start)) {
        (Engine::MariaDb | Engine::MySql, Some(TlsStart::Direct)) => {
            Err(Error::Unfit("MySQL and MariaDB have no TLS from the first byte"))
        }
        (Engine::MongoDb | Engine::FerretDb, Some(TlsStart::Direct | TlsStart::Eager)) => {
            Err(Error::Unfit("in MongoDB's protocol, TLS always starts with the first byte"))
        }
        _ => Ok(()),
    }
}

fn login(spec: &TrialSpec, password: Secret) -> Login {
    match spec.engine {
        Engine::MariaDb => mysql_login(spec, password, mysql::Plugin::default()),
        // As MySQL's own clients begin.
        Engine::MySql => mysql_login(spec, password, mysql::Plugin::CachingSha2Password),
        Engine::Postgres => postgres_login(spec, password),
        Engine::MongoDb | Engine::FerretDb => mongodb_login(spec, password),
    }
}

fn mysql_login(spec: &TrialSpec, password: Secret, plugin: mysql::Plugin) -> Login {
    Login::MySql(Arc::new(mysql::MySqlLogin {
        database: spec.database.clone(),
        plugin,
        encryption: match &spec.tls {
            Some(TlsSpec { start: TlsStart::Eager, .. }) => mysql::MySqlTlsMode::EagerTls,
            Some(_) => mysql::MySqlTlsMode::Tls,
            None => mysql::MySqlTlsMode::Plain,
        },
        transport: match &spec.endpoint {
            Endpoint::Tcp(_) | Endpoint::Host { .. } => mysql::Transport::Tcp,
            Endpoint::Unix(_) => mysql::Transport::UnixSocket,
        },
        ..mysql::MySqlLogin::new(&spec.user, password)
    }))
}

fn postgres_login(spec: &TrialSpec, password: Secret) -> Login {
    Login::Postgres(Arc::new(postgres::PostgresLogin {
        startup: spec.startup.clone(),
        user: spec.user.clone(),
        password,
        database: spec.database.clone(),
        encryption: match &spec.tls {
            Some(TlsSpec { start: TlsStart::Requested, .. }) => postgres::PostgresTlsMode::Tls,
            Some(TlsSpec { start: TlsStart::Direct, .. }) => postgres::PostgresTlsMode::DirectTls,
            Some(TlsSpec { start: TlsStart::Eager, .. }) => postgres::PostgresTlsMode::EagerTls,
            None => postgres::PostgresTlsMode::Plain,
        },
        channel_binding: match spec.auth {
            Auth::Scram { binding: ChannelBinding::ServerEndPoint, .. } => postgres::ChannelBinding::Required,
            // libpq's default.
            Auth::AsAsked => postgres::ChannelBinding::Preferred,
            _ => postgres::ChannelBinding::Disabled,
        },
    }))
}

/// Users are authenticated against the database `admin`, MongoDB's default, unless a URL says otherwise; the trial's
/// documents are in the specification's database.
fn mongodb_login(spec: &TrialSpec, password: Secret) -> Login {
    let usual = mongodb::MongoDbLogin::new(&spec.user, password);
    let of_url = spec.documents.as_ref();
    Login::MongoDb(Arc::new(mongodb::MongoDbLogin {
        database: spec.database.clone().unwrap_or_else(|| usual.database.clone()),
        auth_source: of_url.map_or_else(|| usual.auth_source.clone(), |login| login.auth_source.clone()),
        mechanism: match (of_url.map(|login| login.mechanism), spec.auth) {
            (Some(LoginMechanism::None), _) | (None, Auth::Trust) => mongodb::Mechanism::None,
            (Some(LoginMechanism::ScramSha256), _) | (None, Auth::Scram { .. }) => {
                mongodb::Mechanism::ScramSha256
            }
            (Some(LoginMechanism::ScramSha1), _) | (None, Auth::ScramSha1) => mongodb::Mechanism::ScramSha1,
            (Some(LoginMechanism::X509), _) | (None, Auth::Cert) => mongodb::Mechanism::X509,
            // Other engines' methods never get here.
            (Some(LoginMechanism::Negotiated) | None, _) => mongodb::Mechanism::Negotiated,
        },
        read_preference: of_url.map(|login| login.read_preference).unwrap_or_default(),
        tls: match spec.tls {
            Some(_) => mongodb::MongoDbTlsMode::Tls,
            None => mongodb::MongoDbTlsMode::Plain,
        },
        compressor: spec.compressor.map(|compressor| match compressor {
            Compressor::Zlib => mongodb::Compressor::Zlib,
        }),
        ..usual
    }))
}

/// Local ports available to the trial's connects; `None` if this cannot be told or ports cannot run short.
///
/// For a remote server, ports in `TIME_WAIT` are counted over all destinations but block only one, so their number
/// says nothing; a connect without a free port fails with an error. In the networks of links, ports in `TIME_WAIT`
/// are reused.
pub(crate) fn usable_ports(spec: &TrialSpec) -> Option<u64> {
    const REUSED: &str = "1";
    let Endpoint::Tcp(address) = &spec.endpoint else { return None };
    let reuse = fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").ok();
    if reuse.is_some_and(|reuse| reuse.trim() == REUSED) {
        return None;
    }
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut limits = range.split_whitespace().filter_map(|limit| limit.parse::<u64>().ok());
    let (first, last) = (limits.next()?, limits.next()?);
    let addresses = if address.ip().is_loopback() && address.is_ipv4() {
        u64::from(SourceAddresses::COUNT) * u64::from(spec.threads)
    } else {
        1
    };
    Some((last.saturating_sub(first) + 1) * addresses)
}

fn context_source(tls: &TlsSpec) -> Result<ContextSource, Error> {
    let settings = Settings {
        parameters: tls.parameters,
        verification: tls.verification,
        anchors: match (&tls.ca_file, tls.ctx) {
            (None, _) => TrustAnchors::System,
            (Some(file), Ctx::PerConnectSystemCa) => TrustAnchors::FileAndSystem(file.clone()),
            (Some(file), Ctx::PerConnect | Ctx::Shared) => TrustAnchors::File(file.clone()),
        },
        security_level: tls.security_level,
        resumption: resumption(tls),
        peer: PeerName::from(tls.server_name.as_str()),
        identity: tls.identity.clone(),
    };
    Ok(match tls.ctx {
        Ctx::Shared => ContextSource::Shared(Context::build(&settings)?),
        Ctx::PerConnect | Ctx::PerConnectSystemCa => ContextSource::per_connect(settings),
    })
}

/// Drivers that resume sessions with a context per connect carry the session over, as libmysqlclient does.
fn resumption(tls: &TlsSpec) -> Resumption {
    let method = match tls.resumption {
        ciphertoll_model::Resumption::Never => return Resumption::Never,
        ciphertoll_model::Resumption::Always => ResumptionMethod::Any,
        ciphertoll_model::Resumption::BySessionId => ResumptionMethod::SessionId,
    };
    match tls.ctx {
        Ctx::Shared => Resumption::WithinContext(method),
        Ctx::PerConnect | Ctx::PerConnectSystemCa => Resumption::AcrossContexts(method, Sessions::new()),
    }
}

/// Fetches a TLS session before the trial, as every connection is checked for resumption, the first one included. TLS
/// 1.3 tickets are for one use, so each client gets one.
pub(crate) fn get_sessions(spec: &TrialSpec, dialer: &Dialer) -> Result<(), Error> {
    let Some(tls) = spec.tls.as_ref().filter(|tls| tls.resumption != ciphertoll_model::Resumption::Never)
    else {
        return Ok(());
    };
    let clients =
        if tls.parameters.version == TlsVersion::Tls13 { usize::from(spec.clients.count()) } else { 1 };
    let dialer = &Dialer { transport: Transport::BLOCKING, ..dialer.clone() };
    let threads = clients.min(MOST_VISITORS);
    thread::scope(|scope| {
        let visit = |number: usize| {
            let mut turns = (number..clients).step_by(threads);
            move || turns.try_for_each(|_| Client::dial(dialer)?.close())
        };
        let visitors: Vec<_> = (0..threads).map(|number| scope.spawn(visit(number))).collect();
        visitors.into_iter().try_for_each(|visitor| Ok(visitor.join().map_err(|_| Error::Panicked)??))
    })
}
