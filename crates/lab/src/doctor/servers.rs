//! Servers that are here, as they say themselves, and those that can be fetched.

use ciphertoll_model::{Engine, ServerLevel};

use super::{Finding, Need, Purpose};
use crate::fetch::FETCHABLE;
use crate::find::{Build, Origin, find, how_to_install, installed};

/// Every build of `engine` that is here; each was asked for its version.
pub(super) fn engine(engine: Engine) -> Finding {
    let mut builds = installed(engine);
    // First what a level without a version means.
    builds.sort_by_key(|build| build.origin() == Origin::Fetched);
    let seen: Vec<String> = builds.iter().map(told).collect();
    let (purpose, name, seen) = (Purpose::Measure, engine.label(), seen.join("; "));
    let finding = match builds.first() {
        None => Finding::no(purpose, name, "no server found", how_to_install(engine)),
        Some(_) if find(&ServerLevel::of(engine)).is_ok() => Finding::ok(purpose, name, seen),
        // What was fetched is meant by a version only.
        Some(newest) => {
            let level = newest.level();
            Finding::limited(purpose, name, seen, format!("ask for it with its version: --server {level}"))
        }
    };
    finding.needed(Need::OneServer)
}

/// What can be fetched, and whether it was.
pub(super) fn fetchable() -> Vec<Finding> {
    let look = |fetchable: &'static crate::Fetchable, bytes: u64| {
        let level =
            ServerLevel { version: Some(fetchable.version.to_owned()), ..ServerLevel::of(fetchable.engine) };
        let name = fetchable.name;
        if fetchable.is_here() {
            return Finding::ok(Purpose::Measure, name, format!("fetched; --server {level}"));
        }
        let megabytes = bytes.div_ceil(1_000_000);
        let seen = format!("not here; {megabytes} MB, by {}", fetchable.client());
        Finding::limited(Purpose::Measure, name, seen, format!("ciphertoll servers fetch {name}"))
    };
    FETCHABLE.iter().filter_map(|fetchable| Some(look(fetchable, fetchable.download_bytes()?))).collect()
}

fn told(build: &Build) -> String {
    let tls = build.tls_library().unwrap_or_else(|| "TLS unknown".to_owned());
    match build.origin() {
        // All of them in the cache, which has a line of its own.
        Origin::Fetched => format!("{} ({tls}, fetched)", build.version),
        Origin::Installed => format!("{} ({tls}) in {}", build.version, build.base_directory.display()),
    }
}
