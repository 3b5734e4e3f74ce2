//! The probe of a server at a URL: its engine, its version, and the TLS versions that it accepts.

use std::collections::BTreeMap;

use ciphertoll_model::{
    AddressFamily, DocumentsLogin, Engine, QueryLanguage, Refusal, Refused, ServerUrl, TlsVersion,
};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::mongodb;
use ciphertoll_wire::session::ServerInfo;
use serde_json::{Map, Value, json};

use super::connection::{UrlLogin, tls_versions};
use super::hosts::{self, ChosenHost};
use super::login::{
    Passwords, attempt, check_files, check_plaintext, no_connection, password_of, unreachable_server,
};
use super::member::{self, ChosenMember};
use crate::documents::commands::{self, command};
use crate::error::Error;
use crate::servers::control;

pub struct ProbedServer {
    /// The engine that answered: the URL's, or one with the same protocol.
    pub engine: Engine,
    /// The URL to use from here on: with the scheme of that engine, and with the chosen member of a replica set.
    pub url: ServerUrl,
    pub member: Option<ChosenMember>,
    pub host: Option<ChosenHost>,
    pub version: String,
    /// TLS versions that the server refuses.
    pub refusals: Vec<Refusal>,
    pub(super) facts: BTreeMap<String, String>,
    pub(super) family: AddressFamily,
    /// The most secure TLS version that the server accepts; `None` without TLS.
    pub(super) tls_version: Option<TlsVersion>,
}

/// Logs in once with each TLS version that `url` permits, and without TLS last. A certificate that does not verify or a TLS
/// file that cannot be used is an error before anything is sent without TLS. For MySQL, the order also fills the server's
/// password cache before the plaintext login, which then needs no unauthenticated RSA key. One of several hosts, or a
/// member of a replica set, is chosen first.
pub fn probe(name: &str, url: &ServerUrl, passwords: &Passwords) -> Result<ProbedServer, Error> {
    check_files(name, url)?;
    let host = hosts::choose_host(name, url, passwords)?;
    let member = member::discover(name, url)?;
    let url =
        member.as_ref().map(|member| &member.url).or(host.as_ref().map(|host| &host.url)).unwrap_or(url);
    let login = UrlLogin { url, password: &password_of(passwords, name) };
    let mut found: Option<ProbedServer> = None;
    let mut refused = Vec::new();
    for tls_version in tls_versions(url) {
        if found.is_none() {
            check_plaintext(name, url, tls_version, refused.first().map(|(_, error)| error))?;
        }
        match attempt(name, login, tls_version, refused.last().map(|(_, error)| error))? {
            Ok(mut client) => {
                let family = client.peer_family().unwrap_or(AddressFamily::V4);
                let (engine, version, facts) = match url.engine().query_language() {
                    QueryLanguage::Documents => identify_documents(name, url, &mut client)?,
                    QueryLanguage::Sql => {
                        let version = client.server().version().to_owned();
                        (identify_sql(url.engine(), &version), version, BTreeMap::new())
                    }
                };
                control::close(client)?;
                let own = if engine == url.engine() { url.clone() } else { url.spoken_by(engine) };
                let (url, member, host, refusals) = (own, member.clone(), host.clone(), Vec::new());
                found.get_or_insert(ProbedServer {
                    engine,
                    url,
                    member,
                    host,
                    version,
                    refusals,
                    facts,
                    family,
                    tls_version,
                });
            }
            Err(error) => refused.push((tls_version, error)),
        }
    }
    match (found, refused.first()) {
        (Some(mut found), _) => {
            found.refusals = refused.iter().map(|(version, error)| refusal(name, *version, error)).collect();
            Ok(found)
        }
        (None, Some((_, error))) => Err(unreachable_server(name, error)),
        (None, None) => Err(no_connection(name)),
    }
}

/// MariaDB and MySQL share a protocol, and `mysql://` is common for both: the version tells which one answers.
fn identify_sql(expected: Engine, version: &str) -> Engine {
    if !expected.is_mysql_family() {
        return expected;
    }
    if version.to_ascii_lowercase().contains("mariadb") { Engine::MariaDb } else { Engine::MySql }
}

fn refusal(name: &str, tls_version: Option<TlsVersion>, error: &ciphertoll_net::Error) -> Refusal {
    let reason = match tls_version {
        None => format!("{name} refuses connections without TLS: {error}"),
        Some(version) => format!("{name} refuses {version}: {error}"),
    };
    Refusal { server: name.to_owned(), what: Refused::Transport(tls_version), reason }
}

impl ProbedServer {
    /// Executes `statement` once, as clients of the run will.
    pub fn try_statement(&self, name: &str, passwords: &Passwords, statement: &str) -> Result<(), Error> {
        let login = UrlLogin { url: &self.url, password: &password_of(passwords, name) };
        let connected = login.connect(self.tls_version, self.url.database.as_deref(), None);
        let mut client = connected.map_err(|error| unreachable_server(name, &error))?;
        client.execute(statement).map_err(|error| match error {
            ciphertoll_net::Error::Protocol(refusal) => {
                Error::Statement { name: name.to_owned(), reason: refusal.to_string() }
            }
            error => unreachable_server(name, &error),
        })?;
        control::close(client)
    }
}

/// The engine and version of a document database, and facts for the record. Fails if its replica set is not the URL's.
fn identify_documents(
    name: &str,
    url: &ServerUrl,
    client: &mut Client,
) -> Result<(Engine, String, BTreeMap<String, String>), Error> {
    let mut facts = BTreeMap::new();
    if let (ServerInfo::MongoDb(server), Some(options)) = (client.server(), url.documents.as_deref()) {
        if options.replica_set.is_some() && options.replica_set != server.set_name {
            let expected = options.replica_set.as_deref().unwrap_or_default();
            let reason = match &server.set_name {
                Some(own) => format!("it is in the replica set {own}, not in {expected}"),
                None => format!("it is in no replica set, but its URL names {expected}"),
            };
            return Err(Error::Unreachable { name: name.to_owned(), reason });
        }
        facts.extend(member_facts(server, &options.login));
    }
    // Without the right to run it, the version of the protocol remains.
    let build_info = command("buildInfo", &json!(1), &[]);
    let info = commands::ask(client, "read the server's version", &build_info).unwrap_or_default();
    let (engine, version) = parse_build_info(&info, client.server().version());
    if engine == Engine::FerretDb
        && let Some(compatible) = text(&info, "version")
    {
        facts.insert("mongodb-version".to_owned(), compatible.to_owned());
    }
    Ok((engine, version, facts))
}

/// Facts about a member of a replica set, for the record.
fn member_facts(server: &mongodb::MongoDbServerInfo, login: &DocumentsLogin) -> Vec<(String, String)> {
    let set = server.set_name.iter().flat_map(|set| {
        let members = server.hosts.len().to_string();
        let role = server.role.described().trim_start_matches("the ").trim_start_matches("a ").to_owned();
        let preference = login.read_preference.label().to_owned();
        let facts = [
            ("replica-set", set.clone()),
            ("members", members),
            ("member", role),
            ("read-preference", preference),
        ];
        facts.map(|(name, value)| (name.to_owned(), value))
    });
    set.collect()
}

/// FerretDB 1 reports its version in an additional field, FerretDB 2 in a nested document.
fn parse_build_info(info: &Map<String, Value>, default_version: &str) -> (Engine, String) {
    let nested = info.get("ferretdb").and_then(Value::as_object).and_then(|own| text(own, "version"));
    if let Some(own) = nested.or_else(|| text(info, "ferretdbVersion")) {
        return (Engine::FerretDb, own.trim_start_matches('v').to_owned());
    }
    let engine = if info.contains_key("ferretdb") { Engine::FerretDb } else { Engine::MongoDb };
    (engine, text(info, "version").unwrap_or(default_version).to_owned())
}

fn text<'a>(document: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    document.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_identifies_mariadb_and_mysql() {
        let (mariadb, mysql) = (Engine::MariaDb, Engine::MySql);
        for expected in [mariadb, mysql] {
            assert_eq!(identify_sql(expected, "10.11.19-MariaDB-0+deb12u1"), mariadb);
            assert_eq!(identify_sql(expected, "8.0.33"), mysql);
        }
        assert_eq!(identify_sql(Engine::Postgres, "15.18"), Engine::Postgres);
    }

    fn of(text: &str) -> (Engine, String) {
        let Ok(Value::Object(info)) = serde_json::from_str(text) else { panic!("{text}") };
        parse_build_info(&info, "wire-21")
    }

    #[test]
    fn build_info_identifies_mongodb_and_ferretdb() {
        assert_eq!(of(r#"{"version": "7.0.14"}"#), (Engine::MongoDb, "7.0.14".to_owned()));
        assert_eq!(
            of(r#"{"version": "7.0.42", "ferretdbVersion": "v1.24.2"}"#),
            (Engine::FerretDb, "1.24.2".to_owned())
        );
        assert_eq!(
            of(r#"{"version": "7.0.77", "ferretdb": {"version": "v2.5.0"}}"#),
            (Engine::FerretDb, "2.5.0".to_owned())
        );
        assert_eq!(of(r#"{"ferretdb": {}}"#), (Engine::FerretDb, "wire-21".to_owned()));
        assert_eq!(of("{}"), (Engine::MongoDb, "wire-21".to_owned()));
    }
}
