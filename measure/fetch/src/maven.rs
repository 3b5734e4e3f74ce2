//! Downloads by Maven.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use ciphertoll_record::Context;

use super::client::{self, ClientProgram, FetchClient};
use crate::error::FetchError;

pub(super) const MAVEN: ClientProgram = ClientProgram { name: "mvn", version: "", package: "maven" };

/// The plugin that downloads, in a fixed version; `-C` refuses files with a wrong checksum. What it downloads is verified
/// against the table.
const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:2.8";

/// Downloads `artefact` (`GROUP:NAME:VERSION`) into `directory`, under its name in the repository. Maven caches files and
/// continues interrupted downloads.
pub(super) fn copy(
    client: &FetchClient,
    name: &'static str,
    artefact: &str,
    directory: &Path,
    log: &Path,
) -> Result<(), FetchError> {
    let mut command = client.command(directory);
    let mut output = OsString::from("-DoutputDirectory=");
    output.push(directory);
    command
        .args(["-B", "-C", "-Dstyle.color=never"])
        .args(["get", "copy"].map(|goal| format!("{PLUGIN}:{goal}")))
        .arg("-Dtransitive=false")
        .arg(format!("-Dartifact={artefact}"))
        .arg(output);
    let status = client.run(&mut command, File::create(log).context("make", log)?)?;
    if status.success() {
        return Ok(());
    }
    Err(FetchError::Download {
        step: "fetch",
        name,
        client: MAVEN.name,
        status: status.to_string(),
        said: reason(&String::from_utf8_lossy(&fs::read(log).context("read", log)?)),
        log: log.to_owned(),
    })
}

/// The first error in the log, because later ones are advice; without any, the last line.
fn reason(log: &str) -> String {
    const ERROR: &str = "[ERROR] ";
    let first = log.lines().map(str::trim).find_map(|line| line.strip_prefix(ERROR));
    client::printable(first.unwrap_or_else(|| client::last_line(log)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_error_else_the_last_line() {
        let log =
            "[INFO] Scanning\n[ERROR] Failed to execute goal: no such artefact\n[ERROR] \n[ERROR] [Help 1]\n";
        assert_eq!(reason(log), "Failed to execute goal: no such artefact");
        assert_eq!(reason("one\nJAVA_HOME is not set\n\n"), "JAVA_HOME is not set");
        assert_eq!(reason(""), "(nothing)");
        assert_eq!(reason(&"x".repeat(5_000)).len(), 300);
    }
}
