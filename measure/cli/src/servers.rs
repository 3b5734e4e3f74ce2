//! `servers`: lists the installed servers and the ones that can be fetched, and fetches them.

use std::fmt::Write;

use ciphertoll_fetch::{FETCHABLE, Fetchable, Product};
use ciphertoll_lab::{Build, FetchedProgram, Origin};
use ciphertoll_model::{Engine, ExitCode};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{print_document, print_text};
use crate::progress::tell;
use crate::table::columns;

pub(crate) fn servers(as_json: bool) -> Result<ExitCode, Failure> {
    let builds: Vec<Build> = Engine::ALL.into_iter().flat_map(ciphertoll_lab::installed).collect();
    if as_json {
        let code = if builds.is_empty() { ExitCode::NothingRan } else { ExitCode::Done };
        return print_document(&document(&builds)?).map(|_| code);
    }
    if builds.is_empty() {
        return Err(Failure::new(ExitCode::NothingRan, none()));
    }
    print_text(&listing(&builds))
}

pub(crate) fn fetch(fetchable: &Fetchable) -> Result<ExitCode, Failure> {
    let name = fetchable.name;
    print_document(&match ciphertoll_lab::fetch(fetchable, &mut tell)? {
        FetchedProgram::Server(build) => format!(
            "{name} is installed: {} {} ({}) in {}; to use it: ciphertoll run --server {}",
            build.engine.display_name(),
            build.version,
            tls(&build),
            build.base_directory.display(),
            build.level(),
        ),
        FetchedProgram::Other { program, version } => {
            let used = match fetchable.product {
                Product::Proxy(label) => format!("ciphertoll run --path plain,{label}"),
                Product::Server(_) | Product::OpenSsl => {
                    "ciphertoll run --path tls1.3-p256+group=x25519mlkem768+client=openssl-3.5".to_owned()
                }
            };
            format!("{name} is installed: {version} in {}; to use it: {used}", program.display())
        }
    })
}

fn tls(build: &Build) -> String {
    build.tls_library().unwrap_or_else(|| "unknown TLS library".to_owned())
}

/// Builds that can be fetched and are not installed.
fn absent() -> impl Iterator<Item = &'static Fetchable> {
    FETCHABLE.iter().filter(|fetchable| fetchable.download_bytes().is_some() && !fetchable.is_here())
}

fn command(fetchable: &Fetchable) -> String {
    format!("ciphertoll servers fetch {}", fetchable.name)
}

fn megabytes(fetchable: &Fetchable) -> u64 {
    fetchable.download_bytes().unwrap_or_default().div_ceil(1_000_000)
}

fn listing(builds: &[Build]) -> String {
    let head = ["engine", "version", "TLS", "level", "directory"].map(str::to_owned);
    let rows = builds.iter().map(|build| {
        [
            build.engine.display_name().to_owned(),
            build.version.clone(),
            tls(build),
            format!("--server {}", build.level()),
            build.base_directory.display().to_string(),
        ]
    });
    let mut text = columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    let mut heading = "\nnot installed, but available:\n";
    for fetchable in absent() {
        let Fetchable { name, product, version, licence, .. } = fetchable;
        let (engine, size, command) = (product.display_name(), megabytes(fetchable), command(fetchable));
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "{heading}  {name} ({engine} {version}, {size} MB, licence {licence}): {command}");
        heading = "";
    }
    text
}

/// The error if no server is installed: how to install each.
fn none() -> String {
    let mut line = "no server is installed".to_owned();
    for engine in Engine::ALL {
        // Writing to a string cannot fail.
        let _ = write!(line, "; {}: {}", engine.display_name(), ciphertoll_lab::how_to_install(engine));
    }
    for fetchable in absent() {
        let _ = write!(line, "; or fetch one: {}", command(fetchable));
    }
    line
}

fn document(builds: &[Build]) -> Result<String, Failure> {
    let server = |build: &Build| {
        json!({
            "engine": build.engine.label(),
            "version": build.version,
            "tls_library": build.tls_library(),
            "directory": build.base_directory.display().to_string(),
            "fetched": build.origin() == Origin::Fetched,
            "level": build.level().to_string(),
        })
    };
    let to_fetch = |fetchable: &Fetchable| {
        json!({
            "name": fetchable.name,
            "engine": fetchable.product.label(),
            "version": fetchable.version,
            "licence": fetchable.licence,
            "download_bytes": fetchable.download_bytes(),
            "here": fetchable.is_here(),
            "command": command(fetchable),
        })
    };
    let servers: Vec<_> = builds.iter().map(server).collect();
    let fetchable: Vec<_> = FETCHABLE.iter().map(to_fetch).collect();
    Ok(serde_json::to_string_pretty(&json!({ "servers": servers, "fetchable": fetchable }))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_the_error_says_how_to_install_one() {
        let line = none();
        for part in ["mariadb-server-core", "postgresql", "mariadb=/opt/mariadb"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains('\n'));
    }
}
