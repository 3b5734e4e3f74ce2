//! What only MariaDB does: its accounts, its counters, how it is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ciphertoll_model::{Auth, Engine};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use sha1::{Digest, Sha1};

use crate::certificates::Authorities;
use crate::control::{self, Control};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::files::{self, PRIVATE_FILE};
use crate::find::version_numbers;
use crate::hex::hex;
use crate::place::Place;
use crate::rows;
use crate::server::{About, Unmet};
use crate::tables::Tables;
use crate::user::RunAs;

/// The account that clients log in with.
pub(crate) const USER: &str = "ciphertoll";
/// The account of control connections, by the unix socket only: it may make accounts.
pub(crate) const CONTROL_USER: &str = "ciphertoll_control";
const TRUST_USER: &str = "ciphertoll_trust";
const ED25519_USER: &str = "ciphertoll_ed25519";
const PARSEC_USER: &str = "ciphertoll_parsec";
const CERT_USER: &str = "ciphertoll_cert";
/// The first version that has parsec.
const PARSEC_SINCE: [u32; 2] = [11, 6];
const EMPTY_PASSWORD: &str = "mysql_native_password USING ''";
/// What the log of a server says that could not have its port.
pub(crate) const PORT_TAKEN: &[&str] = &["Bind on TCP/IP port", "another mysqld server running on port"];
/// Writes the statements that make the first accounts, to be run before the first login.
pub(crate) fn write_accounts(place: &Place, password: &Secret, owner: RunAs) -> Result<PathBuf, Error> {
    let path = place.root.join("init.sql");
    files::write(&path, account_statements(password).as_bytes(), PRIVATE_FILE, owner)?;
    Ok(path)
}

/// One statement a line. The password itself is in none of them, only what the server stores of it.
fn account_statements(password: &Secret) -> String {
    let hash = native_hash(password);
    let schema = rows::SCHEMA;
    format!(
        "CREATE USER '{USER}'@'%' IDENTIFIED VIA mysql_native_password USING '*{hash}';\n\
         GRANT ALL ON {schema}.* TO '{USER}'@'%';\n\
         CREATE USER '{CONTROL_USER}'@'localhost' IDENTIFIED VIA mysql_native_password USING '*{hash}';\n\
         GRANT RELOAD, CREATE USER ON *.* TO '{CONTROL_USER}'@'localhost';\n\
         GRANT INSERT ON mysql.plugin TO '{CONTROL_USER}'@'localhost';\n\
         GRANT ALL ON {schema}.* TO '{CONTROL_USER}'@'localhost' WITH GRANT OPTION;\n"
    )
}

/// What the server stores of the password for `mysql_native_password`, after the asterisk.
fn native_hash(password: &Secret) -> String {
    hex(&Sha1::digest(Sha1::digest(password.expose()))).to_ascii_uppercase()
}

/// Its clients' certificates have it as their common name, too.
pub(crate) fn account_name(credentials: Credentials) -> String {
    let name = match credentials.auth {
        Auth::Trust => TRUST_USER,
        Auth::Ed25519 => ED25519_USER,
        Auth::Parsec => PARSEC_USER,
        Auth::Cert => CERT_USER,
        Auth::Native | Auth::CachingSha2 | Auth::Scram { .. } | Auth::Md5 | Auth::AsAsked => USER,
    };
    format!("{name}{}", credentials.account_suffix())
}

/// Fails where a MariaDB of this version cannot have `auth`.
pub(crate) fn check_release(auth: Auth, release: &str) -> Result<(), Error> {
    if auth != Auth::Parsec || version_numbers(release).as_slice() >= &PARSEC_SINCE[..] {
        return Ok(());
    }
    let [major, minor] = PARSEC_SINCE;
    let name = Engine::MariaDb.display_name();
    let reason = format!("{name} {release} has no {auth}: it came with {major}.{minor}");
    Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
}

/// Makes the account for these credentials; the one for [`Auth::Native`] is there from the start.
pub(crate) fn make_account(
    control: &Control,
    credentials: Credentials,
    password: &Secret,
    server_name: &str,
) -> Result<(), Error> {
    let auth = credentials.auth;
    let user = account_name(credentials);
    let how = match auth {
        Auth::Native if user == USER => return Ok(()),
        Auth::Native => format!("mysql_native_password USING '*{}'", native_hash(password)),
        Auth::Trust | Auth::Cert => EMPTY_PASSWORD.to_owned(),
        Auth::Ed25519 | Auth::Parsec => {
            install_plugin(control, auth, server_name)?;
            // Only the server can make what it stores. Nobody listens at the socket, nothing logs statements.
            format!("{auth} USING PASSWORD('{}')", String::from_utf8_lossy(password.expose()))
        }
        Auth::CachingSha2 | Auth::Scram { .. } | Auth::Md5 | Auth::AsAsked => {
            let reason = format!("{server_name} has no {auth}");
            return Err(Error::AuthUnavailable { auth: auth.to_string(), reason });
        }
    };
    let demand = if credentials.need_a_certificate() {
        format!(" REQUIRE SUBJECT '/CN={user}' AND ISSUER '{}'", Authorities::issuer_of_clients())
    } else {
        String::new()
    };
    let mut client = control.connect()?;
    control::execute(
        &mut client,
        "make an account",
        &format!("CREATE USER '{user}'@'%' IDENTIFIED VIA {how}{demand}"),
    )?;
    let grant = format!("GRANT ALL ON {}.* TO '{user}'@'%'", rows::SCHEMA);
    control::execute(&mut client, "let an account read and write", &grant)
}

/// Makes the server load the plugin of this name, if it has not yet.
fn install_plugin(control: &Control, auth: Auth, server_name: &str) -> Result<(), Error> {
    let doing = "load a plugin";
    let mut client = control.connect()?;
    let active = "SELECT 1 FROM information_schema.plugins WHERE plugin_status = 'ACTIVE' AND plugin_name =";
    if !control::query(&mut client, doing, &format!("{active} '{auth}'"))?.is_empty() {
        return Ok(());
    }
    let directory = control::query(&mut client, doing, "SELECT @@plugin_dir")?;
    let directory = PathBuf::from(directory.into_iter().flatten().next().unwrap_or_default());
    if !directory.join(format!("auth_{auth}.so")).is_file() {
        let reason = format!(
            "{server_name} has no {auth}: its plugin auth_{auth}.so is not in {}; \
             install it (Debian and Ubuntu: the package mariadb-server)",
            directory.display()
        );
        return Err(Error::AuthUnavailable { auth: auth.to_string(), reason });
    }
    control::execute(&mut client, doing, &format!("INSTALL SONAME 'auth_{auth}'"))
}

pub(crate) fn reload_certificate(control: &Control) -> Result<(), Error> {
    control::execute(&mut control.connect()?, "make the server read its certificate", "FLUSH SSL")
}

/// Reads all tables and indexes until none of their pages comes from disk any more, or a pass brings no
/// fewer than the one before: then they do not fit.
pub(crate) fn prewarm(control: &Control, tables: &Tables) -> Result<(), Error> {
    let doing = "read all rows once";
    let mut client = control.connect()?;
    control::execute(&mut client, doing, &format!("USE {}", rows::SCHEMA))?;
    let mut fewest = u64::MAX;
    loop {
        let before = misses(&mut client)?;
        for sql in read_all(tables) {
            control::execute(&mut client, doing, sql)?;
        }
        let misses = misses(&mut client)?.saturating_sub(before);
        if misses == 0 || misses >= fewest {
            return Ok(());
        }
        fewest = misses;
    }
}

/// Touches every page of rows and indexes; where pgbench's history has no rows yet, the place for them.
fn read_all(tables: &Tables) -> impl Iterator<Item = &'static str> {
    let sysbench = tables.sysbench.map(|_| {
        [
            "SELECT SUM(LENGTH(c)) FROM sbtest1 FORCE INDEX (PRIMARY)",
            "SELECT SUM(k) FROM sbtest1 FORCE INDEX (k_1)",
        ]
    });
    let pgbench = tables.pgbench.map(|_| {
        [
            "SELECT SUM(LENGTH(filler)) FROM pgbench_accounts FORCE INDEX (PRIMARY)",
            "SELECT SUM(bbalance) FROM pgbench_branches FORCE INDEX (PRIMARY)",
            "SELECT SUM(tbalance) FROM pgbench_tellers FORCE INDEX (PRIMARY)",
            "SELECT COUNT(*) FROM pgbench_history",
        ]
    });
    sysbench.into_iter().flatten().chain(pgbench.into_iter().flatten())
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

/// Those of `asked` that the server does not have as they were asked for.
pub(crate) fn unmet_settings(
    control: &Control,
    asked: &BTreeMap<String, String>,
) -> Result<Vec<Unmet>, Error> {
    let all = "SELECT LOWER(variable_name), global_value FROM information_schema.system_variables";
    let rows = control::query(&mut control.connect()?, "ask the server for its settings", all)?;
    let known: BTreeMap<String, String> = rows
        .into_iter()
        .filter_map(|row| <[String; 2]>::try_from(row).ok())
        .map(|[name, value]| (name, value))
        .collect();
    let unmet = asked.iter().filter_map(|(name, asked)| {
        let value = known.get(name);
        let met = value.is_some_and(|value| is_same(asked, value));
        (!met).then(|| Unmet { name: name.clone(), value: value.cloned() })
    });
    Ok(unmet.collect())
}

/// Whether a variable says `has` once `asked` took effect: the server writes out sizes and switches in its
/// own way. What it rounds or cuts is not the same.
fn is_same(asked: &str, has: &str) -> bool {
    let switch = |text: &str| match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    };
    let list = |text: &str| -> BTreeSet<String> {
        text.split(',').map(|word| word.trim().to_ascii_lowercase()).collect()
    };
    let numbers = size(asked).zip(size(has));
    list(asked) == list(has)
        || numbers.is_some_and(|(asked, has)| asked.total_cmp(&has).is_eq())
        || switch(asked).is_some() && switch(asked) == switch(has)
}

/// `1.5`, `64M`.
fn size(text: &str) -> Option<f64> {
    let plain = text.trim();
    let unit = plain.chars().last().and_then(|last| "KMGTPE".find(last.to_ascii_uppercase()));
    let number = if unit.is_some() { &plain[..plain.len() - 1] } else { plain };
    // Letters would make names of numbers out of it: infinity.
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte));
    let factor: f64 = unit.map_or(1.0, |unit| (0..=unit).map(|_| 1024.0).product());
    is_number.then(|| number.parse::<f64>().ok()).flatten().map(|number| number * factor)
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

    #[test]
    fn the_server_writes_values_in_its_own_way() {
        for (asked, has) in [
            ("64M", "67108864"),
            ("1g", "1073741824"),
            ("0.5", "0.500000"),
            ("off", "OFF"),
            ("1", "ON"),
            ("TRUE", "ON"),
            ("o_direct", "O_DIRECT"),
            ("TRADITIONAL,ANSI", "ANSI,TRADITIONAL"),
            ("", ""),
        ] {
            assert!(is_same(asked, has), "{asked} {has}");
        }
        for (asked, has) in [
            ("100M", "134217728"),
            ("1", "2"),
            ("0", "ON"),
            ("", "OFF"),
            ("ON", "1x"),
            ("ANSI", "ANSI,TRADITIONAL"),
        ] {
            assert!(!is_same(asked, has), "{asked} {has}");
        }
    }

    #[test]
    fn parsec_came_with_11_6() {
        for release in ["11.6.1", "11.8.6", "12.0.2"] {
            assert!(check_release(Auth::Parsec, release).is_ok(), "{release}");
        }
        for release in ["10.11.19", "11.4.3"] {
            let error = check_release(Auth::Parsec, release).unwrap_err().to_string();
            assert_eq!(error, format!("MariaDB {release} has no parsec: it came with 11.6"));
        }
        assert!(check_release(Auth::Ed25519, "10.11.19").is_ok());
    }
}
