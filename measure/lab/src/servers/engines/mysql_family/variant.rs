//! What distinguishes MariaDB and MySQL, and the accounts of both.

use std::path::Path;

use ciphertoll_model::{Auth, SecurityLevel, TlsPath};
use ciphertoll_wire::{Secret, mysql};

use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::control::ControlLogin;
use crate::servers::engine::{EngineProperties, PreparedLogin, ServerDescription};
use crate::tls::support::TlsServer;

/// The account for [`Auth::default_of`].
pub(crate) const USER: &str = "ciphertoll";
/// The account of control connections, over the Unix socket only. It may create accounts.
pub(crate) const CONTROL_USER: &str = "ciphertoll_control";

/// What distinguishes MariaDB and MySQL.
pub(crate) trait MySqlVariant: Sync {
    const PROPERTIES: EngineProperties;
    /// The section of the configuration file.
    const SECTION: &'static str;
    /// Query for names and values of all settings.
    const SETTINGS_QUERY: &'static str;
    const RELOAD_CERTIFICATE: &'static str;
    /// The authentication plugin that clients name first.
    const LOGIN_PLUGIN: mysql::Plugin;

    fn check_auth(&self, auth: Auth, release: &str) -> Result<(), Error>;

    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error>;

    fn install_arguments(&self, build: &Build, data: &Path, run: &Path) -> Vec<String>;

    /// Options in addition to those of the family.
    fn options(&self, build: &Build) -> Vec<(&'static str, Option<String>)>;

    /// The option `tls_version`.
    fn tls_versions(&self, strength: SecurityLevel) -> &'static str;

    /// Statements that create the first accounts. They contain password hashes only.
    fn account_statements(&self, password: &Secret) -> Result<String, Error>;

    /// The clause by which an account for `auth` is identified.
    fn identification(
        &self,
        control: &ControlLogin,
        auth: Auth,
        password: &Secret,
        server_name: &str,
    ) -> Result<String, Error>;

    fn prepare_login(&self, _login: PreparedLogin<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn describe(
        &self,
        control: &ControlLogin,
        scratch: &Path,
        build: &Build,
    ) -> Result<ServerDescription, Error>;
}
