//! `tde`: manages keys of encrypted PostgreSQL clusters, and runs PostgreSQL programs with them.

mod convert;
mod exec;
mod keys;
mod verify;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ciphertoll_model::ExitCode;
use ciphertoll_tde::cluster::{CONTROL_PATH, VERSION_PATH};
use ciphertoll_tde::{
    CipherKind, Kek, KeyError, KeyFile, MAP_MAGIC, Replace, SealState, looks_sealed, version_seal,
};
use clap::{Args, Subcommand};
use nix::sys::prctl::set_dumpable;

use self::keys::{CIPHERS, ClusterArguments, KeyArguments, NewKeyArguments, host};
use crate::arguments::choice;
use crate::failure::Failure;
use crate::output::print_document;

const KEY_FILE_MODE: u32 = 0o600;

const EXAMPLES: &str = "\
Examples:
  ciphertoll tde keygen kek
  ciphertoll tde init -D data --key-file kek
  ciphertoll tde exec -D data --key-file kek -- initdb -D data --data-checksums
  ciphertoll tde exec -D data --key-command 'pass show kek' -- pg_ctl -D data -l log start
  ciphertoll tde verify -D data --key-file kek --max-rate 50
  ciphertoll tde rotate -D data --key-file kek --new-key-file kek-2
  ciphertoll tde convert -D plain --to sealed --key-file kek";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TdeArguments {
    #[command(subcommand)]
    command: TdeCommand,
}

#[derive(Debug, Subcommand)]
enum TdeCommand {
    /// Generate a key-encryption key, in a new file that only its owner can read
    Keygen {
        /// The new file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Create the key file for a new cluster, before initdb
    Init {
        #[command(flatten)]
        cluster: ClusterArguments,
        #[command(flatten)]
        key: KeyArguments,
        /// The cipher: AES-256-XTS is the only one
        #[arg(long, value_parser = choice(&CIPHERS), default_value = "aes-256-xts")]
        cipher: CipherKind,
    },
    /// Show whether and how a cluster is encrypted
    Status {
        #[command(flatten)]
        cluster: ClusterArguments,
    },
    /// Replace the key-encryption key of a cluster; the data is not rewritten
    Rotate {
        #[command(flatten)]
        cluster: ClusterArguments,
        #[command(flatten)]
        key: KeyArguments,
        #[command(flatten)]
        new_key: NewKeyArguments,
    },
    /// Check that everything in a cluster or a base backup is encrypted; the server may run
    Verify(verify::VerifyArguments),
    /// Convert a stopped cluster into an encrypted copy, or back with --decrypt
    Convert(convert::ConvertArguments),
    /// Run a PostgreSQL program on an encrypted cluster
    Exec {
        #[command(flatten)]
        cluster: ClusterArguments,
        #[command(flatten)]
        key: KeyArguments,
        /// The library to preload [default: in the directory of this program, or in ../lib/ciphertoll from there]
        #[arg(long, value_name = "FILE")]
        library: Option<PathBuf>,
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

/// Returns the exit code: one of ciphertoll's, or that of the program that `exec` ran.
pub(crate) fn tde(arguments: &TdeArguments) -> Result<u8, Failure> {
    // Prevents core dumps and debuggers of the same user while a key is in memory. `exec` resets this for the program.
    set_dumpable(false).map_err(|error| {
        Failure::new(ExitCode::HostResource, format!("cannot make this process not dumpable: {error}"))
    })?;
    let code = match &arguments.command {
        TdeCommand::Keygen { file } => keygen(file),
        TdeCommand::Init { cluster, key, cipher } => init(cluster, key, *cipher),
        TdeCommand::Status { cluster } => status(cluster),
        TdeCommand::Rotate { cluster, key, new_key } => rotate(cluster, key, new_key),
        TdeCommand::Verify(arguments) => verify::verify(arguments),
        TdeCommand::Convert(arguments) => convert::convert(arguments),
        TdeCommand::Exec { cluster, key, library, command } => {
            return exec::exec(cluster, key, library.as_deref(), command);
        }
    };
    code.map(ExitCode::code)
}

fn keygen(path: &Path) -> Result<ExitCode, Failure> {
    let kek = Kek::generate()?;
    // Never overwrites a file, which may hold the only key to a cluster. The file is created private; set_permissions
    // afterwards makes its mode independent of the umask.
    let created = OpenOptions::new().write(true).create_new(true).mode(KEY_FILE_MODE).open(path);
    let mut file = created.map_err(|error| host(path, &error))?;
    let written = file
        .set_permissions(Permissions::from_mode(KEY_FILE_MODE))
        .and_then(|()| file.write_all(kek.text().as_bytes()))
        .and_then(|()| file.sync_all());
    written.map_err(|error| host(path, &error))?;
    print_document(&format!(
        "{} holds a new key-encryption key; keep a copy of it separate from data and backups",
        path.display()
    ))
}

fn init(cluster: &ClusterArguments, key: &KeyArguments, cipher: CipherKind) -> Result<ExitCode, Failure> {
    let data = cluster.data()?;
    // Files that exist already are not encrypted, and would stay so.
    if fs::read_dir(&data).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::usage(format!(
            "{} is not empty; create the key file before initdb",
            data.display()
        )));
    }
    let path = cluster.keys()?;
    KeyFile::create(cipher, &key.read()?)?.store(&path, Replace::Never)?;
    print_document(&format!(
        "{} is the key file of {}; keep a copy of it with every backup",
        path.display(),
        data.display()
    ))
}

fn status(cluster: &ClusterArguments) -> Result<ExitCode, Failure> {
    let (data, path) = (cluster.data()?, cluster.keys()?);
    let keys = KeyFile::load(&path);
    let map = data.join("global/pg_filenode.map");
    let mut magic = [0; MAP_MAGIC.len()];
    let condition = match File::open(&map).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == MAP_MAGIC => "a cluster that is not encrypted",
        Ok(()) if has_seals(&data) => "an encrypted cluster, sealed",
        Ok(()) => {
            "an encrypted cluster, not sealed: PG_VERSION or global/pg_control was replaced, or is of another version"
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "no cluster yet",
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "an incomplete cluster: global/pg_filenode.map is empty"
        }
        Err(error) => return Err(host(&map, &error)),
    };
    let keys = match keys {
        Ok(keys) => format!("{}, rotation {}", keys.cipher_kind().label(), keys.generation()),
        Err(KeyError::Missing(_)) => "missing".to_owned(),
        Err(error) => return Err(error.into()),
    };
    print_document(&format!("{}: {condition}\n{}: {keys}", data.display(), path.display()))
}

/// Whether the cluster looks sealed, so that stock programs refuse it. Only the keys can authenticate the seal.
fn has_seals(data: &Path) -> bool {
    let beginning = |path: &str| {
        let mut bytes = Vec::new();
        let file = File::open(data.join(path));
        file.and_then(|file| file.take(16).read_to_end(&mut bytes)).map(|_| bytes).unwrap_or_default()
    };
    looks_sealed(&beginning(CONTROL_PATH)) && version_seal(&beginning(VERSION_PATH)) == SealState::Sealed
}

fn rotate(
    cluster: &ClusterArguments,
    key: &KeyArguments,
    new: &NewKeyArguments,
) -> Result<ExitCode, Failure> {
    let path = cluster.keys()?;
    let file = KeyFile::load(&path)?;
    let old = key.read()?;
    let rotated = file.rotated(&old, &new.read()?)?;
    rotated.store(&path, Replace::Atomically)?;
    print_document(&format!(
        "{} is wrapped by the new key-encryption key only; rotation {}",
        path.display(),
        rotated.generation()
    ))
}
