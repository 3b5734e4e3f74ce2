use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::*;

const SERVER: &str = "postgres://app@db.example/shop?sslmode=disable";

fn config(more: &str) -> Config {
    let text = format!("listen = \"unix:/run/x/.s.PGSQL.1\"\nserver = \"{SERVER}\"\n{more}");
    Config::from_toml(&text).unwrap_or_else(|reason| panic!("{reason}: {text}"))
}

#[test]
fn absent_settings_have_defaults() {
    let resolved = config("").resolve().unwrap();
    assert_eq!(resolved.settings.limits, Limits::default());
    let [user] = resolved.settings.users.as_slice() else { panic!("one user") };
    assert_eq!((user.name.as_str(), user.database.as_deref()), ("app", Some("shop")));
    assert_eq!(resolved.settings.allowed_uids, AllowedUids::Only(vec![geteuid().as_raw()]));
    assert_eq!(resolved.settings.pooling, Pooling::Session);
    assert_eq!(resolved.settings.reset, ResetPolicy::Always);
    assert_eq!((resolved.settings.unix_auth, resolved.settings.allowed_uids.mode()), (UnixAuth::Peer, 0o600));
}

#[test]
fn the_number_of_threads_is_limited() {
    let threads = |more: &str| config(more).resolve().map(|resolved| resolved.settings.threads.get());
    assert!(matches!((threads(""), threads("threads = 256")), (Ok(1), Ok(256))));
    assert!(matches!(threads("threads = 257"), Err(ConfigError::Threads(257))));
    assert!(Config::from_toml("threads = 0").is_err());
}

#[test]
fn names_are_watched_only_if_that_is_asked_for() {
    let dns = |more: &str| config(more).resolve().map(|resolved| resolved.settings.limits.dns);
    assert!(matches!((dns(""), dns("dns-time = \"2s\"")), (Ok(None), Ok(Some(time))) if time.as_secs() == 2));
    let error = dns("dns-time = \"500ms\"").unwrap_err();
    assert_eq!(error.to_string(), "dns-time cannot be 500ms: it must be at least 1s");
}

#[test]
fn groups_are_a_list_and_need_tls_to_the_server() {
    let groups = |server: &str, more: &str| {
        let text = format!("listen = \"unix:/run/x/.s.PGSQL.1\"\nserver = \"{server}\"\n{more}");
        Config::from_toml(&text)?
            .resolve()
            .map(|resolved| resolved.settings.groups)
            .map_err(|error| error.to_string())
    };
    let tls = "postgres://app@db.example/shop";
    assert_eq!(groups(tls, ""), Ok(default_groups(UpstreamTlsLibrary::Rustls)));
    let openssl = UpstreamTlsLibrary::OpenSsl;
    assert_eq!(groups(tls, "tls-library = \"openssl\""), Ok(default_groups(openssl)));
    assert_eq!(groups(tls, "tls-groups = [\"p384\", \"x25519\"]"), Ok(vec![Group::P384, Group::X25519]));
    assert!(groups(tls, "tls-groups = [\"p257\"]").is_err());
    assert_eq!(groups(SERVER, ""), Ok(Vec::new()));
    let refusal = groups(SERVER, "tls-groups = [\"p256\"]").unwrap_err();
    assert!(refusal.contains("tls-groups needs TLS to the server"), "{refusal}");
}

#[test]
fn the_effective_configuration_is_read_back_unchanged() {
    let config = config(
        "admin = \"tcp:127.0.0.1:9188\"\nmode = \"transaction\"\nhealth-time = 15\n[limits]\nmax-age = \"0.5h\"\n\
         [log]\nlevel = \"warn\"\nformat = \"json\"\n[[user]]\nname = \"app\"\n",
    );
    let effective = config.resolve().unwrap().effective;
    let printed = effective.to_toml();
    assert!(printed.contains("max-age = \"30m\"\n") && printed.contains("pool-size = 20\n"), "{printed}");
    assert!(printed.contains("mode = \"transaction\"\n"), "{printed}");
    assert_eq!(Config::from_toml(&printed), Ok(effective.clone()));
    assert_eq!(effective.resolve().unwrap().effective, effective);
}

#[test]
fn every_limit_of_the_schema_is_printed() {
    let effective = config("").resolve().unwrap().effective;
    let printed: toml::Table = toml::from_str(&effective.to_toml()).unwrap();
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let properties = schema["$defs"]["LimitsSection"]["properties"].as_object().unwrap();
    let current = properties.iter().filter(|(_, property)| property["deprecated"] != true);
    let shown = printed["limits"].as_table().unwrap();
    assert_eq!(shown.keys().collect::<HashSet<_>>(), current.map(|(name, _)| name).collect());
    assert_eq!(schema["additionalProperties"], false);
    assert!(!json_schema().contains("null"), "{schema:#}");
}

#[test]
fn an_error_in_the_file_is_one_line() {
    for (text, reason) in [
        ("\n[limits]\npool-sise = 3", "line 3: unknown key \"pool-sise\": did you mean \"pool-size\"?"),
        ("lissten = \"x\"", "line 1: unknown key \"lissten\": did you mean \"listen\"?"),
        ("[log]\nzzz = 1", "line 2: unknown key \"zzz\": known keys are level, format"),
        ("[[user]]\nname = \"a\"\npassword = \"x\"", "did you mean \"password-"),
        ("[limits]\nqueue-time = \"soon\"", "line 2: \"soon\" is not a duration"),
        ("[limits]\npool-size = 0", "line 2: invalid value: integer `0`"),
        ("listen = \"tcp:localhost:1\"", "expected unix:"),
        ("[[user]]\n", "missing field `name`"),
        ("listen = ", "line 1: "),
    ] {
        let message = Config::from_toml(text).unwrap_err();
        assert!(message.contains(reason) && !message.contains('\n'), "{text:?}: {message}");
    }
}

#[test]
fn conflicting_settings_are_refused() {
    let refused =
        |more: &str| config(more).resolve().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused("[[user]]\nname = \"a\"\n[[user]]\nname = \"a\"").contains("twice"));
    let both = "[[user]]\nname = \"a\"\npassword-file = \"x\"\npassword-env = \"Y\"";
    assert!(refused(both).contains("keep one of them"));
    assert!(refused("warm-up = 11\n[[user]]\nname = \"b\"").contains("exceeds the pool-size, 20"));
    assert!(refused("[[user]]\nname = \"b\"\npassword-file = \"/nowhere/x\"").contains("/nowhere/x"));
    let of_mysql = |more: &str| {
        let config = Config { server: Some("mysql://a@h/?ssl-mode=DISABLED".to_owned()), ..config(more) };
        config.resolve().err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(of_mysql("scram-iterations = 4096").starts_with("scram-iterations does not apply to MySQL"));
    assert!(of_mysql("replication = true").contains("applies to PostgreSQL only"));
    assert_eq!((of_mysql("replication = false"), refused("replication = true")), Default::default());
    assert!(of_mysql("auth-user = \"a\"").contains("apply to PostgreSQL only"));
    assert!(refused("pass-through-auth = true").contains("use auth-user for PostgreSQL"));
    assert_eq!(
        (of_mysql("pass-through-auth = true"), refused("pass-through-auth = false")),
        Default::default()
    );
    assert!(refused("auth-query = \"SELECT $1\"").contains("needs auth-user"));
    assert!(
        refused("auth-user = \"b\"").contains("auth-user is \"b\", which is neither the user of --server")
    );
    assert!(refused("auth-user = \"app\"\nauth-query = \"SELECT 1, 2\"").contains("parameter $1"));
    assert_eq!(refused("auth-user = \"b\"\n[[user]]\nname = \"b\""), "");
    let most = "[limits]\nmax-scram-iterations = 4096";
    assert!(of_mysql(most).starts_with("limits.max-scram-iterations does not apply to MySQL"));
    assert_eq!((of_mysql(""), refused(most)), (String::new(), String::new()));
    let (tracked, in_transactions) = ("reset = \"tracked\"", "mode = \"transaction\"\nreset = \"tracked\"");
    assert!(refused(tracked).contains("needs mode = \"transaction\" with PostgreSQL"));
    assert_eq!((of_mysql(tracked), of_mysql(in_transactions)), (String::new(), String::new()));
    assert_eq!(refused(in_transactions), "");
    assert!(refused("[limits]\nmax-scram-iterations = 10000001").contains("from 1 to 10000000"));
    let missing = Config::default().resolve().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(missing.contains("\"listen\""), "{missing}");
    let with_password = Config { server: Some("postgres://a:hunter2@h".to_owned()), ..config("") };
    let message = with_password.resolve().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("password") && !message.contains("hunter2"), "{message}");
}

#[test]
fn allowed_uids_and_iterations_follow_the_authentication() {
    let settings = |more: &str| config(more).resolve().unwrap().settings;
    let of = |more: &str| (settings(more).allowed_uids, settings(more).iterations);
    let ours = geteuid().as_raw();
    assert_eq!(of("unix-auth = \"scram\""), (AllowedUids::All, ScramIterations { by_unix: 1, by_tcp: 4096 }));
    let named = "unix-auth = \"scram\"\nallow-uid = [64000]\nscram-iterations = 4096";
    assert_eq!(
        of(named),
        (AllowedUids::Only(vec![64_000, ours]), ScramIterations { by_unix: 4096, by_tcp: 4096 })
    );
    let uids = of("allow-uid = [64000]").0;
    assert!(uids.allow(ours) && uids.allow(64_000) && !uids.allow(64_001));
    assert_eq!((uids.mode(), AllowedUids::All.mode()), (0o666, 0o666));
    let tcp = |iterations: u32| {
        let config = Config {
            listen: vec!["unix:/x".parse().unwrap(), "tcp:127.0.0.1:1".parse().unwrap()],
            scram_iterations: NonZeroU32::new(iterations),
            ..config("")
        };
        config
            .resolve()
            .map(|resolved| resolved.settings.iterations.by_tcp)
            .map_err(|error| error.to_string())
    };
    assert_eq!((tcp(4096), tcp(5000)), (Ok(4096), Ok(5000)));
    assert!(tcp(4095).unwrap_err().contains("from 4096"));
}

#[test]
fn listen_is_one_address_or_a_list() {
    let listen = |text: &str| Config::from_toml(&format!("listen = {text}")).map(|config| config.listen);
    let [unix, tcp]: [ListenAddress; 2] = ["unix:/x", "tcp:127.0.0.1:1"].map(|text| text.parse().unwrap());
    assert_eq!(listen("\"unix:/x\""), Ok(vec![unix.clone()]));
    assert_eq!(listen("[\"unix:/x\", \"tcp:127.0.0.1:1\"]"), Ok(vec![unix, tcp]));
    for invalid in ["[\"x\"]", "1", "[1]"] {
        assert!(listen(invalid).is_err_and(|message| !message.contains('\n')), "{invalid}");
    }
    assert!(listen("[]").is_ok_and(|listen| Config { listen, ..config("") }.resolve().is_err()));
}

#[test]
fn plaintext_is_offered_on_loopback_only() {
    let resolved = |listen: &str, more: &str| {
        let text = format!("listen = \"{listen}\"\nserver = \"{SERVER}\"\n{more}");
        let resolved = Config::from_toml(&text).unwrap().resolve();
        resolved.map(|resolved| resolved.settings.tls.is_some()).map_err(|error| error.to_string())
    };
    let both = "tls-cert = \"/c\"\ntls-key = \"/k\"";
    assert_eq!(resolved("tcp:127.0.0.1:1", ""), Ok(false));
    assert_eq!(resolved("tcp:0.0.0.0:1", both), Ok(true));
    for (listen, more, reason) in [
        ("tcp:0.0.0.0:1", "", "listen cannot be tcp:0.0.0.0:1: an address that is not loopback"),
        ("tcp:127.0.0.1:1", "admin = \"tcp:10.0.0.1:1\"", "admin cannot be"),
        ("tcp:127.0.0.1:1", "tls-cert = \"/c\"", "needs both"),
        ("tcp:127.0.0.1:1", "tls-client-ca = \"/c\"", "needs both"),
        ("unix:/x", both, "no TLS"),
    ] {
        let message = resolved(listen, more).unwrap_err();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn password_files_are_relative_to_the_configuration_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("proxy.toml");
    let text = format!(
        "listen = \"unix:/x\"\nserver = \"{SERVER}\"\n[[user]]\nname = \"app\"\ndatabase = \"till\"\n\
         password-file = \"app.password\"\n"
    );
    fs::write(&path, text).unwrap();
    let password = directory.path().join("app.password");
    fs::write(&password, "hunter2\n").unwrap();
    set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let ResolvedServer { resolved, .. } =
        ConfigFile::read(&path).unwrap().resolve().unwrap().servers.remove(0);
    let [user] = resolved.settings.users.as_slice() else { panic!("one user") };
    assert_eq!((user.database.as_deref(), user.password.expose()), (Some("till"), &b"hunter2"[..]));
    assert!(!resolved.effective.to_toml().contains("hunter2"));
}

#[test]
fn every_setting_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sidecar/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let names = |of: &Value| of["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for name in names(&schema)
        .into_iter()
        .filter(|name| !["limits", "log", "console", "user", "database"].contains(&name.as_str()))
    {
        assert!(page.contains(&format!("`{name}`")), "{name} is not documented");
    }
    for (section, written) in
        [("LimitsSection", "limits."), ("LogSection", "log."), ("ConsoleSection", "console.")]
    {
        for name in names(&schema["$defs"][section]) {
            assert!(page.contains(&format!("`{written}{name}`")), "{written}{name} is not documented");
        }
    }
    let sections = ["UserSection", "DatabaseSection"];
    for name in sections.into_iter().flat_map(|section| names(&schema["$defs"][section])) {
        assert!(page.contains(&format!("{name} = ")), "{name} is not documented");
    }
}
