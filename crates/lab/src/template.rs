//! Data directories that are made once and copied for every start, kept in the user's cache.
//!
//! A template has the tables that were asked for and no account that anybody could log in with: each
//! start makes its own account. It is built in the scratch directory and comes into the cache in one rename, so
//! that a build that is killed leaves no half template.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ciphertoll_model::{AtRest, Engine, SecurityLevel, ServerLevel, TdeCipher};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use sha1::{Digest, Sha1};

use crate::at_rest::{self, Means, Native, Preload};
use crate::config::{Config, Network};
use crate::control::{self, Control};
use crate::documents;
use crate::error::{Context, Error};
use crate::exec::{Provisions, SharedMemory};
use crate::files::{self, PRIVATE_DIRECTORY};
use crate::find::Build;
use crate::hex::hex;
use crate::loading::{Watcher, load_mysql_family, load_postgres};
use crate::mysql;
use crate::postgres::{self, CONTROL_ROLE};
use crate::process::{ServerProcess, Surroundings};
use crate::rows;
use crate::spawn::{Child, Launch};
use crate::tables::Tables;
use crate::unused::{KEYS, LOCK, lock_file, mark_used, remove_unused};
use crate::user::RunAs;

/// Bumped when a template made by an older version would not do any more.
const FORMAT: u32 = 5;
const INSTALL_LIMIT: Duration = Duration::from_mins(3);

/// A data directory to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Where.
    pub path: PathBuf,
    /// Its tables.
    pub tables: Tables,
    /// What encrypts the files of servers on it.
    pub at_rest: AtRest,
    /// The keys that its pages are encrypted with, where a server did that itself. They are beside it and protect
    /// nothing: its rows are nobody's.
    pub keys: Option<PathBuf>,
}

/// What is to be in a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) tables: Tables,
    pub(crate) at_rest: AtRest,
}

/// Where templates are kept: `/var/cache/ciphertoll` for root, else `$XDG_CACHE_HOME/ciphertoll` or
/// `~/.cache/ciphertoll`.
pub fn cache_directory() -> PathBuf {
    const NAME: &str = "ciphertoll";
    if geteuid().is_root() {
        return Path::new("/var/cache").join(NAME);
    }
    let directory =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let home = || directory("HOME").map(|home| home.join(".cache"));
    // Without a home, what is cached lasts as long as the system's temporary files.
    match directory("XDG_CACHE_HOME").or_else(home) {
        Some(base) => base.join(NAME),
        None => std::env::temp_dir().join(format!("{NAME}-{}", geteuid())),
    }
}

/// The template of `build` with `tables`, from the cache or made now.
pub(crate) fn prepare(
    surroundings: &Surroundings<'_>,
    cache: &Path,
    build: &Build,
    content: Content,
    watcher: &mut Watcher<'_>,
) -> Result<Template, Error> {
    let Content { tables, at_rest } = content;
    let means = means(surroundings.helper, build, at_rest)?;
    make_cache(cache)?;
    let path = place(cache, build, content)?;
    let keys = means.as_ref().map(|_| beside(&path, KEYS));
    let template = Template { path, tables, at_rest, keys };
    mark_used(&template.path)?;
    if template.path.is_dir() {
        return Ok(template);
    }
    let _lock = lock(&beside(&template.path, LOCK), watcher.progress)?;
    if !template.path.is_dir() {
        if remove_unused(cache, SystemTime::now()) > 0 {
            (watcher.progress)("removed data that were not used for 30 days");
        }
        let made = construct(surroundings, build, &tables, means.as_ref(), watcher)?;
        // The data come last: where they are, the template is whole.
        if let Some((from, to)) = made.keys.as_ref().zip(template.keys.as_ref()) {
            files::replace_directory(from, to)?;
        }
        admit(&made.data, &template.path)?;
    }
    Ok(template)
}

/// Where the template is, or would be.
pub(crate) fn place(cache: &Path, build: &Build, content: Content) -> Result<PathBuf, Error> {
    Ok(cache.join(key(build, content)?))
}

/// What a server encrypts its own files by; none where it does not.
fn means(helper: &Path, build: &Build, at_rest: AtRest) -> Result<Option<Means>, Error> {
    match at_rest {
        AtRest::None | AtRest::AsIs | AtRest::Gocryptfs | AtRest::Fscrypt => Ok(None),
        AtRest::Native => at_rest::find_plugins(build).map(|plugins| Some(Means::Plugins(plugins))),
        AtRest::Tde(tde) => {
            at_rest::find_library(helper, tde).map(|library| Some(Means::Library(library, tde)))
        }
    }
}

/// Only we may write to the cache: a server would run on whatever data lie there.
pub(crate) fn make_cache(cache: &Path) -> Result<(), Error> {
    let cannot_make = |source| Error::Cache { path: cache.to_owned(), source };
    if let Some(parent) = cache.parent() {
        fs::create_dir_all(parent).map_err(cannot_make)?;
    }
    match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(cache) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(cannot_make(error)),
        _ => Ok(ciphertoll_record::check_ours(cache)?),
    }
}

/// `path` with something after its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Everything a template depends on: engine, version, the very build, our format, the tables, and who encrypts its pages.
fn key(build: &Build, content: Content) -> Result<String, Error> {
    let at_rest = match content.at_rest {
        // What lies under a server's files does not change them.
        AtRest::None | AtRest::AsIs | AtRest::Gocryptfs | AtRest::Fscrypt => "",
        // What an older ciphertoll has made has its keys in another form.
        AtRest::Native if build.engine == Engine::MySql => "-keyring",
        AtRest::Native => "-encrypted",
        // Whichever instructions encrypted them, they are the same.
        AtRest::Tde(tde) => match tde.cipher {
            TdeCipher::Aes256 => "-tde-aes256",
            TdeCipher::Aes128 => "-tde-aes128",
            TdeCipher::Null => "-tde-null",
        },
    };
    let program = &build.server_program;
    let metadata = fs::metadata(program).context("look at", program)?;
    let identity = format!("{FORMAT} {} {}.{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    let digest = Sha1::digest(identity.as_bytes());
    let short = hex(&digest[..6]);
    let tables = content.tables.key();
    Ok(format!("{}-{}-{tables}{at_rest}-{short}", build.engine.label(), build.version))
}

/// One build at a time; a second run waits and then finds the template made.
pub(crate) fn lock(path: &Path, progress: &mut dyn FnMut(&str)) -> Result<Flock<File>, Error> {
    let file = match Flock::lock(lock_file(path)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err((file, _)) => file,
    };
    progress("waiting for another ciphertoll that makes the same data");
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| io::Error::from(errno))
        .context("lock", path)
}

/// A data directory in the scratch directory, and its keys.
struct Made {
    data: PathBuf,
    keys: Option<PathBuf>,
}

/// Makes the data directory in the scratch directory; encrypted by the server itself, where there are means for that.
fn construct(
    surroundings: &Surroundings<'_>,
    build: &Build,
    tables: &Tables,
    means: Option<&Means>,
    watcher: &mut Watcher<'_>,
) -> Result<Made, Error> {
    let name =
        ServerLevel { version: Some(build.version.clone()), ..ServerLevel::of(build.engine) }.short_name();
    let place =
        surroundings.scratch.make_directory(&format!("template-{:04x}", rand::random::<u16>()), 0o711)?;
    let (data, run) = (place.join("data"), place.join("run"));
    for directory in [&data, &run] {
        files::make_directory(directory, PRIVATE_DIRECTORY, surroundings.run_as)?;
    }
    watcher.go_on()?;
    watcher.say(&format!("{name}: making an empty data directory"));
    let keys = means.map(|_| place.join("keys"));
    let component = place.join("component");
    let own = Own::with(surroundings, build, means.zip(keys.as_deref()), &component, &data)?;
    let (native, preload) = (own.native, own.preload.as_ref());
    if makes_data_beforehand(build.engine) {
        let environment = preload.map(Preload::environment).unwrap_or_default();
        install(surroundings, build, &data, &run, environment, place.join("install.log"))?;
    }
    watcher.go_on()?;
    watcher.say(&format!("{name}: loading {tables}"));
    let (network, strength) = (Network::SocketOnly, SecurityLevel::Default);
    let (access, openssl, temporary) = (None, None, &run);
    let config = Config {
        build,
        data: &data,
        run: &run,
        temporary,
        network,
        access,
        openssl,
        strength,
        native,
        preload,
    };
    let control = match build.engine {
        Engine::MariaDb | Engine::MySql => Control::mysql(&config.socket(), "root", Secret::new(Vec::new())),
        Engine::Postgres => Control::postgres(&config.socket(), CONTROL_ROLE, "postgres"),
        Engine::MongoDb | Engine::FerretDb => Control::documents(&config.socket(), None),
    };
    let (config_file, log) = (place.join("server.conf"), place.join("server.log"));
    let what = format!("{name} (making a template)");
    let mut server = ServerProcess::start(surroundings, what, &config, &config_file, log, &control)?;
    match build.engine {
        Engine::MariaDb | Engine::MySql => {
            let mut client = control.connect()?;
            create_schema(&mut client)?;
            control::execute(&mut client, "enter the schema", &format!("USE {}", rows::SCHEMA))?;
            load_mysql_family(&mut client, &name, tables, watcher)?;
            if native.is_some() {
                at_rest::wait_until_encrypted(&mut client, build.engine)?;
            }
            drop_accounts(&mut client)?;
        }
        Engine::Postgres => {
            create_schema(&mut control.connect()?)?;
            let control = Control::postgres(&config.socket(), CONTROL_ROLE, rows::SCHEMA);
            let mut client = control.connect()?;
            load_postgres(&mut client, &name, tables, watcher)?;
            postgres::make_groups(&mut client)?;
            control::execute(&mut client, "write everything out", "CHECKPOINT")?;
        }
        Engine::MongoDb | Engine::FerretDb => load_documents(build.engine, &control, &name, tables, watcher)?,
    }
    server.stop()?;
    Ok(Made { data, keys })
}

fn load_documents(
    engine: Engine,
    control: &Control,
    name: &str,
    tables: &Tables,
    watcher: &mut Watcher<'_>,
) -> Result<(), Error> {
    let Some(records) = tables.ycsb else { return Ok(()) };
    let (control, records) = (control.in_database(documents::DATABASE), records.rows());
    let connections = documents::loaders(engine);
    documents::load(documents::Load { control: &control, name, records, connections }, watcher).map(drop)
}

/// What a server that is to make data encrypts them by, with fresh keys.
#[derive(Default)]
struct Own<'a> {
    native: Option<Native<'a>>,
    preload: Option<Preload>,
}

impl<'a> Own<'a> {
    fn with(
        surroundings: &Surroundings<'_>,
        build: &Build,
        means: Option<(&'a Means, &'a Path)>,
        component: &'a Path,
        data: &Path,
    ) -> Result<Self, Error> {
        let place = component.parent().unwrap_or(component);
        Ok(match means {
            None => Self::default(),
            Some((Means::Plugins(plugins), keys)) => {
                at_rest::make_keys(build.engine, keys, surroundings.run_as)?;
                Self { native: Some(Native { keys, plugins, component, fresh: true }), preload: None }
            }
            Some((Means::Library(library, tde), keys)) => {
                at_rest::make_tde_keys(*tde, keys, surroundings.run_as)?;
                Self { native: None, preload: Some(Preload::lay(library, place, keys, data, *tde)?) }
            }
        })
    }
}

/// Others make it when they are started.
fn makes_data_beforehand(engine: Engine) -> bool {
    match engine {
        Engine::MariaDb | Engine::MySql | Engine::Postgres => true,
        Engine::MongoDb | Engine::FerretDb => false,
    }
}

fn install(
    surroundings: &Surroundings<'_>,
    build: &Build,
    data: &Path,
    run: &Path,
    environment: BTreeMap<String, String>,
    log: PathBuf,
) -> Result<(), Error> {
    let arguments = match build.engine {
        Engine::MariaDb => mariadb_install_arguments(build, data, run),
        Engine::MySql => mysql::install_arguments(build, data, run),
        Engine::Postgres => postgres_install_arguments(data),
        Engine::MongoDb | Engine::FerretDb => Vec::new(),
    };
    let program = build.install_program.clone();
    let launch = Launch {
        what: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        program,
        arguments,
        environment,
        directory: data.to_owned(),
        run_as: surroundings.run_as,
        processors: None,
        namespace: None,
        // Some start a server of their own.
        provisions: Provisions { shared_memory: SharedMemory::Own, ..Provisions::default() },
        log,
    };
    let mut child = Child::spawn(surroundings.scratch, surroundings.helper, &launch)?;
    match child.wait(INSTALL_LIMIT)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(child.died(status)),
        None => Err(child.too_slow(INSTALL_LIMIT, "still running".to_owned())),
    }
}

fn mariadb_install_arguments(build: &Build, data: &Path, run: &Path) -> Vec<String> {
    let mut arguments = vec!["--no-defaults".to_owned()];
    // The script knows where its own distribution put things, but only when it is not told anything.
    if build.base_directory != Path::new("/usr") {
        arguments.push(format!("--basedir={}", build.base_directory.display()));
    }
    arguments.extend([
        format!("--datadir={}", data.display()),
        format!("--tmpdir={}", run.display()),
        "--skip-test-db".to_owned(),
        "--skip-name-resolve".to_owned(),
        "--auth-root-authentication-method=normal".to_owned(),
        // Else it gives up on machines whose own name does not resolve.
        "--force".to_owned(),
    ]);
    arguments
}

/// Its access rules let in everybody who reaches the socket, which is in a private directory; servers
/// that are started on a copy have rules of their own.
fn postgres_install_arguments(data: &Path) -> Vec<String> {
    vec![
        format!("--pgdata={}", data.display()),
        format!("--username={CONTROL_ROLE}"),
        "--no-sync".to_owned(),
        "--encoding=UTF8".to_owned(),
        "--locale=C".to_owned(),
        "--auth=trust".to_owned(),
    ]
}

fn create_schema(client: &mut Client) -> Result<(), Error> {
    control::execute(client, "make the schema", &format!("CREATE DATABASE {}", rows::SCHEMA))
}

/// The accounts of a fresh data directory have no passwords. Those that own the views of `sys` and the like
/// are locked and stay; ours goes last.
fn drop_accounts(client: &mut Client) -> Result<(), Error> {
    let doing = "drop the accounts without passwords";
    let accounts = "SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user \
         WHERE user NOT IN ('mariadb.sys', 'mysql.sys', 'mysql.session', 'mysql.infoschema') ORDER BY user = 'root' AND host = 'localhost'";
    for account in control::query(client, doing, accounts)?.into_iter().flatten() {
        control::execute(client, doing, &format!("DROP USER {account}"))?;
    }
    Ok(())
}

/// Brings a finished data directory into the cache in one rename.
fn admit(data: &Path, target: &Path) -> Result<(), Error> {
    files::take_directory(data)?;
    match fs::rename(data, target) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        renamed => return renamed.context("keep", target),
    }
    let partial = beside(target, ".partial");
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).context("remove", &partial);
        }
        _ => {}
    }
    files::copy_directory(data, &partial, RunAs::Ourselves)?;
    fs::rename(&partial, target).context("keep", target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_cannot_be_made_is_told_with_the_cure() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = make_cache(&file.join(".cache/ciphertoll")).unwrap_err().to_string();
        assert!(
            error.contains("file/.cache/ciphertoll") && error.contains("set XDG_CACHE_HOME or HOME"),
            "{error}"
        );
    }
}
