use proptest::prelude::*;

use super::*;

fn hosts(text: &str) -> Result<LoadHosts, String> {
    text.parse().map_err(|error: HostsError| error.to_string())
}

#[test]
fn each_kind_prints_as_it_is_parsed() {
    for text in [
        "ssh:load1",
        "ssh:load1,app@10.0.0.7,fe80::1%eth0",
        "exec:env",
        "exec:docker exec -i load1",
        "exec:sh -c 'it'\\''s; exit'",
        "k8s:perf",
        "k8s:perf+pods=16",
        "k8s:arn:aws:eks:eu-west-1:1:cluster/a/perf+image=registry.example/ciphertoll:0.1.0",
    ] {
        assert_eq!(hosts(text).unwrap().to_string(), text);
    }
    assert_eq!(hosts("k8s:perf+pods=4").unwrap().to_string(), "k8s:perf");
    assert_eq!(hosts("exec:a \"b c\"  d").unwrap().to_string(), "exec:a 'b c' d");
}

#[test]
fn hosts_are_counted() {
    for (text, count) in [("ssh:a,b,c", 3), ("exec:env", 1), ("k8s:n", 4), ("k8s:n+pods=1000", 1_000)] {
        assert_eq!(hosts(text).unwrap().count(), count, "{text}");
    }
}

#[test]
fn nothing_becomes_an_option_of_ssh_or_kubectl() {
    for text in ["ssh:-oProxyCommand=x", "ssh:a,-b", "ssh:root@-b", "ssh:-a@b"] {
        let error = hosts(text).unwrap_err();
        assert!(error.contains("take it for an option"), "{text}: {error}");
    }
    for text in ["k8s:-n", "k8s:-c/n", "k8s:n+image=-x"] {
        assert!(hosts(text).is_err(), "{text}");
    }
}

#[test]
fn a_wrong_text_gets_one_line_with_the_nearest_right_thing() {
    for (text, said) in [
        (
            "load1",
            "\"load1\" names no load host; write ssh:HOST[,HOST…] or exec:COMMAND or k8s:[CONTEXT/]NAMESPACE",
        ),
        ("shh:load1", "unknown kind of host \"shh:\"; did you mean \"ssh:\"?"),
        ("ssh:", "host name \"\": it is empty"),
        ("ssh:a,a", "host \"a\" is listed twice"),
        (
            "ssh:a b",
            "host name \"a b\": use letters, digits and . _ - @ : % (ports and all else: in ~/.ssh/config)",
        ),
        ("exec:", "exec:: it has no command"),
        ("exec:a 'b", "exec:a 'b: a quote is not closed"),
        ("k8s:n+pod=3", "k8s:n+pod=3: unknown modifier +pod=3; did you mean +pods=?"),
        ("k8s:n+pods=0", "k8s:n+pods=0: pods must be 1 to 1000, not 0"),
    ] {
        assert_eq!(hosts(text).unwrap_err(), said);
    }
    let error = "k8s:n".parse::<ServerHost>().unwrap_err().to_string();
    assert_eq!(error, "unknown kind of host \"k8s:\"; write ssh:HOST or exec:COMMAND");
}

#[test]
fn a_command_has_a_short_name() {
    for (text, name) in
        [("env", "env"), ("docker exec -i load1", "load1"), ("nsenter --net=/run/a", "nsenter")]
    {
        assert_eq!(text.parse::<ExecPrefix>().unwrap().short_name(), name);
    }
}

fn any_prefix() -> impl Strategy<Value = ExecPrefix> {
    let word = proptest::string::string_regex("[^\\p{Cc}]{0,12}").unwrap();
    prop::collection::vec(word, 1..5).prop_filter_map("a program", ExecPrefix::new)
}

fn any_host() -> impl Strategy<Value = LoadHosts> {
    let name = || "([a-z][a-z0-9]{0,5}@)?[a-z0-9][a-z0-9.:%_-]{0,10}";
    let label = || "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?";
    let ssh = prop::collection::btree_set(name(), 1..4)
        .prop_map(|names| LoadHosts::Ssh(names.iter().map(|name| name.parse().unwrap()).collect()));
    let context = prop::option::of("[a-z0-9][a-z0-9:/@._-]{0,12}");
    let image = prop::option::of("[a-z0-9][a-z0-9:/@._-]{0,20}");
    let pods = (context, label(), 1..=MAX_PODS, image).prop_map(|(context, namespace, pods, image)| {
        let namespace = namespace.parse().unwrap();
        LoadHosts::Kubernetes(KubernetesHosts { context, namespace, pods, image })
    });
    prop_oneof![ssh, any_prefix().prop_map(LoadHosts::Exec), pods]
}

proptest! {
    #[test]
    fn printer_and_parser_are_inverse(hosts in any_host()) {
        prop_assert_eq!(hosts.to_string().parse::<LoadHosts>(), Ok(hosts));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,60}") {
        if let Ok(hosts) = text.parse::<LoadHosts>() {
            prop_assert_eq!(hosts.to_string().parse::<LoadHosts>(), Ok(hosts));
        }
    }
}
