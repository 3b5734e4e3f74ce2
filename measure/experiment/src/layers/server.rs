//! The private servers of a run: one for each level and set of tables, running from the first block to the last.

use ciphertoll_lab::{Counters, SyncTimes};
use ciphertoll_model::{
    AtRest, Cell, ConnectionUse, Event, Metric, Plan, Timing, TrialResult, TrialSpec, VoidReason,
};

use crate::checks::ratio;
use crate::failure::{NotStarted, control_failed, internal, server_died, testbed_error};
use crate::layer::{Layer, Route, Site, Uses, succeeded};
use crate::surroundings::instance::{Instance, RequiredServer, ServerContext};
use crate::surroundings::request::credentials;
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// Pages from disk beyond this share of the operations void a trial on cached rows. A few are the server's housekeeping.
const MAX_BUFFER_MISSES: f64 = 0.001;
/// The same for loads that write: tables grow, and written pages may be read back. Rows that are not cached cost every
/// operation a page.
const MAX_BUFFER_MISSES_WRITING: f64 = 0.05;
/// So few pages void no trial with writes, however short.
const FEW_PAGES: u64 = 64;
/// If the clients' processors are busier than `SATURATED` and the server's less than `WITH_TIME_TO_SPARE`, the trial measures
/// the clients.
const SATURATED: f64 = 0.80;
const WITH_TIME_TO_SPARE: f64 = 0.60;

/// A server's resource use in the window, and its counts over the whole trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerUse {
    /// User and system CPU, ended threads included.
    pub cpu_ns: u64,
    /// Peak resident memory; absent if the kernel does not report it.
    pub rss_peak_bytes: Option<u64>,
    /// Its counts from before the first connection of the trial until after the last.
    pub counted: Counters,
    /// Sync latency in its file system before the first trial of the block; absent if not timed.
    pub syncs: Option<SyncTimes>,
}

impl ServerUse {
    /// The server's counts per operation over the whole trial, and the sync latency before it.
    pub(crate) fn metrics(&self, operations: Option<u64>) -> impl Iterator<Item = (Metric, f64)> {
        let ServerUse { counted, syncs, .. } = *self;
        let crossings = counted.pages_read.zip(counted.pages_written).map(|(read, written)| read + written);
        let per_operation = [
            (Metric::PagesReadPerOperation, counted.pages_read),
            (Metric::PagesWrittenPerOperation, counted.pages_written),
            (Metric::PageCrossingsPerOperation, crossings),
            (Metric::WalBytesPerOperation, counted.wal_bytes),
            (Metric::FullPageImagesPerOperation, counted.full_page_images),
            (Metric::WalSyncsPerOperation, counted.wal_syncs),
        ];
        let as_they_are = [
            (Metric::CheckpointsBegun, counted.checkpoints_begun),
            (Metric::CheckpointsCompleted, counted.checkpoints_completed),
            (Metric::CheckpointAgeBytes, counted.checkpoint_age_bytes),
            (Metric::FsyncNsP50, syncs.map(|syncs| syncs.p50_ns)),
            (Metric::FsyncNsP99, syncs.and_then(|syncs| syncs.p99_ns)),
        ];
        let operations = operations.filter(|operations| *operations > 0);
        let per_operation = per_operation
            .into_iter()
            .filter_map(move |(metric, count)| Some((metric, count? as f64 / operations? as f64)));
        per_operation
            .chain(as_they_are.into_iter().filter_map(|(metric, count)| Some((metric, count? as f64))))
    }
}

/// The number of processors of each side, if they are separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorsApart {
    pub client: usize,
    pub server: usize,
}

#[derive(Default)]
pub(crate) struct ServerLayer {
    /// Whether loads write, or files are compared. Then syncs are timed.
    files_matter: bool,
}

impl ServerLayer {
    /// Starts every server that the plan needs. Cells of a server that does not start are skipped with the reason.
    fn start_all(plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let Site { lab, logs, apart, interrupt, .. } = &route.site;
        let context = ServerContext { lab, logs, apart: apart.as_ref(), settings: &plan.settings, interrupt };
        let all = RequiredServer::all(plan);
        let tenants: Vec<_> = all.iter().filter_map(RequiredServer::tenant).collect();
        lab.check_disk_space(&tenants).map_err(testbed_error)?;
        for wanted in all {
            if interrupt.ending().is_some() {
                break;
            }
            let number = route.instances.len() + 1;
            match Instance::start(&context, wanted.clone(), number, emit) {
                Ok(mut instance) => {
                    instance.skip_impossible(plan, emit).map_err(testbed_error)?;
                    route.instances.push(instance);
                }
                // The scheduler looks for it next.
                Err(NotStarted::Lab(ciphertoll_lab::Error::Interrupted)) => break,
                Err(error) if error.concerns_one_server() => {
                    wanted.skip_cells(plan, &error.to_string(), emit);
                    route.last_failure = Some(error.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Restarts servers whose network is gone, and the one of `cell` if it died in a voided trial.
    fn revive(cell: &Cell, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        let lab = &route.site.lab;
        let restarted = |instance: Instance, emit: &mut Emit<'_>| {
            instance.restarted(lab, emit).map_err(|error| TrialError::Fatal(error.into()))
        };
        if std::mem::take(&mut route.is_new_network) {
            for instance in std::mem::take(&mut route.instances) {
                route.instances.push(restarted(instance, emit)?);
            }
        }
        let Some(at) = route.instances.iter().position(|instance| instance.serves(cell)) else {
            return Err(TrialError::Fatal(internal(format!("no server was started for {cell}"))));
        };
        if let Err(died) = route.instances[at].server.check_alive() {
            emit(Event::Warned { message: format!("restarting the server: {died}") });
            let dead = route.instances.swap_remove(at);
            route.instances.push(restarted(dead, emit)?);
        }
        Ok(())
    }
}

impl<M: Uses<ServerUse> + Uses<ProcessorsApart>> Layer<M> for ServerLayer {
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let goes_to_files = |cell: &Cell| {
            let in_the_clear = matches!(cell.treatment.at_rest, AtRest::None | AtRest::AsIs);
            cell.workload.writes() || !in_the_clear
        };
        self.files_matter = plan.cells.iter().any(goes_to_files);
        Self::start_all(plan, route, emit)
    }

    fn begin_block(&mut self, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        route.instances.iter_mut().try_for_each(Instance::refresh).map_err(testbed_error)?;
        if self.files_matter {
            route.instances.iter_mut().for_each(|instance| instance.time_syncs(emit));
        }
        Ok(())
    }

    /// Of all servers: what one of them writes in the background is in the way of the others.
    fn leave(&mut self, route: &mut Route) -> Result<(), TrialError> {
        // They are restarted with the network.
        if route.networks.are_down() {
            return Ok(());
        }
        for instance in &mut route.instances {
            match instance.write_out() {
                // A dead server is restarted for its next trial.
                Err(TrialError::Void(_)) => {}
                done => done?,
            }
        }
        Ok(())
    }

    fn up(&mut self, cell: &Cell, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        if cell.treatment.server.url.is_some() {
            return Ok(());
        }
        Self::revive(cell, route, emit)?;
        let Some(instance) = route.instance(cell) else { return Ok(()) };
        instance.remove_inserted()?;
        let server = &mut instance.server;
        if let Some(tls) = cell.treatment.path.server_tls() {
            server.install_certificate(tls).map_err(|error| control_failed(server, error))?;
        }
        // After the certificate: a restart for it empties MySQL's password cache.
        server.prepare_auth(credentials(cell)).map_err(|error| control_failed(server, error))
    }

    /// Reads its counts. For a trial through a proxy they are read before the proxy starts, because open connections are
    /// not counted yet.
    fn before(
        &mut self,
        request: &TrialRequest<'_>,
        spec: &mut TrialSpec,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let is_counted = route.counted_before.is_some();
        let Some(instance) = route.instance(request.cell) else { return Ok(()) };
        let counted = if is_counted { None } else { Some(counters(instance)?) };
        instance.number_inserts(spec);
        instance.note_writing(request.cell);
        route.counted_before = route.counted_before.or(counted);
        Ok(())
    }

    fn after(
        &mut self,
        request: &TrialRequest<'_>,
        trial: Option<&mut M>,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let before = route.counted_before.unwrap_or_default();
        let apart = route
            .site
            .apart
            .as_ref()
            .map(|apart| ProcessorsApart { client: apart.client.len(), server: apart.server.len() });
        let Some(instance) = route.instance(request.cell) else { return Ok(()) };
        let server = &mut instance.server;
        let survived =
            if succeeded(trial.as_deref()) { server.check_alive() } else { server.check_survived() };
        survived.map_err(|died| server_died(&died))?;
        let Some(trial) = trial else { return Ok(()) };
        let counted = counters(instance)?.since(&before);
        let used: &mut Option<ServerUse> = trial.slot();
        if let Some(used) = used {
            (used.counted, used.syncs) = (counted, instance.syncs);
        }
        *trial.slot() = apart;
        let load = trial.load_mut();
        let in_all = in_all(load, request.timing);
        load.operations_in_all.get_or_insert(in_all);
        Ok(())
    }

    fn down(&mut self, route: &mut Route) -> Result<(), TestbedError> {
        let mut first_failure = None;
        for instance in route.instances.drain(..) {
            if let Err(error) = instance.server.stop() {
                first_failure.get_or_insert(error);
            }
        }
        first_failure.map_or(Ok(()), |error| Err(testbed_error(error)))
    }
}

fn counters(instance: &mut Instance) -> Result<Counters, TrialError> {
    let server = &mut instance.server;
    server.counters().map_err(|error| control_failed(server, error))
}

/// Operations of the whole trial, extrapolated for a driver that counts only those in the window.
fn in_all(load: &TrialResult, timing: Timing) -> u64 {
    let [warm_up, window] = [timing.warm_up, timing.window].map(|part| part.duration().as_secs_f64());
    (load.operations as f64 * (warm_up + window) / window) as u64
}

/// Cached rows must not be read from disk.
pub(crate) fn check_buffer_misses(
    cell: &Cell,
    server: &ServerUse,
    operations: u64,
) -> Result<(), VoidReason> {
    // Servers that do not count them pass.
    let Some(count) = server.counted.buffer_misses else { return Ok(()) };
    let share = ratio(count, operations);
    let void = match cell.workload.connection_use() {
        ConnectionUse::PerOperation => false,
        ConnectionUse::Pooled if cell.workload.writes() => {
            count > FEW_PAGES && share > MAX_BUFFER_MISSES_WRITING
        }
        ConnectionUse::Pooled => share > MAX_BUFFER_MISSES,
    };
    if void { Err(VoidReason::BufferMisses { count }) } else { Ok(()) }
}

/// With separate processors, the server must be the limit, not the clients.
pub(crate) fn check_client_saturation(
    server: Option<&ServerUse>,
    apart: Option<ProcessorsApart>,
    load: &TrialResult,
) -> Result<(), VoidReason> {
    let (Some(apart), Some(server)) = (apart, server) else { return Ok(()) };
    let window_ns = load.window_ns as f64;
    let busy = |cpu_ns: u64, processors: usize| cpu_ns as f64 / (window_ns * processors as f64);
    let client = busy(load.client_cpu_ns, apart.client);
    let server = busy(server.cpu_ns, apart.server);
    if client > SATURATED && server < WITH_TIME_TO_SPARE {
        let (client_percent, server_percent) = (client * 100.0, server * 100.0);
        return Err(VoidReason::ClientSaturated { client_percent, server_percent });
    }
    Ok(())
}
