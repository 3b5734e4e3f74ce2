//! A server of documents at a URL: the member of its replica set that is gone to, who it is that answers there, and the
//! records that are loaded where that was asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{
    DocumentsLogin, Engine, LoginMechanism, ReadPreference, Scale, ServerUrl, SetConnection, TlsDemand,
    UrlHost, ycsb,
};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::mongodb::{self, Discovery, DiscoveryError, MemberRole};
use ciphertoll_wire::session::{Login, ServerInfo};
use ciphertoll_wire::{Secret, session};
use serde_json::{Map, Value, json};

use super::{Remote, Visitor, Way, is_unverified, unverified, ways};
use crate::control::{self, Control};
use crate::documents::{self, command};
use crate::error::Error;
use crate::loading::Watcher;

/// How long hosts that are asked at the same time may take, as drivers wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the whole search may take, as drivers search.
const SEARCH_LIMIT: Duration = Duration::from_secs(30);
/// How long an answer to TLS may take where it is not known whether TLS is spoken: a server that waits for a message of its
/// protocol says nothing at all.
const TLS_PATIENCE: Duration = Duration::from_secs(3);
/// Of so many `hello`s the quickest is the round trip.
const HELLOS: usize = 3;
const HELLO: &str = r#"{"hello": 1}"#;

/// The member of a replica set that a run goes to, and how it was chosen.
#[derive(Clone, Debug)]
pub struct Member {
    /// Where it is.
    pub host: UrlHost,
    /// How many members there were to choose from.
    pub members: usize,
    /// How long one round trip to it is.
    pub round_trip: Duration,
    /// How long it took to find it.
    pub elapsed: Duration,
    role: MemberRole,
    set_name: Option<String>,
    preference: ReadPreference,
    pub(super) url: ServerUrl,
}

impl fmt::Display for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, members, round_trip, elapsed, role, set_name, preference, .. } = self;
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let of = match (set_name, members) {
            (Some(set), 1) => {
                format!("{} of the replica set {set}, which has no other member", role.described())
            }
            (Some(set), members) => {
                format!("{} of the replica set {set} of {members} members", role.described())
            }
            (None, 1) => role.described().to_owned(),
            (None, members) => format!("{} of {members}", role.described()),
        };
        write!(
            formatter,
            "{host}, {of}, chosen by readPreference={} (round trip {:.1} ms, found in {:.1} ms)",
            preference.label(),
            ms(round_trip),
            ms(elapsed)
        )
    }
}

/// Why a host says nothing.
enum Silence {
    /// Its certificate does not verify.
    Unverified(String),
    /// Everything else.
    Other(String),
}

type Answer = Result<(mongodb::MongoDbServerInfo, Duration), Silence>;

/// The member that `url` wants, where it leaves that open. Nobody logs in for it: `hello` is answered before.
pub(super) fn discover(name: &str, url: &ServerUrl) -> Result<Option<Member>, Error> {
    let Some(told) = url.documents.as_deref().filter(|told| told.connection == SetConnection::Discovered)
    else {
        return Ok(None);
    };
    let began = Instant::now();
    let (seeds, preference) = (told.hosts.iter().map(ToString::to_string), told.login.read_preference);
    let mut discovery = Discovery::new(seeds, told.replica_set.clone(), preference);
    let mut unverified_reason = None;
    while let Some(left) = SEARCH_LIMIT.checked_sub(began.elapsed()) {
        let asked = discovery.hosts_to_query();
        if asked.is_empty() {
            break;
        }
        for (address, answer) in ask_all(url, asked, left.min(PATIENCE)) {
            match answer {
                Ok((server, round_trip)) => discovery.record_reply(&address, &server, round_trip),
                Err(Silence::Other(reason)) => discovery.record_failure(&address, &reason),
                Err(Silence::Unverified(reason)) => {
                    discovery.record_failure(&address, &reason);
                    unverified_reason.get_or_insert(reason);
                }
            }
        }
    }
    let chosen = match (discovery.choose(), unverified_reason) {
        (Ok(chosen), _) => chosen,
        (Err(_), Some(reason)) => return Err(unverified(name, url, reason)),
        (Err(error), None) => return Err(not_found(name, &error)),
    };
    let unusable = |reason: String| Error::Unreachable { name: name.to_owned(), reason };
    let host: UrlHost = chosen.address.parse().map_err(|_| unusable(no_host(&chosen.address)))?;
    let url = url.for_member(&host).map_err(|error| unusable(error.to_string()))?;
    let mongodb::SelectedServer { role, set_name, members, round_trip, .. } = chosen;
    Ok(Some(Member { host, members, round_trip, elapsed: began.elapsed(), role, set_name, preference, url }))
}

fn not_found(name: &str, error: &DiscoveryError) -> Error {
    let reason = match error {
        DiscoveryError::NoMembers { .. } => {
            format!(
                "{error}; directConnection=true, without replicaSet, goes to the one host of a URL, whoever it is"
            )
        }
        DiscoveryError::TwoPrimaries { .. } | DiscoveryError::NoEligibleMember { .. } => error.to_string(),
    };
    Error::Unreachable { name: name.to_owned(), reason }
}

fn no_host(address: &str) -> String {
    format!("its replica set has a member called \"{address}\", which is no host")
}

/// Asks all of them at the same time. Who has not answered by then is left out, with the thread that waits for it.
fn ask_all(url: &ServerUrl, addresses: Vec<String>, patience: Duration) -> Vec<(String, Answer)> {
    let (sender, receiver) = mpsc::channel();
    let (asked, deadline) = (addresses.len(), Instant::now() + patience);
    for address in addresses {
        let (sender, url) = (sender.clone(), url.clone());
        thread::spawn(move || {
            let answer = ask(&url, &address);
            // Nobody listens any more where it took too long.
            let _ = sender.send((address, answer));
        });
    }
    drop(sender);
    let next = |_| receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    (0..asked).map_while(next).collect()
}

/// What one host says of itself, in the first way that it lets us in.
fn ask(url: &ServerUrl, address: &str) -> Answer {
    let other = |reason: String| Silence::Other(reason);
    let host: UrlHost = address.parse().map_err(|_| other(no_host(address)))?;
    let url = url.for_member(&host).map_err(|error| other(error.to_string()))?;
    let nobody = Secret::new(Vec::new());
    let visitor = Visitor { url: &url, password: &nobody };
    let mut first = None;
    for way in ways(&url) {
        let answered = answers_tls(&url, way, first.as_ref()).and_then(|()| greet(visitor, way));
        match answered {
            Ok(answer) => return Ok(answer),
            Err(error) if is_unverified(&error) => return Err(Silence::Unverified(error.to_string())),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(other(first.map_or_else(|| "no way in".to_owned(), |error| error.to_string())))
}

/// Fails where nobody answers to TLS that may not be spoken there, with what was waited for. What was waited for in vain
/// once, by whatever version, is not waited for again.
pub(super) fn answers_tls(
    url: &ServerUrl,
    way: Way,
    before: Option<&ciphertoll_net::Error>,
) -> Result<(), ciphertoll_net::Error> {
    let mute = || ciphertoll_net::Error::TimedOut { seconds: TLS_PATIENCE.as_secs() };
    let may_lack_tls = matches!(url.tls.demand, TlsDemand::Unsaid | TlsDemand::Both);
    if way.is_none() || url.documents.is_none() || !may_lack_tls {
        return Ok(());
    }
    if matches!(before, Some(ciphertoll_net::Error::TimedOut { .. })) {
        return Err(mute());
    }
    let (sender, receiver) = mpsc::channel();
    let url = url.clone();
    thread::spawn(move || {
        let nobody = Secret::new(Vec::new());
        let greeted = greet(Visitor { url: &url, password: &nobody }, way);
        // Nobody listens any more where it took too long. Why it has failed, the login says.
        let _ = sender.send(greeted.is_ok());
    });
    receiver.recv_timeout(TLS_PATIENCE).map_or_else(|_| Err(mute()), |_| Ok(()))
}

fn greet(
    visitor: Visitor<'_>,
    way: Way,
) -> Result<(mongodb::MongoDbServerInfo, Duration), ciphertoll_net::Error> {
    let mut login = mongodb::MongoDbLogin::new("", Secret::new(Vec::new()));
    login.mechanism = mongodb::Mechanism::None;
    login.tls = encryption(way);
    let mut client = visitor.connect_as(way, None, Login::MongoDb(login.into()))?;
    let mut round_trip = Duration::MAX;
    for _ in 0..HELLOS {
        let asked = Instant::now();
        client.execute(HELLO)?;
        round_trip = round_trip.min(asked.elapsed());
    }
    let server = match client.server() {
        ServerInfo::MongoDb(server) => server.clone(),
        ServerInfo::MySql(_) | ServerInfo::Postgres(_) => return Err(not_documents()),
    };
    client.close()?;
    Ok((server, round_trip))
}

/// What no login of documents leads to.
fn not_documents() -> ciphertoll_net::Error {
    let error = mongodb::Error::Protocol { message: "reply to hello", reason: "it is of another protocol" };
    session::Error::from(error).into()
}

/// The login of `url` by `way`.
pub(super) fn login(url: &ServerUrl, password: &Secret, way: Way, database: Option<&str>) -> Login {
    let usual = mongodb::MongoDbLogin::new(&url.user, password.clone());
    let told = url.documents.as_deref().map(|told| &told.login);
    let mechanism = told.map_or(LoginMechanism::Negotiated, |login| login.mechanism);
    Login::MongoDb(std::sync::Arc::new(mongodb::MongoDbLogin {
        database: database.map_or_else(|| usual.database.clone(), ToOwned::to_owned),
        auth_source: told.map_or_else(|| usual.auth_source.clone(), |login| login.auth_source.clone()),
        mechanism: match mechanism {
            LoginMechanism::None => mongodb::Mechanism::None,
            LoginMechanism::Negotiated => mongodb::Mechanism::Negotiated,
            LoginMechanism::ScramSha256 => mongodb::Mechanism::ScramSha256,
            LoginMechanism::ScramSha1 => mongodb::Mechanism::ScramSha1,
            LoginMechanism::X509 => mongodb::Mechanism::X509,
        },
        read_preference: told.map(|login| login.read_preference).unwrap_or_default(),
        tls: encryption(way),
        ..usual
    }))
}

fn encryption(way: Way) -> mongodb::MongoDbTlsMode {
    if way.is_some() { mongodb::MongoDbTlsMode::Tls } else { mongodb::MongoDbTlsMode::Plain }
}

/// Who answers: its engine, its version, and what else is worth recording. Fails where it is in another replica set than
/// the URL says.
pub(super) fn who_answers(
    name: &str,
    url: &ServerUrl,
    client: &mut Client,
) -> Result<(Engine, String, BTreeMap<String, String>), Error> {
    let mut facts = BTreeMap::new();
    if let (ServerInfo::MongoDb(server), Some(told)) = (client.server(), url.documents.as_deref()) {
        if told.replica_set.is_some() && told.replica_set != server.set_name {
            let wanted = told.replica_set.as_deref().unwrap_or_default();
            let reason = match &server.set_name {
                Some(own) => format!("it is in the replica set {own}, not in {wanted}"),
                None => format!("it is in no replica set, and its URL says {wanted}"),
            };
            return Err(Error::Unreachable { name: name.to_owned(), reason });
        }
        facts.extend(place_in_set(server, &told.login));
    }
    // Those who may not ask still know what the protocol's version is.
    let build_info = command("buildInfo", &json!(1), &[]);
    let said = documents::ask(client, "ask the server about itself", &build_info).unwrap_or_default();
    let (engine, version) = of_build_info(&said, client.server().version());
    if engine == Engine::FerretDb
        && let Some(claimed) = text(&said, "version")
    {
        facts.insert("mongodb-version".to_owned(), claimed.to_owned());
    }
    Ok((engine, version, facts))
}

/// What is recorded of a member of a replica set.
fn place_in_set(server: &mongodb::MongoDbServerInfo, login: &DocumentsLogin) -> Vec<(String, String)> {
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

/// `FerretDB` says so: 1 by a version beside `MongoDB`'s, 2 by a document.
fn of_build_info(said: &Map<String, Value>, otherwise: &str) -> (Engine, String) {
    let nested = said.get("ferretdb").and_then(Value::as_object).and_then(|own| text(own, "version"));
    if let Some(own) = nested.or_else(|| text(said, "ferretdbVersion")) {
        return (Engine::FerretDb, own.trim_start_matches('v').to_owned());
    }
    let engine = if said.contains_key("ferretdb") { Engine::FerretDb } else { Engine::MongoDb };
    (engine, text(said, "version").unwrap_or(otherwise).to_owned())
}

fn text<'a>(document: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    document.get(name).and_then(Value::as_str)
}

impl Remote {
    /// Loads as many records into [`super::DATABASE`], unless they are there. A member that takes no writes must have
    /// them from the one that does.
    pub(super) fn prepare_documents(&self, records: Scale, watcher: &mut Watcher<'_>) -> Result<(), Error> {
        let control = self.control()?;
        let mut client = control.connect()?;
        let count = command("count", &ycsb::COLLECTION.into(), &[]);
        let counted = documents::ask(&mut client, "count the documents", &count)?;
        if counted.get("n").and_then(documents::number) == Some(records.rows().into()) {
            return control::close(client);
        }
        if let ServerInfo::MongoDb(server) = client.server()
            && !server.is_writable_primary
        {
            return Err(Error::TakesNoDocuments { name: self.name.clone(), is: server.role.described() });
        }
        control::close(client)?;
        let (records, connections) = (records.rows(), documents::loaders(self.url.engine()));
        let load = documents::Load { control: &control, name: &self.name, records, connections };
        documents::load(load, watcher).map(drop)
    }

    /// The lab's own connections, for the database of records.
    fn control(&self) -> Result<Control, Error> {
        let visitor = Visitor { url: &self.url, password: &self.password };
        let tls = visitor.context(self.way);
        let tls = tls.map_err(|source| Error::Control { doing: "prepare TLS for a login", source })?;
        let login = login(&self.url, &self.password, self.way, Some(super::DATABASE));
        Ok(Control::to(visitor.address(Some(self.family)), login).by(tls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Engine, String) {
        let Ok(Value::Object(said)) = serde_json::from_str(text) else { panic!("{text}") };
        of_build_info(&said, "wire-21")
    }

    #[test]
    fn who_answers_is_told_by_its_build() {
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

    #[test]
    fn the_chosen_member_is_said_in_one_line() {
        let url: ServerUrl = "mongodb://a@h1,h2/?readPreference=nearest".parse().unwrap();
        let member = |set_name: Option<&str>, members, role| Member {
            host: "db2.example:27018".parse().unwrap(),
            members,
            round_trip: Duration::from_micros(240),
            elapsed: Duration::from_millis(3),
            role,
            set_name: set_name.map(ToOwned::to_owned),
            preference: ReadPreference::Nearest,
            url: url.clone(),
        };
        let timed = "chosen by readPreference=nearest (round trip 0.2 ms, found in 3.0 ms)";
        for (member, said) in [
            (
                member(Some("rs0"), 3, MemberRole::Secondary),
                "a secondary of the replica set rs0 of 3 members",
            ),
            (
                member(Some("rs0"), 1, MemberRole::Primary),
                "the primary of the replica set rs0, which has no other member",
            ),
            (member(None, 2, MemberRole::Router), "a router of 2"),
        ] {
            assert_eq!(member.to_string(), format!("db2.example:27018, {said}, {timed}"));
        }
    }
}
