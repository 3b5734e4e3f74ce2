use ciphertoll_wire::postgres::server::{Startup, read_startup};
use ciphertoll_wire::postgres::startup::encode_startup;

use super::*;

fn request(parameters: &[(&str, &str)]) -> Result<StartupRequest, Refusal> {
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, parameters).unwrap();
    match read_startup(&mut &bytes[..]).unwrap() {
        Some(Startup::Login(message)) => {
            StartupParameters::read(&message).map(|parameters| StartupRequest::new(Arc::new(parameters)))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_are_read_from_parameters_and_options() {
    let request = request(&[
        ("client_encoding", "UTF8"),
        ("user", "app"),
        ("options", r"-c search_path=a,\ b --statement-timeout=5 -cgeqo=off"),
        ("replication", "false"),
    ])
    .unwrap();
    let names = (request.parameters.user.as_str(), request.parameters.database.as_deref());
    assert_eq!(names, ("app", None));
    let mut known = Parameters::default();
    let expected =
        [("search_path", "a, b"), ("statement_timeout", "5"), ("geqo", "off"), ("client_encoding", "UTF8")];
    assert_eq!(request.differing(&known), expected);
    known.set(b"client_encoding", b"UTF8").unwrap();
    assert_eq!(request.differing(&known), expected[..3]);
}

/// libpq sends `options` behind `client_encoding`, lib/pq in front of it.
#[test]
fn a_parameter_of_its_own_wins_over_the_options() {
    let options = ("options", "-c client_encoding=SQL_ASCII -c geqo=on -c GEQO=off");
    for parameters in [[("client_encoding", "UTF8"), options], [options, ("Client_Encoding", "UTF8")]] {
        let request = request(&[&[("user", "app")], &parameters[..]].concat()).unwrap();
        let settings = request.parameters.settings.iter().map(|(name, value)| (&**name, &**value));
        let encoding = parameters.iter().find(|(name, _)| *name != "options").unwrap();
        assert_eq!(settings.collect::<Vec<_>>(), [("GEQO", "off"), *encoding]);
    }
}

#[test]
fn a_date_style_keeps_what_a_later_one_does_not_name() {
    for (latest_first, expected) in [
        (&["ISO", "German"][..], "ISO, DMY"),
        (&["ymd", "SQL, DMY"], "SQL, ymd"),
        (&["German", "ISO, MDY"], "German, DMY"),
        (&["ISO", "German, MDY"], "ISO, MDY"),
        (&["ISO, YMD", "SQL"], "ISO, YMD"),
        (&["ISO", "nonsense"], "ISO"),
    ] {
        let values: Vec<_> = latest_first.iter().map(|value| (*value).to_owned()).collect();
        assert_eq!(date_style(&values), expected);
    }
}

#[test]
fn requests_that_cannot_be_granted_are_refused() {
    let state = |parameters: &[(&str, &str)]| request(parameters).unwrap_err().sqlstate;
    assert_eq!(state(&[("database", "x")]), Refusal::WHO);
    for mode in ["false", "FALS", "f", "of", "off", "n", "no", "0"] {
        assert!(request(&[("user", "a"), ("replication", mode)]).is_ok(), "{mode}");
    }
    for mode in ["o", "true", "database", "1", "anything"] {
        assert_eq!(state(&[("user", "a"), ("replication", mode)]), Refusal::UNSUPPORTED);
    }
    for text in ["-W 5", "x", "-c", "-c x", "--"] {
        assert_eq!(state(&[("user", "a"), ("options", text)]), Refusal::UNSUPPORTED, "{text}");
    }
}

#[test]
fn the_name_of_an_application_may_have_any_bytes() {
    let message = |name: &str| {
        let mut bytes = Vec::new();
        encode_startup(&mut bytes, &[("user", "app"), (name, "caf!")]).unwrap();
        let at = bytes.iter().position(|byte| *byte == b'!').unwrap();
        bytes[at] = 0xe9;
        bytes
    };
    let read = |bytes: &[u8]| match read_startup(&mut &*bytes).unwrap() {
        Some(Startup::Login(message)) => StartupParameters::read(&message),
        other => panic!("{other:?}"),
    };
    let parameters = read(&message("application_name")).unwrap();
    assert_eq!(parameters.settings, [("application_name".to_owned(), "caf?".to_owned())]);
    assert_eq!(read(&message("app.name")).unwrap_err().sqlstate, Refusal::PROTOCOL);
}

#[test]
fn only_a_plain_application_name_cannot_fail() {
    let mut known = Parameters::default();
    assert!(!cannot_fail("application_name", "psql", &known));
    known.set(b"application_name", b"").unwrap();
    assert!(cannot_fail("application_name", "psql 15", &known));
    assert!(!cannot_fail("application_name", &"x".repeat(64), &known));
    assert!(!cannot_fail("application_name", "naïve", &known));
    assert!(!cannot_fail("TimeZone", "UTC", &known));
}
