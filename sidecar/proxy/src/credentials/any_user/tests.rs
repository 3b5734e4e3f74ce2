use super::super::cell::FetchError;
use super::super::command::RunningCommands;
use super::super::template::WordPart;
use super::*;

fn passwords(lifetime: Option<Duration>) -> AnyUserPasswords {
    let command = CommandTemplate {
        words: vec![vec![WordPart::Text("echo".to_owned())], vec![WordPart::User]],
        lifetime,
        time_limit: Duration::from_mins(1),
        hidden: Vec::new(),
        max_scram_iterations: 4096,
    };
    AnyUserPasswords::new(command, None)
}

fn due(passwords: &AnyUserPasswords, now: Instant) -> Vec<String> {
    passwords.take_due(2, now).iter().map(|(_, cell)| cell.command().user.clone()).collect()
}

#[test]
fn names_that_a_program_could_take_for_something_else_are_refused() {
    for name in ["app", "_x", "a.b", "app@project.iam", "app-1", "machine$", "a+b", "7"] {
        assert_eq!(AnyUserPasswords::accept(name), Ok(()), "{name}");
    }
    for name in [
        "", "-x", "--query", ".", "../x", "a/b", "a b", "a\nb", "a=b", "%h", "$HOME", "a$IFS", "$", "@x",
        "ä", "a:b", "a\0",
    ] {
        assert!(AnyUserPasswords::accept(name).is_err(), "{name}");
    }
    assert!(AnyUserPasswords::accept(&"x".repeat(129)).is_err());
}

#[test]
fn a_command_runs_again_only_if_its_password_was_wanted() {
    let (passwords, now) = (passwords(None), Instant::now() + Duration::from_secs(1));
    assert_eq!(due(&passwords, now), Vec::<String>::new());
    let cell = passwords.cell("app");
    assert_eq!(cell.command().words, ["echo", "app"]);
    assert_eq!((due(&passwords, now), due(&passwords, now)), (vec!["app".to_owned()], Vec::new()));
    cell.finish(&Err(FetchError::Expired));
    // Whoever asks before the next run is due is told the reason, and causes no run.
    assert!(Arc::ptr_eq(&passwords.cell("app"), &cell));
    assert!(matches!(cell.availability(now), Availability::None(_)));
    let later = now + FORGOTTEN_AFTER / 2;
    assert_eq!(due(&passwords, later), Vec::<String>::new());
    assert_eq!(due(&passwords, later + FORGOTTEN_AFTER), Vec::<String>::new());
    assert!(!Arc::ptr_eq(&passwords.cell("app"), &cell), "it is forgotten");
}

#[test]
fn a_failure_counts_until_the_next_run_is_due() {
    let cell = passwords(None).cell("app");
    let now = Instant::now() + Duration::from_secs(1);
    assert!(cell.take_due(now));
    cell.finish(&Err(FetchError::Expired));
    assert!(cell.is_backing_off(Instant::now()));
    assert!(matches!(cell.availability(now), Availability::None(_)));
    cell.forget_old_failure(Instant::now());
    assert!(cell.is_backing_off(Instant::now()));
    cell.forget_old_failure(now + Duration::from_secs(9));
    assert!(!cell.is_backing_off(now));
    assert_eq!(cell.availability(now), Availability::Pending);
}

#[test]
fn as_many_commands_run_as_there_are_threads_those_first_that_clients_wait_for_longest() {
    let (passwords, now) = (passwords(None), Instant::now() + Duration::from_secs(1));
    let cells = ["c", "b", "a"].map(|user| passwords.cell(user));
    let running = passwords.take_due(2, now);
    assert!(running.iter().zip(&cells).all(|((_, running), cell)| Arc::ptr_eq(running, cell)));
    assert_eq!(running.iter().map(|(thread, _)| *thread).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(due(&passwords, now), Vec::<String>::new());
    cells[1].finish(&Err(FetchError::Expired));
    let next = passwords.take_due(2, now);
    assert!(next.len() == 1 && next[0].0 == 1 && Arc::ptr_eq(&next[0].1, &cells[2]));
}

#[test]
fn the_user_that_was_wanted_least_recently_makes_room() {
    let passwords = passwords(None);
    let first = passwords.cell("u0");
    let second = passwords.cell("u1");
    for number in 2..MAX_USERS {
        passwords.cell(&format!("u{number}"));
    }
    assert!(Arc::ptr_eq(&passwords.cell("u0"), &first));
    passwords.cell("one more");
    assert_eq!(passwords.users().len(), MAX_USERS);
    assert!(Arc::ptr_eq(&passwords.cell("u0"), &first) && !Arc::ptr_eq(&passwords.cell("u1"), &second));
}

#[test]
fn a_reload_with_the_same_program_keeps_what_is_known() {
    let now = Instant::now() + Duration::from_secs(1);
    let known = passwords(None);
    let cell = known.cell("app");
    assert_eq!(due(&known, now), ["app"]);
    let printed = cell.fetch(&RunningCommands::default()).map(Arc::new);
    assert_eq!(cell.finish(&printed), None);
    let newer = passwords(Some(Duration::from_secs(9)));
    assert!(known != newer);
    let next = known.succeeded_by(&newer).expect("the same program");
    assert!(next == newer);
    let successor = next.cell("app");
    assert_eq!(successor.command().lifetime, Some(Duration::from_secs(9)));
    assert_eq!(successor.availability(now), Availability::Ready);
    assert_eq!(successor.login().unwrap().password.expose(), b"app");
    assert_eq!(known.fingerprint("app"), next.fingerprint("app"));
    let mut other = passwords(None);
    other.command.words.pop();
    assert!(known.succeeded_by(&other).is_none());
    assert_ne!(known.fingerprint("app"), other.fingerprint("app"));
}
