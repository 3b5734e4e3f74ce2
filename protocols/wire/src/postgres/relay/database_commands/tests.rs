use proptest::prelude::*;

use super::*;
use crate::postgres::{
    codec::{
        column::ValueFormat,
        command::{Param, encode_bind, encode_parse, encode_query},
        parameters::Parameters,
    },
    relay::PostgresRelay,
};

fn read(bytes: &[u8], piece: usize) -> Vec<Vacate> {
    let (mut relay, parameters) = (PostgresRelay::new(), Parameters::default());
    let (mut vacates, mut held) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        let result = relay.process_client(&held, &parameters, None).unwrap();
        vacates.extend(result.exclusive);
        held.drain(..result.pass_bytes);
    }
    vacates
}

fn query(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_query(&mut bytes, text).unwrap();
    bytes
}

fn vacates(text: &str) -> Vec<Vacate> {
    let mut parse = Vec::new();
    encode_parse(&mut parse, "s1", text, &[25]).unwrap();
    let vacates = read(&query(text), usize::MAX);
    assert_eq!(read(&parse, usize::MAX), vacates, "{text}");
    vacates
}

#[test]
fn the_database_to_vacate_is_found() {
    for (text, name) in [
        ("DROP DATABASE shop", "shop"),
        ("drop /* it */ database\nif exists Shop;", "shop"),
        ("DROP DATABASE if", "if"),
        ("DROP DATABASE \"My \"\"Shop\" WITH (FORCE)", "My \"Shop"),
        (" ; ALTER DATABASE shop RENAME TO store", "shop"),
        ("ALTER DATABASE shop SET TABLESPACE fast", "shop"),
        ("CREATE DATABASE shop", "template1"),
        ("CREATE DATABASE shop OWNER app ENCODING = 'UTF8'", "template1"),
        ("CREATE DATABASE shop ENCODING 6 OID = 16400 TEMPLATE base", "base"),
        ("CREATE DATABASE shop WITH CONNECTION LIMIT = -1 TEMPLATE = \"Base\"", "Base"),
        ("CREATE DATABASE shop OWNER template TEMPLATE 'base'", "base"),
        ("CREATE DATABASE shop TEMPLATE default", "template1"),
    ] {
        assert_eq!(vacates(text), [Vacate::Database(name.as_bytes().to_vec())], "{text}");
    }
}

#[test]
fn other_commands_vacate_no_database() {
    for text in [
        "SELECT 'DROP DATABASE shop'",
        "DROP TABLE database",
        "ALTER DATABASE shop SET work_mem = '1MB'",
        "ALTER DATABASE shop OWNER TO app",
        "CREATE TABLE database (a int)",
        "-- DROP DATABASE shop",
        "COMMENT ON DATABASE shop IS ''",
        "DROP DATABASE",
        "",
    ] {
        assert_eq!(vacates(text), [], "{text}");
    }
}

#[test]
fn an_unclear_name_vacates_any_database() {
    let long = format!("DROP DATABASE {}", "a".repeat(64));
    for text in [long.as_str(), "DROP DATABASE U&\"\\0061\"", "CREATE DATABASE a TEMPLATE E'\\x61'"] {
        assert_eq!(vacates(text), [Vacate::Any], "{text}");
    }
}

/// Since it was prepared, a pool may have used the database.
#[test]
fn a_prepared_command_vacates_when_it_is_bound() {
    let parse = |name: &str, text: &str| {
        let mut bytes = Vec::new();
        encode_parse(&mut bytes, name, text, &[]).unwrap();
        bytes
    };
    let bind = |name: &str| {
        let mut bytes = Vec::new();
        encode_bind(&mut bytes, "s", name, &[Param::Text(b"t")], ValueFormat::Text).unwrap();
        bytes
    };
    let shop = Vacate::Database(b"shop".to_vec());
    let drop = parse("s", "DROP DATABASE shop");
    let long = "l".repeat(70);
    for (messages, count) in [
        ([drop.clone(), bind("s"), bind("s")].concat(), 3),
        ([drop.clone(), bind("t"), bind("")].concat(), 1),
        ([drop.clone(), parse("s", "SELECT 1"), bind("s")].concat(), 1),
        ([parse(&long, "DROP DATABASE shop"), bind(&long[..63])].concat(), 2),
        ([parse("", "DROP DATABASE shop"), bind("")].concat(), 2),
        ([parse("s", "SELECT 1"), bind("s")].concat(), 0),
    ] {
        for piece in 1..=messages.len() {
            assert_eq!(read(&messages, piece), vec![shop.clone(); count]);
        }
    }
}

proptest! {
    #[test]
    fn bytes_may_be_cut_anywhere(
        texts in prop::collection::vec(
            "(DROP|CREATE|ALTER) DATABASE [a-c\"']{0,4}( TEMPLATE| RENAME TO|;| x){0,3}|SELECT 1", 0..5),
        piece in 1_usize..20,
    ) {
        let bytes: Vec<u8> = texts.iter().flat_map(|text| query(text)).collect();
        prop_assert_eq!(read(&bytes, piece), read(&bytes, usize::MAX));
    }
}
