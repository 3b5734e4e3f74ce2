use super::*;

fn parse(text: &str) -> Result<Setting, SettingError> {
    text.parse()
}

#[test]
fn settings_print_in_the_format_they_are_parsed_from() {
    for text in [
        "postgres.shared_buffers=1GB",
        "postgres.search_path='$user', public",
        "postgres.auto_explain.log_min_duration=",
        "mariadb.sql_mode=ANSI,TRADITIONAL",
        "mariadb.init_connect=SET a = 1 # not a comment",
    ] {
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
    let dashes = parse("mariadb.innodb-flush-log-at-trx-commit=2").unwrap();
    assert_eq!(dashes.to_string(), "mariadb.innodb_flush_log_at_trx_commit=2");
}

#[test]
fn invalid_settings_are_refused() {
    for text in ["", "postgres", "postgres.a", "a=b", "shared_buffers=1GB"] {
        assert_eq!(parse(text), Err(SettingError::Shape), "{text:?}");
    }
    assert!(matches!(parse("oracle.a=1"), Err(SettingError::Engine(_))));
    let long = format!("postgres.{}=1", "a".repeat(LONGEST_NAME_BYTES + 1));
    for text in [
        "postgres.=1",
        "postgres.A=1",
        "postgres.1a=1",
        "postgres.a b=1",
        "postgres.a-b=1",
        "mariadb.ä=1",
        &long,
    ] {
        assert!(matches!(parse(text), Err(SettingError::Name(..))), "{text:?}");
    }
}

#[test]
fn no_value_breaks_out_of_its_line() {
    for character in ['\n', '\r', '\0', '\u{85}', '\u{7f}'] {
        for engine in Engine::SQL {
            let refused = Setting::new(engine, "work", &format!("1{character}port=1"));
            assert_eq!(refused, Err(SettingError::Character(format!("{engine}.work"), character)));
        }
    }
    for character in ['"', '\'', '\\'] {
        assert!(Setting::new(Engine::MariaDb, "work", &character.to_string()).is_err());
        assert!(Setting::new(Engine::Postgres, "work", &character.to_string()).is_ok());
    }
    let most = "1".repeat(LONGEST_VALUE_BYTES);
    assert!(Setting::new(Engine::Postgres, "work", &most).is_ok());
    assert!(matches!(
        Setting::new(Engine::Postgres, "work", &(most + "1")),
        Err(SettingError::Long(_, length)) if length == LONGEST_VALUE_BYTES + 1
    ));
}

#[test]
fn reserved_settings_are_refused() {
    // The last ones of MariaDB are other spellings of earlier ones.
    for (engine, names) in [
        (Engine::Postgres, "port listen_addresses ssl ssl_key_file hba_file include max_connections"),
        (
            Engine::MariaDb,
            "port datadir bind-address ssl_key tls_version skip-name-resolve general_log log_error user \
             max_connections bind bind_addr dat loose-port maximum-port skip_networking disable-ssl s",
        ),
        (Engine::MySql, "mysqlx_port admin_address sha256_password_private_key_path persist_only plugin_dir"),
    ] {
        for name in names.split_whitespace() {
            let refused = Setting::new(engine, name, "1");
            assert!(matches!(refused, Err(SettingError::Reserved(_))), "{engine}: {name}");
        }
    }
    for name in ["max_connect_errors", "innodb_log_file_size", "socket_timeout", "thread_handling"] {
        assert!(Setting::new(Engine::MariaDb, name, "1").is_ok(), "{name}");
        assert!(Setting::new(Engine::MySql, name, "1").is_ok(), "{name}");
    }
}

#[test]
fn document_databases_have_no_settings() {
    for (text, name) in [("ferretdb.log-level=debug", "FerretDB"), ("mongodb.port=1", "MongoDB")] {
        let expected = format!("settings of {name} are not supported yet");
        assert_eq!(parse(text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn the_last_value_counts() {
    let mut settings = Settings::default();
    settings.extend(["mariadb.a-b=1", "postgres.a=1", "mariadb.a_b=2"].map(|text| parse(text).unwrap()));
    assert_eq!(settings.to_string(), "mariadb.a_b=2, postgres.a=1");
    assert_eq!(settings.of(Engine::MariaDb), BTreeMap::from([("a_b".to_owned(), "2".to_owned())]));
}
