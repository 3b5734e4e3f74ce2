//! The real bench: private servers of the lab, a load process per trial.

mod drivers;
mod failure;
mod hosts;
mod instance;
mod links;
mod observe;
mod on_hosts;
mod primitives;
mod proxies;
mod remotes;
mod request;
mod server_elsewhere;
mod tunnels;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ciphertoll_host::processors::{ProcessorSplit, split_processors};
use ciphertoll_lab::{Counters, Lab, Passwords, Remote, Server};
use ciphertoll_load::LoadProcess;
use ciphertoll_model::{
    Arm, AtRest, Cell, CpuPinning, Endpoint, Environment, Event, Link, LinkKind, Path, Plan, Timing,
    TrialResult, TrialSpec,
};
use ciphertoll_record::{Effect, ProcessIdentity};

use self::drivers::Drivers;
use self::failure::{
    NotStarted, bench_error, control_failed, fatal, internal, link_is_down, load_failed, not_encrypted,
    server_died,
};
use self::hosts::Hosts;
use self::instance::{Instance, RequiredServer, ServerContext};
use self::links::Links;
use self::observe::{Clocks, Middle, observe};
use self::on_hosts::observe_on_hosts;
use self::proxies::{Proxies, ProxyTrialUse};
use self::remotes::{Remotes, stop_where_it_is_full};
use self::request::{at_url, credentials, endpoint, here};
use self::server_elsewhere::ServerElsewhere;
use self::tunnels::{StartContext, Tunnels};
use crate::bench::{Bench, BenchError, Emit, Measured, ProcessorsApart, TrialError, TrialRequest, TunnelUse};
use crate::interrupt::Interrupt;

pub struct LabBench {
    program: PathBuf,
    /// In the scratch directory, where absent.
    logs: Option<PathBuf>,
    /// The root of scratch directories.
    scratch_root: PathBuf,
    interrupt: Interrupt,
    injection: Option<Injection>,
    lab: Option<Lab>,
    links: Links,
    tunnels: Tunnels,
    proxies: Proxies,
    /// How long links are made; the best way there is, where absent.
    links_by: Option<LinkKind>,
    instances: Vec<Instance>,
    passwords: Passwords,
    remotes: Remotes,
    hosts: Hosts,
    drivers: Drivers,
    /// The processors of each side, where they are kept apart.
    apart: Option<ProcessorSplit>,
    /// Whether loads write, or files are compared: then it is told how long a sync takes.
    files_matter: bool,
}

/// A known effect: a delay of CPU burnt inside each operation of some trials. The truth experiments
/// must find it again.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    target: InjectionTarget,
    delay: Duration,
}

/// Which trials an injection is for.
#[derive(Clone, Copy, Debug)]
enum InjectionTarget {
    /// Those of one copy of the baseline, whatever its path.
    Arm(Arm),
    /// Those of the cells with this path, in either arm.
    Path(Path),
}

impl Injection {
    /// `delay` inside each operation of one arm: its other copy stays as it is.
    pub fn into_arm(arm: Arm, delay: Duration) -> Self {
        Self { target: InjectionTarget::Arm(arm), delay }
    }

    /// `delay` inside each operation of the cells with `path`: the toll of the path grows.
    pub fn into_path(path: Path, delay: Duration) -> Self {
        Self { target: InjectionTarget::Path(path), delay }
    }

    fn delay_of(&self, cell: &Cell, arm: Arm) -> Duration {
        let is_meant = match self.target {
            InjectionTarget::Arm(meant) => meant == arm,
            InjectionTarget::Path(meant) => meant == cell.treatment.path,
        };
        if is_meant { self.delay } else { Duration::ZERO }
    }
}

impl LabBench {
    /// A bench whose children are started through `program`'s hidden commands. Servers' logs go with everything else when
    /// it is taken down, unless told to go elsewhere.
    pub fn new(program: PathBuf, interrupt: Interrupt) -> Self {
        Self {
            program,
            logs: None,
            scratch_root: ciphertoll_record::scratch_root(),
            interrupt,
            injection: None,
            lab: None,
            links: Links::default(),
            tunnels: Tunnels::default(),
            proxies: Proxies::default(),
            links_by: None,
            instances: Vec::new(),
            passwords: Passwords::new(),
            remotes: Remotes::default(),
            hosts: Hosts::default(),
            drivers: Drivers::default(),
            apart: None,
            files_matter: false,
        }
    }

    #[must_use]
    pub fn with_logs(mut self, logs: PathBuf) -> Self {
        self.logs = Some(logs);
        self
    }

    /// With this root of scratch directories instead of the default one.
    #[must_use]
    pub fn with_scratch_root(mut self, root: PathBuf) -> Self {
        self.scratch_root = root;
        self
    }

    #[must_use]
    pub fn with_injection(mut self, injection: Injection) -> Self {
        self.injection = Some(injection);
        self
    }

    /// The same with long links that are made in this way and no other.
    #[must_use]
    pub fn with_links_by(mut self, kind: LinkKind) -> Self {
        self.links_by = Some(kind);
        self
    }

    #[must_use]
    pub fn with_passwords(mut self, passwords: Passwords) -> Self {
        self.passwords = passwords;
        self
    }

    fn logs_of(&self, lab: &Lab) -> Result<PathBuf, BenchError> {
        const NAME: &str = "logs";
        const MODE: u32 = 0o700;
        match &self.logs {
            Some(logs) => Ok(logs.clone()),
            None if lab.scratch().path().join(NAME).exists() => Ok(lab.scratch().path().join(NAME)),
            None => lab.scratch().make_directory(NAME, MODE).map_err(|error| bench_error(error.into())),
        }
    }

    /// What a client of `request`'s cell needs, where everything is up: where the server is for it and in which network,
    /// and how it is let in.
    pub fn client(&mut self, request: &TrialRequest<'_>) -> Result<TrialSpec, TrialError> {
        let endpoint = self.way_of_clients(request.cell)?;
        let spec = here(request, &self.instance(request.cell)?.server, endpoint, Duration::ZERO);
        let namespace = self.links.namespace_of_clients(request.cell.treatment.link);
        Ok(TrialSpec { namespace, ..spec })
    }

    /// Where clients of `cell` go: to its tunnel or its proxy, over its link, or straight to its server.
    fn way_of_clients(&mut self, cell: &Cell) -> Result<Endpoint, TrialError> {
        let endpoint = endpoint(cell, &self.instance(cell)?.server);
        match self.tunnels.endpoint().or_else(|| self.proxies.endpoint()) {
            Some(between) => Ok(between),
            None => self.links.lead(endpoint, cell.treatment.link),
        }
    }

    /// A private directory that goes when everything is taken down.
    pub fn scratch(&self) -> Option<&std::path::Path> {
        self.lab.as_ref().map(|lab| lab.scratch().path())
    }

    fn instance(&mut self, cell: &Cell) -> Result<&mut Instance, TrialError> {
        self.instances
            .iter_mut()
            .find(|instance| instance.serves(cell))
            .ok_or_else(|| TrialError::Fatal(internal(format!("no server was started for {cell}"))))
    }

    /// The machine, and what its servers' CPU was read from.
    fn environment(&self) -> Environment {
        let clocks: BTreeSet<&str> =
            self.instances.iter().map(|instance| instance.server.cpu_meter().label()).collect();
        let mut environment = ciphertoll_host::environment::environment();
        if !clocks.is_empty() {
            environment.cpu_accounting = clocks.into_iter().collect::<Vec<_>>().join(" and ");
        }
        environment
    }

    fn injected_delay(&self, cell: &Cell, arm: Arm) -> Duration {
        self.injection.map_or(Duration::ZERO, |injection| injection.delay_of(cell, arm))
    }

    fn start_load(&self, cell: &Cell, spec: TrialSpec) -> Result<LoadProcess, TrialError> {
        // Our half of a machine is enough only where the other half is the server's.
        let apart = self.apart.as_ref().filter(|_| cell.treatment.server.url.is_none());
        let link = cell.treatment.link;
        let namespace = self.links.namespace_of_clients(link).filter(|_| link != Link::AsIs);
        let spec = TrialSpec { processors: apart.map(|apart| apart.client.clone()), namespace, ..spec };
        let client = self.drivers.load_command(cell, &spec, &self.program);
        let load = LoadProcess::start_command(client.command, &spec, client.grace).map_err(load_failed)?;
        let lab = self.lab.as_ref().ok_or_else(|| TrialError::Fatal(internal("no lab".to_owned())))?;
        note_in_ledger(lab, &load, &self.program).map_err(|error| fatal(error.into()))?;
        Ok(load)
    }

    /// A link that went down is made afresh, and so are its servers, whose network is gone with it.
    fn relink(&mut self, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        if !self.links.is_down() {
            return Ok(());
        }
        emit(Event::Warned {
            message: "the link went down: recreating it and restarting its servers".to_owned(),
        });
        let Some(lab) = &mut self.lab else { return Ok(()) };
        self.links.remake(lab, &self.program)?;
        for instance in std::mem::take(&mut self.instances) {
            let afresh = instance.restarted(lab, emit).map_err(|error| TrialError::Fatal(error.into()))?;
            self.instances.push(afresh);
        }
        Ok(())
    }

    /// A server that died in a voided trial is started afresh for the next.
    fn revive(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        let Err(died) = self.instance(cell)?.server.check_alive() else { return Ok(()) };
        emit(Event::Warned { message: format!("restarting the server: {died}") });
        let at = self.instances.iter().position(|instance| instance.serves(cell));
        let Some((at, lab)) = at.zip(self.lab.as_ref()) else { return Ok(()) };
        let dead = self.instances.swap_remove(at);
        self.instances.push(dead.restarted(lab, emit).map_err(|error| TrialError::Fatal(error.into()))?);
        Ok(())
    }
}

impl Bench for LabBench {
    fn sweep(&mut self, emit: &mut Emit<'_>) -> Result<(), BenchError> {
        sweep(&self.scratch_root, emit)
    }

    fn prepare(&mut self, plan: &Plan, emit: &mut Emit<'_>) -> Result<Environment, BenchError> {
        let mut lab = Lab::open_below(self.program.clone(), &self.scratch_root).map_err(bench_error)?;
        lab.store_servers_on(plan.storage);
        let logs = self.logs_of(&lab)?;
        self.links = Links::prepare(plan, &mut lab, &self.program, self.links_by, emit)?;
        self.apart = apart(plan.pin, emit);
        self.drivers = Drivers::prepare(plan, &lab.cache().join("drivers"), emit);
        let context = ServerContext {
            lab: &lab,
            logs: &logs,
            apart: self.apart.as_ref(),
            settings: &plan.settings,
            interrupt: &self.interrupt,
        };
        let goes_to_files = |cell: &Cell| {
            let in_the_clear = matches!(cell.treatment.at_rest, AtRest::None | AtRest::AsIs);
            cell.workload.writes() || !in_the_clear
        };
        self.files_matter = plan.cells.iter().any(goes_to_files);
        let (remotes, failure) = Remotes::prepare(plan, &lab, &self.passwords, &self.interrupt, emit);
        self.remotes = remotes;
        let mut last_failure = failure.map(NotStarted::Lab);
        let all = RequiredServer::all(plan);
        let tenants: Vec<_> = all.iter().filter_map(RequiredServer::tenant).collect();
        lab.check_disk_space(&tenants).map_err(bench_error)?;
        for wanted in all {
            if self.interrupt.ending().is_some() {
                break;
            }
            let number = self.instances.len() + 1;
            match Instance::start(&context, wanted.clone(), number, emit) {
                Ok(mut instance) => {
                    instance.skip_impossible(plan, emit).map_err(bench_error)?;
                    self.instances.push(instance);
                }
                // The scheduler looks for it next.
                Err(NotStarted::Lab(ciphertoll_lab::Error::Interrupted)) => break,
                Err(error) if error.concerns_one_server() => {
                    wanted.skip_cells(plan, &error.to_string(), emit);
                    last_failure = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let context = StartContext { lab: &lab, logs: &logs, apart: self.apart.as_ref() };
        self.tunnels.try_all(plan, &context, &self.instances, &mut self.links, emit);
        self.proxies.try_all(plan, &context, &mut self.instances, &mut self.links, emit);
        if last_failure.is_none() || !(self.instances.is_empty() && self.remotes.is_empty()) {
            let servers: Vec<Endpoint> = self.remotes.all().map(Remote::endpoint).collect();
            self.hosts = Hosts::connected(plan, &lab, &self.program, &servers, &self.interrupt, emit)?;
        }
        self.lab = Some(lab);
        match last_failure {
            Some(error) if self.instances.is_empty() && self.remotes.is_empty() => Err(error.into()),
            _ => Ok(self.environment()),
        }
    }

    fn time_primitives(&mut self, cells: &[&Cell], emit: &mut Emit<'_>) -> Result<(), BenchError> {
        primitives::time(cells, &self.interrupt, emit);
        Ok(())
    }

    fn begin_block(&mut self, emit: &mut Emit<'_>) -> Result<(), BenchError> {
        self.instances.iter_mut().try_for_each(Instance::refresh).map_err(bench_error)?;
        let wanted = self.files_matter;
        self.instances.iter_mut().filter(|_| wanted).for_each(|instance| instance.time_syncs(emit));
        Ok(())
    }

    fn up(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        if let Some(lab) = &self.lab {
            self.hosts.connect(lab, &self.interrupt, emit)?;
        }
        if self.remotes.of(cell).is_some() {
            return Ok(());
        }
        self.tunnels.down();
        self.proxies.down();
        self.relink(emit)?;
        self.revive(cell, emit)?;
        // Of all servers: what one of them writes in the background is in the way of the others.
        self.instances.iter_mut().try_for_each(Instance::write_out)?;
        self.links.set(cell, emit)?;
        let instance = self.instance(cell)?;
        instance.remove_inserted()?;
        let server = &mut instance.server;
        if let Some(tls) = cell.treatment.path.server_tls() {
            server.install_certificate(tls).map_err(|error| control_failed(server, error))?;
        }
        // After the certificate: a restart for it empties MySQL's password cache.
        server.prepare_auth(credentials(cell)).map_err(|error| control_failed(server, error))?;
        self.set_up_between(cell)
    }

    fn trial(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError> {
        let Some(remote) = self.remotes.of(request.cell) else { return self.trial_here(request) };
        let (spec, clocks) = (at_url(request, remote), Clocks::of_machine());
        let measured = if self.hosts.have_clients() {
            observe_on_hosts(&mut self.hosts, &clocks, &spec, &self.interrupt)
        } else {
            let load = self.start_load(request.cell, spec)?;
            let endpoint = remote.endpoint();
            let server = self.hosts.server_meter(&endpoint);
            let server = server.map(|(meter, port)| ServerElsewhere { meter, port });
            observe(load, &clocks, None, server, &self.interrupt)
        };
        stop_where_it_is_full(remote, measured)
    }

    fn down(&mut self) -> Result<(), BenchError> {
        self.hosts = Hosts::default();
        self.proxies.down();
        let mut first_failure = None;
        for instance in self.instances.drain(..) {
            if let Err(error) = instance.server.stop() {
                first_failure.get_or_insert(error);
            }
        }
        self.remotes.clear();
        self.tunnels.down();
        self.links.down();
        // Dropping the lab removes the scratch directory.
        self.lab = None;
        first_failure.map_or(Ok(()), |error| Err(bench_error(error)))
    }
}

impl LabBench {
    fn set_up_between(&mut self, cell: &Cell) -> Result<(), TrialError> {
        let Some(lab) = &self.lab else { return Ok(()) };
        let logs = self.logs_of(lab).map_err(TrialError::Fatal)?;
        let Some(instance) = self.instances.iter_mut().find(|instance| instance.serves(cell)) else {
            return Ok(());
        };
        let context = StartContext { lab, logs: &logs, apart: self.apart.as_ref() };
        self.tunnels.set_up(cell, &context, &instance.server, &mut self.links)?;
        self.proxies.set_up(cell, &context, &mut instance.server, &mut self.links)
    }

    /// Adds the use of tunnel or proxy to the trial. If the trial failed, checks whether they are the reason.
    fn between_after(
        &mut self,
        cell: &Cell,
        measured: &Result<Measured, TrialError>,
    ) -> Result<(Option<TunnelUse>, Option<ProxyTrialUse>), TrialError> {
        if matches!(measured, Err(TrialError::Interrupted)) {
            return Ok((None, None));
        }
        if !measured.as_ref().is_ok_and(|measured| measured.load.errors.is_empty()) {
            self.tunnels.check_survived()?;
            self.proxies.check_survived()?;
        }
        let tunnel = self.tunnels.used()?;
        let instance = self.instances.iter_mut().find(|instance| instance.serves(cell));
        let proxy = match instance {
            Some(instance) => self.proxies.used(&mut instance.server)?,
            None => None,
        };
        Ok((tunnel, proxy))
    }

    fn clocks(&mut self, cell: &Cell) -> Result<Clocks, TrialError> {
        let layer = self.instance(cell)?.server.mount_cpu_meter();
        let between =
            self.tunnels.cpu_meters().into_iter().chain(self.proxies.cpu_meter()).chain(layer).collect();
        let memory = self.proxies.memory_pid();
        Ok(Clocks::of(&self.instance(cell)?.server).with_middle(between, memory))
    }

    /// The server's counts so far. For a trial through a proxy they are read before the proxy starts, because open
    /// connections are not counted yet.
    fn counters(&mut self, cell: &Cell) -> Result<Counters, TrialError> {
        let server = &mut self.instance(cell)?.server;
        server.counters().map_err(|error| control_failed(server, error))
    }

    fn trial_here(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError> {
        let delay = self.injected_delay(request.cell, request.arm);
        let has_proxy = request.cell.treatment.path.as_proxy().is_some();
        let before = if has_proxy { Counters::default() } else { self.counters(request.cell)? };
        let clocks = self.clocks(request.cell)?;
        let link = request.cell.treatment.link;
        let endpoint = self.way_of_clients(request.cell)?;
        let mut spec = here(request, &self.instance(request.cell)?.server, endpoint, delay);
        self.instance(request.cell)?.number_inserts(&mut spec);
        self.instance(request.cell)?.note_writing(request.cell);
        self.links.forget(link)?;
        self.tunnels.forget()?;
        let measured = if self.hosts.have_clients() {
            observe_on_hosts(&mut self.hosts, &clocks, &spec, &self.interrupt)
        } else {
            let load = self.start_load(request.cell, spec)?;
            let between = Middle { links: &mut self.links, proxies: &mut self.proxies };
            observe(load, &clocks, Some(between), None, &self.interrupt)
        };
        let measured = measured.map_err(TrialError::from);
        let carried = if self.links.is_down() { Err(link_is_down()) } else { self.links.carried(link) };
        let between = self.between_after(request.cell, &measured);
        let apart = self
            .apart
            .as_ref()
            .map(|apart| ProcessorsApart { client: apart.client.len(), server: apart.server.len() });
        let server = &mut self.instance(request.cell)?.server;
        // A problem with its files may be the cause of any other failure.
        if !matches!(measured, Err(TrialError::Interrupted)) {
            check_files(server)?;
        }
        let survived = match &measured {
            Ok(measured) if measured.load.errors.is_empty() => server.check_alive(),
            Err(TrialError::Interrupted) => return measured,
            Ok(_) | Err(_) => server.check_survived(),
        };
        match (measured, survived) {
            (_, Err(died)) => {
                // The server may end before the file system that it lost.
                check_files(&mut self.instance(request.cell)?.server)?;
                Err(server_died(&died))
            }
            (Err(error), Ok(())) => carried.and(between).and(Err(error)),
            (Ok(mut measured), Ok(())) => {
                measured.link = carried?;
                let (tunnel, used) = between?;
                measured.tunnel = tunnel;
                let counted = match &used {
                    Some(used) => used.counted,
                    None => self.counters(request.cell)?.since(&before),
                };
                measured.proxy = used.map(|used| used.proxy);
                let syncs = self.instance(request.cell)?.syncs;
                if let Some(server) = &mut measured.server {
                    (server.counted, server.syncs) = (counted, syncs);
                }
                measured.load.operations_in_all.get_or_insert(in_all(&measured.load, request.timing));
                measured.apart = apart;
                Ok(measured)
            }
        }
    }
}

/// Operations of the whole trial, extrapolated for a driver that counts only those in the window.
fn in_all(load: &TrialResult, timing: Timing) -> u64 {
    let [warm_up, window] = [timing.warm_up, timing.window].map(|part| part.duration().as_secs_f64());
    (load.operations as f64 * (warm_up + window) / window) as u64
}

/// Voids a trial if its server's files are not encrypted as planned. A dead server is reported elsewhere.
fn check_files(server: &mut Server) -> Result<(), TrialError> {
    match server.check_at_rest() {
        Err(error)
            if server.mount_has_failed() || matches!(error, ciphertoll_lab::Error::NotEncrypted(_)) =>
        {
            Err(not_encrypted(&error))
        }
        Err(_) | Ok(()) => Ok(()),
    }
}

fn apart(pin: CpuPinning, emit: &mut Emit<'_>) -> Option<ProcessorSplit> {
    if pin == CpuPinning::Off {
        return None;
    }
    let apart = split_processors();
    if apart.is_none() {
        let message = "only one processor: clients and servers share it".to_owned();
        emit(Event::Warned { message });
    }
    apart
}

/// Removes the remains of killed runs.
fn sweep(scratch_root: &std::path::Path, emit: &mut Emit<'_>) -> Result<(), BenchError> {
    let report = ciphertoll_record::sweep(scratch_root).map_err(|error| bench_error(error.into()))?;
    if report.directories_removed > 0 {
        let ciphertoll_record::SweepReport { directories_removed, processes_killed, jobs_deleted, .. } =
            report;
        let jobs = if jobs_deleted > 0 { format!(", {jobs_deleted} Kubernetes Jobs") } else { String::new() };
        let message = format!(
            "removed the remains of killed runs: {directories_removed} directories, {processes_killed} processes{jobs}"
        );
        emit(Event::Warned { message });
    }
    for left in report.left {
        let message = format!("cannot remove {} of a killed run: {}", left.path.display(), left.reason);
        emit(Event::Warned { message });
    }
    Ok(())
}

fn note_in_ledger(
    lab: &Lab,
    load: &LoadProcess,
    program: &std::path::Path,
) -> Result<(), ciphertoll_record::Error> {
    // If the process has ended, there is nothing to undo.
    let Ok(identity) = ProcessIdentity::of(load.pid().cast_signed()) else { return Ok(()) };
    let effect = Effect::Process { identity, what: "load".to_owned(), program: program.to_owned() };
    lab.scratch().ledger().note(&effect)
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{Engine, ServerKey, ServerLevel, Spec};

    use super::*;

    const DELAY: Duration = Duration::from_micros(75);

    /// The delays of `injection`: plain in both arms, then TLS in both arms.
    fn delays(injection: Injection) -> [Duration; 4] {
        let plan = Plan::new(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 1).unwrap();
        let cell = |is_tls| plan.cells.iter().find(|cell| cell.treatment.path.as_tls().is_some() == is_tls);
        let [bare, encrypted] = [cell(false).unwrap(), cell(true).unwrap()];
        [(bare, Arm::Main), (bare, Arm::Repeat), (encrypted, Arm::Main), (encrypted, Arm::Repeat)]
            .map(|(cell, arm)| injection.delay_of(cell, arm))
    }

    #[test]
    fn an_injection_slows_what_it_is_meant_for_and_nothing_else() {
        let none = Duration::ZERO;
        assert_eq!(delays(Injection::into_arm(Arm::Repeat, DELAY)), [none, DELAY, none, DELAY]);
        assert_eq!(delays(Injection::into_path(Path::Plain, DELAY)), [DELAY, DELAY, none, none]);
        let tls = Path::tls(ciphertoll_model::TlsVersion::Tls13, ServerKey::P256);
        assert_eq!(delays(Injection::into_path(tls, DELAY)), [none, none, DELAY, DELAY]);
    }
}
