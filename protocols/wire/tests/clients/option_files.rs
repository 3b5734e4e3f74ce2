//! Option files, compared with `my_print_defaults` of MariaDB or MySQL.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use ciphertoll_wire::mysql::option_file::{Directive, OptionFile};
use proptest::prelude::*;
use proptest::sample::select;

const GROUPS: [&str; 2] = ["client", "client-server"];

/// What the program prints, one option a line; nothing if it refuses the file. `None` if it is not installed.
fn printed_by_the_client(file: &[u8]) -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("my.cnf");
    fs::write(&path, file).unwrap();
    let mut command = Command::new("my_print_defaults");
    match command.arg(format!("--defaults-file={}", path.display())).args(GROUPS).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        output => Some(output.unwrap().stdout),
    }
}

/// The same by us. `None` if the file includes others, or if a name is empty: the client reads before its buffer then.
fn printed_by_us(file: &[u8]) -> Option<Vec<u8>> {
    let (mut printed, mut is_ours) = (Vec::new(), false);
    for (_, directive) in OptionFile::new(file) {
        match directive {
            Ok(Directive::Group(name) | Directive::Option { name, .. }) if name.is_empty() => return None,
            Ok(Directive::Group(name)) => {
                is_ours = GROUPS.iter().any(|group| name.eq_ignore_ascii_case(group.as_bytes()));
            }
            Ok(Directive::Option { name, value }) if is_ours => {
                printed.extend([b"--", name.as_slice()].concat());
                printed.extend(value.iter().flat_map(|value| [b"=", value.as_slice()].concat()));
                printed.push(b'\n');
            }
            Ok(Directive::Option { .. }) => {}
            Ok(Directive::Include(_) | Directive::IncludeDirectory(_)) => return None,
            Err(_) => return Some(Vec::new()),
        }
    }
    Some(printed)
}

/// Lines of pieces that mean something to the clients.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"password",
        b"p",
        b"=",
        b"=",
        b" ",
        b"\t",
        b"#",
        b";",
        b"'",
        b"\"",
        b"\\",
        b"\\s",
        b"\\n",
        b"a",
        b"\xe9",
        b"\xa0",
        b"\x0b",
        b"\r",
        b"[",
        b"]",
        b"!",
        b"-",
        b"_",
        b"\0",
        b"!x",
    ];
    let line = prop::collection::vec(select(pieces), 0..9).prop_map(|pieces| pieces.concat());
    let heads: Vec<&[u8]> = vec![b"[client]", b"[CLIENT ] # c", b"[other]", b" [client-server]x", b"# c"];
    let lines = prop::collection::vec(line, 1..4).prop_map(|lines| lines.join(&b'\n'));
    let section = (select(heads), lines, select(vec![&b"\n"[..], b"\r\n"]));
    let section = section.prop_map(|(head, lines, end)| [head, b"\n", &lines, end].concat());
    prop::collection::vec(section, 1..3).prop_map(|sections| sections.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]
    #[test]
    fn option_files_are_read_as_by_the_clients(file in file()) {
        let Some(expected) = printed_by_the_client(&file) else {
            ciphertoll_testing::missing("no program my_print_defaults found");
            return Ok(());
        };
        if let Some(found) = printed_by_us(&file) {
            prop_assert_eq!(
                found.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{}",
                file.escape_ascii()
            );
        }
    }
}
