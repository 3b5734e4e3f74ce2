//! The servers of a run: one for each level and set of tables, kept up from the first block to the last.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ciphertoll_lab::{
    DataTemplate, Lab, PlannedServer, ProcessorSplit, Proof, Server, ServerStart, SyncTimes, Tables,
};
use ciphertoll_model::cache::SURELY_CACHED;
use ciphertoll_model::{
    AtRest, Cell, Draw, Event, ExitCode, Plan, ServerKey, ServerLevel, Settings, Skipped, Strength, TlsPath,
    Treatment, TrialSpec, Work, ycsb,
};

use super::failure::{NotStarted, control_failed};
use super::request::credentials;
use crate::bench::{Emit, TrialError};
use crate::interrupt::Interrupt;

/// A server that is kept up for the whole run.
pub(super) struct Instance {
    wanted: Wanted,
    name: String,
    log: PathBuf,
    processors: Option<Vec<u16>>,
    build: ciphertoll_lab::Build,
    template: DataTemplate,
    settings: Settings,
    /// The numbers of the first records that trials have inserted, and that are there still.
    inserted: Vec<u64>,
    /// How long a sync takes where its files are, at the begin of the block.
    pub(super) syncs: Option<SyncTimes>,
    wear: Wear,
    pub(super) server: Server,
}

/// What trials have left in a server's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wear {
    /// Nothing: they are as they were made, or have been put in order since.
    None,
    /// Dead rows and the like, all of it on the disk.
    WrittenOut,
    /// The same, some of it in the buffers only.
    Written,
}

/// What all servers of a run are started with.
pub(super) struct Ground<'a> {
    pub(super) lab: &'a Lab,
    pub(super) logs: &'a Path,
    pub(super) apart: Option<&'a ProcessorSplit>,
    pub(super) settings: &'a Settings,
    pub(super) interrupt: &'a Interrupt,
}

/// A server that the plan needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    level: ServerLevel,
    at_rest: AtRest,
    tables: Tables,
    strength: Strength,
    proof: Wish,
}

/// Whether it is to be seen that what is written can, or cannot, be read in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Files are compared.
    ToBeSeen,
    /// Nobody says anything of files.
    None,
}

impl Wanted {
    /// One server for each level, with the tables of all its cells; where two want the same tables in
    /// different sizes, one for each.
    pub(super) fn all(plan: &Plan) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let in_the_clear = |cell: &Cell| matches!(cell.treatment.at_rest, AtRest::None | AtRest::AsIs);
        let proof = if plan.cells.iter().all(in_the_clear) { Wish::None } else { Wish::ToBeSeen };
        for cell in plan.cells.iter().filter(|cell| cell.treatment.server.url.is_none()) {
            let Cell { treatment, workload, scale, .. } = cell;
            let level = &treatment.server;
            let dataset = workload.dataset(level.engine);
            let at_rest = treatment.at_rest;
            let of_level = |wanted: &&mut Self| wanted.level == *level && wanted.at_rest == at_rest;
            let merged = all.iter_mut().filter(of_level).find_map(|wanted| {
                let tables = wanted.tables.merged_with(dataset, *scale)?;
                wanted.tables = tables;
                wanted.strength = strength_for(wanted.strength, cell);
                Some(())
            });
            if merged.is_none() {
                let tables = Tables::default().merged_with(dataset, *scale);
                let strength = strength_for(Strength::Default, cell);
                let (level, tables) = (level.clone(), tables.unwrap_or_default());
                all.push(Self { level, at_rest, tables, strength, proof });
            }
        }
        all
    }

    /// Whether `cell` can be measured on it.
    pub(super) fn serves(&self, cell: &Cell) -> bool {
        let dataset = cell.workload.dataset(self.level.engine);
        let Treatment { server, at_rest, .. } = &cell.treatment;
        (&self.level, self.at_rest) == (server, *at_rest) && self.tables.satisfies(dataset, cell.scale)
    }

    /// Whether its buffers hold all its tables, for all that is known.
    fn fits(&self, settings: &Settings) -> bool {
        let engine = self.level.engine;
        let buffers = settings.buffers_bytes(engine);
        buffers.is_none_or(|buffers| self.tables.bytes(engine) as f64 <= buffers * SURELY_CACHED)
    }

    /// The room that it takes; none where it is not here, which is told later.
    pub(super) fn tenant(&self) -> Option<PlannedServer> {
        let build = ciphertoll_lab::find(&self.level).ok()?;
        Some(PlannedServer { build, tables: self.tables, at_rest: self.at_rest })
    }

    /// Says of each of its cells that it is not measured, and why.
    pub(super) fn skip_cells(&self, plan: &Plan, reason: &str, emit: &mut Emit<'_>) {
        for cell in plan.cells.iter().filter(|cell| self.serves(cell)) {
            skip(cell, reason, emit);
        }
    }
}

impl Wanted {
    /// Fails where its files can be read and should not be, or the other way round: then it is the search that fails.
    fn prove(&self, server: &Server, emit: &mut Emit<'_>) -> Result<(), NotStarted> {
        if self.proof == Wish::None {
            return Ok(());
        }
        let proof = server.prove_at_rest()?;
        let Proof { files, bytes, files_with_marker } = proof;
        let kernel_cipher = server.kernel_cipher();
        let (server, at_rest) = (self.level.short_name(), self.at_rest);
        if proof.is_encrypted() != at_rest.encrypts() {
            return Err(NotStarted::AtRest(format!(
                "at-rest {at_rest}: what was written into {server} was found in the clear in {files_with_marker} of its \
                 {files} files"
            )));
        }
        emit(Event::AtRestProven { server, at_rest, files, bytes, files_with_marker, kernel_cipher });
        Ok(())
    }
}

impl Instance {
    pub(super) fn start(
        ground: &Ground<'_>,
        wanted: Wanted,
        number: usize,
        emit: &mut Emit<'_>,
    ) -> Result<Self, NotStarted> {
        let began = Instant::now();
        let Wanted { level, at_rest, tables, strength, .. } = &wanted;
        let build = ciphertoll_lab::find(level)?;
        let template = ground.lab.template_at_rest(
            &build,
            tables,
            *at_rest,
            &mut |what| emit(Event::Preparing { what: what.to_owned() }),
            &|| ground.interrupt.ending().is_some(),
        )?;
        emit(Event::Preparing {
            what: format!("starting {} {}", level.engine.display_name(), build.version),
        });
        let name = format!("s{number}");
        let log = ground.logs.join(format!("{}-{name}.log", level.short_name()));
        let processors = ground.apart.map(|apart| apart.server.clone());
        let start = ServerStart {
            build: &build,
            template: &template,
            name: &name,
            key: ServerKey::P256,
            log: log.clone(),
            preferred_port: None,
            processors: processors.clone(),
            strength: *strength,
        };
        let server = started(ground.lab, &start, ground.settings)?;
        emit(ready(level, &server, began));
        wanted.prove(&server, emit)?;
        server.write_out()?;
        let (settings, inserted, wear) = (ground.settings.clone(), Vec::new(), Wear::None);
        let syncs = None;
        Ok(Self { wanted, name, log, processors, build, template, settings, inserted, syncs, wear, server })
    }

    /// The same server afresh, after it died.
    pub(super) fn restarted(self, lab: &Lab, emit: &mut Emit<'_>) -> Result<Self, NotStarted> {
        let Self { wanted, name, log, processors, build, template, settings, syncs, server, .. } = self;
        drop(server);
        let began = Instant::now();
        let start = ServerStart {
            build: &build,
            template: &template,
            name: &name,
            key: ServerKey::P256,
            log: log.clone(),
            preferred_port: None,
            processors: processors.clone(),
            strength: wanted.strength,
        };
        let server = started(lab, &start, &settings)?;
        emit(ready(&wanted.level, &server, began));
        wanted.prove(&server, emit)?;
        server.write_out()?;
        let (inserted, wear) = (Vec::new(), Wear::None);
        Ok(Self { wanted, name, log, processors, build, template, settings, inserted, syncs, wear, server })
    }

    pub(super) fn serves(&self, cell: &Cell) -> bool {
        self.wanted.serves(cell)
    }

    /// Times syncs where its files are. What cannot be timed is not told, and the reason is.
    pub(super) fn time_syncs(&mut self, emit: &mut Emit<'_>) {
        self.syncs = self.server.time_syncs().unwrap_or_else(|error| {
            emit(Event::Warned { message: error.to_string() });
            None
        });
    }

    /// To be told of a trial that begins.
    pub(super) fn note_writing(&mut self, cell: &Cell) {
        if cell.workload.writes() {
            self.wear = Wear::Written;
        }
    }

    /// Has a server write out what trials have changed that would do so while the next one is measured. A `PostgreSQL` leaves
    /// its pages until the next checkpoint, after which each goes into WAL whole once: it has one in each block, not more.
    pub(super) fn write_out(&mut self) -> Result<(), TrialError> {
        if self.wear == Wear::Written && self.wanted.level.engine.is_mysql_family() {
            self.server.write_out().map_err(|error| control_failed(&mut self.server, error))?;
            self.wear = Wear::WrittenOut;
        }
        Ok(())
    }

    /// Puts the tables in order that trials have written to. A server that has died is started afresh for its next trial.
    pub(super) fn refresh(&mut self) -> Result<(), ciphertoll_lab::Error> {
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
        // What was built anew is not in the buffers.
        if self.wanted.fits(&self.settings) {
            self.server.prewarm()?;
        }
        self.wear = Wear::None;
        Ok(())
    }

    /// Chooses where the records of a trial that inserts some begin, so that they are found again.
    pub(super) fn number_inserts(&mut self, spec: &mut TrialSpec) {
        let Work::Transactions(script) = &spec.work else { return };
        if script.variables.contains(&Draw::Insert) {
            let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let first = ycsb::first_insert(spec.seed, began.as_nanos() as u64);
            spec.first_insert = Some(first);
            self.inserted.push(first);
        }
    }

    /// Removes what trials have inserted: each finds what the first has found.
    pub(super) fn remove_inserted(&mut self) -> Result<(), TrialError> {
        let removed = self.server.remove_inserted(&self.inserted);
        removed.map_err(|error| control_failed(&mut self.server, error))?;
        self.inserted.clear();
        Ok(())
    }

    /// Leaves out what this server cannot do, as only it knows: an authentication that its version or
    /// its plugins do not have, TLS without a request.
    pub(super) fn skip_impossible(
        &mut self,
        plan: &Plan,
        emit: &mut Emit<'_>,
    ) -> Result<(), ciphertoll_lab::Error> {
        for cell in plan.cells.iter().filter(|cell| self.wanted.serves(cell)) {
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

/// All cells of a server share it, and so its strength: where one of them has a weak key, all have a server that takes
/// weak keys.
fn strength_for(so_far: Strength, cell: &Cell) -> Strength {
    let own = cell.treatment.path.server_tls().map_or(Strength::Default, TlsPath::strength);
    so_far.max(own)
}

/// A server with what was asked for, and with its tables read.
fn started(lab: &Lab, start: &ServerStart<'_>, settings: &Settings) -> Result<Server, NotStarted> {
    let server = lab.start_with(start, settings)?;
    if !server.unmet_settings().is_empty() {
        return Err(NotStarted::Settings(server.unmet_settings().join("; ")));
    }
    server.prewarm()?;
    Ok(server)
}

/// Says that `cell` is not measured, and why.
pub(super) fn skip(cell: &Cell, reason: &str, emit: &mut Emit<'_>) {
    emit(Event::CellSkipped { skipped: Skipped::cell(cell, reason) });
}

fn ready(level: &ServerLevel, server: &Server, began: Instant) -> Event {
    Event::ServerReady {
        server: level.short_name(),
        version: server.version().to_owned(),
        tls_library: server.tls_library().map(ToOwned::to_owned),
        settings: server.settings().clone(),
        elapsed_ms: began.elapsed().as_millis() as u64,
    }
}
