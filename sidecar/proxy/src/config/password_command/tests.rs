use crate::config::Config;

const TLS: &str = "postgres://app@db.example:5433/shop";

fn resolve(server: &str, more: &str) -> Result<Vec<String>, String> {
    let text = format!("listen = \"unix:/run/x/.s.PGSQL.1\"\nserver = \"{server}\"\n{more}");
    let resolved = Config::from_toml(&text)?.resolve().map_err(|error| error.to_string())?;
    let cells = resolved.settings.password_sources().cells;
    Ok(cells.first().map(|cell| cell.command().words.clone()).unwrap_or_default())
}

fn user(more: &str) -> String {
    format!("[[user]]\nname = \"app\"\n{more}")
}

#[test]
fn words_are_substituted() {
    let words = |server: &str, words: &str| resolve(server, &user(&format!("password-command = {words}")));
    let all = "[\"aws\", \"%u@%h:%p/%d\", \"100%%\", \"\", \"%%u\"]";
    let own = |words: &[&str]| Ok(words.iter().map(ToString::to_string).collect());
    assert_eq!(words(TLS, all), own(&["aws", "app@db.example:5433/shop", "100%", "", "%u"]));
    let mysql = "mysql://app@db.example";
    assert_eq!(words(mysql, "[\"/bin/x\", \"%p\"]"), own(&["/bin/x", "3306"]));
    let socket = "postgres://app@/shop?host=/run/pg&sslmode=disable";
    assert_eq!(words(socket, "[\"x\", \"%h\"]"), own(&["x", "/run/pg/.s.PGSQL.5432"]));
    for (server, wrong, reason) in [
        (TLS, "[\"x\", \"%x\"]", "unknown %x in \"%x\": there are %u, %h, %p, %d and %%"),
        (TLS, "[\"x\", \"50%\"]", "unknown % in \"50%\""),
        (socket, "[\"x\", \"%p\"]", "%p in \"%p\", but the server has a unix socket"),
        (mysql, "[\"x\", \"%d\"]", "%d in \"%d\", but the user has no database"),
        (TLS, "[\"\"]", "the first word must be the name of a program"),
        (TLS, "[\"/bin/%u\"]", "the first word must be the name of a program"),
        (TLS, "[\"./x\"]", "the first word must be the name of a program in PATH, or an absolute path"),
        (TLS, "[\"x\", \"\\u0000\"]", "a word contains a NUL character"),
    ] {
        let refused = words(server, wrong).unwrap_err();
        let expected = format!("password-command of user \"app\": {reason}");
        assert!(refused.starts_with(&expected) && !refused.contains('\n'), "{wrong}: {refused}");
    }
}

#[test]
fn a_command_excludes_other_sources_and_needs_a_verified_server() {
    let refused = |server: &str, more: &str| resolve(server, &user(more)).unwrap_err();
    let command = "password-command = [\"x\"]\n";
    for (more, reason) in [
        ("password-file = \"x\"", "has several of password-file"),
        ("password-env = \"X\"", "has several of password-file"),
        ("password-lifetime = \"1s\"", "password-lifetime cannot be 1s: it must be at least 2s"),
        ("password-command-time = \"2m\"", "password-command-time cannot be 2m: it must be from 100ms to 1m"),
        ("password-command-time = 0", "password-command-time cannot be 0s"),
    ] {
        let refused = refused(TLS, &format!("{command}{more}"));
        assert!(refused.contains(reason), "{more}: {refused}");
    }
    for name in ["password-lifetime", "password-command-time"] {
        let refused = refused(TLS, &format!("{name} = \"10s\""));
        assert!(refused.contains(&format!("{name} applies to a password-command only")), "{refused}");
    }
    let unverified = refused("postgres://app@h/shop?sslmode=require", command);
    assert!(unverified.contains("the server is not verified"), "{unverified}");
    let unverified = refused("mysql://app@h/shop?ssl-mode=REQUIRED", command);
    assert!(unverified.contains("the server is not verified"), "{unverified}");
    // Without TLS, the login never sends a cleartext password.
    assert!(resolve("postgres://app@h/shop?sslmode=disable", &user(command)).is_ok());
}

#[test]
fn any_user_needs_a_command_that_is_given_the_name() {
    let with = |server: &str, more: &str| resolve(server, &format!("{more}[[user]]\nname = \"*\"\n"));
    let user = |more: &str| resolve(TLS, &format!("[[user]]\nname = \"*\"\n{more}"));
    assert_eq!(user("password-command = [\"x\", \"db/%u\"]\npool-size = 2"), Ok(Vec::new()));
    for (more, reason) in [
        ("", "user \"*\", which is any user, needs a password-command"),
        ("password-file = \"x\"", "user \"*\", which is any user, needs a password-command"),
        ("password-command = [\"x\"]", "none of its words has %u"),
        ("password-command = [\"x\", \"%%u\"]", "none of its words has %u"),
        ("password-command = [\"x\", \"%u\"]\nmin-pool-size = 1", "min-pool-size cannot be kept for it"),
        ("password-command = [\"x\", \"%u\"]\npassword-env = \"X\"", "has several of password-file"),
    ] {
        let refused = user(more).unwrap_err();
        assert!(refused.contains(reason), "{more}: {refused}");
    }
    let command = "password-command = [\"x\", \"%u\"]\n";
    let twice = |server: &str, more: &str| {
        with(server, more).map(drop).unwrap_err();
        resolve(server, &format!("{more}[[user]]\nname = \"*\"\n{command}")).unwrap_err()
    };
    assert!(twice(TLS, "auth-user = \"app\"\n").starts_with("auth-user and user \"*\" both"));
    assert!(twice("mysql://app@h/shop", "pass-through-auth = true\n").starts_with("pass-through-auth and"));
    let scram = resolve(TLS, &format!("unix-auth = \"password\"\n[[user]]\nname = \"*\"\n{command}"));
    assert!(scram.unwrap_err().contains("clients cannot know the password"));
    let url = resolve("postgres://*@h/shop", &format!("[[user]]\nname = \"*\"\n{command}")).unwrap_err();
    assert!(url.contains("cannot be \"*\""), "{url}");
}

#[test]
fn clients_that_must_know_a_changing_password_are_refused() {
    let command = user("password-command = [\"x\"]");
    let with = |more: &str| resolve(TLS, &format!("{more}\n{command}"));
    let reason = "clients cannot know the password: use unix-auth = \"peer\"";
    assert!(with("unix-auth = \"password\"").is_err_and(|refused| refused.contains(reason)));
    let tcp = |more: &str| {
        let text =
            format!("listen = [\"unix:/x\", \"tcp:127.0.0.1:1\"]\nserver = \"{TLS}\"\n{more}\n{command}");
        Config::from_toml(&text).unwrap().resolve().map(drop).map_err(|error| error.to_string())
    };
    assert!(tcp("").is_err_and(|refused| refused.contains(reason)));
    let tls = "tls-cert = \"/c\"\ntls-key = \"/k\"\n";
    assert!(tcp(tls).is_err());
    assert_eq!(tcp(&format!("{tls}tls-client-ca = \"/a\"")), Ok(()));
}
