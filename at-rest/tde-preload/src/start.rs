//! Runs before `main`: loads the keys, or exits with an error message before anything is written.

#![expect(unsafe_code, reason = "runs before main by a linker section, and changes the environment")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ciphertoll_tde::cluster::{self, ClusterState};
use ciphertoll_tde::handshake::{HANDSHAKE_FD, HandshakeStatus};
use ciphertoll_tde::{EncryptionEngine, KekSource, KeyFile};
use libc::c_int;

use crate::backup;
use crate::handshake::Handshake;
use crate::paths::ClusterDirectory;
use crate::process::{self, Caching};
use crate::program::{self, ProgramRole};
use crate::raw;
use crate::{sampler, secrecy};

const DATA: &str = "CIPHERTOLL_TDE_DATA";
/// The key file; default: next to the data directory.
const KEYS: &str = "CIPHERTOLL_TDE_KEYS";
/// The source of the key-encryption key: exactly one of these.
const KEK_FD: &str = "CIPHERTOLL_TDE_KEK_FD";
const KEK_FILE: &str = "CIPHERTOLL_TDE_KEK_FILE";
const KEK_COMMAND: &str = "CIPHERTOLL_TDE_KEK_COMMAND";
/// Must be set to use a key file with the null cipher, which is only for measurements.
const NULL: &str = "CIPHERTOLL_TDE_NULL";
/// For tests: no descriptor is remembered.
const FORGET: &str = "CIPHERTOLL_TDE_FORGET";
/// One in so many writes is read back; 0 for none.
const SAMPLE: &str = "CIPHERTOLL_TDE_SAMPLE";
const PRELOAD: &str = "LD_PRELOAD";
const OUR_NAME: &[u8] = b"libciphertoll_tde_preload";

// SAFETY: the section is an array of functions, which the loader calls once, in the only thread, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    process::guard(|| {
        let program = ProgramRole::running();
        let handshake = Handshake::inherited();
        handshake.send(HandshakeStatus::Loaded);
        if let Err(why) = prepare(program, handshake) {
            handshake.send_refusal(why.as_bytes());
            raw::print_error(&[b"ciphertoll-tde: refused: ", why.as_bytes(), b"\n"]);
            raw::exit(process::REFUSAL_STATUS);
        }
    });
}

fn prepare(program: ProgramRole, handshake: Handshake) -> Result<(), String> {
    match program {
        ProgramRole::Other => return Ok(()),
        ProgramRole::Unsupported(name) => return Err(format!("{name} does not support encrypted clusters")),
        ProgramRole::Server
        | ProgramRole::Tool
        | ProgramRole::Launcher
        | ProgramRole::Backup
        | ProgramRole::Copier => {}
    }
    let configured = PathBuf::from(
        variable(DATA).ok_or_else(|| format!("{DATA} is not set: it must name the data directory"))?,
    );
    let configured = std::path::absolute(&configured).map_err(|error| format!("{DATA}: {error}"))?;
    let configured: PathBuf = configured.components().collect();
    let canonical = match program {
        ProgramRole::Backup | ProgramRole::Launcher => canonicalize_new(&configured),
        _ => fs::canonicalize(&configured),
    };
    let canonical = canonical.map_err(|error| format!("{DATA}: {}: {error}", configured.display()))?;
    let is_target = || {
        program::command_line().is_ok_and(|arguments| backup::is_target(&arguments, &configured, &canonical))
    };
    if program == ProgramRole::Backup && !is_target() {
        return Err(format!(
            "the base backup must be written to {}, in plain format: elsewhere it would not be encrypted",
            configured.display()
        ));
    }
    let key_file = variable(KEYS).map_or_else(|| KeyFile::path_beside(&configured), PathBuf::from);
    let keys = KeyFile::load(&key_file).map_err(|error| error.to_string())?;
    let encrypts = keys.cipher_kind().encrypts();
    if !encrypts && variable(NULL).is_none() {
        return Err(format!("{}: its cipher is null, which requires {NULL} to be set", key_file.display()));
    }
    let interval = sampling_interval()?;
    let source = kek_source()?;
    secrecy::protect_memory();
    let kek = source.read().map_err(|error| error.to_string())?;
    let mut engine =
        EncryptionEngine::new(keys.unwrap(&kek).map_err(|error| format!("{}: {error}", key_file.display()))?)
            .map_err(|error| error.to_string())?;
    drop(kek);
    let state = cluster::examine(&canonical, &mut engine).map_err(|error| error.to_string())?;
    let is_expected = !encrypts && state == ClusterState::Plain;
    if let Some(why) = state.refusal(&canonical).filter(|_| !is_expected) {
        return Err(why);
    }
    // Other initialisers of this library, such as that of AWS-LC, run after this one.
    engine.forget_keys();
    let caching = if variable(FORGET).is_some() { Caching::Off } else { Caching::On };
    handshake.send(HandshakeStatus::HasKeys);
    if program == ProgramRole::Server {
        handshake.keep_from_children();
        hide_from_children(&source);
    }
    // A panic message would need an allocation, and could write data to a log.
    std::panic::set_hook(Box::new(|_| {}));
    let path = |path: PathBuf| path.into_os_string().into_vec();
    let directory = ClusterDirectory::new(path(configured), path(canonical));
    sampler::set_interval(if encrypts { interval } else { 0 });
    process::activate(engine, directory, program, handshake, caching);
    Ok(())
}

/// Canonicalizes a directory that may not exist yet, nor its parents: `pg_basebackup` creates them.
fn canonicalize_new(path: &Path) -> io::Result<PathBuf> {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(canonicalize_new(parent)?.join(name))
        }
        (found, _, _) => found,
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn sampling_interval() -> Result<u32, String> {
    let Some(text) = variable(SAMPLE) else { return Ok(sampler::DEFAULT_INTERVAL) };
    text.to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{SAMPLE} is not a number of writes"))
}

fn kek_source() -> Result<KekSource, String> {
    let descriptor = variable(KEK_FD).map(|number| {
        let number =
            number.to_str().and_then(|number| number.parse().ok()).filter(|&number: &c_int| number >= 0);
        number.map(KekSource::Descriptor).ok_or_else(|| format!("{KEK_FD} is not a file descriptor number"))
    });
    let file = variable(KEK_FILE).map(|path| Ok(KekSource::File(path.into())));
    let command = variable(KEK_COMMAND).map(|command| Ok(KekSource::Command(command)));
    let mut sources = [descriptor, file, command].into_iter().flatten();
    match (sources.next(), sources.next()) {
        (Some(source), None) => source,
        _ => Err(format!("exactly one of {KEK_FD}, {KEK_FILE} and {KEK_COMMAND} must be set")),
    }
}

/// Hides the keys, their sources and this library from the programs that a server starts, such as shells.
fn hide_from_children(source: &KekSource) {
    let preload = variable(PRELOAD).unwrap_or_default();
    let is_ours = |path: &&[u8]| {
        path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(OUR_NAME))
    };
    let others = preload.as_bytes().split(|byte| matches!(byte, b':' | b' ')).filter(|path| !is_ours(path));
    let others: Vec<&[u8]> = others.filter(|path| !path.is_empty()).collect();
    let others = others.join(&b':');
    // SAFETY: this runs before `main`, in the only thread.
    unsafe {
        if others.is_empty() {
            std::env::remove_var(PRELOAD);
        } else {
            std::env::set_var(PRELOAD, OsStr::from_bytes(&others));
        }
        secrecy::forget_variables(&[
            DATA,
            KEYS,
            KEK_FD,
            KEK_FILE,
            KEK_COMMAND,
            NULL,
            FORGET,
            SAMPLE,
            HANDSHAKE_FD,
        ]);
    }
    if let KekSource::Descriptor(descriptor) = source {
        raw::close(*descriptor);
    }
}
