//! From a cell to what the load process is told.

use std::time::Duration;

use ciphertoll_lab::Server;
use ciphertoll_model::{Clients, Ctx, Path, TlsSpec, TrialSpec};

use crate::bench::TrialRequest;

pub(super) fn trial_spec(request: &TrialRequest<'_>, server: &Server, injected_delay: Duration) -> TrialSpec {
    let TrialRequest { cell, pace, timing, seed, .. } = request;
    let account = server.account(cell.treatment.auth);
    let tls = cell.treatment.path.as_tls().map(|tls| TlsSpec {
        version: tls.version,
        ca_file: server.ca_file(),
        server_name: server.server_name().to_owned(),
        ctx: cell.treatment.ctx.unwrap_or(Ctx::PerConnect),
        start: tls.start,
        library: tls.library,
        identity: account.identity.clone(),
    });
    TrialSpec {
        engine: cell.treatment.server.engine,
        auth: cell.treatment.auth,
        endpoint: match cell.treatment.path {
            Path::Unix => server.unix_endpoint(),
            Path::Plain | Path::Tls(_) => server.tcp_endpoint(),
        },
        user: account.user,
        password_file: account.password_file,
        database: Some(server.database().to_owned()),
        tls,
        work: ciphertoll_load::work(cell.treatment.server.engine, cell.workload, cell.scale),
        pace: *pace,
        clients: cell.clients,
        threads: threads(cell.clients),
        warm_up_ns: timing.warm_up.duration().as_nanos() as u64,
        window_ns: timing.window.duration().as_nanos() as u64,
        seed: *seed,
        processors: None,
        injected_delay_ns: injected_delay.as_nanos() as u64,
    }
}

/// A thread per processor, as far as there are clients for them.
fn threads(clients: Clients) -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u16);
    clients.count().min(processors)
}
