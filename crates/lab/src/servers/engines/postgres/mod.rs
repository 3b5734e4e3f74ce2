//! What only `PostgreSQL` does: its roles, its counters, how it is asked.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{Auth, ClientCertificate};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::{Secret, scram};
use nix::unistd::{User, geteuid};
use openssl::hash::{MessageDigest, hash};

use crate::config::CLIENT_CA_FILE;
use crate::control::{self, Control, RETRY_AFTER};
use crate::credentials::Credentials;
use crate::error::{Context, Error};
use crate::files::{self, PRIVATE_FILE, PUBLIC_FILE};
use crate::hex::hex;
use crate::place::Place;
use crate::rows;
use crate::server::{About, Arrivals, CertificateRequest, Counters, Encryption, Unmet};
use crate::tables::Tables;
use crate::user::RunAs;

/// The superuser of control connections. Only the user who runs us is let in as it, by the unix socket.
pub(crate) const CONTROL_ROLE: &str = "ciphertoll";
/// The role for [`Auth::default_of`].
pub(crate) const DEFAULT_ROLE: &str = "toll_scram_4096";
/// Group of the roles that log in with SCRAM: a rule for each would have to know all iteration counts.
pub(crate) const SCRAM_GROUP: &str = "toll_scram";
/// The same of those that show a certificate beside.
const SCRAM_GROUP_MTLS: &str = "toll_scram_group_mtls";
const MD5_ROLE: &str = "toll_md5";
const TRUST_ROLE: &str = "toll_trust";
const CERT_ROLE: &str = "toll_cert";
const ACCESS_RULES: &str = "pg_hba.conf";
/// What the log of a server says that could not have its port.
pub(crate) const PORT_TAKEN: &[&str] = &["could not create any TCP/IP sockets", "could not bind"];

/// A reload takes milliseconds; on a loaded machine, some more.
const RELOAD_LIMIT: Duration = Duration::from_mins(1);
/// How long connections that were closed may take to end and to hand over their counts.
const ENDING_LIMIT: Duration = Duration::from_secs(1);

/// Writes who may log in and how; the next file beside it maps our own user to the control role.
pub(crate) fn write_access_rules(place: &Place, owner: RunAs) -> Result<PathBuf, Error> {
    let path = place.root.join(ACCESS_RULES);
    files::write(&path, access_rules().as_bytes(), PRIVATE_FILE, owner)?;
    let user = User::from_uid(geteuid()).ok().flatten();
    let name = user.map(|user| user.name).ok_or_else(|| {
        Error::NoServerUser(format!("PostgreSQL knows users by name, and ours ({}) has none", geteuid()))
    })?;
    let map = format!("lab \"{}\" {CONTROL_ROLE}\n", name.replace('"', "\"\""));
    files::write(&identity_map(&path), map.as_bytes(), PRIVATE_FILE, owner)?;
    Ok(path)
}

/// The map of users beside the access rules.
pub(crate) fn identity_map(access_rules: &Path) -> PathBuf {
    access_rules.with_file_name("pg_ident.conf")
}

/// What is read where the server shall ask clients for a certificate.
pub(crate) fn certificate_request_file(access_rules: &Path) -> PathBuf {
    access_rules.with_file_name("certificate-request.conf")
}

/// Where clients may come from: loopback, and the far ends of made links and of VPNs.
const CLIENT_NETWORKS: [&str; 4] = ["127.0.0.0/8", "10.77.0.0/24", "10.78.0.0/24", "10.79.0.0/24"];

/// Rules for roles that are not there let nobody in.
fn access_rules() -> String {
    let mut rules = format!("local all {CONTROL_ROLE} peer map=lab\n");
    let scram = format!("+{SCRAM_GROUP}");
    for (role, method) in [(TRUST_ROLE, "trust"), (MD5_ROLE, "md5"), (scram.as_str(), "scram-sha-256")] {
        // Writing to a string cannot fail.
        let _ = writeln!(rules, "local {} {role} {method}", rows::SCHEMA);
        for network in CLIENT_NETWORKS {
            let _ = writeln!(rules, "host {} {role} {network} {method}", rows::SCHEMA);
        }
    }
    let scram = format!("+{SCRAM_GROUP_MTLS}");
    let [trust, md5] = [TRUST_ROLE, MD5_ROLE].map(|role| format!("{role}_mtls"));
    for (role, method) in [
        (CERT_ROLE, "cert"),
        (&trust, "trust clientcert=verify-full"),
        (&md5, "md5 clientcert=verify-full"),
        (&scram, "scram-sha-256 clientcert=verify-full"),
    ] {
        for network in CLIENT_NETWORKS {
            let _ = writeln!(rules, "hostssl {} {role} {network} {method}", rows::SCHEMA);
        }
    }
    rules
}

/// The role that clients with these credentials log in as; their certificates have it as their common name, too.
pub(crate) fn role_name(credentials: Credentials) -> String {
    let role = match credentials.auth {
        Auth::Trust => TRUST_ROLE.to_owned(),
        Auth::Md5 => MD5_ROLE.to_owned(),
        // Whether the proof is bound is for the client to say.
        Auth::Scram { iterations, .. } => format!("{SCRAM_GROUP}_{}", iterations.number()),
        Auth::Cert => CERT_ROLE.to_owned(),
        // There is none; whoever asks for it is told so before.
        auth @ (Auth::ScramSha1
        | Auth::Native
        | Auth::CachingSha2
        | Auth::Ed25519
        | Auth::Parsec
        | Auth::AsAsked) => {
            format!("toll_{auth}")
        }
    };
    format!("{role}{}", credentials.account_suffix())
}

/// Makes the role for these credentials. The password itself is in no statement, only what the server stores of it.
pub(crate) fn make_role(control: &Control, credentials: Credentials, password: &Secret) -> Result<(), Error> {
    let auth = credentials.auth;
    let role = role_name(credentials);
    let scram_group = match credentials.client_certificate {
        ClientCertificate::None => SCRAM_GROUP,
        ClientCertificate::Demanded => SCRAM_GROUP_MTLS,
    };
    let options = match auth {
        Auth::Trust | Auth::Cert => String::new(),
        Auth::Md5 => format!("PASSWORD '{}'", md5_verifier(password, &role)?),
        Auth::Scram { iterations, .. } => {
            let verifier = scram::Verifier::of(password.expose(), iterations.number())?.text();
            format!("PASSWORD '{}' IN ROLE {scram_group}", verifier.as_str())
        }
        Auth::ScramSha1 | Auth::Native | Auth::CachingSha2 | Auth::Ed25519 | Auth::Parsec | Auth::AsAsked => {
            let reason = format!("PostgreSQL has no {auth}");
            return Err(Error::AuthUnavailable { auth: auth.to_string(), reason });
        }
    };
    let mut client = control.connect()?;
    // One transaction: a role that could log in but not read would not be made again.
    let statements = format!(
        "CREATE ROLE {role} LOGIN {options}; GRANT ALL ON SCHEMA public TO {role}; \
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
    );
    control::execute(&mut client, "make a role", &statements)
}

fn md5_verifier(password: &Secret, role: &str) -> Result<String, Error> {
    let digest = hash(MessageDigest::md5(), &[password.expose(), role.as_bytes()].concat())?;
    Ok(format!("md5{}", hex(&digest)))
}

/// Makes the server ask for clients' certificates, or ask no more, from the next connection on.
pub(crate) fn request_certificates(
    control: &Control,
    place: &Place,
    wanted: CertificateRequest,
) -> Result<(), Error> {
    let path = certificate_request_file(&place.root.join(ACCESS_RULES));
    match wanted {
        CertificateRequest::Sent => {
            let authority = place.root.join(CLIENT_CA_FILE).display().to_string().replace('\'', "''");
            // No secret, and so in no need of the server as its owner.
            files::write(
                &path,
                format!("ssl_ca_file = '{authority}'\n").as_bytes(),
                PUBLIC_FILE,
                RunAs::Ourselves,
            )?;
        }
        CertificateRequest::Omitted => std::fs::remove_file(&path).context("remove", &path)?,
    }
    reload(control)
}

/// Makes the server read its files again, and waits until a new connection says that it has. A new one,
/// as the first process has then done all of it: connections that are there read them by themselves.
pub(crate) fn reload(control: &Control) -> Result<(), Error> {
    let doing = "make the server read its configuration";
    let loaded = |client: &mut Client| control::query(client, doing, "SELECT pg_conf_load_time()");
    let mut client = control.connect()?;
    let before = loaded(&mut client)?;
    control::execute(&mut client, doing, "SELECT pg_reload_conf()")?;
    let deadline = Instant::now() + RELOAD_LIMIT;
    while loaded(&mut control.connect()?)? == before {
        if Instant::now() >= deadline {
            return Err(Error::NotReloaded { limit: RELOAD_LIMIT });
        }
        thread::sleep(RETRY_AFTER);
    }
    Ok(())
}

/// Reads tables and indexes until none of their pages comes from outside the buffers any more, or a pass
/// brings no fewer than the one before. By the indexes: a sequential scan of a large table uses a few
/// buffers over and over and leaves the rest as they were.
pub(crate) fn prewarm(control: &Control, tables: &Tables) -> Result<(), Error> {
    let doing = "read all rows once";
    let mut client = control.connect()?;
    for setting in ["enable_seqscan", "enable_bitmapscan", "max_parallel_workers_per_gather"] {
        control::execute(&mut client, doing, &format!("SET {setting} = 0"))?;
    }
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

/// Touches every page of rows by an index, then those that no row is on yet: the server prepares some.
fn read_all(tables: &Tables) -> impl Iterator<Item = &'static str> {
    let sysbench = tables.sysbench.map(|_| {
        [
            "SELECT sum(length(c)) FROM sbtest1 WHERE id >= 0",
            "SELECT sum(k) FROM sbtest1 WHERE k >= 0",
            "SELECT count(pad) FROM sbtest1",
        ]
    });
    let pgbench = tables.pgbench.map(|_| {
        [
            "SELECT sum(length(filler)) FROM pgbench_accounts WHERE aid >= 0",
            "SELECT sum(bbalance) FROM pgbench_branches WHERE bid >= 0",
            "SELECT sum(tbalance) FROM pgbench_tellers WHERE tid >= 0",
            "SELECT count(filler) FROM pgbench_accounts",
            "SELECT count(filler) FROM pgbench_branches",
            "SELECT count(filler) FROM pgbench_tellers",
            "SELECT count(filler) FROM pgbench_history",
        ]
    });
    sysbench.into_iter().flatten().chain(pgbench.into_iter().flatten())
}

/// Writes out everything that has changed.
pub(crate) fn write_out(control: &Control) -> Result<(), Error> {
    control::execute(&mut control.connect()?, "write everything out", "CHECKPOINT")
}

/// Clears dead rows away, which is else done in the background at any time, and builds the indexes anew.
pub(crate) fn refresh(control: &Control, tables: &Tables) -> Result<(), Error> {
    let mut client = control.connect()?;
    if let Some(history) = tables.history() {
        control::execute(&mut client, "empty pgbench's history", &format!("TRUNCATE {history}"))?;
    }
    for table in tables.names() {
        control::execute(&mut client, "clear dead rows away", &format!("VACUUM ANALYZE {table}"))?;
        control::execute(&mut client, "build the indexes anew", &format!("REINDEX TABLE {table}"))?;
    }
    Ok(())
}

/// Connections hand their counts over when they end at the latest, so those that were closed just now
/// are awaited.
pub(crate) fn buffer_misses(control: &Control) -> Result<u64, Error> {
    let mut client = control.connect()?;
    await_others(&mut client)?;
    misses(&mut client)
}

/// From 15 on. Before, counts came by way of another process …
const COUNTS_AT_ONCE: u64 = 150_000;
/// … which tells what is up to half a second old.
const WRITTEN_OUT_EVERY: Duration = Duration::from_millis(600);

/// What the server has counted of pages, WAL and checkpoints; those that were closed just now are awaited.
pub(crate) fn counters(control: &Control) -> Result<Counters, Error> {
    let mut client = control.connect()?;
    await_others(&mut client)?;
    let version = number(&mut client, "SHOW server_version_num", "server_version_num")?;
    if version < COUNTS_AT_ONCE {
        thread::sleep(WRITTEN_OUT_EVERY);
    }
    let buffer_misses = misses(&mut client)?;
    let rows = control::query(&mut client, "read the server's counters", &all_counters(version))?;
    let mut values = rows.into_iter().flatten().map(|value| value.parse::<u64>().ok());
    let mut next = || values.next().flatten();
    Ok(Counters {
        buffer_misses: Some(buffer_misses),
        pages_read: next(),
        pages_written: next(),
        wal_bytes: next(),
        full_page_images: next(),
        wal_syncs: next(),
        checkpoints_begun: next(),
        checkpoint_lsn: next(),
        checkpoints_completed: next(),
        checkpoint_age_bytes: None,
    })
}

/// One row of them: each version has moved some. Pages that the server's processes wrote themselves are counted together
/// with those by which they made files longer up to 15, and without them from there on.
fn all_counters(version: u64) -> String {
    let written = match version {
        ..160_000 => "SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter",
        160_000..180_000 => "SELECT sum(writes)::bigint FROM pg_stat_io WHERE object = 'relation'",
        _ => {
            "SELECT (sum(write_bytes) / current_setting('block_size')::int)::bigint FROM pg_stat_io \
             WHERE object = 'relation'"
        }
    };
    let syncs = match version {
        ..180_000 => "SELECT wal_sync FROM pg_stat_wal",
        _ => "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'",
    };
    let begun = match version {
        ..170_000 => "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter",
        _ => "SELECT num_timed + num_requested FROM pg_stat_checkpointer",
    };
    let done = match version {
        ..180_000 => "SELECT ''",
        _ => "SELECT num_done::text FROM pg_stat_checkpointer",
    };
    let counters = [
        "SELECT sum(blks_read)::bigint FROM pg_stat_database",
        written,
        "SELECT wal_bytes::bigint FROM pg_stat_wal",
        "SELECT wal_fpi FROM pg_stat_wal",
        syncs,
        begun,
        "SELECT (checkpoint_lsn - '0/0')::bigint FROM pg_control_checkpoint()",
        done,
    ];
    format!("SELECT ({})", counters.join("), ("))
}

/// What came to the server so far, as far as it counts it; control connections are not apart. Those that were closed
/// just now are awaited.
pub(crate) fn arrivals(control: &Control) -> Result<Arrivals, Error> {
    let mut client = control.connect()?;
    await_others(&mut client)?;
    let version = number(&mut client, "SHOW server_version_num", "server_version_num")?;
    if version < COUNTS_AT_ONCE {
        return Ok(Arrivals::default());
    }
    let of_database =
        |what: &str| format!("SELECT {what} FROM pg_stat_database WHERE datname = current_database()");
    let connections = number(&mut client, &of_database("sessions"), "sessions")?;
    let requests = number(&mut client, &of_database("xact_commit + xact_rollback"), "xact_commit")?;
    Ok(Arrivals { connections: Some(connections), requests: Some(requests), ..Arrivals::default() })
}

/// What the connections of `role` have agreed on that stand now.
pub(crate) fn standing(client: &mut Client, role: &str) -> Result<Vec<(Encryption, u64)>, Error> {
    let sql = format!(
        "SELECT coalesce(s.version, ''), coalesce(s.cipher, ''), count(*) \
         FROM pg_stat_activity a JOIN pg_stat_ssl s ON s.pid = a.pid \
         WHERE a.backend_type = 'client backend' AND a.usename = '{role}' GROUP BY 1, 2"
    );
    let rows = control::query(client, "ask the server for its connections", &sql)?;
    let row = |row: Vec<String>| {
        let [version, suite, count] = <[String; 3]>::try_from(row).ok()?;
        Some((Encryption::told(&version, &suite), count.parse().ok()?))
    };
    Ok(rows.into_iter().filter_map(row).collect())
}

/// What a connection has agreed on, as it says itself.
pub(crate) const OWN_ENCRYPTION: &str =
    "SELECT coalesce(version, ''), coalesce(cipher, '') FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

fn await_others(client: &mut Client) -> Result<(), Error> {
    let others = "SELECT count(*) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let deadline = Instant::now() + ENDING_LIMIT;
    while number(client, others, "pg_stat_activity")? > 0 && Instant::now() < deadline {
        thread::sleep(RETRY_AFTER);
    }
    Ok(())
}

fn misses(client: &mut Client) -> Result<u64, Error> {
    let doing = "read the server's counters";
    let version = number(client, "SHOW server_version_num", "server_version_num")?;
    // Else a connection keeps its counts to itself for a second or more.
    if version >= COUNTS_AT_ONCE {
        control::execute(client, doing, "SELECT pg_stat_force_next_flush()")?;
    }
    let reads = "SELECT coalesce(sum(heap_blks_read + coalesce(idx_blks_read, 0)), 0)::bigint \
         FROM pg_statio_user_tables";
    number(client, reads, "heap_blks_read and idx_blks_read")
}

fn number(client: &mut Client, sql: &str, counter: &'static str) -> Result<u64, Error> {
    let rows = control::query(client, "read the server's counters", sql)?;
    let value = rows.into_iter().flatten().next().and_then(|value| value.parse().ok());
    value.ok_or(Error::NoCounter(counter))
}

/// What the server says of itself; paths are left out of the settings.
pub(crate) fn ask(control: &Control) -> Result<About, Error> {
    let doing = "ask the server about itself";
    let mut client = control.connect()?;
    let identity = "SELECT current_setting('server_version'), current_setting('ssl_library')";
    let mut identity = control::query(&mut client, doing, identity)?.into_iter().flatten();
    let version = identity.next().unwrap_or_default();
    let tls_library = identity.next().filter(|library| !library.is_empty());
    let changed = "SELECT name, current_setting(name) FROM pg_settings \
         WHERE source IN ('configuration file', 'command line')";
    let rows = control::query(&mut client, doing, changed)?;
    let pairs = rows.into_iter().filter_map(|row| <[String; 2]>::try_from(row).ok());
    let settings =
        pairs.filter(|[_, value]| !value.starts_with('/')).map(|[name, value]| (name, value)).collect();
    Ok(About { version, tls_library, settings })
}

/// Those of `asked` that the server does not have from its file. It is left to the server to compare: `64MB`
/// and `65536kB` are the same to it.
pub(crate) fn unmet_settings(
    control: &Control,
    asked: &BTreeMap<String, String>,
) -> Result<Vec<Unmet>, Error> {
    // A setting counts where its value comes from the line that has it. Names may be in any case.
    let all = "SELECT lower(s.name), current_setting(s.name), (f.name IS NOT NULL)::text \
         FROM pg_settings s LEFT JOIN pg_file_settings f \
         ON lower(f.name) = lower(s.name) AND f.sourcefile = s.sourcefile AND f.sourceline = s.sourceline \
         AND f.applied";
    let rows = control::query(&mut control.connect()?, "ask the server for its settings", all)?;
    let known: BTreeMap<String, (String, bool)> = rows
        .into_iter()
        .filter_map(|row| <[String; 3]>::try_from(row).ok())
        .map(|[name, value, from_file]| (name, (value, from_file == "true")))
        .collect();
    let unmet = asked.keys().filter_map(|name| match known.get(name) {
        Some((_, true)) => None,
        Some((value, false)) => Some(Unmet { name: name.clone(), value: Some(value.clone()) }),
        None => Some(Unmet { name: name.clone(), value: None }),
    });
    Ok(unmet.collect())
}

/// Makes what every role of ours needs, while the template is made.
pub(crate) fn make_groups(client: &mut Client) -> Result<(), Error> {
    [SCRAM_GROUP, SCRAM_GROUP_MTLS].iter().try_for_each(|group| {
        control::execute(client, "make a group of roles", &format!("CREATE ROLE {group} NOLOGIN"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_roles_for_clients_may_come_by_tcp() {
        let rules = access_rules();
        assert_eq!(rules.lines().count(), 4 + CLIENT_NETWORKS.len() * (4 + 3));
        let by_tcp: Vec<&str> = rules.lines().filter(|rule| rule.starts_with("host")).collect();
        let from = |rule: &str| CLIENT_NETWORKS.iter().any(|network| rule.contains(network));
        assert!(by_tcp.iter().all(|rule| rule.contains("toll_") && from(rule)), "{rules}");
        let with_certificate: Vec<&str> = rules.lines().filter(|rule| rule.starts_with("hostssl")).collect();
        assert!(with_certificate.contains(&"hostssl sbtest toll_cert 127.0.0.0/8 cert"), "{rules}");
        let mutual = with_certificate.iter().filter(|rule| rule.contains("_mtls"));
        let verified = mutual.filter(|rule| rule.ends_with(" clientcert=verify-full")).count();
        assert_eq!(verified, CLIENT_NETWORKS.len() * 3, "{rules}");
        assert!(rules.starts_with("local all ciphertoll peer map=lab\n"), "{rules}");
    }

    #[test]
    fn roles_are_named_by_what_the_server_stores() {
        let default = Auth::default_of(ciphertoll_model::Engine::Postgres);
        assert_eq!(role_name(default.into()), DEFAULT_ROLE);
        let bound: Auth = "scram-4096+plus".parse().unwrap();
        assert_eq!(role_name(bound.into()), DEFAULT_ROLE);
        let mutual = Credentials { auth: bound, client_certificate: ClientCertificate::Demanded };
        assert_eq!(role_name(mutual), "toll_scram_4096_mtls");
    }

    #[test]
    fn md5_is_of_password_and_role() {
        // SELECT 'md5' || md5('hunter2' || 'toll_md5')
        let verifier = md5_verifier(&Secret::new(b"hunter2".to_vec()), MD5_ROLE).unwrap();
        assert_eq!(verifier, "md56a2dce1e6482e3e0cebe523840fc25cf");
    }
}
