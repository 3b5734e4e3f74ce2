//! Finds drivers: the user's own first, then the built-in ones.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use ciphertoll_model::factor::nearest;
use ciphertoll_model::{self as model, Spec, Unlike};

use super::builtin;
use super::error::Error;
use super::file::DriverFile;
use super::possible::{self, DriverRequirements};

/// A directory of drivers that is searched first.
const DIRECTORY_VARIABLE: &str = "CIPHERTOLL_DRIVERS";
/// The largest file that is read; a driver's is a page.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Driver {
    name: String,
    origin: Origin,
    file: DriverFile,
}

/// Where a driver's file comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    BuiltIn,
    Directory(PathBuf),
}

#[derive(Debug)]
pub struct ListedDriver {
    pub name: String,
    pub origin: Origin,
    /// One line about it, or why its file cannot be read.
    pub about: Result<String, Error>,
    /// What is missing on this machine, as far as this can be found without building.
    pub missing: Option<String>,
}

impl Driver {
    pub fn parse(name: &str, origin: Origin, text: &str) -> Result<Self, Error> {
        let file = DriverFile::parse(text).map_err(|reason| Error::File {
            name: name.to_owned(),
            reason: match &origin {
                Origin::BuiltIn => reason,
                Origin::Directory(directory) => {
                    format!("{}: {reason}", directory.join(format!("{name}.toml")).display())
                }
            },
        })?;
        Ok(Self { name: name.to_owned(), origin, file })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub fn file(&self) -> &DriverFile {
        &self.file
    }

    /// Why it cannot do this, in one line; `None` if it can.
    pub fn impossible(&self, facts: &DriverRequirements) -> Option<String> {
        possible::impossible(&self.name, &self.file, facts)
    }
}

/// Workloads of `spec` that drivers say they do differently. Missing drivers are ignored.
pub fn unlike(spec: &Spec) -> Vec<Unlike> {
    let mut all: Vec<Unlike> = Vec::new();
    for grid in &spec.grids {
        for level in &grid.driver {
            let model::Driver::Named(name) = level else { continue };
            let Ok(driver) = find(name.as_str()) else { continue };
            for &workload in &grid.workload {
                let Some(reason) = driver.file.unlike(workload) else { continue };
                let unlike = Unlike { driver: level.clone(), workload, reason: reason.to_owned() };
                if !all.contains(&unlike) {
                    all.push(unlike);
                }
            }
        }
    }
    all
}

/// The driver of this name: the user's own, else the built-in one.
pub fn find(name: &str) -> Result<Driver, Error> {
    find_in(&directories(), name)
}

/// Every driver, sorted by name. A user's hides a built-in one of the same name.
pub fn available() -> Vec<ListedDriver> {
    available_in(&directories())
}

fn find_in(directories: &[PathBuf], name: &str) -> Result<Driver, Error> {
    let origins = origins(directories);
    let Some(origin) = origins.get(name) else {
        let known: Vec<String> = origins.into_keys().collect();
        let nearest = nearest(name, known.iter().cloned());
        return Err(Error::Unknown { name: name.to_owned(), nearest, known });
    };
    let text = match origin {
        Origin::BuiltIn => builtin_text(name).unwrap_or_default().to_owned(),
        Origin::Directory(directory) => read(&directory.join(format!("{name}.toml")))?,
    };
    Driver::parse(name, origin.clone(), &text)
}

fn available_in(directories: &[PathBuf]) -> Vec<ListedDriver> {
    let list = |(name, origin): (String, Origin)| {
        let driver = find_in(directories, &name);
        let missing = driver.as_ref().ok().and_then(Driver::missing);
        let about = driver.map(|driver| driver.file.about().to_owned());
        ListedDriver { name, origin, about, missing }
    };
    origins(directories).into_iter().map(list).collect()
}

fn origins(directories: &[PathBuf]) -> BTreeMap<String, Origin> {
    let mut found: BTreeMap<String, Origin> =
        builtin::DRIVERS.iter().map(|(name, _)| ((*name).to_owned(), Origin::BuiltIn)).collect();
    // The first directory takes precedence.
    for directory in directories.iter().rev() {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let is_driver = path.extension().is_some_and(|extension| extension == "toml");
            if let Some(name) = stem.filter(|_| is_driver) {
                found.insert(name.to_owned(), Origin::Directory(directory.clone()));
            }
        }
    }
    found
}

fn builtin_text(name: &str) -> Option<&'static str> {
    builtin::DRIVERS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

fn directories() -> Vec<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").map(|home| home.join(".config"));
    let config = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute()).or_else(home);
    let own = config.map(|config| config.join("ciphertoll").join("drivers"));
    variable(DIRECTORY_VARIABLE).into_iter().chain(own).collect()
}

pub(super) fn read(path: &Path) -> Result<String, Error> {
    let size = fs::metadata(path).map_err(Error::io("read", path))?.len();
    if size > MAX_FILE_BYTES {
        let reason = format!("{} is larger than {MAX_FILE_BYTES} bytes", path.display());
        return Err(Error::File { name: path.file_stem().unwrap_or_default().display().to_string(), reason });
    }
    fs::read_to_string(path).map_err(Error::io("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_driver_is_found_and_parses() {
        let listed = available_in(&[]);
        assert_eq!(listed.len(), builtin::DRIVERS.len());
        for one in listed {
            assert!(!one.about.unwrap().is_empty());
            assert_eq!(one.origin, Origin::BuiltIn);
        }
    }

    #[test]
    fn drivers_report_workloads_that_they_do_differently() {
        let spec = "[[grid]]\nserver = [\"ferretdb\"]\ndriver = [\"native\", \"pymongo\", \"nobody\"]\n\
                    workload = [\"connect\", \"connect-query\", \"first-query\", \"find-one\"]\n";
        let grids = Spec::from_toml(&format!("{spec}{spec}")).unwrap();
        let said: Vec<(String, String)> = unlike(&grids)
            .into_iter()
            .map(|unlike| (unlike.driver.to_string(), unlike.workload.to_string()))
            .collect();
        let expected = ["connect", "first-query"].map(|workload| ("pymongo".to_owned(), workload.to_owned()));
        assert_eq!(said, expected);
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest() {
        let error = find_in(&[], "sysbensh").unwrap_err().to_string();
        assert_eq!(error, "there is no driver \"sysbensh\"; did you mean \"sysbench\"?");
    }

    #[test]
    fn a_users_driver_takes_precedence_and_its_errors_name_line_and_key() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let text = builtin_text("sysbench").unwrap().replace("sysbench 1.0;", "mine;");
        fs::write(second.path().join("sysbench.toml"), &text).unwrap();
        fs::write(second.path().join("other.toml"), "kind = \"tool\"\nabot = 1\n").unwrap();
        fs::write(first.path().join("other.toml"), text.replace("{clients}", "{client}")).unwrap();
        let directories = [first.path().to_owned(), second.path().to_owned()];
        let mine = find_in(&directories, "sysbench").unwrap();
        assert!(mine.file().about().starts_with("mine;"));
        assert_eq!(mine.origin(), &Origin::Directory(directories[1].clone()));
        let error = find_in(&directories, "other").unwrap_err().to_string();
        assert!(error.contains("driver other:") && error.contains("unknown placeholder {client}"), "{error}");
        let error = find_in(&directories[1..], "other").unwrap_err().to_string();
        assert!(error.contains("abot"), "{error}");
        let without_seconds = "kind = \"tool\"\nabout = \"mine\"\nprogram = \"mine\"\nneeds = \"mine\"\n\
                               arguments = []\n[engines.postgres.paths.plain]\n[workloads.connect]\n[result]\n\
                               kind = \"text\"\n";
        fs::write(first.path().join("other.toml"), without_seconds).unwrap();
        let error = find_in(&directories, "other").unwrap_err().to_string();
        let file = first.path().join("other.toml").display().to_string();
        assert!(error.contains(&format!("{file}: line 8: missing field `seconds`")), "{error}");
    }
}
