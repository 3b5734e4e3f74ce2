//! Statements and queries of MariaDB and MySQL.

use std::collections::{BTreeMap, BTreeSet};

use ciphertoll_host::hex::hex;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use sha1::{Digest, Sha1};

use super::variant::{CONTROL_USER, USER};
use crate::datasets::sysbench;
use crate::error::Error;
use crate::servers::control::{self, ControlLogin};
use crate::servers::counters::{ConnectionCounts, Counters};
use crate::servers::engine::UnmetSetting;
use crate::tls::certificates::Authorities;
use crate::tls::credentials::Credentials;

/// The hash that `mysql_native_password` stores.
pub(crate) fn native_hash(password: &Secret) -> String {
    let stored = Sha1::digest(Sha1::digest(password.expose()));
    format!("*{}", hex(&stored).to_ascii_uppercase())
}

/// Statements that create the first accounts, one per line; `identified` contains a password hash only.
pub(crate) fn first_accounts(identified: &str, control_rights: &str) -> String {
    let schema = sysbench::SCHEMA;
    format!(
        "CREATE USER '{USER}'@'%' {identified};\n\
         GRANT ALL ON {schema}.* TO '{USER}'@'%';\n\
         CREATE USER '{CONTROL_USER}'@'localhost' {identified};\n\
         GRANT {control_rights} ON *.* TO '{CONTROL_USER}'@'localhost';\n\
         GRANT ALL ON {schema}.* TO '{CONTROL_USER}'@'localhost' WITH GRANT OPTION;\n"
    )
}

/// Creates an account that may read and write the tables, and that requires its client certificate if `credentials` do.
pub(crate) fn create_account(
    control: &ControlLogin,
    credentials: Credentials,
    user: &str,
    identified: &str,
) -> Result<(), Error> {
    let requirement = if credentials.require_certificate() {
        format!(" REQUIRE SUBJECT '/CN={user}' AND ISSUER '{}'", Authorities::issuer_of_clients())
    } else {
        String::new()
    };
    let mut client = control.connect()?;
    let statement = format!("CREATE USER '{user}'@'%' {identified}{requirement}");
    control::execute(&mut client, "create an account", &statement)?;
    let grant = format!("GRANT ALL ON {}.* TO '{user}'@'%'", sysbench::SCHEMA);
    control::execute(&mut client, "grant an account access to the tables", &grant)
}

/// Statements that read every page of tables and indexes.
pub(super) const READ_SYSBENCH: [&str; 2] = [
    "SELECT SUM(LENGTH(c)) FROM sbtest1 FORCE INDEX (PRIMARY)",
    "SELECT SUM(k) FROM sbtest1 FORCE INDEX (k_1)",
];
pub(super) const READ_PGBENCH: [&str; 4] = [
    "SELECT SUM(LENGTH(filler)) FROM pgbench_accounts FORCE INDEX (PRIMARY)",
    "SELECT SUM(bbalance) FROM pgbench_branches FORCE INDEX (PRIMARY)",
    "SELECT SUM(tbalance) FROM pgbench_tellers FORCE INDEX (PRIMARY)",
    "SELECT COUNT(*) FROM pgbench_history",
];

/// A connection to the schema of the tables.
pub(super) fn connect(control: &ControlLogin, doing: &'static str) -> Result<Client, Error> {
    let mut client = control.connect()?;
    control::execute(&mut client, doing, &format!("USE {}", sysbench::SCHEMA))?;
    Ok(client)
}

pub(crate) fn buffer_misses(client: &mut Client) -> Result<u64, Error> {
    let sql = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_reads'";
    let rows = control::query(client, "read the server's counters", sql)?;
    let value = rows.into_iter().flatten().next_back().and_then(|value| value.parse().ok());
    value.ok_or(Error::NoCounter("Innodb_buffer_pool_reads"))
}

/// InnoDB does not count checkpoints: it advances its checkpoint continuously. The checkpoint age is a status variable of
/// MariaDB; on MySQL from 8.0.30 it is the difference of two log positions.
pub(crate) fn counters(control: &ControlLogin) -> Result<Counters, Error> {
    const NAMES: [&str; 8] = [
        "Innodb_buffer_pool_reads",
        "Innodb_pages_read",
        "Innodb_pages_written",
        "Innodb_os_log_written",
        "Innodb_os_log_fsyncs",
        "Innodb_checkpoint_age",
        "Innodb_redo_log_current_lsn",
        "Innodb_redo_log_checkpoint_lsn",
    ];
    let sql = format!("SHOW GLOBAL STATUS WHERE Variable_name IN ('{}')", NAMES.join("', '"));
    let status = pairs(control::query(&mut control.connect()?, "read the server's counters", &sql)?);
    let number = |name: &str| status.get(name).and_then(|value| value.parse::<u64>().ok());
    let [misses, read, written, wal_bytes, wal_syncs, age, lsn, checkpoint_lsn] = NAMES.map(number);
    let difference = || lsn.zip(checkpoint_lsn).map(|(last, checkpoint)| last.saturating_sub(checkpoint));
    Ok(Counters {
        buffer_misses: Some(misses.ok_or(Error::NoCounter(NAMES[0]))?),
        pages_read: read,
        pages_written: written,
        wal_bytes,
        wal_syncs,
        checkpoint_age_bytes: age.or_else(difference),
        ..Counters::default()
    })
}

/// Includes control connections.
pub(crate) fn connection_counts(control: &ControlLogin) -> Result<ConnectionCounts, Error> {
    let names = ["Connections", "Ssl_finished_accepts", "Questions"];
    let sql = format!("SHOW GLOBAL STATUS WHERE Variable_name IN ('{}')", names.join("', '"));
    let status = pairs(control::query(&mut control.connect()?, "read the server's counters", &sql)?);
    let [connections, encrypted, requests] =
        names.map(|name| status.get(name).and_then(|value| value.parse().ok()).ok_or(Error::NoCounter(name)));
    Ok(ConnectionCounts {
        connections: Some(connections?),
        encrypted: Some(encrypted?),
        requests: Some(requests?),
        ..ConnectionCounts::default()
    })
}

/// The settings in `requested` with another value; the query `all` returns names and values.
pub(crate) fn unmet_settings(
    control: &ControlLogin,
    all: &str,
    requested: &BTreeMap<String, String>,
) -> Result<Vec<UnmetSetting>, Error> {
    let known = pairs(control::query(&mut control.connect()?, "read the server's settings", all)?);
    let unmet = requested.iter().filter_map(|(name, requested)| {
        let value = known.get(name);
        let met = value.is_some_and(|value| is_same(requested, value));
        (!met).then(|| UnmetSetting { name: name.clone(), value: value.cloned() })
    });
    Ok(unmet.collect())
}

pub(crate) fn pairs(rows: Vec<Vec<String>>) -> BTreeMap<String, String> {
    let pairs = rows.into_iter().filter_map(|row| <[String; 2]>::try_from(row).ok());
    pairs.map(|[name, value]| (name, value)).collect()
}

/// Whether `actual` is the server's spelling of `requested`: it normalizes sizes and switches. A rounded or limited value
/// is different.
fn is_same(requested: &str, actual: &str) -> bool {
    let switch = |text: &str| match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    };
    let list = |text: &str| -> BTreeSet<String> {
        text.split(',').map(|word| word.trim().to_ascii_lowercase()).collect()
    };
    let numbers = size(requested).zip(size(actual));
    list(requested) == list(actual)
        || numbers.is_some_and(|(requested, actual)| requested.total_cmp(&actual).is_eq())
        || switch(requested).is_some() && switch(requested) == switch(actual)
}

/// `1.5`, `64M`.
fn size(text: &str) -> Option<f64> {
    let plain = text.trim();
    let unit = plain.chars().last().and_then(|last| "KMGTPE".find(last.to_ascii_uppercase()));
    let number = if unit.is_some() { &plain[..plain.len() - 1] } else { plain };
    // Excludes "infinity" and the like.
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte));
    let factor: f64 = unit.map_or(1.0, |unit| (0..=unit).map(|_| 1024.0).product());
    is_number.then(|| number.parse::<f64>().ok()).flatten().map(|number| number * factor)
}

/// The accounts of a new data directory have no passwords. The locked owners of system views stay; our own account is
/// dropped last.
pub(crate) fn drop_accounts(client: &mut Client) -> Result<(), Error> {
    let doing = "drop the accounts without passwords";
    let accounts = "SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user \
         WHERE user NOT IN ('mariadb.sys', 'mysql.sys', 'mysql.session', 'mysql.infoschema') ORDER BY user = 'root' AND host = 'localhost'";
    for account in control::query(client, doing, accounts)?.into_iter().flatten() {
        control::execute(client, doing, &format!("DROP USER {account}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_the_server_spells_them() {
        for (requested, actual) in [
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
            assert!(is_same(requested, actual), "{requested} {actual}");
        }
        for (requested, actual) in [
            ("100M", "134217728"),
            ("1", "2"),
            ("0", "ON"),
            ("", "OFF"),
            ("ON", "1x"),
            ("ANSI", "ANSI,TRADITIONAL"),
        ] {
            assert!(!is_same(requested, actual), "{requested} {actual}");
        }
    }
}
