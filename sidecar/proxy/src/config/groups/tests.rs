use super::*;

fn resolved(more: &str) -> Result<Limits, String> {
    let server = "postgres://app@db.example/shop?sslmode=disable";
    let text = format!("listen = \"unix:/run/x/.s.PGSQL.1\"\nserver = \"{server}\"\n{more}");
    let config = Config::from_toml(&text).unwrap_or_else(|reason| panic!("{reason}: {text}"));
    let resolved = config.resolve().map_err(|error| error.to_string())?;
    // What `--check` prints means the same.
    let again = resolved.effective.resolve().map_err(|error| error.to_string())?;
    assert_eq!(again.settings.limits, resolved.settings.limits);
    Ok(resolved.settings.limits)
}

#[test]
fn a_time_limit_of_a_user_replaces_the_general_one() {
    let second = |count| Some(Duration::from_secs(count));
    let limits = resolved(
        "[limits]\nquery-time = 5\nclient-idle-time = 60\n\
         [[user]]\nname = \"app\"\nquery-time = 9\n\
         [[user]]\nname = \"batch\"\nquery-time = 0\ntransaction-time = \"1m\"\n\
         [[user]]\nname = \"web\"\n",
    );
    let times = limits.unwrap().times;
    let global = TimeLimits { query: second(5), idle: second(60), ..TimeLimits::default() };
    assert_eq!((times.of("web"), times.users.len()), (&global, 2));
    assert_eq!(*times.of("app"), TimeLimits { query: second(9), ..global });
    assert_eq!(*times.of("batch"), TimeLimits { query: None, transaction: second(60), ..global });
    assert!(times.is_on() && !resolved("[limits]\nquery-time = 0").unwrap().times.is_on());
    assert!(resolved("[[user]]\nname = \"app\"\nquery-time = 1").unwrap().times.is_on());
}

#[test]
fn users_and_databases_have_limits_of_connections_and_clients() {
    let limits = resolved(
        "[[user]]\nname = \"app\"\npool-size = 15\nmin-pool-size = 2\n[[user]]\nname = \"web\"\n\
         [[database]]\nname = \"shop\"\nmax-clients = 100\nmin-pool-size = 3\n",
    );
    let groups = limits.unwrap().groups;
    let app = GroupLimit { connections: NonZeroUsize::new(15), warm: 2, clients: None };
    let shop = GroupLimit { connections: None, warm: 3, clients: NonZeroUsize::new(100) };
    assert_eq!(groups.users, [("app".to_owned(), app)].into());
    assert_eq!(groups.databases, [("shop".to_owned(), shop)].into());
    assert_eq!((groups.warm("app", "shop"), groups.warm("app", "till"), groups.warm("web", "x")), (3, 2, 0));
    assert!(resolved("").unwrap().groups.is_empty());
}

#[test]
fn the_limits_of_any_user_are_those_of_users_that_are_not_configured() {
    let limits = resolved(
        "[[user]]\nname = \"*\"\npassword-command = [\"x\", \"%u\"]\npool-size = 2\nquery-time = 5\n\
         [[user]]\nname = \"web\"\nmax-clients = 9\n",
    );
    let Limits { groups, times, .. } = limits.unwrap();
    let connections =
        |user: &str| groups.of_user(user).and_then(|limit| limit.connections).map(NonZeroUsize::get);
    assert_eq!(["app", "web", "other"].map(connections), [None, None, Some(2)]);
    assert_eq!(groups.of_user("web").unwrap().clients, NonZeroUsize::new(9));
    let queries = ["app", "web", "other"].map(|user| times.of(user).query);
    assert_eq!(queries, [None, None, Some(Duration::from_secs(5))]);
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    for (more, reason) in [
        (
            "[[user]]\nname = \"app\"\npool-size = 21",
            "user \"app\": its pool-size, 21, exceeds limits.pool-size, 20",
        ),
        (
            "[[user]]\nname = \"app\"\npool-size = 2\nmin-pool-size = 3",
            "user \"app\": its min-pool-size, 3, exceeds the pool-size, 2",
        ),
        (
            "[[database]]\nname = \"shop\"\nmin-pool-size = 21",
            "database \"shop\": its min-pool-size, 21, exceeds",
        ),
        (
            "[[user]]\nname = \"app\"\nmin-pool-size = 11\n[[user]]\nname = \"web\"\nmin-pool-size = 10",
            "are 21 in all, which exceeds the pool-size, 20",
        ),
        (
            "[[database]]\nname = \"till\"\nmin-pool-size = 1",
            "database \"till\": min-pool-size needs a user whose database it is",
        ),
        ("[[database]]\nname = \"a\"\n[[database]]\nname = \"a\"", "database \"a\" is configured twice"),
    ] {
        let message = resolved(more).unwrap_err();
        assert!(message.contains(reason) && !message.contains('\n'), "{message}");
    }
}
