//! The proxy of a cell: started afresh for each trial, as tunnels are, with its pool empty but for the connection that has
//! shown that it works.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_lab::proxy::{ProxyStart, RunningProxy, SocketAuth};
use ciphertoll_lab::{ConnectionCounts, ConnectionMonitor, Counters, CpuMeter, Lab, ProcessorSplit, Server};
use ciphertoll_model::{
    Auth, Cell, Endpoint, Event, Leg, LegCount, Plan, ProxyFront, ServerLevel, VoidReason,
};

use super::failure::control_failed;
use super::instance::{Instance, skip};
use super::links::Links;
use super::request::{credentials, endpoint};
use crate::bench::{Emit, ProxyUse, TrialError};

/// The proxy that runs, if one does.
#[derive(Default)]
pub(super) struct Proxies {
    up: Option<Up>,
    /// How many there were.
    count: usize,
}

struct Up {
    proxy: RunningProxy,
    /// Where the server tells what others' connections have agreed on. His own stands through the trial and is idle.
    watcher: Option<ConnectionMonitor>,
    /// What stood when the window opened.
    seen: Vec<LegCount>,
    pool_size: u64,
    /// What the server had counted when there was no proxy yet.
    before: ConnectionCounts,
    counters_before: Counters,
}

/// What every proxy of a run is started with.
pub(super) struct Ground<'a> {
    pub(super) lab: &'a Lab,
    pub(super) logs: &'a Path,
    pub(super) apart: Option<&'a ProcessorSplit>,
}

/// What a trial has had of its proxy.
pub(super) struct Used {
    pub(super) proxy: ProxyUse,
    /// What the server has counted since before there was a proxy.
    pub(super) counted: Counters,
}

impl Proxies {
    /// Tries every proxy of the plan once on each server. What does not work here is left out, with the reason.
    pub(super) fn try_all(
        &mut self,
        plan: &Plan,
        ground: &Ground<'_>,
        instances: &mut [Instance],
        links: &mut Links,
        emit: &mut Emit<'_>,
    ) {
        type Way = (ciphertoll_model::Path, ServerLevel, Auth);
        let mut tried: Vec<(Way, Result<(), String>)> = Vec::new();
        for cell in &plan.cells {
            let treatment = &cell.treatment;
            if treatment.path.as_proxy().is_none() {
                continue;
            }
            let Some(instance) = instances.iter_mut().find(|instance| instance.serves(cell)) else {
                continue;
            };
            let way = (treatment.path, treatment.server.clone(), treatment.auth);
            let known = tried.iter().position(|(before, _)| *before == way);
            let at = known.unwrap_or_else(|| {
                emit(Event::Preparing { what: format!("trying {}", treatment.path) });
                let works = self.try_one(cell, ground, &mut instance.server, links, emit);
                self.down();
                tried.push((way, works));
                tried.len() - 1
            });
            if let Err(reason) = &tried[at].1 {
                skip(cell, reason, emit);
            }
        }
    }

    fn try_one(
        &mut self,
        cell: &Cell,
        ground: &Ground<'_>,
        server: &mut Server,
        links: &mut Links,
        emit: &mut Emit<'_>,
    ) -> Result<(), String> {
        let Some(proxy) = cell.treatment.path.as_proxy() else { return Ok(()) };
        let prepared =
            server.prepare_auth(credentials(cell)).and_then(|()| server.install_certificate(proxy.behind()));
        prepared.map_err(|error| error.to_string())?;
        self.set_up(cell, ground, server, links).map_err(|error| match error {
            TrialError::Void(VoidReason::Proxy { message }) => message,
            TrialError::Void(reason) => reason.to_string(),
            TrialError::Interrupted => "interrupted".to_owned(),
            TrialError::Fatal(error) => error.to_string(),
        })?;
        if let Some(up) = &self.up {
            emit(Event::ProxyTried {
                path: cell.treatment.path,
                version: ground.lab.proxy_version(proxy.program),
                leg: up.proxy.leg().clone(),
                elapsed_ms: up.proxy.setup_time().as_millis() as u64,
            });
        }
        Ok(())
    }

    /// Starts the proxy of `cell`, if it has one; the account and the certificate are there.
    pub(super) fn set_up(
        &mut self,
        cell: &Cell,
        ground: &Ground<'_>,
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
        let Ground { lab, logs, apart } = *ground;
        let (account, namespace) = (server.account(credentials(cell)), links.namespace_of_clients(link));
        if namespace.is_some() && proxy.front == ProxyFront::Tcp {
            let message = "by TCP it listens on a loopback that the lab must reach, and this run has networks of its \
                           own: leave out --link, or +front=tcp";
            return Err(TrialError::Void(VoidReason::Proxy { message: message.to_owned() }));
        }
        let start = ProxyStart {
            proxy,
            server,
            behind,
            account: &account,
            admission: SocketAuth::Trusted,
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
        self.up = Some(Up { proxy, watcher, seen: Vec::new(), pool_size, before, counters_before });
        Ok(())
    }

    /// Sees what stands at the server, now that the window opens: in the end, clients that are broken off take
    /// connections along. One statement on a connection that stands already.
    pub(super) fn look(&mut self) {
        let Some(Up { watcher: Some(watcher), seen, .. }) = &mut self.up else { return };
        // A server that cannot tell will not be able to in the end either, and then it is asked why.
        *seen = watcher.list().unwrap_or_default();
    }

    /// Ends what runs.
    pub(super) fn down(&mut self) {
        self.up = None;
    }

    /// Where clients of a cell with a proxy go.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.up.as_ref().map(|up| up.proxy.endpoint())
    }

    /// What its CPU time is read from.
    pub(super) fn cpu_meter(&self) -> Option<CpuMeter> {
        self.up.as_ref().map(|up| up.proxy.cpu_meter())
    }

    /// The process whose memory is its.
    pub(super) fn memory_pid(&self) -> Option<i32> {
        self.up.as_ref().map(|up| up.proxy.pid())
    }

    /// What the trial has had of it. It is ended at that, so that its connections hand over what they have counted; fails
    /// if it has ended before.
    pub(super) fn used(&mut self, server: &mut Server) -> Result<Option<Used>, TrialError> {
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
        // Where the server does not tell of others' connections, all are as encrypted as the one that was asked.
        let legs = standing
            .map(|standing| all_of(up.seen, standing).into_iter().map(|leg| named_as(&last, leg)).collect());
        let of_last = || vec![LegCount { leg: last.clone(), connections: came.encrypted.unwrap_or(1) }];
        let proxy = ProxyUse {
            legs: legs.unwrap_or_else(of_last),
            set_up_ns,
            connections: came.connections,
            in_the_clear: came.unencrypted(),
            requests: came.requests,
            pool_size: up.pool_size,
        };
        Ok(Some(Used { proxy, counted: counters.since(&up.counters_before) }))
    }

    /// As [`Self::used`] where something else speaks of its end already: who is killed closes his connections some
    /// milliseconds before he has ended.
    pub(super) fn check_survived(&mut self) -> Result<(), TrialError> {
        const DYING: Duration = Duration::from_secs(2);
        const LOOK_AGAIN: Duration = Duration::from_millis(10);
        let Some(up) = &mut self.up else { return Ok(()) };
        let deadline = Instant::now() + DYING;
        while Instant::now() < deadline {
            up.proxy.check().map_err(|error| broken(&error))?;
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

/// What was seen at either time; of what was seen twice, at least as many as the more.
fn all_of(mut seen: Vec<LegCount>, standing: Vec<LegCount>) -> Vec<LegCount> {
    for LegCount { leg, connections } in standing {
        match seen.iter_mut().find(|known| known.leg == leg) {
            Some(known) => known.connections = known.connections.max(connections),
            None => seen.push(LegCount { leg, connections }),
        }
    }
    seen
}

/// The server does not know who is at the other end.
fn named_as(known: &Leg, counted: LegCount) -> LegCount {
    let leg = Leg { from: known.from.clone(), library: known.library.clone(), ..counted.leg };
    LegCount { leg, ..counted }
}

fn broken(error: &ciphertoll_lab::Error) -> TrialError {
    TrialError::Void(VoidReason::Proxy { message: error.to_string() })
}
