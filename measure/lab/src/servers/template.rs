//! Data directories that are created once, kept in the cache, and copied for every start.
//!
//! A template has the requested tables and no account that clients can log in with: each start creates its own accounts.
//! It is built in the scratch directory and moved into the cache by one rename, so that an interrupted build leaves no
//! incomplete template.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ciphertoll_host::cache::{lock, make_cache, with_suffix};
use ciphertoll_host::exec::{Provisions, SharedMemory};
use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::hex::hex;
use ciphertoll_host::spawn::Launch;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{AtRest, SecurityLevel, ServerLevel, Tde};
use ciphertoll_record::Context;
use ciphertoll_tde::KEY_FILE_VERSION;
use sha1::{Digest, Sha1};

use crate::at_rest::native::{self, NativeKeys};
use crate::at_rest::preload::{self, Preload};
use crate::datasets::progress::LoadProgress;
use crate::datasets::tables::Tables;
use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::config::{Config, Network};
use crate::servers::directory::PASS_THROUGH;
use crate::servers::engines;
use crate::servers::process::{LaunchContext, ServerProcess};
use crate::servers::unused::{KEYS, LOCK, mark_used, remove_unused};
use crate::workspace::Workspace;

/// Increased when templates of older versions can no longer be used.
const FORMAT: u32 = 5;
const INSTALL_LIMIT: Duration = Duration::from_mins(3);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataTemplate {
    pub path: PathBuf,
    pub tables: Tables,
    pub at_rest: AtRest,
    /// The keys of pages that the server has encrypted. Kept with the data, they protect nothing: the rows are generated.
    pub keys: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateContent {
    pub(crate) tables: Tables,
    pub(crate) at_rest: AtRest,
}

/// How a server encrypts its own pages.
enum PageEncryption {
    /// By plugins in this directory.
    Plugins(PathBuf),
    /// By this library, which is preloaded.
    Library(PathBuf, Tde),
}

/// Returns the template of `build` from the cache, or creates it.
pub(crate) fn prepare(
    workspace: &Workspace,
    cache: &Path,
    build: &Build,
    content: TemplateContent,
    progress: &mut LoadProgress<'_>,
) -> Result<DataTemplate, Error> {
    let TemplateContent { tables, at_rest } = content;
    let encryption = find_encryption(&workspace.helper, build, at_rest)?;
    make_cache(cache)?;
    let path = path(cache, build, content)?;
    let keys = encryption.as_ref().map(|_| with_suffix(&path, KEYS));
    let template = DataTemplate { path, tables, at_rest, keys };
    mark_used(&template.path)?;
    if template.path.is_dir() {
        return Ok(template);
    }
    let _lock = lock(&with_suffix(&template.path, LOCK), progress.progress)?;
    if !template.path.is_dir() {
        if remove_unused(cache, SystemTime::now()) > 0 {
            progress.report("removed data that were not used for 30 days");
        }
        let (new_data, new_keys) = build_template(workspace, build, &tables, encryption.as_ref(), progress)?;
        // The keys come first: a template with data is complete.
        if let Some((from, to)) = new_keys.as_ref().zip(template.keys.as_ref()) {
            files::replace_directory(from, to)?;
        }
        move_to_cache(&new_data, &template.path)?;
    }
    Ok(template)
}

fn find_encryption(helper: &Path, build: &Build, at_rest: AtRest) -> Result<Option<PageEncryption>, Error> {
    match at_rest {
        AtRest::None | AtRest::AsIs | AtRest::Gocryptfs | AtRest::Fscrypt => Ok(None),
        AtRest::Native => {
            let encryption = engines::native_encryption(build.engine)?;
            native::find_plugins(encryption, build).map(|plugins| Some(PageEncryption::Plugins(plugins)))
        }
        AtRest::Tde(tde) => {
            preload::find_library(helper, tde).map(|library| Some(PageEncryption::Library(library, tde)))
        }
    }
}

/// The path of a template, whether it exists or not. Its name has everything that it depends on: engine, version, program
/// file, our format, the tables, and page encryption.
pub(crate) fn path(cache: &Path, build: &Build, content: TemplateContent) -> Result<PathBuf, Error> {
    let at_rest = match content.at_rest {
        // An encrypting file system does not change the files.
        AtRest::None | AtRest::AsIs | AtRest::Gocryptfs | AtRest::Fscrypt => String::new(),
        AtRest::Native => engines::native_encryption(build.engine)?.properties().template_suffix.to_owned(),
        // The instructions that were used make no difference. A server refuses clusters of other versions.
        AtRest::Tde(tde) => format!("-tde{KEY_FILE_VERSION}-{}", tde.cipher.label()),
    };
    let program = &build.server_program;
    let metadata = fs::metadata(program).context("inspect", program)?;
    let identity = format!("{FORMAT} {} {}.{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    let digest = Sha1::digest(identity.as_bytes());
    let short = hex(&digest[..6]);
    let tables = content.tables.key();
    Ok(cache.join(format!("{}-{}-{tables}{at_rest}-{short}", build.engine.label(), build.version)))
}

/// Creates and loads a data directory in the scratch directory; returns its path and that of its keys.
fn build_template(
    workspace: &Workspace,
    build: &Build,
    tables: &Tables,
    encryption: Option<&PageEncryption>,
    progress: &mut LoadProgress<'_>,
) -> Result<(PathBuf, Option<PathBuf>), Error> {
    let engine = engines::of(build.engine);
    let name =
        ServerLevel { version: Some(build.version.clone()), ..ServerLevel::of(build.engine) }.short_name();
    let directory =
        workspace.scratch.make_directory(&format!("template-{:04x}", rand::random::<u16>()), PASS_THROUGH)?;
    let (data, run) = (directory.join("data"), directory.join("run"));
    for path in [&data, &run] {
        files::make_directory(path, PRIVATE_DIRECTORY, workspace.run_as)?;
    }
    progress.check_interrupt()?;
    progress.report(&format!("{name}: making an empty data directory"));
    let keys = encryption.map(|_| directory.join("keys"));
    let component = directory.join("component");
    let (mut native, mut preload) = (None, None);
    match encryption.zip(keys.as_deref()) {
        None => {}
        Some((PageEncryption::Plugins(plugins), keys)) => {
            native::create_keys(engines::native_encryption(build.engine)?, keys, workspace.run_as)?;
            native = Some(NativeKeys { keys, plugins, component: &component, fresh: true });
        }
        Some((PageEncryption::Library(library, tde), keys)) => {
            preload::create_keys(*tde, keys, workspace.run_as)?;
            preload = Some(Preload::install(library, &directory, keys, &data, *tde)?);
        }
    }
    let preload = preload.as_ref();
    if let Some(arguments) = engine.install_arguments(build, &data, &run) {
        let environment = preload.map(Preload::environment).unwrap_or_default();
        install(workspace, build, arguments, &data, environment, directory.join("install.log"))?;
    }
    progress.check_interrupt()?;
    progress.report(&format!("{name}: loading {tables}"));
    let config = Config {
        build,
        data: &data,
        run: &run,
        temporary: &run,
        network: Network::SocketOnly,
        access: None,
        openssl: None,
        strength: SecurityLevel::Default,
        native,
        preload,
    };
    let control = engine.template_control(&engine.socket_path(&run, config.port()));
    let (config_file, log) = (directory.join("server.conf"), directory.join("server.log"));
    let what = format!("{name} (making a template)");
    let context = LaunchContext { workspace, processors: None, namespace: None };
    let mut server = ServerProcess::start(&context, what, &config, &config_file, log, &control)?;
    let encryption = match native {
        Some(_) => Some(engines::native_encryption(build.engine)?),
        None => None,
    };
    engine.load_template(&control, &name, tables, encryption, progress)?;
    server.stop()?;
    Ok((data, keys))
}

fn install(
    workspace: &Workspace,
    build: &Build,
    arguments: Vec<String>,
    data: &Path,
    environment: BTreeMap<String, String>,
    log: PathBuf,
) -> Result<(), Error> {
    let program = build.install_program.clone();
    let launch = Launch {
        what: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        program,
        arguments,
        environment,
        directory: data.to_owned(),
        run_as: workspace.run_as,
        processors: None,
        namespace: None,
        // Some installers start a server.
        provisions: Provisions { shared_memory: SharedMemory::Own, ..Provisions::default() },
        log,
    };
    Ok(workspace.spawn(&launch)?.finish(INSTALL_LIMIT)?)
}

/// Moves a data directory into the cache by a rename; to another file system, by a copy and a rename.
fn move_to_cache(data: &Path, target: &Path) -> Result<(), Error> {
    files::take_directory(data)?;
    match fs::rename(data, target) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        renamed => return Ok(renamed.context("keep", target)?),
    }
    let partial = with_suffix(target, ".partial");
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context("remove", &partial)?;
        }
        _ => {}
    }
    files::copy_directory(data, &partial, RunAs::Ourselves)?;
    Ok(fs::rename(&partial, target).context("keep", target)?)
}
