//! Parser and printer are inverse, and JSON has the same text.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    AtRest, Auth, Clients, Ctx, Driver, Engine, Factor, Link, Pace, Path, ScaleLevel, ServerKey, ServerLevel,
    TlsVersion, Workload,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::levels;

fn round_trip<T>(level: &T) -> Result<(), TestCaseError>
where
    T: Display + FromStr + Serialize + DeserializeOwned + PartialEq + Debug,
    T::Err: Debug,
{
    let text = level.to_string();
    prop_assert_eq!(&text.parse::<T>().unwrap(), level);
    let json = serde_json::to_value(level).unwrap();
    let same_text = json.as_str().map_or_else(|| json.to_string(), ToOwned::to_owned);
    prop_assert_eq!(&same_text, &text);
    for json in [json, text.into()] {
        prop_assert_eq!(&serde_json::from_value::<T>(json).unwrap(), level);
    }
    Ok(())
}

proptest! {
    #[test]
    fn servers(server in levels::server()) {
        round_trip(&server)?;
    }

    #[test]
    fn paths(path in levels::path()) {
        round_trip(&path)?;
    }

    #[test]
    fn proxies(proxy in levels::proxy()) {
        round_trip(&proxy)?;
    }

    #[test]
    fn clients(clients in levels::clients()) {
        round_trip(&clients)?;
    }

    #[test]
    fn scales(scale in levels::scale()) {
        round_trip(&scale)?;
    }

    #[test]
    fn relative_scales(scale in levels::scale_level()) {
        round_trip(&scale)?;
    }

    #[test]
    fn spans(span in levels::span()) {
        round_trip(&span)?;
    }

    /// Whatever is taken prints as what is taken again, and means the same then.
    #[test]
    fn no_text_is_taken_that_does_not_print_as_itself(number in 0.0..100_000.0_f64, unit in "(ms|s|m)?") {
        if let Ok(span) = format!("{number}{unit}").parse::<Span>() {
            round_trip(&span)?;
            prop_assert!(!span.duration().is_zero());
        }
    }

    #[test]
    fn nothing_makes_a_parser_panic(text: String) {
        let _ = text.parse::<ServerLevel>().map(|server| server.to_string());
        let _ = text.parse::<Path>();
        let _ = text.parse::<Ctx>();
        let _ = text.parse::<Clients>();
        let _ = text.parse::<ScaleLevel>();
        let _ = text.parse::<Pace>();
        let _ = text.parse::<Workload>();
        let _ = text.parse::<Auth>();
        let _ = text.parse::<Driver>();
        let _ = text.parse::<Span>();
    }

    /// What can be mistaken for a server's syntax, more often than by chance.
    #[test]
    fn servers_that_are_taken_print_as_they_were_written(text in "([a-c]{0,2}:)?mariadb(-[0-9.]{0,4})?(=[=:a/-]{0,4})?") {
        if let Ok(server) = text.parse::<ServerLevel>() {
            prop_assert_eq!(server.to_string(), text);
        }
    }
}

/// Closed sets, each whole.
#[test]
fn names() {
    fn all<T>(levels: &[T])
    where
        T: Display + FromStr + Serialize + DeserializeOwned + PartialEq + Debug,
        T::Err: Debug,
    {
        for level in levels {
            round_trip(level).unwrap();
        }
    }
    all(&Path::all());
    all(&Auth::ALL);
    all(&["scram-7+plus".parse::<Auth>().unwrap()]);
    all(&Ctx::ALL);
    all(&["native", "libpq", "my-driver2"].map(|name| name.parse::<Driver>().unwrap()));
    all(&Link::NAMED);
    all(&["0ms", "44.6ms+loss=1%"].map(|name| name.parse::<Link>().unwrap()));
    all(AtRest::ALL);
    all(&["tde+cipher=null", "tde+cipher=aes128+target=aesni"].map(|name| name.parse::<AtRest>().unwrap()));
    all(&Workload::ALL);
    all(&["bulk-read+bytes=300", "bulk-read+bytes=1m"].map(|name| name.parse::<Workload>().unwrap()));
    all(&["closed", "500/s", "70%"].map(|name| name.parse::<Pace>().unwrap()));
    all(&["ssh-aes128-gcm+N", "tls1.3-p256+direct", "tls1.2-rsa2048+direct+client=rustls"]
        .map(|name| name.parse::<Path>().unwrap()));
    all(&[
        "tls1.2-rsa1024+suite=AES256-SHA",
        "tls1.3-ed25519+direct+suite=TLS_AES_128_GCM_SHA256+group=x25519mlkem768+client=rustls",
        "tls1.0-rsa2048+resume=id+mtls+eager+suite=AES256-SHA+chain=3",
        "tls1.3+resume+group=p256+client=rustls",
        "plain+compress=zlib",
        "tls1.3-p256+client=rustls+compress=zlib",
    ]
    .map(|name| name.parse::<Path>().unwrap()));
    all(&Engine::ALL.map(ServerLevel::of));
}

#[test]
fn a_path_is_its_version_and_its_key() {
    for version in TlsVersion::ALL {
        for key in ServerKey::ALL {
            let path = Path::tls(version, key);
            assert_eq!(path.to_string(), format!("{}-{}", version.label(), key.label()));
            assert!(Path::all().contains(&path));
        }
    }
}

#[test]
fn durations_as_people_write_them() {
    let table = [
        ("500ms", 500),
        ("0.5", 500),
        ("2", 2_000),
        ("1.5s", 1_500),
        ("2m", 120_000),
        ("0.5m", 30_000),
        ("0.6ms", 1),
        ("24.0m", 1_440_000),
    ];
    for (text, millis) in table {
        assert_eq!(text.parse(), Ok(Span::from_millis(millis)), "{text}");
    }
    for text in ["", "0", "0s", "-1", "0.4ms", "1h", "1 s", "s", "inf", "NaN", "86401", "1e9", "ms"] {
        assert!(text.parse::<Span>().is_err(), "{text:?} was taken");
    }
}

#[test]
fn a_server_in_all_its_parts() {
    let server: ServerLevel = "stock:mariadb-10.11=/opt/maria=db:x".parse().unwrap();
    assert_eq!(server.label.as_deref(), Some("stock"));
    assert_eq!(server.version.as_deref(), Some("10.11"));
    assert_eq!(server.directory.as_deref(), Some("/opt/maria=db:x".as_ref()));
    assert_eq!(server.short_name(), "stock");
}

#[test]
fn a_version_is_compared_part_by_part() {
    let table = [
        ("mariadb", "10.11.19-MariaDB", true),
        ("mariadb-10", "10.11.19-MariaDB", true),
        ("mariadb-10.11", "10.11.19-MariaDB", true),
        ("mariadb-10.11.19", "10.11.19-MariaDB", true),
        ("mariadb-10.1", "10.11.19-MariaDB", false),
        ("mariadb-10.11.1", "10.11.19-MariaDB", false),
        ("mariadb-11", "10.11.19-MariaDB", false),
        ("mariadb-1", "10.11.19-MariaDB", false),
    ];
    for (wanted, found, accepted) in table {
        let server: ServerLevel = wanted.parse().unwrap();
        assert_eq!(server.accepts_version(found), accepted, "{wanted} and {found}");
    }
}

#[test]
fn every_factor_has_a_name_of_its_own() {
    let mut labels: Vec<_> = Factor::ALL.map(Factor::label).to_vec();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), Factor::ALL.len());
}
