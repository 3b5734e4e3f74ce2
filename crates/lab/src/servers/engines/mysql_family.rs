//! What MariaDB and MySQL share: the names of the accounts, the counters, how settings are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use sha1::{Digest, Sha1};

use crate::certificates::Authorities;
use crate::control::{self, Control};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::files::{self, PRIVATE_FILE};
use crate::hex::hex;
use crate::place::Place;
use crate::rows;
use crate::server::{Arrivals, Counters, Unmet};
use crate::tables::Tables;
use crate::user::RunAs;

/// The account that clients log in with.
pub(crate) const USER: &str = "ciphertoll";
/// The account of control connections, by the unix socket only: it may make accounts.
pub(crate) const CONTROL_USER: &str = "ciphertoll_control";
pub(crate) const TRUST_USER: &str = "ciphertoll_trust";
pub(crate) const CERT_USER: &str = "ciphertoll_cert";
/// What the log of a server says that could not have its port.
pub(crate) const PORT_TAKEN: &[&str] = &["Bind on TCP/IP port", "another mysqld server running on port"];

/// What `mysql_native_password` stores of a password.
pub(crate) fn native_hash(password: &Secret) -> String {
    let stored = Sha1::digest(Sha1::digest(password.expose()));
    format!("*{}", hex(&stored).to_ascii_uppercase())
}

/// Writes the statements that make the first accounts, to be run before the first login.
pub(crate) fn write_accounts(place: &Place, statements: &str, owner: RunAs) -> Result<PathBuf, Error> {
    let path = place.root.join("init.sql");
    files::write(&path, statements.as_bytes(), PRIVATE_FILE, owner)?;
    Ok(path)
}

/// The statements that make the first accounts, one a line; `identified` has no password in it, only what the server
/// stores of one.
pub(crate) fn first_accounts(identified: &str, control_rights: &str) -> String {
    let schema = rows::SCHEMA;
    format!(
        "CREATE USER '{USER}'@'%' {identified};\n\
         GRANT ALL ON {schema}.* TO '{USER}'@'%';\n\
         CREATE USER '{CONTROL_USER}'@'localhost' {identified};\n\
         GRANT {control_rights} ON *.* TO '{CONTROL_USER}'@'localhost';\n\
         GRANT ALL ON {schema}.* TO '{CONTROL_USER}'@'localhost' WITH GRANT OPTION;\n"
    )
}

/// Makes an account that may read and write the tables, and that lets in only those who show its certificate where
/// that is among its credentials.
pub(crate) fn make_account(
    control: &Control,
    credentials: Credentials,
    user: &str,
    identified: &str,
) -> Result<(), Error> {
    let demand = if credentials.need_a_certificate() {
        format!(" REQUIRE SUBJECT '/CN={user}' AND ISSUER '{}'", Authorities::issuer_of_clients())
    } else {
        String::new()
    };
    let mut client = control.connect()?;
    let statement = format!("CREATE USER '{user}'@'%' {identified}{demand}");
    control::execute(&mut client, "make an account", &statement)?;
    let grant = format!("GRANT ALL ON {}.* TO '{user}'@'%'", rows::SCHEMA);
    control::execute(&mut client, "let an account read and write", &grant)
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

/// Writes out the pages of all tables that have changed; they stay where they are in the buffers.
pub(crate) fn write_out(control: &Control, tables: &Tables) -> Result<(), Error> {
    let names: Vec<&str> = tables.names().collect();
    if names.is_empty() {
        return Ok(());
    }
    let doing = "write the tables out";
    let mut client = control.connect()?;
    control::execute(&mut client, doing, &format!("USE {}", rows::SCHEMA))?;
    control::execute(&mut client, doing, &format!("FLUSH TABLES {} FOR EXPORT", names.join(", ")))?;
    control::execute(&mut client, doing, "UNLOCK TABLES")
}

/// `InnoDB` changes rows where they are and clears away what was before by itself.
pub(crate) fn refresh(control: &Control, tables: &Tables) -> Result<(), Error> {
    let Some(history) = tables.history() else { return Ok(()) };
    let sql = format!("TRUNCATE TABLE {}.{history}", rows::SCHEMA);
    control::execute(&mut control.connect()?, "empty pgbench's history", &sql)
}

pub(crate) fn buffer_misses(control: &Control) -> Result<u64, Error> {
    misses(&mut control.connect()?)
}

fn misses(client: &mut Client) -> Result<u64, Error> {
    let sql = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_reads'";
    let rows = control::query(client, "read the server's counters", sql)?;
    let value = rows.into_iter().flatten().next_back().and_then(|value| value.parse().ok());
    value.ok_or(Error::NoCounter("Innodb_buffer_pool_reads"))
}

/// What `InnoDB` has counted. How often it has made a checkpoint it does not say: it moves the one it has on all the time.
/// How much redo lies behind it says, MariaDB by a variable of that name and MySQL from 8.0.30 on by its two ends.
pub(crate) fn counters(control: &Control) -> Result<Counters, Error> {
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
    let said = pairs(control::query(&mut control.connect()?, "read the server's counters", &sql)?);
    let number = |name: &str| said.get(name).and_then(|value| value.parse::<u64>().ok());
    let [misses, read, written, wal_bytes, wal_syncs, age, lsn, checkpoint_lsn] = NAMES.map(number);
    let between = || lsn.zip(checkpoint_lsn).map(|(last, checkpoint)| last.saturating_sub(checkpoint));
    Ok(Counters {
        buffer_misses: Some(misses.ok_or(Error::NoCounter(NAMES[0]))?),
        pages_read: read,
        pages_written: written,
        wal_bytes,
        wal_syncs,
        checkpoint_age_bytes: age.or_else(between),
        ..Counters::default()
    })
}

/// What came to the server so far; control connections are not apart.
pub(crate) fn arrivals(control: &Control) -> Result<Arrivals, Error> {
    let names = ["Connections", "Ssl_finished_accepts", "Questions"];
    let sql = format!("SHOW GLOBAL STATUS WHERE Variable_name IN ('{}')", names.join("', '"));
    let said = pairs(control::query(&mut control.connect()?, "read the server's counters", &sql)?);
    let [connections, encrypted, requests] =
        names.map(|name| said.get(name).and_then(|value| value.parse().ok()).ok_or(Error::NoCounter(name)));
    Ok(Arrivals {
        connections: Some(connections?),
        encrypted: Some(encrypted?),
        requests: Some(requests?),
        ..Arrivals::default()
    })
}

/// What a connection has agreed on, as it says itself: names and values.
pub(crate) const OWN_ENCRYPTION: &str =
    "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')";

/// Those of `asked` that the server does not have as they were asked for; `all` asks it for names and values.
pub(crate) fn unmet_settings(
    control: &Control,
    all: &str,
    asked: &BTreeMap<String, String>,
) -> Result<Vec<Unmet>, Error> {
    let known = pairs(control::query(&mut control.connect()?, "ask the server for its settings", all)?);
    let unmet = asked.iter().filter_map(|(name, asked)| {
        let value = known.get(name);
        let met = value.is_some_and(|value| is_same(asked, value));
        (!met).then(|| Unmet { name: name.clone(), value: value.cloned() })
    });
    Ok(unmet.collect())
}

/// Rows of names and values.
pub(crate) fn pairs(rows: Vec<Vec<String>>) -> BTreeMap<String, String> {
    let pairs = rows.into_iter().filter_map(|row| <[String; 2]>::try_from(row).ok());
    pairs.map(|[name, value]| (name, value)).collect()
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
    fn the_first_accounts_are_made_of_the_hash_only() {
        let hash = native_hash(&Secret::new(b"hunter2".to_vec()));
        // SELECT PASSWORD('hunter2')
        assert_eq!(hash, "*58815970BE77B3720276F63DB198B1FA42E5CC02");
        let statements = first_accounts(&format!("IDENTIFIED AS '{hash}'"), "RELOAD");
        assert_eq!((statements.matches(&hash).count(), statements.matches("hunter2").count()), (2, 0));
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
}
