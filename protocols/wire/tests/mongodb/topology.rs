//! Which member of a replica set is selected, with constructed `hello` replies.

use std::sync::Arc;
use std::time::Duration;

use ciphertoll_wire::mongodb::bson::{RawArrayBuf, RawDocumentBuf, cstr, rawdoc};
use ciphertoll_wire::mongodb::document::to_json;
use ciphertoll_wire::mongodb::{
    CommandTemplate, Discovery, DiscoveryError, Mechanism, MemberRole, MongoDbConnect, MongoDbLogin,
    MongoDbServerInfo, ReadPreference, SelectedServer, message,
};
use ciphertoll_wire::{Secret, Step};
use proptest::prelude::*;
use proptest::sample::select;

use crate::fake_server::reply;

const SET: &str = "rs0";

/// What a client learns from a `hello` reply with these elements.
fn greeted(preference: ReadPreference, mut hello: RawDocumentBuf) -> MongoDbServerInfo {
    let login = MongoDbLogin {
        mechanism: Mechanism::None,
        read_preference: preference,
        ..MongoDbLogin::new("", Secret::new(Vec::new()))
    };
    let (mut connect, mut out) = (MongoDbConnect::new(Arc::new(login)), Vec::new());
    assert_eq!(connect.step(&mut &[][..], &mut out).unwrap(), Step::NeedInput);
    hello.append(cstr!("maxWireVersion"), 21);
    hello.append(cstr!("ok"), 1);
    let answer = reply(1, &hello);
    let mut input = answer.as_slice();
    while connect.step(&mut input, &mut out).unwrap() != Step::Done {}
    connect.server().unwrap().clone()
}

/// The `hello` of a member of [`SET`].
fn member(role: MemberRole, me: Option<&str>, names: &[String]) -> MongoDbServerInfo {
    let mut hello = rawdoc! {
        "setName": SET,
        "isWritablePrimary": role == MemberRole::Primary,
        "secondary": matches!(role, MemberRole::Secondary | MemberRole::Hidden),
    };
    match role {
        MemberRole::Arbiter => hello.append(cstr!("arbiterOnly"), true),
        MemberRole::Hidden => hello.append(cstr!("hidden"), true),
        _ => {}
    }
    if let Some(me) = me {
        hello.append(cstr!("me"), me);
    }
    hello.append(cstr!("hosts"), names.iter().map(String::as_str).collect::<RawArrayBuf>());
    greeted(ReadPreference::Primary, hello)
}

fn standalone() -> MongoDbServerInfo {
    greeted(ReadPreference::Nearest, rawdoc! { "isWritablePrimary": true })
}

fn router() -> MongoDbServerInfo {
    greeted(ReadPreference::Nearest, rawdoc! { "isWritablePrimary": true, "msg": "isdbgrid" })
}

/// Queries all hosts. Hosts that are not in `world` do not reply.
fn discover(
    mut discovery: Discovery,
    world: &[(String, MongoDbServerInfo, u64)],
) -> Result<SelectedServer, DiscoveryError> {
    let mut asked = 0;
    loop {
        let now = discovery.hosts_to_query();
        if now.is_empty() {
            return discovery.choose();
        }
        asked += now.len();
        assert!(asked <= 100, "the search has an end");
        for address in now {
            match world.iter().find(|(known, ..)| *known == address) {
                Some((_, server, micros)) => {
                    discovery.record_reply(&address, server, Duration::from_micros(*micros));
                }
                None => discovery.record_failure(&address, "connection refused"),
            }
        }
    }
}

fn search(seeds: &[&str], preference: ReadPreference) -> Discovery {
    Discovery::new(seeds.iter().map(ToString::to_string), Some(SET.to_owned()), preference)
}

fn three() -> Vec<(String, MongoDbServerInfo, u64)> {
    let names = ["a:1", "b:2", "c:27017"].map(ToOwned::to_owned);
    let [a, b, c] = names.clone();
    let as_called = ["A:1", "b:2", "c"].map(ToOwned::to_owned);
    let hello = |role, me| member(role, Some(me), &as_called);
    vec![
        (a, hello(MemberRole::Secondary, "a:1"), 900),
        (b, hello(MemberRole::Primary, "b:2"), 500),
        (c, hello(MemberRole::Secondary, "c:27017"), 700),
    ]
}

#[test]
fn the_role_follows_from_the_hello_reply() {
    let none = ReadPreference::Primary;
    assert_eq!(standalone().role, MemberRole::Standalone);
    assert_eq!(greeted(none, rawdoc! {}).role, MemberRole::Unready);
    for role in [
        MemberRole::Primary,
        MemberRole::Secondary,
        MemberRole::Arbiter,
        MemberRole::Hidden,
        MemberRole::Unready,
    ] {
        assert_eq!(member(role, None, &[]).role, role);
    }
    assert_eq!(router().role, MemberRole::Router);
    let lists = rawdoc! { "setName": SET, "hosts": ["a:1"], "passives": ["b:1"], "arbiters": ["c:1"] };
    let with_passives = greeted(none, lists);
    assert_eq!(with_passives.hosts, ["a:1", "b:1"]);
    let endless: Vec<String> = (0..1000).map(|number| format!("h{number}")).collect();
    assert!(member(MemberRole::Primary, None, &endless).hosts.len() < 200);
}

#[test]
fn commands_allow_reads_from_a_secondary() {
    let ping = CommandTemplate::parse(r#"{"ping": 1}"#).unwrap();
    let said = |preference, secondary: bool, set: bool| {
        let mut hello = rawdoc! { "isWritablePrimary": !secondary, "secondary": secondary };
        if set {
            hello.append(cstr!("setName"), SET);
        }
        let server = greeted(preference, hello);
        let mut out = Vec::new();
        server.encode(&mut out, &ping, &[]).unwrap();
        to_json(message::take(&mut out.as_slice(), 1 << 16).unwrap().unwrap().body).unwrap()
    };
    let plain = r#"{"ping":1,"$db":"test"}"#;
    assert_eq!(said(ReadPreference::Nearest, false, false), plain);
    assert_eq!(said(ReadPreference::Nearest, false, true), plain);
    let with = |mode: &str| format!(r#"{{"ping":1,"$readPreference":{{"mode":"{mode}"}},"$db":"test"}}"#);
    assert_eq!(said(ReadPreference::Nearest, true, true), with("nearest"));
    assert_eq!(said(ReadPreference::Primary, true, true), with("primaryPreferred"));
    assert_eq!(router().read_preference, Some(ReadPreference::Nearest));
}

#[test]
fn each_preference_selects_its_member() {
    let found = |preference| discover(search(&["c"], preference), &three()).unwrap();
    let address = |preference| found(preference).address;
    assert_eq!(address(ReadPreference::Primary), "b:2");
    assert_eq!(address(ReadPreference::PrimaryPreferred), "b:2");
    assert_eq!(address(ReadPreference::Secondary), "c:27017");
    assert_eq!(address(ReadPreference::SecondaryPreferred), "c:27017");
    let nearest = found(ReadPreference::Nearest);
    assert_eq!((nearest.address.as_str(), nearest.members), ("b:2", 3));
    assert_eq!((nearest.set_name.as_deref(), nearest.role), (Some(SET), MemberRole::Primary));
}

#[test]
fn errors_list_each_host() {
    let fails = |seeds: &[&str], preference, world: &[(String, MongoDbServerInfo, u64)]| {
        discover(search(seeds, preference), world).unwrap_err().to_string()
    };
    let without_primary: Vec<_> = three().into_iter().filter(|(name, ..)| name != "b:2").collect();
    assert_eq!(
        fails(&["a:1"], ReadPreference::Primary, &without_primary),
        "the replica set rs0 has no member for readPreference=primary: a:1 is a secondary, b:2 does not reply (connection refused), c:27017 is a secondary"
    );
    assert_eq!(
        fails(
            &["h", "a:1", "x:1"],
            ReadPreference::Primary,
            &[
                ("h:27017".to_owned(), standalone(), 1),
                ("a:1".to_owned(), member(MemberRole::Primary, None, &["b:1".to_owned()]), 1),
            ]
        ),
        "none of its hosts is a member of the replica set rs0: h:27017 is not in a replica set, a:1 is not among the members that it lists, x:1 does not reply (connection refused), b:1 does not reply (connection refused)"
    );
    let other = greeted(ReadPreference::Primary, rawdoc! { "setName": "rs1" });
    assert_eq!(
        fails(&["o:1"], ReadPreference::Primary, &[("o:1".to_owned(), other, 1)]),
        "none of its hosts is a member of the replica set rs0: o:1 is in the replica set rs1"
    );
    let names = ["p:1", "q:1"].map(ToOwned::to_owned);
    let two: Vec<_> =
        names.iter().map(|name| (name.clone(), member(MemberRole::Primary, Some(name), &names), 1)).collect();
    assert_eq!(
        fails(&["p:1"], ReadPreference::Nearest, &two),
        "p:1 and q:1 both say that they are the primary: an election may be under way"
    );
}

#[test]
fn a_member_under_another_name_counts_once() {
    let names = ["127.0.0.1:7".to_owned()];
    for me in [None, Some("127.0.0.1:7")] {
        let world = ["localhost:7", "127.0.0.1:7"]
            .map(|name| (name.to_owned(), member(MemberRole::Primary, me, &names), 1));
        let choice = discover(search(&["localhost:7"], ReadPreference::Primary), &world).unwrap();
        assert_eq!((choice.address.as_str(), choice.members), ("127.0.0.1:7", 1));
    }
}

#[test]
fn without_a_set_a_router_or_the_single_host_is_selected() {
    let search = |seeds: &[&str]| {
        Discovery::new(seeds.iter().map(ToString::to_string), None, ReadPreference::Secondary)
    };
    let (one, two) = (("s:1".to_owned(), router(), 9), ("t:1".to_owned(), router(), 3));
    let choice = discover(search(&["s:1", "t:1", "u:1"]), &[one, two]).unwrap();
    assert_eq!((choice.address.as_str(), choice.role, choice.members), ("t:1", MemberRole::Router, 2));
    let alone = ("s:1".to_owned(), standalone(), 9);
    let choice = discover(search(&["s:1"]), std::slice::from_ref(&alone)).unwrap();
    assert_eq!((choice.address.as_str(), choice.role), ("s:1", MemberRole::Standalone));
    assert!(matches!(discover(search(&["s:1", "t:1"]), &[alone]), Err(DiscoveryError::NoMembers { .. })));
}

#[derive(Debug, Clone)]
struct Node {
    role: MemberRole,
    answers: bool,
    micros: u64,
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let role = select(vec![
        MemberRole::Secondary,
        MemberRole::Arbiter,
        MemberRole::Hidden,
        MemberRole::Unready,
        MemberRole::Secondary,
    ]);
    let node = (role, prop::bool::weighted(0.8), 1..5_u64);
    let nodes = prop::collection::vec(node, 1..9);
    (nodes, prop::option::of(any::<prop::sample::Index>())).prop_map(|(nodes, primary)| {
        let primary = primary.map(|index| index.index(nodes.len()));
        let node = |(number, (role, answers, micros))| {
            let role = if primary == Some(number) { MemberRole::Primary } else { role };
            Node { role, answers, micros }
        };
        nodes.into_iter().enumerate().map(node).collect()
    })
}

proptest! {
    /// The selected member matches the preference, and no nearer one does. None is selected only if none matches.
    #[test]
    fn the_choice_is_what_the_preference_wants(
        nodes in nodes(), preference in select(ReadPreference::ALL.to_vec()), seed: prop::sample::Index,
    ) {
        let names: Vec<String> = (0..nodes.len()).map(|number| format!("m{number}:27017")).collect();
        let listed: Vec<String> = nodes.iter().zip(&names)
            .filter(|(node, _)| !matches!(node.role, MemberRole::Arbiter | MemberRole::Hidden))
            .map(|(_, name)| name.clone())
            .collect();
        let world: Vec<_> = nodes.iter().zip(&names)
            .filter(|(node, _)| node.answers)
            .map(|(node, name)| (name.clone(), member(node.role, Some(name), &listed), node.micros))
            .collect();
        let seed = seed.index(names.len());
        let found = discover(search(&[&names[seed]], preference), &world);
        // The first host lists the others, if it replies.
        let heard = |role: MemberRole| {
            let fit = |node: &&Node| node.answers && node.role == role;
            nodes.iter().filter(|_| nodes[seed].answers).filter(fit).map(|node| node.micros).min()
        };
        let (primary, secondary) = (heard(MemberRole::Primary), heard(MemberRole::Secondary));
        let expected = match preference {
            ReadPreference::Primary => primary,
            ReadPreference::PrimaryPreferred => primary.or(secondary),
            ReadPreference::Secondary => secondary,
            ReadPreference::SecondaryPreferred => secondary.or(primary),
            ReadPreference::Nearest => [primary, secondary].into_iter().flatten().min(),
        };
        prop_assert_eq!(found.as_ref().ok().map(|choice| choice.round_trip.as_micros() as u64), expected);
        if let Ok(choice) = found {
            let chosen = &nodes[names.iter().position(|name| *name == choice.address).unwrap()];
            prop_assert!(chosen.answers && chosen.role == choice.role);
            prop_assert!(matches!(choice.role, MemberRole::Primary | MemberRole::Secondary));
            prop_assert_eq!(choice.members, listed.len());
        }
    }

    /// The search ends, and no host is queried twice.
    #[test]
    fn names_of_all_kinds_do_not_keep_a_search_going(names in prop::collection::vec("[a-zA-Z\\[\\]:0-9]{0,6}", 0..150)) {
        let mut discovery = search(&["seed"], ReadPreference::Nearest);
        let mut asked = Vec::new();
        loop {
            let now = discovery.hosts_to_query();
            if now.is_empty() {
                break;
            }
            for address in now {
                prop_assert!(!asked.contains(&address));
                discovery.record_reply(&address, &member(MemberRole::Secondary, None, &names), Duration::ZERO);
                asked.push(address);
            }
        }
        let _ = discovery.choose().map_err(|error| error.to_string());
    }
}
