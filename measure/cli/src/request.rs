//! Turns the arguments of `run` into a specification.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path as FilePath;

use ciphertoll_lab::Passwords;
use ciphertoll_model::presets::{Measures, Preset};
use ciphertoll_model::{
    Clients, Engine, ExitCode, Grid, Link, LinkShape, Path, Prepare, Profiling, QueryLanguage, Refusal,
    Refused, SAFE_CLIENTS, ServerLevel, Settings, Size, Spec, SpecError, TlsVersion, Tunnel, Workload,
};
use ciphertoll_wire::Secret;
use ciphertoll_wire::mongodb::CommandTemplate;

use crate::arguments::{FactorArguments, RunArguments, UrlArguments};
use crate::dsn::{self, Dsn};
use crate::failure::Failure;
use crate::progress::tell;
use crate::scratch;

pub(crate) struct Request {
    pub(crate) spec: Spec,
    /// Passwords that were given within URLs.
    pub(crate) passwords: Passwords,
    /// Servers of a published study that are not installed, if at least one is.
    pub(crate) absent: Vec<Refusal>,
}

/// Reads a specification file or a published study, or takes the factors of the command line, or the quick run. All
/// other options of the command line take precedence over it.
pub(crate) fn read(arguments: &RunArguments) -> Result<Request, Failure> {
    let (at_urls, passwords) = servers_at(&arguments.url)?;
    let mut spec = base(arguments, &at_urls)?;
    for grid in &mut spec.grids {
        let servers = grid.server.clone();
        arguments.factors.override_levels(grid);
        if study(arguments).is_some() {
            // A study has a grid for each of its servers.
            grid.server = servers;
        }
        if !at_urls.is_empty()
            && study(arguments).is_none()
            && (arguments.what.is_some() || arguments.factors.any())
        {
            grid.server = arguments.factors.server.iter().flatten().chain(&at_urls).cloned().collect();
        }
    }
    if let Some(size) = arguments.size {
        spec.size = size;
    }
    spec.blocks = arguments.blocks.or(spec.blocks);
    spec.trial_time = arguments.trial_time.or(spec.trial_time);
    spec.budget = arguments.budget.or(spec.budget);
    spec.seed = arguments.seed.or(spec.seed);
    spec.max_steal = arguments.max_steal.unwrap_or(spec.max_steal);
    spec.max_lateness = arguments.max_lateness.unwrap_or(spec.max_lateness);
    spec.storage = arguments.storage.unwrap_or(spec.storage);
    if arguments.profile {
        spec.profile = Profiling::On;
    }
    scratch::choose(&mut spec, arguments.scratch_dir.as_ref())?;
    spec.pin = arguments.pin.unwrap_or(spec.pin);
    if let Some(file) = &arguments.config {
        let (name, settings) = configuration(file)?;
        spec.config = Some(name);
        spec.settings.extend(settings.iter());
    }
    spec.settings.extend(arguments.set.iter().cloned());
    if let Some(baseline) = &arguments.baseline {
        spec.baseline = Some(baseline.parse().map_err(SpecError::from)?);
    }
    spec.query = arguments.url.query.clone().or(spec.query);
    spec.max_rate = arguments.url.max_rate.or(spec.max_rate);
    fix_memory_size(&mut spec);
    if arguments.url.prepare {
        spec.prepare = Prepare::Yes;
    }
    if !arguments.hosts.load_hosts.is_empty() {
        spec.load_hosts.clone_from(&arguments.hosts.load_hosts);
    }
    spec.server_host = arguments.hosts.server_host.clone().or(spec.server_host);
    spec.validate()?;
    check_command(&spec)?;
    check_files(servers(&spec))?;
    let absent = absent_from(arguments, &spec);
    Ok(Request { spec, passwords, absent })
}

/// Writes into the specification the memory size that its scales are relative to, so that it always gives the same plan.
pub(crate) fn fix_memory_size(spec: &mut Spec) {
    if spec.asks_for_memory() {
        spec.memory_bytes = spec.memory_bytes.or_else(ciphertoll_host::environment::usable_memory_bytes);
    }
}

/// Every server of the specification once.
pub(crate) fn servers(spec: &Spec) -> BTreeSet<&ServerLevel> {
    spec.grids.iter().flat_map(|grid| &grid.server).collect()
}

/// Checks every TLS file that a URL names, before the first login to any server.
pub(crate) fn check_files<'a>(servers: impl IntoIterator<Item = &'a ServerLevel>) -> Result<(), Failure> {
    for server in servers {
        if let Some(url) = &server.url {
            ciphertoll_lab::remote::check_files(&server.short_name(), url)?;
        }
    }
    Ok(())
}

/// Checks that the query for document databases is a valid command.
fn check_command(spec: &Spec) -> Result<(), Failure> {
    let Some(query) = spec.query.as_deref() else { return Ok(()) };
    if servers(spec).iter().all(|server| server.engine.query_language() == QueryLanguage::Sql) {
        return Ok(());
    }
    match CommandTemplate::parse(query) {
        Ok(command) if command.parameters() == 0 => Ok(()),
        Ok(_) => Err(Failure::usage("--query has a $param, which is not supported: write the value itself")),
        Err(error) => Err(Failure::usage(format!(
            "--query for a document database must be a command in JSON, such as {{\"ping\":1}}: {error}"
        ))),
    }
}

/// The published study to repeat.
fn study(arguments: &RunArguments) -> Option<&'static Preset> {
    arguments.what.as_deref().and_then(ciphertoll_model::presets::find)
}

/// The specification that the other options modify.
fn base(arguments: &RunArguments, at_urls: &[ServerLevel]) -> Result<Spec, Failure> {
    if let Some(preset) = study(arguments) {
        let named = arguments.factors.server.iter().flatten().chain(at_urls).cloned();
        let named: Vec<ServerLevel> = named.collect();
        let servers = if named.is_empty() { servers_of(preset) } else { named };
        return Ok(preset.spec(&servers, arguments.size.unwrap_or(Size::Standard)));
    }
    if let Some(file) = &arguments.what {
        let named = |error| Failure::usage(format!("{file}: {error}"));
        return Spec::from_toml(&specification(file)?).map_err(named);
    }
    if arguments.factors.any() {
        let mut grid = Grid::default();
        let is_socket = |server: &&ServerLevel| server.url.as_ref().is_some_and(|url| url.host().is_none());
        let sockets = at_urls.iter().filter(is_socket).count();
        let mut paths = Vec::new();
        if sockets < at_urls.len() {
            paths.extend([Path::Plain, Path::tls_as_served(TlsVersion::Tls13)]);
        }
        if sockets > 0 {
            paths.push(Path::Unix);
        }
        if !paths.is_empty() {
            grid.path = paths;
        }
        if arguments.url.query.is_some() {
            grid.workload = vec![Workload::Query];
        }
        let size = Size::Standard;
        return Ok(Spec { name: "run".to_owned(), size, grids: vec![grid], ..Spec::quick(&[]) });
    }
    if at_urls.is_empty() {
        return Ok(quick(&servers_here()));
    }
    let mut spec = Spec::quick_at(at_urls);
    let pooled = |language| match (&arguments.url.query, arguments.url.prepare, language) {
        (Some(_), _, _) => Some(Workload::Query),
        (None, true, QueryLanguage::Sql) => Some(Workload::PointSelect),
        (None, true, QueryLanguage::Documents) => Some(Workload::FindOne),
        (None, false, _) => None,
    };
    // Each server has a grid of connects. The workload asked for keeps its connections.
    let few: Vec<Clients> = Clients::new(SAFE_CLIENTS).into_iter().collect();
    for server in at_urls {
        let Some(pooled) = pooled(server.engine.query_language()) else { continue };
        let stays = |grid: &Grid| grid.server.contains(server) && grid.clients == few;
        spec.grids.retain(|grid| !stays(grid));
        let connects = spec.grids.iter().position(|grid| grid.server.contains(server));
        if let Some((at, grid)) = connects.and_then(|at| Some((at, spec.grids.get(at)?.clone()))) {
            spec.grids.insert(at + 1, Grid { workload: vec![pooled], clients: few.clone(), ..grid });
        }
    }
    Ok(spec)
}

/// The servers of a preset if the user names none.
fn servers_of(preset: &Preset) -> Vec<ServerLevel> {
    let all = preset.servers();
    let installed = || all.iter().filter(|level| ciphertoll_lab::find(level).is_ok()).cloned();
    match preset.measures {
        Measures::EveryServer => all,
        Measures::OneServer => {
            for left_out in installed().skip(1) {
                let name = preset.name;
                tell(&format!(
                    "{left_out} is also installed; to measure it: ciphertoll run {name} --server {left_out}"
                ));
            }
            // If none is installed, the error names each.
            installed().next().map_or(all.clone(), |first| vec![first])
        }
    }
}

/// The quick run, with the sidecar if it is installed.
fn quick(servers: &[ServerLevel]) -> Spec {
    let with_sidecar = Spec::quick_with_sidecar(servers);
    let has_one = with_sidecar.grids.iter().flat_map(|grid| &grid.path).any(|path| path.as_proxy().is_some());
    if !has_one {
        return with_sidecar;
    }
    match ciphertoll_lab::proxy::sidecar_program() {
        Ok(_) => with_sidecar,
        Err(missing) => {
            tell(&format!("path proxy is not measured: {missing}"));
            Spec::quick(servers)
        }
    }
}

/// The servers at URLs, and the passwords in the URLs.
fn servers_at(arguments: &UrlArguments) -> Result<(Vec<ServerLevel>, Passwords), Failure> {
    let (mut servers, mut passwords) = (Vec::new(), Passwords::new());
    for text in &arguments.url {
        servers.push(server_at(text, &mut passwords)?);
    }
    Ok((servers, passwords))
}

/// A server as `NAME=URL`. A password in the URL is taken out of it.
pub(crate) fn server_at(text: &str, passwords: &mut Passwords) -> Result<ServerLevel, Failure> {
    let Some((name, url)) = text.split_once('=').filter(|(name, _)| !name.contains("://")) else {
        return Err(Failure::usage("--url must be NAME=URL, such as staging=postgres://app@db.example/shop"));
    };
    let Dsn { url, visible_password, password } = dsn::read(name, url)?;
    let unusable = |error| Failure::usage(format!("the URL of {name} cannot be used: {error}"));
    let server = ServerLevel::at(name, url.parse().map_err(unusable)?)?;
    if visible_password.is_some() {
        tell(&format!(
            "the password in the URL of {name} is visible in the process list and in the shell's history; use \
             CIPHERTOLL_PASSWORD or a password file instead"
        ));
    }
    if let Some(password) = visible_password.or(password) {
        passwords.insert(name.to_owned(), Secret::new(password.into_bytes()));
    }
    Ok(server)
}

/// The name and the settings of a configuration file.
fn configuration(file: &FilePath) -> Result<(String, Settings), Failure> {
    let text = read_text(file, "settings")?;
    let settings: Settings = toml::from_str(&text).map_err(|error| {
        Failure::usage(format!("{}: {}", file.display(), error.message().replace('\n', " ")))
    })?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, settings))
}

/// Reads a specification. If the name is neither a file nor a study, the error suggests the nearest study.
fn specification(file: &str) -> Result<String, Failure> {
    let path = FilePath::new(file);
    let is_name = !path.exists() && path.extension().is_none() && !file.contains('/');
    if !is_name {
        return read_text(path, "specification");
    }
    Err(no_preset(file, "neither a published study nor a file"))
}

/// No study has this name; suggests the nearest one.
pub(crate) fn no_preset(name: &str, what: &str) -> Failure {
    let names = || ciphertoll_model::presets::PRESETS.iter().map(|preset| preset.name.to_owned());
    let hint = match ciphertoll_model::factor::nearest(name, names()) {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => format!("the studies are: {}", names().collect::<Vec<_>>().join(", ")),
    };
    Failure::usage(format!("\"{name}\" is {what}; {hint}"))
}

/// The servers of a published study that are not installed. The study runs without them. If none is installed, all are
/// kept, and the run fails.
fn absent_from(arguments: &RunArguments, spec: &Spec) -> Vec<Refusal> {
    if study(arguments).is_none() || arguments.factors.server.is_some() {
        return Vec::new();
    }
    let servers = servers(spec);
    let absent = |level: &&ServerLevel| {
        let missing = ciphertoll_lab::find(level).err().filter(|_| level.url.is_none())?;
        let (server, reason) = (level.short_name(), missing.to_string());
        Some(Refusal { server, what: Refused::Everything, reason })
    };
    let all: Vec<Refusal> = servers.iter().filter_map(absent).collect();
    if all.len() == servers.len() { Vec::new() } else { all }
}

fn read_text(file: &FilePath, what: &str) -> Result<String, Failure> {
    fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read the {what} {}: {error}", file.display())))
}

/// At most two installed engines, to keep the quick run short. If none is installed, all engines, so that the error says
/// how to install each.
pub(crate) fn servers_here() -> Vec<ServerLevel> {
    const MOST: usize = 2;
    let all = [Engine::MariaDb, Engine::Postgres, Engine::MySql].map(ServerLevel::of);
    let mut found: Vec<_> = all.iter().filter(|level| ciphertoll_lab::find(level).is_ok()).cloned().collect();
    for left_out in found.iter().skip(MOST) {
        tell(&format!("{left_out} is also installed; to measure it, add --server {left_out}"));
    }
    found.truncate(MOST);
    if found.is_empty() { all.to_vec() } else { found }
}

/// The requested seed, or a random one that is short enough to type.
pub(crate) fn seed(spec: &Spec) -> Result<u64, Failure> {
    const FRESH_SEEDS: u64 = 1_000_000_000;
    if let Some(seed) = spec.seed {
        return Ok(seed);
    }
    let mut bytes = [0; 8];
    rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut bytes).map_err(|error| {
        Failure::new(ExitCode::HostResource, format!("cannot get a random seed: {error}"))
    })?;
    Ok(u64::from_le_bytes(bytes) % FRESH_SEEDS)
}

impl FactorArguments {
    fn any(&self) -> bool {
        *self != Self::default()
    }

    fn override_levels(&self, grid: &mut Grid) {
        let Self { server, path, auth, ctx, driver, link, at_rest, workload, clients, scale, pace } = self;
        replace(&mut grid.server, server.as_ref());
        replace(&mut grid.path, path.as_ref());
        grid.auth = auth.clone().or(grid.auth.take());
        replace(&mut grid.ctx, ctx.as_ref());
        replace(&mut grid.driver, driver.as_ref());
        replace(&mut grid.link, link.as_ref());
        // A tunnel that joins two networks needs separate networks, and then all paths of the comparison use them.
        let joined = grid.path.iter().filter_map(|path| path.as_tunnel()).any(Tunnel::joins_networks);
        if joined && link.is_none() && grid.link == [Link::Local] {
            grid.link = vec![Link::Emulated(LinkShape::of_rtt_us(0))];
        }
        replace(&mut grid.at_rest, at_rest.as_ref());
        replace(&mut grid.workload, workload.as_ref());
        replace(&mut grid.clients, clients.as_ref());
        replace(&mut grid.scale, scale.as_ref());
        replace(&mut grid.pace, pace.as_ref());
    }
}

fn replace<T: Clone>(levels: &mut Vec<T>, requested: Option<&Vec<T>>) {
    if let Some(requested) = requested {
        levels.clone_from(requested);
    }
}
