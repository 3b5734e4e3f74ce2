//! What only MariaDB does: its accounts, its counters, how it is asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ciphertoll_model::Auth;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use sha1::{Digest, Sha1};

use crate::control::{self, Control};
use crate::error::Error;
use crate::files::{self, PRIVATE_FILE};
use crate::hex::hex;
use crate::rows;
use crate::server::{About, Place};
use crate::user::RunAs;

/// The account that clients log in with.
pub(crate) const USER: &str = "ciphertoll";
/// The account of control connections, by the unix socket only: it may make accounts.
pub(crate) const CONTROL_USER: &str = "ciphertoll_control";
const TRUST_USER: &str = "ciphertoll_trust";
/// What the log of a server says that could not have its port.
pub(crate) const PORT_TAKEN: &[&str] = &["Bind on TCP/IP port", "another mysqld server running on port"];
/// Touches every page of the rows.
const READ_ALL: &str = "SELECT SUM(LENGTH(c)) FROM sbtest.sbtest1 FORCE INDEX (PRIMARY)";

/// Writes the statements that make the first accounts, to be run before the first login.
pub(crate) fn write_accounts(place: &Place, password: &Secret, owner: RunAs) -> Result<PathBuf, Error> {
    let path = place.root.join("init.sql");
    files::write(&path, account_statements(password).as_bytes(), PRIVATE_FILE, owner)?;
    Ok(path)
}

/// One statement a line. The password itself is in none of them, only what the server stores of it.
fn account_statements(password: &Secret) -> String {
    let stored = Sha1::digest(Sha1::digest(password.expose()));
    let hash = hex(&stored).to_ascii_uppercase();
    let schema = rows::SCHEMA;
    format!(
        "CREATE USER '{USER}'@'%' IDENTIFIED VIA mysql_native_password USING '*{hash}';\n\
         GRANT ALL ON {schema}.* TO '{USER}'@'%';\n\
         CREATE USER '{CONTROL_USER}'@'localhost' IDENTIFIED VIA mysql_native_password USING '*{hash}';\n\
         GRANT RELOAD, CREATE USER ON *.* TO '{CONTROL_USER}'@'localhost';\n\
         GRANT ALL ON {schema}.* TO '{CONTROL_USER}'@'localhost' WITH GRANT OPTION;\n"
    )
}

pub(crate) fn account_name(auth: Auth) -> &'static str {
    if auth == Auth::Trust { TRUST_USER } else { USER }
}

/// Fails where MariaDB has no such authentication.
pub(crate) fn check(auth: Auth) -> Result<(), Error> {
    match auth {
        Auth::Native | Auth::Trust => Ok(()),
        Auth::Scram { .. } | Auth::Md5 => {
            let reason = "MariaDB does not have it; it is PostgreSQL's".to_owned();
            Err(Error::NoSuchAuth { auth: auth.to_string(), reason })
        }
    }
}

/// Makes the account for `auth`; the one for [`Auth::Native`] is there from the start.
pub(crate) fn make_account(control: &Control, auth: Auth) -> Result<(), Error> {
    if auth != Auth::Trust {
        return Ok(());
    }
    let doing = "make an account with an empty password";
    let mut client = control.connect()?;
    let create = format!("CREATE USER '{TRUST_USER}'@'%' IDENTIFIED VIA mysql_native_password USING ''");
    control::execute(&mut client, doing, &create)?;
    let grant = format!("GRANT ALL ON {}.* TO '{TRUST_USER}'@'%'", rows::SCHEMA);
    control::execute(&mut client, doing, &grant)
}

pub(crate) fn reload_certificate(control: &Control) -> Result<(), Error> {
    control::execute(&mut control.connect()?, "make the server read its certificate", "FLUSH SSL")
}

/// Reads all rows until none of their pages comes from disk any more, or a pass brings no fewer than the
/// one before: then they do not fit.
pub(crate) fn prewarm(control: &Control) -> Result<(), Error> {
    let mut client = control.connect()?;
    let mut fewest = u64::MAX;
    loop {
        let before = misses(&mut client)?;
        control::execute(&mut client, "read all rows once", READ_ALL)?;
        let misses = misses(&mut client)?.saturating_sub(before);
        if misses == 0 || misses >= fewest {
            return Ok(());
        }
        fewest = misses;
    }
}

pub(crate) fn buffer_misses(control: &Control) -> Result<u64, Error> {
    misses(&mut control.connect()?)
}

fn misses(client: &mut Client) -> Result<u64, Error> {
    let sql = "SELECT variable_value FROM information_schema.global_status \
         WHERE variable_name = 'INNODB_BUFFER_POOL_READS'";
    let rows = control::query(client, "read the server's counters", sql)?;
    let value = rows.into_iter().flatten().next().and_then(|value| value.parse().ok());
    value.ok_or(Error::NoCounter("Innodb_buffer_pool_reads"))
}

/// What the server says of itself; values that begin with `scratch` are left out.
pub(crate) fn ask(control: &Control, scratch: &Path) -> Result<About, Error> {
    let doing = "ask the server about itself";
    let mut client = control.connect()?;
    let identity = control::query(&mut client, doing, "SELECT VERSION(), @@version_ssl_library")?;
    let mut identity = identity.into_iter().flatten();
    let version = identity.next().unwrap_or_default();
    let tls_library =
        identity.next().map(|library| library.trim().to_owned()).filter(|library| !library.is_empty());
    let changed = "SELECT LOWER(variable_name), global_value FROM information_schema.system_variables \
         WHERE global_value_origin IN ('CONFIG', 'COMMAND-LINE') AND global_value <> default_value";
    let scratch = scratch.display().to_string();
    let mut settings = BTreeMap::new();
    for row in control::query(&mut client, doing, changed)? {
        if let [name, value] = <[String; 2]>::try_from(row).unwrap_or_default()
            && !value.starts_with(&scratch)
        {
            settings.insert(name, value);
        }
    }
    Ok(About { version, tls_library, settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_made_of_the_hash_only() {
        let statements = account_statements(&Secret::new(b"hunter2".to_vec()));
        // SELECT PASSWORD('hunter2')
        assert!(statements.contains("'*58815970BE77B3720276F63DB198B1FA42E5CC02'"), "{statements}");
        assert!(!statements.contains("hunter2"));
    }
}
