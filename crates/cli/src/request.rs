//! From raw arguments to a specification: the only place where the two meet.

use std::fs;

use ciphertoll_model::{Engine, ExitCode, Grid, ServerLevel, Spec};

use crate::arguments::{FactorArguments, RunArguments};
use crate::failure::Failure;

/// What was asked for: a file's specification, the factors of the command line, or the quick run;
/// in each, what the command line says beside it wins.
pub(crate) fn spec(arguments: &RunArguments) -> Result<Spec, Failure> {
    let mut spec = match &arguments.file {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|error| {
                Failure::usage(format!("cannot read the specification {}: {error}", file.display()))
            })?;
            let named = |error| Failure::usage(format!("{}: {error}", file.display()));
            Spec::from_toml(&text).map_err(named)?
        }
        None if arguments.factors.any() => Spec {
            name: "run".to_owned(),
            size: ciphertoll_model::Size::Standard,
            grids: vec![Grid::default()],
            ..Spec::quick(&[])
        },
        None => Spec::quick(&servers_here()),
    };
    for grid in &mut spec.grids {
        arguments.factors.override_levels(grid);
    }
    if let Some(size) = arguments.size {
        spec.size = size.into();
    }
    spec.blocks = arguments.blocks.or(spec.blocks);
    spec.trial_time = arguments.trial_time.or(spec.trial_time);
    spec.budget = arguments.budget.or(spec.budget);
    spec.seed = arguments.seed.or(spec.seed);
    spec.pin = arguments.pin.map_or(spec.pin, Into::into);
    spec.settings.extend(arguments.set.iter().cloned());
    spec.baseline = arguments.baseline.clone().or(spec.baseline);
    spec.validate()?;
    Ok(spec)
}

/// The newest build of every engine that is here. Where none is, the run says of each how to get it.
fn servers_here() -> Vec<ServerLevel> {
    let all = Engine::ALL.map(ServerLevel::of);
    let found: Vec<_> = all.iter().filter(|level| ciphertoll_lab::find(level).is_ok()).cloned().collect();
    if found.is_empty() { all.to_vec() } else { found }
}

/// The seed asked for, or a fresh one, small enough to type.
pub(crate) fn seed(spec: &Spec) -> Result<u64, Failure> {
    const FRESH_SEEDS: u64 = 1_000_000_000;
    if let Some(seed) = spec.seed {
        return Ok(seed);
    }
    let mut bytes = [0; 8];
    rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut bytes)
        .map_err(|error| Failure::new(ExitCode::HostResource, format!("no random seed: {error}")))?;
    Ok(u64::from_le_bytes(bytes) % FRESH_SEEDS)
}

impl FactorArguments {
    fn any(&self) -> bool {
        let Self { server, path, auth, ctx, driver, link, at_rest, workload, clients, scale, pace } = self;
        server.is_some()
            || path.is_some()
            || auth.is_some()
            || ctx.is_some()
            || driver.is_some()
            || link.is_some()
            || at_rest.is_some()
            || workload.is_some()
            || clients.is_some()
            || scale.is_some()
            || pace.is_some()
    }

    fn override_levels(&self, grid: &mut Grid) {
        let Self { server, path, auth, ctx, driver, link, at_rest, workload, clients, scale, pace } = self;
        replace(&mut grid.server, server.as_ref());
        replace(&mut grid.path, path.as_ref());
        grid.auth = auth.clone().or(grid.auth.take());
        replace(&mut grid.ctx, ctx.as_ref());
        replace(&mut grid.driver, driver.as_ref());
        replace(&mut grid.link, link.as_ref());
        replace(&mut grid.at_rest, at_rest.as_ref());
        replace(&mut grid.workload, workload.as_ref());
        replace(&mut grid.clients, clients.as_ref());
        replace(&mut grid.scale, scale.as_ref());
        replace(&mut grid.pace, pace.as_ref());
    }
}

fn replace<T: Clone>(levels: &mut Vec<T>, asked: Option<&Vec<T>>) {
    if let Some(asked) = asked {
        levels.clone_from(asked);
    }
}
