//! A layer: one factor of the plan that surrounds the trials of a run.
//!
//! Layers are in a list, the first next to the network and the last next to the clients. Before a trial each adds its part
//! to the [`Route`] of clients to their server; afterwards, in reverse order, each says what it did. A layer's record and
//! gate are in the same file.

use std::path::PathBuf;

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_host::processors::ProcessorSplit;
use ciphertoll_lab::{Counters, Lab, Remote};
use ciphertoll_model::{Cell, Endpoint, Namespace, Plan, TrialResult, TrialSpec};

use crate::interrupt::Interrupt;
use crate::surroundings::hosts::Hosts;
use crate::surroundings::instance::Instance;
use crate::surroundings::load_command::LoadCommand;
use crate::surroundings::networks::Networks;
use crate::surroundings::profiled_trial::ProfiledTrial;
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// `M` is the measurement of a trial, which has a slot for the record of every layer.
pub(crate) trait Layer<M> {
    /// Makes ready what takes long, before the first block. Cells that it cannot serve are skipped with the reason.
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let _ = (plan, route, emit);
        Ok(())
    }

    /// Restores before a block what takes too long to restore before every trial.
    fn begin_block(&mut self, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let _ = (route, emit);
        Ok(())
    }

    /// Takes down what belongs to the cell that was up. Called before [`Self::up`], the last layer first.
    fn leave(&mut self, route: &mut Route) -> Result<(), TrialError> {
        let _ = route;
        Ok(())
    }

    /// Brings its level of `cell` up and adds it to the route.
    fn up(&mut self, cell: &Cell, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        let _ = (cell, route, emit);
        Ok(())
    }

    /// Called directly before the load starts, which gets `spec`.
    fn before(
        &mut self,
        request: &TrialRequest<'_>,
        spec: &mut TrialSpec,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let _ = (request, spec, route);
        Ok(())
    }

    fn window_opens(&mut self, route: &mut Route) {
        let _ = route;
    }

    fn window_closes(&mut self, route: &mut Route) {
        let _ = route;
    }

    /// Whether the trial can go on; called often.
    fn check(&mut self, route: &mut Route) -> Result<(), TrialError> {
        let _ = route;
        Ok(())
    }

    /// Adds its record to the trial, the last layer first. `trial` is absent if the load failed; then the layer checks
    /// whether it is the reason. An error nearer to the server is reported rather than one further away.
    fn after(
        &mut self,
        request: &TrialRequest<'_>,
        trial: Option<&mut M>,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let _ = (request, trial, route);
        Ok(())
    }

    /// Ends everything, the last layer first.
    fn down(&mut self, route: &mut Route) -> Result<(), TestbedError> {
        let _ = route;
        Ok(())
    }
}

pub(crate) trait Trial {
    fn load(&self) -> &TrialResult;
    fn load_mut(&mut self) -> &mut TrialResult;
}

/// A trial with a slot for the record `T` of a layer.
pub(crate) trait Uses<T>: Trial {
    fn slot(&mut self) -> &mut Option<T>;
}

/// Whether the load of a trial ended without an error.
pub(crate) fn succeeded<M: Trial>(trial: Option<&M>) -> bool {
    trial.is_some_and(|trial| trial.load().errors.is_empty())
}

/// What everything in a run is started with.
pub(crate) struct Site {
    /// This program, with its hidden commands.
    pub(crate) program: PathBuf,
    pub(crate) lab: Lab,
    pub(crate) logs: PathBuf,
    /// The processors of each side, if they are separate.
    pub(crate) apart: Option<ProcessorSplit>,
    pub(crate) interrupt: Interrupt,
}

/// The way from clients to their server, and what runs along it.
pub(crate) struct Route {
    pub(crate) site: Site,
    pub(crate) networks: Networks,
    /// The link was recreated: servers must be restarted, because their network is gone.
    pub(crate) is_new_network: bool,
    pub(crate) instances: Vec<Instance>,
    pub(crate) remotes: Vec<Remote>,
    pub(crate) hosts: Hosts,
    /// Why the last server that is missing is missing.
    pub(crate) last_failure: Option<TestbedError>,
    /// The tunnel or proxy where the clients of the cell connect.
    pub(crate) between: Option<Endpoint>,
    /// The CPU time of what is between clients and server.
    pub(crate) middle: Vec<CpuMeter>,
    /// The process between clients and server, if it is one.
    pub(crate) middle_memory: Option<i32>,
    /// The server's counts before the first connection of the trial.
    pub(crate) counted_before: Option<Counters>,
    /// The process that generates the load.
    pub(crate) load: Option<LoadCommand>,
    /// A server that accepts no more connections: its message.
    pub(crate) no_room: Option<String>,
    /// The process that runs the clients, if it runs here.
    pub(crate) load_process: Option<i32>,
    pub(crate) can_profile: bool,
    /// Present during a trial that is profiled.
    pub(crate) profiled: Option<ProfiledTrial>,
}

impl Route {
    pub(crate) fn new(site: Site) -> Self {
        Self {
            site,
            networks: Networks::default(),
            is_new_network: false,
            instances: Vec::new(),
            remotes: Vec::new(),
            hosts: Hosts::default(),
            last_failure: None,
            between: None,
            middle: Vec::new(),
            middle_memory: None,
            counted_before: None,
            load: None,
            no_room: None,
            load_process: None,
            can_profile: false,
            profiled: None,
        }
    }

    /// Leaves only what is up for the whole run.
    pub(crate) fn clear(&mut self) {
        self.between = None;
        self.middle.clear();
        self.middle_memory = None;
        self.counted_before = None;
        self.load = None;
        self.no_room = None;
        self.load_process = None;
    }

    pub(crate) fn has_no_server(&self) -> bool {
        self.instances.is_empty() && self.remotes.is_empty()
    }

    pub(crate) fn instance(&mut self, cell: &Cell) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|instance| instance.serves(cell))
    }

    /// The server at a URL that `cell` is measured on.
    pub(crate) fn remote(&self, cell: &Cell) -> Option<&Remote> {
        let server = &cell.treatment.server;
        let name = server.url.is_some().then(|| server.short_name())?;
        self.remotes.iter().find(|remote| remote.name() == name)
    }

    /// The network of the clients of `cell`.
    pub(crate) fn namespace(&self, cell: &Cell) -> Option<Namespace> {
        self.networks.namespace_of_clients(cell.treatment.link)
    }
}
