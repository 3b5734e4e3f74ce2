//! What all servers of a run share: the scratch directory, the authorities, the user, the helper.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_model::{AtRest, Namespace, Storage};
use ciphertoll_record::{Scratch, scratch_root};

use crate::certificates::Authorities;
use crate::error::Error;
use crate::find::Build;
use crate::loading::Watcher;
use crate::process::Surroundings;
use crate::server::{Server, Start};
use crate::tables::Tables;
use crate::template::{self, Content, Template};
use crate::user::RunAs;

/// What all servers of a run share.
pub struct Lab {
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) run_as: RunAs,
    pub(crate) helper: PathBuf,
    /// Where servers are; in our own network, where absent.
    pub(crate) network: Option<Namespace>,
    /// What servers' files lie on.
    pub(crate) storage: Storage,
    cache: PathBuf,
}

impl Lab {
    /// A lab with its own scratch directory. `helper` is the program that has the hidden command
    /// [`crate::EXEC_COMMAND`]: most often `/proc/self/exe`'s target. Sweep first.
    pub fn open(helper: PathBuf) -> Result<Self, Error> {
        Self::open_in(helper, &scratch_root(), template::cache_directory())
    }

    /// The same in directories of the caller's choice.
    pub fn open_in(helper: PathBuf, scratch_root: &Path, cache: PathBuf) -> Result<Self, Error> {
        Ok(Self {
            run_as: RunAs::choose()?,
            authorities: Arc::new(Authorities::generate()?),
            scratch: Arc::new(Scratch::create(scratch_root)?),
            helper,
            network: None,
            storage: Storage::Disk,
            cache,
        })
    }

    /// The template of `build` with `tables`, from the cache or made now, which takes seconds. `progress`
    /// gets a few words whenever something slow begins. Once `stop` says yes, loading ends with
    /// [`Error::Interrupted`], and nothing is kept.
    pub fn template(
        &self,
        build: &Build,
        tables: &Tables,
        progress: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<Template, Error> {
        self.template_at_rest(build, tables, AtRest::None, progress, stop)
    }

    /// The same for servers whose files are encrypted as `at_rest` says.
    pub fn template_at_rest(
        &self,
        build: &Build,
        tables: &Tables,
        at_rest: AtRest,
        progress: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<Template, Error> {
        let mut watcher = Watcher { progress, stop };
        let content = Content { tables: *tables, at_rest };
        template::prepare(&self.surroundings(), &self.cache, build, content, &mut watcher)
    }

    /// Starts a server; it is ready when this returns. To be called on the main thread.
    pub fn start(&self, start: &Start<'_>) -> Result<Server, Error> {
        Server::start(self, start)
    }

    /// Has the servers that are started from here on be in this network, and listen on all its addresses.
    pub fn move_servers_to(&mut self, network: Namespace) {
        self.network = Some(network);
    }

    /// Has the files of the servers that are started from here on lie there.
    pub fn store_servers_on(&mut self, storage: Storage) {
        self.storage = storage;
    }

    /// Where what takes long to make is kept from run to run.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The scratch directory. It goes when the lab and all its servers are dropped.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub(crate) fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            scratch: &self.scratch,
            helper: &self.helper,
            run_as: self.run_as,
            processors: None,
            namespace: None,
        }
    }
}
