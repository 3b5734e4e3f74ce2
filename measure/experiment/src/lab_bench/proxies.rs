//! The proxy of a cell: started anew for each trial, like tunnels. Its pool contains only the connection that checked that it
//! works.

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_lab::proxy::{ProxyStart, RunningProxy, SocketAuth};
use ciphertoll_lab::{ConnectionCounts, ConnectionMonitor, Counters, Server};
use ciphertoll_model::{Cell, Endpoint, Event, Leg, LegCount, Plan, ProxyFront, VoidReason};

use super::failure::control_failed;
use super::instance::Instance;
use super::links::Links;
use super::request::{credentials, endpoint};
use super::tunnels::{Attempts, StartContext, check_for_a_while};
use crate::bench::{Emit, ProxyUse, TrialError};

#[derive(Default)]
pub(super) struct Proxies {
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
    counters_before: Counters,
}

pub(super) struct ProxyTrialUse {
    pub(super) proxy: ProxyUse,
    /// The server's counts since before the proxy was started.
    pub(super) counted: Counters,
}

impl Proxies {
    /// Tries every proxy of the plan once on each server. Cells of a proxy that does not work are skipped with the reason.
    pub(super) fn try_all(
        &mut self,
        plan: &Plan,
        context: &StartContext<'_>,
        instances: &mut [Instance],
        links: &mut Links,
        emit: &mut Emit<'_>,
    ) {
        let mut attempts = Attempts::new();
        for cell in plan.cells.iter().filter(|cell| cell.treatment.path.as_proxy().is_some()) {
            let Some(instance) = instances.iter_mut().find(|instance| instance.serves(cell)) else {
                continue;
            };
            let way = (cell.treatment.path, cell.treatment.server.clone(), cell.treatment.auth);
            attempts.require(way, cell, emit, |emit| {
                let works = self.try_one(cell, context, &mut instance.server, links, emit);
                self.down();
                works
            });
        }
    }

    fn try_one(
        &mut self,
        cell: &Cell,
        context: &StartContext<'_>,
        server: &mut Server,
        links: &mut Links,
        emit: &mut Emit<'_>,
    ) -> Result<(), String> {
        let Some(proxy) = cell.treatment.path.as_proxy() else { return Ok(()) };
        let prepared = server
            .install_certificate(proxy.upstream_tls())
            .and_then(|()| server.prepare_auth(credentials(cell)));
        prepared.map_err(|error| error.to_string())?;
        self.set_up(cell, context, server, links).map_err(|error| match error {
            TrialError::Void(VoidReason::Proxy { message }) => message,
            TrialError::Void(reason) => reason.to_string(),
            TrialError::Interrupted => "interrupted".to_owned(),
            TrialError::Fatal(error) => error.to_string(),
        })?;
        if let Some(up) = &self.up {
            emit(Event::ProxyTried {
                path: cell.treatment.path,
                version: context.lab.proxy_version(proxy.program),
                leg: up.proxy.leg().clone(),
                elapsed_ms: up.proxy.setup_time().as_millis() as u64,
            });
        }
        Ok(())
    }

    /// Starts the proxy of `cell`, if it has one. Account and certificate must exist.
    pub(super) fn set_up(
        &mut self,
        cell: &Cell,
        context: &StartContext<'_>,
        server: &mut Server,
        links: &mut Links,
    ) -> Result<(), TrialError> {
        self.down();
        let Some(proxy) = cell.treatment.path.as_proxy() else { return Ok(()) };
        let link = cell.treatment.link;
        let Endpoint::Tcp(behind) = links.lead(endpoint(cell, server), link)? else { return Ok(()) };
        let counted = server.connection_counts().and_then(|arrivals| Ok((arrivals, server.counters()?)));
        let (before, counters_before) = counted.map_err(|error| control_failed(server, error))?;
        self.count += 1;
        let StartContext { lab, logs, apart } = *context;
        let (account, namespace) = (server.account(credentials(cell)), links.namespace_of_clients(link));
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
            processors: apart.map(|apart| apart.client.as_slice()),
            logs,
        };
        let pool_size = u64::from(start.pool_size());
        let proxy = lab.start_proxy(&start).map_err(|error| broken(&error))?;
        let watcher =
            server.connection_monitor(&account.user).map_err(|error| control_failed(server, error))?;
        self.up = Some(ActiveProxy { proxy, watcher, seen: Vec::new(), pool_size, before, counters_before });
        Ok(())
    }

    /// Reads the server's connections at the start of the window, because clients that are cut off at the end close some of
    /// them. One statement on an open connection.
    pub(super) fn look(&mut self) {
        let Some(ActiveProxy { watcher: Some(watcher), seen, .. }) = &mut self.up else { return };
        // If the server cannot report them, the reading at the end fails as well, with the reason.
        *seen = watcher.list().unwrap_or_default();
    }

    pub(super) fn down(&mut self) {
        self.up = None;
    }

    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.up.as_ref().map(|up| up.proxy.endpoint())
    }

    pub(super) fn cpu_meter(&self) -> Option<CpuMeter> {
        self.up.as_ref().map(|up| up.proxy.cpu_meter())
    }

    pub(super) fn memory_pid(&self) -> Option<i32> {
        self.up.as_ref().map(|up| up.proxy.pid())
    }

    /// Its use by the trial. Ends the proxy, because servers add the counts of a connection when it closes. Fails if it has
    /// ended before.
    pub(super) fn used(&mut self, server: &mut Server) -> Result<Option<ProxyTrialUse>, TrialError> {
        let Some(mut up) = self.up.take() else { return Ok(None) };
        up.proxy.check().map_err(|error| broken(&error))?;
        let last = up.proxy.connect_through(server).map_err(|error| broken(&error))?;
        let standing = up.watcher.as_mut().map(ConnectionMonitor::list).transpose();
        let standing = standing.map_err(|error| control_failed(server, error))?;
        up.watcher = None;
        let set_up_ns = up.proxy.setup_time().as_nanos() as u64;
        drop(up.proxy);
        let counted = server.connection_counts().and_then(|arrivals| Ok((arrivals, server.counters()?)));
        let (arrivals, counters) = counted.map_err(|error| control_failed(server, error))?;
        let came = arrivals.since(up.before);
        // If the server does not report other connections, all count as encrypted like the one that was checked.
        let legs = standing
            .map(|standing| all_of(up.seen, standing).into_iter().map(|leg| named_as(&last, leg)).collect());
        let of_last = || {
            vec![LegCount { leg: last.clone(), connections: came.encrypted.unwrap_or(1), handshake: None }]
        };
        let proxy = ProxyUse {
            legs: legs.unwrap_or_else(of_last),
            set_up_ns,
            connections: came.connections,
            in_the_clear: came.unencrypted(),
            requests: came.requests,
            pool_size: up.pool_size,
        };
        Ok(Some(ProxyTrialUse { proxy, counted: counters.since(&up.counters_before) }))
    }

    /// Fails if it ends soon.
    pub(super) fn check_survived(&mut self) -> Result<(), TrialError> {
        let Some(up) = &mut self.up else { return Ok(()) };
        check_for_a_while(|| up.proxy.check()).map_err(|error| broken(&error))
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
