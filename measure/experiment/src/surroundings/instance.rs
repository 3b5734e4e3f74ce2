//! The servers of a run: one for each level and set of tables, running from the first block to the last.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ciphertoll_host::processors::ProcessorSplit;
use ciphertoll_lab::{DataTemplate, Lab, PlannedServer, Proof, Server, ServerStart, SyncTimes, Tables};
use ciphertoll_model::cache::SURELY_CACHED;
use ciphertoll_model::{
    AtRest, Cell, Draw, Event, ExitCode, Plan, SecurityLevel, ServerKey, ServerLevel, Settings, Skipped,
    TlsPath, Treatment, TrialOperation, TrialSpec, ycsb,
};

use crate::failure::{NotStarted, control_failed};
use crate::interrupt::Interrupt;
use crate::surroundings::request::credentials;
use crate::trial::{Emit, TrialError};

/// A server that runs during the whole run.
pub(crate) struct Instance {
    launch: InstanceLaunch,
    /// The first record numbers of inserts that have not been removed.
    inserted: Vec<u64>,
    /// Sync latency in its file system at the start of the block.
    pub(crate) syncs: Option<SyncTimes>,
    wear: Wear,
    pub(crate) server: Server,
}

/// What every start of an instance has in common.
struct InstanceLaunch {
    required: RequiredServer,
    name: String,
    log: PathBuf,
    processors: Option<Vec<u16>>,
    build: ciphertoll_lab::Build,
    template: DataTemplate,
    settings: Settings,
}

/// How trials have changed a server's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wear {
    /// Unchanged, or restored since.
    None,
    /// Changed, and written out to disk.
    WrittenOut,
    /// Changed, and partly only in the buffers.
    Written,
}

/// What every server of a run is started with.
pub(crate) struct ServerContext<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) logs: &'a Path,
    pub(crate) apart: Option<&'a ProcessorSplit>,
    pub(crate) settings: &'a Settings,
    pub(crate) interrupt: &'a Interrupt,
}

/// A server that the plan needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequiredServer {
    level: ServerLevel,
    at_rest: AtRest,
    tables: Tables,
    strength: SecurityLevel,
    proof: FileSearch,
}

/// Whether the files are searched for written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileSearch {
    /// The plan compares encryption at rest.
    Required,
    None,
}

impl RequiredServer {
    /// One server for each level, with the tables of all its cells. Cells that need the same tables in different sizes get
    /// separate servers.
    pub(crate) fn all(plan: &Plan) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let in_the_clear = |cell: &Cell| matches!(cell.treatment.at_rest, AtRest::None | AtRest::AsIs);
        let proof = if plan.cells.iter().all(in_the_clear) { FileSearch::None } else { FileSearch::Required };
        for cell in plan.cells.iter().filter(|cell| cell.treatment.server.url.is_none()) {
            let Cell { treatment, workload, scale, .. } = cell;
            let level = &treatment.server;
            let dataset = workload.dataset(level.engine);
            let at_rest = treatment.at_rest;
            let of_level = |required: &&mut Self| required.level == *level && required.at_rest == at_rest;
            let merged = all.iter_mut().filter(of_level).find_map(|required| {
                let tables = required.tables.merged_with(dataset, *scale)?;
                required.tables = tables;
                required.strength = strength_for(required.strength, cell);
                Some(())
            });
            if merged.is_none() {
                let tables = Tables::default().merged_with(dataset, *scale);
                let strength = strength_for(SecurityLevel::Default, cell);
                let (level, tables) = (level.clone(), tables.unwrap_or_default());
                all.push(Self { level, at_rest, tables, strength, proof });
            }
        }
        all
    }

    /// Whether `cell` can be measured on it.
    pub(crate) fn serves(&self, cell: &Cell) -> bool {
        let dataset = cell.workload.dataset(self.level.engine);
        let Treatment { server, at_rest, .. } = &cell.treatment;
        (&self.level, self.at_rest) == (server, *at_rest) && self.tables.satisfies(dataset, cell.scale)
    }

    /// Whether its buffers hold all its tables, as far as known.
    fn fits(&self, settings: &Settings) -> bool {
        let engine = self.level.engine;
        let buffers = settings.buffers_bytes(engine);
        buffers.is_none_or(|buffers| self.tables.bytes(engine) as f64 <= buffers * SURELY_CACHED)
    }

    /// The disk space it needs. Absent if the server is not installed, which is reported later.
    pub(crate) fn tenant(&self) -> Option<PlannedServer> {
        let build = ciphertoll_lab::find(&self.level).ok()?;
        Some(PlannedServer { build, tables: self.tables, at_rest: self.at_rest })
    }

    pub(crate) fn skip_cells(&self, plan: &Plan, reason: &str, emit: &mut Emit<'_>) {
        for cell in plan.cells.iter().filter(|cell| self.serves(cell)) {
            skip(cell, reason, emit);
        }
    }

    /// Fails if encrypted files contain the marker in plaintext, or if the search does not find it in unencrypted files.
    fn prove(&self, server: &Server, emit: &mut Emit<'_>) -> Result<(), NotStarted> {
        if self.proof == FileSearch::None {
            return Ok(());
        }
        let proof = server.prove_at_rest()?;
        let Proof { files, bytes, files_with_marker } = proof;
        let kernel_cipher = server.kernel_cipher();
        let (server, at_rest) = (self.level.short_name(), self.at_rest);
        if proof.is_encrypted() != at_rest.encrypts() {
            return Err(NotStarted::AtRest(format!(
                "at-rest {at_rest}: data written to {server} was found unencrypted in {files_with_marker} of its {files} \
                 files"
            )));
        }
        emit(Event::AtRestProven { server, at_rest, files, bytes, files_with_marker, kernel_cipher });
        Ok(())
    }
}

impl Instance {
    pub(crate) fn start(
        context: &ServerContext<'_>,
        required: RequiredServer,
        number: usize,
        emit: &mut Emit<'_>,
    ) -> Result<Self, NotStarted> {
        let began = Instant::now();
        let RequiredServer { level, at_rest, tables, .. } = &required;
        let build = ciphertoll_lab::find(level)?;
        let template = context.lab.template_at_rest(
            &build,
            tables,
            *at_rest,
            &mut |what| emit(Event::Preparing { what: what.to_owned() }),
            &|| context.interrupt.ending().is_some(),
        )?;
        emit(Event::Preparing {
            what: format!("starting {} {}", level.engine.display_name(), build.version),
        });
        let name = format!("s{number}");
        let log = context.logs.join(format!("{}-{name}.log", level.short_name()));
        let processors = context.apart.map(|apart| apart.server.clone());
        let settings = context.settings.clone();
        let launch = InstanceLaunch { required, name, log, processors, build, template, settings };
        let server = launch.start(context.lab, began, emit)?;
        Ok(Self { launch, inserted: Vec::new(), syncs: None, wear: Wear::None, server })
    }

    pub(crate) fn restarted(self, lab: &Lab, emit: &mut Emit<'_>) -> Result<Self, NotStarted> {
        let Self { launch, syncs, server, .. } = self;
        drop(server);
        let server = launch.start(lab, Instant::now(), emit)?;
        Ok(Self { launch, inserted: Vec::new(), syncs, wear: Wear::None, server })
    }

    pub(crate) fn serves(&self, cell: &Cell) -> bool {
        self.launch.required.serves(cell)
    }

    /// Times syncs in its file system. A failure is only a warning.
    pub(crate) fn time_syncs(&mut self, emit: &mut Emit<'_>) {
        self.syncs = self.server.time_syncs().unwrap_or_else(|error| {
            emit(Event::Warned { message: error.to_string() });
            None
        });
    }

    /// Call this before a trial of `cell`.
    pub(crate) fn note_writing(&mut self, cell: &Cell) {
        if cell.workload.writes() {
            self.wear = Wear::Written;
        }
    }

    /// Writes out changed pages of servers that would otherwise do so during the next trial. `PostgreSQL` leaves its pages until
    /// the next checkpoint. After a checkpoint every page goes into the WAL in full once, so each block has only one.
    pub(crate) fn write_out(&mut self) -> Result<(), TrialError> {
        if self.wear == Wear::Written && self.launch.required.level.engine.is_mysql_family() {
            self.server.write_out().map_err(|error| control_failed(&mut self.server, error))?;
            self.wear = Wear::WrittenOut;
        }
        Ok(())
    }

    /// Restores tables that trials have written to. A server that has died is restarted for its next trial.
    pub(crate) fn refresh(&mut self) -> Result<(), ciphertoll_lab::Error> {
        if self.wear == Wear::None {
            return Ok(());
        }
        match self.put_in_order() {
            Err(_) if !self.server.is_alive() => Ok(()),
            done => done,
        }
    }

    fn put_in_order(&mut self) -> Result<(), ciphertoll_lab::Error> {
        self.server.refresh()?;
        self.server.write_out()?;
        // Rebuilt tables are not in the buffers.
        if self.launch.required.fits(&self.launch.settings) {
            self.server.prewarm()?;
        }
        self.wear = Wear::None;
        Ok(())
    }

    /// Chooses the first record number of a trial that inserts, so that its records can be removed.
    pub(crate) fn number_inserts(&mut self, spec: &mut TrialSpec) {
        let TrialOperation::Transactions(script) = &spec.work else { return };
        if script.variables.contains(&Draw::Insert) {
            let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let first = ycsb::first_insert(spec.seed, began.as_nanos() as u64);
            spec.first_insert = Some(first);
            self.inserted.push(first);
        }
    }

    /// Removes inserted records, so that every trial starts with the same data.
    pub(crate) fn remove_inserted(&mut self) -> Result<(), TrialError> {
        let removed = self.server.remove_inserted(&self.inserted);
        removed.map_err(|error| control_failed(&mut self.server, error))?;
        self.inserted.clear();
        Ok(())
    }

    /// Skips cells that this server does not support, which only the server knows: an authentication that its version or
    /// plugins lack, TLS without a request.
    pub(crate) fn skip_impossible(
        &mut self,
        plan: &Plan,
        emit: &mut Emit<'_>,
    ) -> Result<(), ciphertoll_lab::Error> {
        for cell in plan.cells.iter().filter(|cell| self.launch.required.serves(cell)) {
            let supported = match cell.treatment.path.server_tls() {
                Some(tls) => self.server.prepare_tls(tls),
                None => Ok(()),
            };
            match supported.and_then(|()| self.server.prepare_auth(credentials(cell))) {
                Err(error) if error.exit_code() == ExitCode::NothingRan => {
                    skip(cell, &error.to_string(), emit);
                }
                prepared => prepared?,
            }
        }
        Ok(())
    }
}

/// All cells share the server and its security level: if one of them has a weak key, the server accepts weak keys for all.
fn strength_for(so_far: SecurityLevel, cell: &Cell) -> SecurityLevel {
    let own = cell.treatment.path.server_tls().map_or(SecurityLevel::Default, TlsPath::security_level);
    so_far.max(own)
}

impl InstanceLaunch {
    /// Starts the server, checks its settings, reads its tables into the buffers, and searches its files if required.
    fn start(&self, lab: &Lab, began: Instant, emit: &mut Emit<'_>) -> Result<Server, NotStarted> {
        let start = ServerStart {
            build: &self.build,
            template: &self.template,
            name: &self.name,
            key: ServerKey::P256,
            log: self.log.clone(),
            preferred_port: None,
            processors: self.processors.clone(),
            strength: self.required.strength,
        };
        let server = lab.start_with(&start, &self.settings)?;
        if !server.unmet_settings().is_empty() {
            return Err(NotStarted::Settings(server.unmet_settings().join("; ")));
        }
        server.prewarm()?;
        emit(Event::ServerReady {
            server: self.required.level.short_name(),
            version: server.version().to_owned(),
            tls_library: server.tls_library().map(ToOwned::to_owned),
            settings: server.settings().clone(),
            elapsed_ms: began.elapsed().as_millis() as u64,
        });
        self.required.prove(&server, emit)?;
        server.write_out()?;
        Ok(server)
    }
}

pub(crate) fn skip(cell: &Cell, reason: &str, emit: &mut Emit<'_>) {
    emit(Event::CellSkipped { skipped: Skipped::cell(cell, reason) });
}
