use super::*;

const TWO: &str = "admin = \"tcp:127.0.0.1:9188\"\nmode = \"transaction\"\n[limits]\npool-size = 5\n\
    [[server]]\nname = \"orders\"\nurl = \"postgres://a@h/?sslmode=disable\"\nlisten = \"unix:/o\"\n\
    [server.limits]\nmax-age = \"1m\"\n\
    [[server]]\nname = \"users\"\nurl = \"mysql://a@h/?ssl-mode=DISABLED\"\nlisten = [\"unix:/u\"]\n\
    mode = \"session\"\n[[server.user]]\nname = \"b\"\n";

fn servers(text: &str) -> Result<ResolvedServers, String> {
    ConfigFile::from_toml(text)?.resolve().map_err(|error| error.to_string())
}

#[test]
fn each_server_has_the_settings_of_the_top_level_and_its_own() {
    let all = servers(TWO).unwrap();
    assert_eq!(all.admin, Some("tcp:127.0.0.1:9188".parse().unwrap()));
    let [orders, users] = all.servers.as_slice() else { panic!("two servers") };
    assert_eq!(orders.name.as_ref().map(ServerName::as_str), Some("orders"));
    let (orders, users) = (&orders.resolved.settings, &users.resolved.settings);
    assert_eq!((orders.limits.server_connections, users.limits.server_connections), (5, 5));
    assert_eq!((orders.limits.age.as_secs(), users.limits.age.as_secs()), (60, 3600));
    assert_eq!(orders.pooling, crate::Pooling::Transaction);
    assert_eq!(users.pooling, crate::Pooling::Session);
    assert_eq!((orders.users.len(), users.users.len()), (1, 2));
}

#[test]
fn the_effective_settings_are_a_file_with_the_same_meaning() {
    let all = servers(TWO).unwrap();
    let text = all.effective_toml();
    assert_eq!(servers(&text).unwrap().effective_toml(), text);
    assert!(text.contains("[[server]]") && !text.contains("server = "), "{text}");
    let one = "listen = \"unix:/x\"\nserver = \"postgres://a@h/?sslmode=disable\"\n";
    assert!(!servers(one).unwrap().effective_toml().contains("[[server]]"));
}

#[test]
fn a_command_inherits_no_password_of_another_server() {
    let text = TWO.replace(
        "[[server.user]]\nname = \"b\"\n",
        "[[server.user]]\nname = \"b\"\npassword-env = \"PATH\"\n\
         [[server]]\nname = \"third\"\nurl = \"postgres://a@h/?sslmode=disable\"\nlisten = \"unix:/t\"\n\
         [[server.user]]\nname = \"a\"\npassword-command = [\"true\"]\n",
    );
    let all = servers(&text).unwrap();
    let cells = all.servers[2].resolved.settings.password_sources().cells;
    assert_eq!(cells[0].command().hidden, ["PATH"]);
}

#[test]
fn a_wrong_file_is_refused_with_the_reason() {
    let with = |from: &str, to: &str| servers(&TWO.replace(from, to)).err().unwrap();
    for (from, to, reason) in [
        ("unix:/u", "unix:/o", "two servers listen on unix:/o, or a server and admin do"),
        (
            "unix:/u",
            "tcp:127.0.0.1:9188",
            "two servers listen on tcp:127.0.0.1:9188, or a server and admin do",
        ),
        ("\"users\"", "\"orders\"", "there are two servers \"orders\""),
        ("name = \"users\"\n", "", "each [[server]] needs a \"name\""),
        ("\"users\"", "\"a b\"", "the name of a server has 1 to 63 letters, digits, \".\", \"_\" or \"-\""),
        (
            "url = \"mysql",
            "server = \"mysql",
            "server \"users\": unknown key \"server\": did you mean \"url\"?",
        ),
        ("max-age", "max-aeg", "server \"orders\": unknown key \"max-aeg\": did you mean \"max-age\"?"),
        (
            "mode = \"session\"",
            "admin = \"unix:/x\"",
            "server \"users\": \"admin\" belongs to the top level of the file",
        ),
        ("mode = \"tran", "listen = \"unix:/x\"\nmode = \"tran", "\"listen\" belongs into each [[server]]"),
        ("pool-size = 5", "pool-syze = 5", "unknown key \"pool-syze\": did you mean \"pool-size\"?"),
        (
            "mysql://",
            "ftp://",
            "server \"users\": invalid URL in --server: unknown scheme ftp://; expected postgres://, mysql:// or mariadb://",
        ),
    ] {
        assert_eq!(with(from, to), reason);
    }
    assert_eq!(
        servers("server = []").err().unwrap(),
        "\"server\" is not set: set it in the configuration file or with --server"
    );
}
