//! The proxy of a cell: started anew for each trial, like tunnels. Its pool contains only the connection that checked that it
//! works.

use ciphertoll_lab::proxy::{ProxyStart, RunningProxy, SocketAuth};
use ciphertoll_lab::{ConnectionCounts, ConnectionMonitor};
use ciphertoll_model::{
    Cell, ConnectionUse, Endpoint, Event, Group, Leg, LegCount, Plan, Proxy, ProxyFront, ServerKey,
    TrialResult, VoidReason, Workload,
};

use crate::checks::{NO_TLS, negotiated};
use crate::failure::control_failed;
use crate::layer::{Layer, Route, Uses, succeeded};
use crate::surroundings::attempts::{Attempts, check_for_a_while};
use crate::surroundings::request::{credentials, endpoint};
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// A proxy does not pool if it opens more server connections than this share of the clients' connections …
const MAX_UNPOOLED: f64 = 0.10;
/// … and more than its pool size plus these replacements.
const FEW_CONNECTIONS: u64 = 8;

/// The use of a proxy by a trial, mostly as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUse {
    /// The negotiated parameters of its server connections, with the number of connections.
    pub legs: Vec<LegCount>,
    /// Time from its start to the first client query, before the trial.
    pub set_up_ns: u64,
    /// Connections to the server since the proxy was started; absent if the server does not count them.
    pub connections: Option<u64>,
    /// Unencrypted connections among them; absent if the server does not count them. In that case the legs contain all
    /// connections that were open at the end.
    pub in_the_clear: Option<u64>,
    /// Statements or transactions since then; absent if the server does not count them.
    pub requests: Option<u64>,
    /// The largest number of server connections.
    pub pool_size: u64,
}

#[derive(Default)]
pub(crate) struct ProxyLayer {
    up: Option<ActiveProxy>,
    count: usize,
}

struct ActiveProxy {
    proxy: RunningProxy,
    /// Reads the parameters of other connections from the server. Its own connection stays open and idle during the trial.
    watcher: Option<ConnectionMonitor>,
    /// Connections at the start of the window.
    seen: Vec<LegCount>,
    pool_size: u64,
    /// The server's counts before the proxy was started.
    before: ConnectionCounts,
}

impl ProxyLayer {
    fn try_one(&mut self, cell: &Cell, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), String> {
        let Some((proxy, instance)) = cell.treatment.path.as_proxy().zip(route.instance(cell)) else {
            return Ok(());
        };
        let server = &mut instance.server;
        let prepared = server
            .install_certificate(proxy.upstream_tls())
            .and_then(|()| server.prepare_auth(credentials(cell)));
        prepared.map_err(|error| error.to_string())?;
        self.start(proxy, cell, route).map_err(|error| match error {
            TrialError::Void(VoidReason::Proxy { message }) => message,
            TrialError::Void(reason) => reason.to_string(),
            TrialError::Interrupted => "interrupted".to_owned(),
            TrialError::Fatal(error) => error.to_string(),
        })?;
        if let Some(up) = &self.up {
            emit(Event::ProxyTried {
                path: cell.treatment.path,
                version: route.site.lab.proxy_version(proxy.program),
                leg: up.proxy.leg().clone(),
                elapsed_ms: up.proxy.setup_time().as_millis() as u64,
            });
        }
        Ok(())
    }

    /// Account and certificate must exist.
    fn start(&mut self, proxy: Proxy, cell: &Cell, route: &mut Route) -> Result<(), TrialError> {
        let Route { site, networks, instances, .. } = route;
        let Some(instance) = instances.iter_mut().find(|instance| instance.serves(cell)) else {
            return Ok(());
        };
        let (server, link) = (&mut instance.server, cell.treatment.link);
        let Endpoint::Tcp(behind) = networks.lead(endpoint(cell, server), link)? else { return Ok(()) };
        let counted = server.connection_counts().and_then(|arrivals| Ok((arrivals, server.counters()?)));
        let (before, counted_before) = counted.map_err(|error| control_failed(server, error))?;
        self.count += 1;
        let (account, namespace) = (server.account(credentials(cell)), networks.namespace_of_clients(link));
        if namespace.is_some() && proxy.front == ProxyFront::Tcp {
            let message = "with +front=tcp it listens on the loopback of the lab, which clients behind a --link cannot \
                           reach: leave out --link or +front=tcp";
            return Err(TrialError::Void(VoidReason::Proxy { message: message.to_owned() }));
        }
        let start = ProxyStart {
            proxy,
            server,
            behind,
            account: &account,
            admission: SocketAuth::Trusted,
            arguments: &[],
            clients: cell.clients,
            name: &format!("p{}", self.count),
            namespace: namespace.as_ref(),
            processors: site.apart.as_ref().map(|apart| apart.client.as_slice()),
            logs: &site.logs,
        };
        let pool_size = u64::from(start.pool_size());
        let proxy = site.lab.start_proxy(&start).map_err(|error| broken(&error))?;
        let watcher =
            server.connection_monitor(&account.user).map_err(|error| control_failed(server, error))?;
        self.up = Some(ActiveProxy { proxy, watcher, seen: Vec::new(), pool_size, before });
        route.counted_before = Some(counted_before);
        Ok(())
    }
}

impl<M: Uses<ProxyUse>> Layer<M> for ProxyLayer {
    /// Tries every proxy of the plan once on each server. Cells of a proxy that does not work are skipped with the reason.
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let mut attempts = Attempts::new();
        for cell in plan.cells.iter().filter(|cell| cell.treatment.path.as_proxy().is_some()) {
            if route.instance(cell).is_none() {
                continue;
            }
            let way = (cell.treatment.path, cell.treatment.server.clone(), cell.treatment.auth);
            attempts.require(way, cell, emit, |emit| {
                let works = self.try_one(cell, route, emit);
                self.up = None;
                works
            });
        }
        Ok(())
    }

    fn leave(&mut self, _: &mut Route) -> Result<(), TrialError> {
        self.up = None;
        Ok(())
    }

    fn up(&mut self, cell: &Cell, route: &mut Route, _: &mut Emit<'_>) -> Result<(), TrialError> {
        let Some(proxy) = cell.treatment.path.as_proxy() else { return Ok(()) };
        self.start(proxy, cell, route)?;
        if let Some(up) = &self.up {
            route.between = Some(up.proxy.endpoint());
            route.middle.push(up.proxy.cpu_meter());
            route.middle_memory = Some(up.proxy.pid());
        }
        Ok(())
    }

    /// Reads the server's connections, because clients that are cut off at the end close some of them. One statement on an
    /// open connection.
    fn window_opens(&mut self, _: &mut Route) {
        let Some(ActiveProxy { watcher: Some(watcher), seen, .. }) = &mut self.up else { return };
        // If the server cannot report them, the reading at the end fails as well, with the reason.
        *seen = watcher.list().unwrap_or_default();
    }

    /// Ends the proxy, because servers add the counts of a connection when it closes. Fails if it has ended before.
    fn after(
        &mut self,
        request: &TrialRequest<'_>,
        trial: Option<&mut M>,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        if let Some(up) = self.up.as_mut().filter(|_| !succeeded(trial.as_deref())) {
            check_for_a_while(|| up.proxy.check()).map_err(|error| broken(&error))?;
        }
        let Some((mut up, instance)) = self.up.take().zip(route.instance(request.cell)) else {
            return Ok(());
        };
        let server = &mut instance.server;
        up.proxy.check().map_err(|error| broken(&error))?;
        let last = up.proxy.connect_through(server).map_err(|error| broken(&error))?;
        let standing = up.watcher.as_mut().map(ConnectionMonitor::list).transpose();
        let standing = standing.map_err(|error| control_failed(server, error))?;
        up.watcher = None;
        let set_up_ns = up.proxy.setup_time().as_nanos() as u64;
        drop(up.proxy);
        let arrivals = server.connection_counts().map_err(|error| control_failed(server, error))?;
        let came = arrivals.since(up.before);
        // If the server does not report other connections, all count as encrypted like the one that was checked.
        let legs = standing
            .map(|standing| all_of(up.seen, standing).into_iter().map(|leg| named_as(&last, leg)).collect());
        let of_last = || {
            vec![LegCount { leg: last.clone(), connections: came.encrypted.unwrap_or(1), handshake: None }]
        };
        if let Some(trial) = trial {
            *trial.slot() = Some(ProxyUse {
                legs: legs.unwrap_or_else(of_last),
                set_up_ns,
                connections: came.connections,
                in_the_clear: came.unencrypted(),
                requests: came.requests,
                pool_size: up.pool_size,
            });
        }
        Ok(())
    }

    fn down(&mut self, _: &mut Route) -> Result<(), TestbedError> {
        self.up = None;
        Ok(())
    }
}

/// The legs of both readings, each with the larger number of connections.
fn all_of(mut seen: Vec<LegCount>, standing: Vec<LegCount>) -> Vec<LegCount> {
    for stands in standing {
        match seen.iter_mut().find(|known| known.leg == stands.leg) {
            Some(known) => known.connections = known.connections.max(stands.connections),
            None => seen.push(stands),
        }
    }
    seen
}

/// The server does not know the other end: takes its name and library from `known`, and the group that the proxy reports.
fn named_as(known: &Leg, counted: LegCount) -> LegCount {
    let group = counted.leg.group.clone().or_else(|| known.group.clone());
    let leg = Leg { from: known.from.clone(), library: known.library.clone(), group, ..counted.leg };
    LegCount { leg, ..counted }
}

fn broken(error: &ciphertoll_lab::Error) -> TrialError {
    TrialError::Void(VoidReason::Proxy { message: error.to_string() })
}

/// A proxy must pool and encrypt its server connections, as the server reports.
pub(crate) fn check(cell: &Cell, used: Option<&ProxyUse>, load: &TrialResult) -> Result<(), VoidReason> {
    let Some(proxy) = cell.treatment.path.as_proxy() else { return Ok(()) };
    let void = |message: String| Err(VoidReason::Proxy { message });
    let Some(used) = used else { return void("there was none".to_owned()) };
    if let Some(count) = used.in_the_clear.filter(|count| *count > 0) {
        return void(format!("{count} of its connections to the server were not encrypted"));
    }
    if used.legs.is_empty() {
        return void("the server reports no connection from it".to_owned());
    }
    let behind = proxy.upstream_tls();
    let words = |version: Option<&str>, key: Option<&str>, group: Option<&str>| {
        // If the level leaves the group open, any group is as planned.
        let group = match behind.parameters.group {
            Some(_) => format!(" {}", group.unwrap_or("no reported group")),
            None => String::new(),
        };
        let (version, key) = (version.unwrap_or(NO_TLS), key.unwrap_or("no key"));
        format!("{version} {key}{group} between proxy and server")
    };
    let [key, group] = [behind.key.map(ServerKey::label), behind.parameters.group.map(Group::label)];
    let planned = words(Some(behind.parameters.version.label()), key, group);
    for LegCount { leg, .. } in &used.legs {
        let observed = words(leg.tls_version.as_deref(), leg.key.as_deref(), leg.group.as_deref());
        if observed != planned {
            return Err(negotiated(planned, observed));
        }
    }
    check_pooling(cell, used, load)
}

fn check_pooling(cell: &Cell, used: &ProxyUse, load: &TrialResult) -> Result<(), VoidReason> {
    let operations = load.operations;
    let per_operation = cell.workload.connection_use() == ConnectionUse::PerOperation;
    // A driver that does not count its connections has made at least one per operation.
    let seen = load.legs.iter().map(|leg| leg.connections).sum::<u64>();
    let made = seen.max(if per_operation { operations } else { 0 });
    let tolerated = ((made as f64 * MAX_UNPOOLED) as u64).max(used.pool_size + FEW_CONNECTIONS);
    if let Some(count) = used.connections.filter(|count| *count > tolerated) {
        let message =
            format!("it does not pool: the server counted {count} connections for {made} client connections");
        return Err(VoidReason::Proxy { message });
    }
    // Clients that only connect send no request to a server that is already connected.
    let says_something = cell.workload != Workload::Connect;
    if let Some(count) = used.requests.filter(|count| says_something && *count < operations) {
        let message = format!("the server counted {count} requests for {operations} operations");
        return Err(VoidReason::Proxy { message });
    }
    Ok(())
}
