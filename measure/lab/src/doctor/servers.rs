//! Checks for installed servers and for servers that can be fetched.

use ciphertoll_fetch::fetchable::Fetchable;
use ciphertoll_fetch::table::FETCHABLE;
use ciphertoll_model::{Engine, ServerLevel};

use super::finding::{CheckPurpose, Finding, Need};
use crate::servers::build::Build;
use crate::servers::find::{Origin, find, how_to_install, installed};

pub(super) fn engine(engine: Engine) -> Finding {
    let mut builds = installed(engine);
    // The build that a level without a version selects comes first.
    builds.sort_by_key(|build| build.origin() == Origin::Fetched);
    let seen: Vec<String> = builds.iter().map(describe).collect();
    let (purpose, name, seen) = (CheckPurpose::Measure, engine.label(), seen.join("; "));
    let finding = match builds.first() {
        None => Finding::no(purpose, name, "no server found", how_to_install(engine)),
        Some(_) if find(&ServerLevel::of(engine)).is_ok() => Finding::ok(purpose, name, seen),
        // A level without a version does not select a fetched build.
        Some(newest) => {
            let level = newest.level();
            Finding::limited(purpose, name, seen, format!("name it with its version: --server {level}"))
        }
    };
    finding.needed(Need::OneServer)
}

pub(super) fn fetchable() -> Vec<Finding> {
    let look = |fetchable: &'static Fetchable, bytes: u64| {
        let name = fetchable.name;
        if fetchable.is_here() {
            let seen = match fetchable.engine() {
                Some(_) => format!("fetched; --server {name}"),
                None => "fetched".to_owned(),
            };
            return Finding::ok(CheckPurpose::Measure, name, seen);
        }
        let megabytes = bytes.div_ceil(1_000_000);
        let seen = format!("not fetched; {megabytes} MB with {}", fetchable.client());
        Finding::limited(CheckPurpose::Measure, name, seen, format!("ciphertoll servers fetch {name}"))
    };
    FETCHABLE.iter().filter_map(|fetchable| Some(look(fetchable, fetchable.download_bytes()?))).collect()
}

fn describe(build: &Build) -> String {
    let tls = build.tls_library().unwrap_or_else(|| "unknown TLS library".to_owned());
    match build.origin() {
        // Fetched builds are in the cache, which has its own finding.
        Origin::Fetched => format!("{} ({tls}, fetched)", build.version),
        Origin::Installed => format!("{} ({tls}) in {}", build.version, build.base_directory.display()),
    }
}
