//! The real testbed: private servers of the lab or servers at URLs, surrounded by layers, and a load process per trial.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ciphertoll_host::processors::{ProcessorSplit, split_processors};
use ciphertoll_lab::{Lab, Passwords};
use ciphertoll_load::LoadProcess;
use ciphertoll_model::{
    Cell, CpuPinning, Endpoint, Environment, Event, Link, LinkKind, Plan, Profile, TrialSpec,
};
use ciphertoll_record::{Effect, ProcessIdentity};

use crate::failure::{fatal, internal, load_failed, testbed_error};
use crate::injection::Injection;
use crate::interrupt::Interrupt;
use crate::layer::{Layer, Route, Site};
use crate::layers::at_rest::AtRestLayer;
use crate::layers::driver::DriverLayer;
use crate::layers::link::LinkLayer;
use crate::layers::load_hosts::LoadHostsLayer;
use crate::layers::profile::ProfileLayer;
use crate::layers::proxy::ProxyLayer;
use crate::layers::remote::RemoteLayer;
use crate::layers::server::ServerLayer;
use crate::layers::tunnel::TunnelLayer;
use crate::measured::Measured;
use crate::observe::{Clocks, Unobserved, observe};
use crate::on_hosts::observe_on_hosts;
use crate::primitives::events;
use crate::surroundings::profiled_trial::ProfiledTrial;
use crate::surroundings::request::{at_url, endpoint, here};
use crate::testbed::{ReadyTestbed, Testbed};
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// What a run is started with.
pub struct LabTestbed {
    program: PathBuf,
    /// In the scratch directory if absent.
    logs: Option<PathBuf>,
    /// The root of scratch directories.
    scratch_root: PathBuf,
    interrupt: Interrupt,
    injection: Option<Injection>,
    /// How links are made; the best available way if absent.
    links_by: Option<LinkKind>,
    passwords: Passwords,
}

/// The layers of a run, ready for its trials.
pub struct ReadyLab {
    /// The last is next to the clients.
    layers: Vec<Box<dyn Layer<Measured>>>,
    route: Route,
    injection: Option<Injection>,
    /// Scratch directories of other runs and labs that the user knows of.
    others: BTreeSet<PathBuf>,
}

impl LabTestbed {
    /// A testbed whose children are started through `program`'s hidden commands. Servers' logs go with everything else when
    /// it is taken down, unless told to go elsewhere.
    pub fn new(program: PathBuf, interrupt: Interrupt) -> Self {
        Self {
            program,
            logs: None,
            scratch_root: ciphertoll_record::scratch_root(),
            interrupt,
            injection: None,
            links_by: None,
            passwords: Passwords::new(),
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

    /// The layers around a trial. They are prepared and brought up in this order. A problem with an earlier one is the
    /// cause of problems with later ones.
    fn layers(&self) -> Vec<Box<dyn Layer<Measured>>> {
        vec![
            Box::new(LinkLayer::new(self.links_by)),
            Box::new(DriverLayer::default()),
            Box::new(RemoteLayer::new(self.passwords.clone())),
            Box::new(AtRestLayer),
            Box::new(ServerLayer::default()),
            Box::new(TunnelLayer::default()),
            Box::new(ProxyLayer::default()),
            Box::new(LoadHostsLayer::default()),
            Box::new(ProfileLayer),
        ]
    }

    fn site(&self, plan: &Plan, emit: &mut Emit<'_>) -> Result<Site, TestbedError> {
        let mut lab = Lab::open_below(self.program.clone(), &self.scratch_root).map_err(testbed_error)?;
        lab.store_servers_on(plan.storage);
        let logs = self.logs_of(&lab)?;
        let apart = apart(plan.pin, emit);
        Ok(Site { program: self.program.clone(), lab, logs, apart, interrupt: self.interrupt.clone() })
    }

    fn logs_of(&self, lab: &Lab) -> Result<PathBuf, TestbedError> {
        const NAME: &str = "logs";
        const MODE: u32 = 0o700;
        match &self.logs {
            Some(logs) => Ok(logs.clone()),
            None => lab.scratch().make_directory(NAME, MODE).map_err(|error| testbed_error(error.into())),
        }
    }
}

impl Testbed for LabTestbed {
    type Ready<'a> = ReadyLab;

    fn sweep(&mut self, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        sweep(&self.scratch_root, emit)
    }

    fn prepare(&mut self, plan: &Plan, emit: &mut Emit<'_>) -> Result<ReadyLab, TestbedError> {
        let site = self.site(plan, emit)?;
        let others = others_in_progress(&site)?;
        let route = Route::new(site);
        let mut ready = ReadyLab { layers: self.layers(), route, injection: self.injection, others };
        match ready.prepare(plan, emit) {
            Ok(()) => Ok(ready),
            Err(error) => {
                // The first error is the one to report.
                let _ = ready.down();
                Err(error)
            }
        }
    }
}

impl ReadyLab {
    fn prepare(&mut self, plan: &Plan, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let Self { layers, route, .. } = self;
        layers.iter_mut().try_for_each(|layer| layer.prepare(plan, route, emit))?;
        match route.last_failure.take() {
            Some(failure) if route.has_no_server() => Err(failure),
            _ => Ok(()),
        }
    }

    /// The settings of a client of the cell, which is up: where it connects, in which network, and how it logs in.
    pub fn client(&mut self, request: &TrialRequest<'_>) -> Result<TrialSpec, TrialError> {
        let spec = self.spec(request, 0.0)?;
        Ok(TrialSpec { namespace: self.route.namespace(request.cell), ..spec })
    }

    /// A private directory, which is removed when everything is taken down.
    pub fn scratch(&self) -> &Path {
        self.route.site.lab.scratch().path()
    }

    fn spec(&mut self, request: &TrialRequest<'_>, repeated_share: f64) -> Result<TrialSpec, TrialError> {
        let (cell, route) = (request.cell, &mut self.route);
        if let Some(remote) = route.remote(cell) {
            return Ok(at_url(request, remote));
        }
        let Route { networks, instances, between, .. } = route;
        let Some(instance) = instances.iter().find(|instance| instance.serves(cell)) else {
            return Err(TrialError::Fatal(internal(format!("no server was started for {cell}"))));
        };
        let server = &instance.server;
        // To the tunnel or proxy of the cell, over its link, or straight to its server.
        let endpoint: Endpoint = match between {
            Some(between) => between.clone(),
            None => networks.lead(endpoint(cell, server), cell.treatment.link)?,
        };
        Ok(here(request, server, endpoint, repeated_share))
    }

    /// Meters of the server and of what is between it and the clients.
    fn clocks(&mut self, cell: &Cell) -> Clocks {
        let (middle, memory) = (self.route.middle.clone(), self.route.middle_memory);
        match self.route.instance(cell) {
            Some(instance) => Clocks::of(&instance.server).with_middle(middle, memory),
            None => Clocks::of_machine(),
        }
    }

    fn observe(
        &mut self,
        request: &TrialRequest<'_>,
        clocks: &Clocks,
        spec: TrialSpec,
    ) -> Result<Measured, Unobserved> {
        let Self { layers, route, .. } = self;
        if route.hosts.have_clients() {
            return observe_on_hosts(&mut route.hosts, clocks, &spec, &route.site.interrupt);
        }
        let load = start_load(request.cell, spec, route)?;
        observe(load, clocks, layers, route)
    }
}

impl ReadyTestbed for ReadyLab {
    fn environment(&self) -> Environment {
        let clocks: BTreeSet<&str> =
            self.route.instances.iter().map(|instance| instance.server.cpu_meter().label()).collect();
        let mut environment = ciphertoll_host::environment::environment();
        if !clocks.is_empty() {
            environment.cpu_accounting = clocks.into_iter().collect::<Vec<_>>().join(" and ");
        }
        environment
    }

    fn time_primitives(&mut self, cells: &[&Cell], emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        events::time(cells, &self.route.site.interrupt, emit);
        Ok(())
    }

    fn begin_block(&mut self, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        // Not being able to look is no reason to end a run.
        let others = others_in_progress(&self.route.site).unwrap_or_else(|_| self.others.clone());
        if !others.is_subset(&self.others) {
            let message =
                "another run or lab of ciphertoll has begun on this machine: each disturbs the other";
            emit(Event::Warned { message: message.to_owned() });
        }
        self.others = others;
        let Self { layers, route, .. } = self;
        layers.iter_mut().try_for_each(|layer| layer.begin_block(route, emit))
    }

    fn up(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        let Self { layers, route, .. } = self;
        layers.iter_mut().rev().try_for_each(|layer| layer.leave(route))?;
        route.clear();
        layers.iter_mut().try_for_each(|layer| layer.up(cell, route, emit))
    }

    fn trial(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError> {
        let repeated_share = self.injection.map(|injection| injection.share_of(request.cell, request.arm));
        let mut spec = self.spec(request, repeated_share.unwrap_or_default())?;
        let Self { layers, route, .. } = self;
        layers.iter_mut().try_for_each(|layer| layer.before(request, &mut spec, route))?;
        let clocks = self.clocks(request.cell);
        let observed = self.observe(request, &clocks, spec);
        let Self { layers, route, .. } = self;
        if let Err(Unobserved::NoRoom { message }) = &observed {
            route.no_room = Some(message.clone());
        }
        let mut trial = observed.map_err(TrialError::from);
        if matches!(trial, Err(TrialError::Interrupted)) {
            return trial;
        }
        let mut problem = None;
        for layer in layers.iter_mut().rev() {
            if let Err(error) = layer.after(request, trial.as_mut().ok(), route) {
                problem = Some(error);
            }
        }
        problem.map_or(trial, Err)
    }

    fn can_profile(&self) -> bool {
        self.route.can_profile
    }

    fn profile(&mut self, request: &TrialRequest<'_>) -> Result<Result<Profile, String>, TrialError> {
        self.route.profiled = Some(ProfiledTrial::default());
        let trial = self.trial(request);
        let profiled = self.route.profiled.take().unwrap_or_default();
        match trial {
            Ok(_) => Ok(profiled.into_profile()),
            Err(TrialError::Void(reason)) => Ok(Err(reason.to_string())),
            Err(error) => Err(error),
        }
    }

    fn down(&mut self) -> Result<(), TestbedError> {
        let Self { layers, route, .. } = self;
        let ended = layers.iter_mut().rev().map(|layer| layer.down(route));
        ended.fold(Ok(()), Result::and)
    }
}

/// Starts the load process of a trial, in the network of its clients.
fn start_load(cell: &Cell, spec: TrialSpec, route: &mut Route) -> Result<LoadProcess, TrialError> {
    // Our half of a machine is enough only where the other half is the server's.
    let apart = route.site.apart.as_ref().filter(|_| cell.treatment.server.url.is_none());
    let namespace = route.namespace(cell).filter(|_| cell.treatment.link != Link::AsIs);
    let spec = TrialSpec { processors: apart.map(|apart| apart.client.clone()), namespace, ..spec };
    let client = route.load.take().ok_or_else(|| TrialError::Fatal(internal("no load".to_owned())))?;
    let load = LoadProcess::start_command(client.command, &spec, client.grace).map_err(load_failed)?;
    note_in_ledger(&route.site, &load).map_err(|error| fatal(error.into()))?;
    route.load_process = Some(load.pid().cast_signed());
    Ok(load)
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
fn sweep(scratch_root: &Path, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
    let report = ciphertoll_record::sweep(scratch_root).map_err(|error| testbed_error(error.into()))?;
    if report.in_progress > 0 {
        let message =
            "another run or lab of ciphertoll is in progress on this machine: each disturbs the other";
        emit(Event::Warned { message: message.to_owned() });
    }
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

fn others_in_progress(site: &Site) -> Result<BTreeSet<PathBuf>, TestbedError> {
    site.lab.scratch().others_in_progress().map_err(|error| testbed_error(error.into()))
}

fn note_in_ledger(site: &Site, load: &LoadProcess) -> Result<(), ciphertoll_record::Error> {
    // If the process has ended, there is nothing to undo.
    let Ok(identity) = ProcessIdentity::of(load.pid().cast_signed()) else { return Ok(()) };
    let effect = Effect::Process { identity, what: "load".to_owned(), program: site.program.clone() };
    site.lab.scratch().ledger().note(&effect)
}
