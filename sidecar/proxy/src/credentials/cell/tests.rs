use super::*;

fn cell(lifetime: Option<Duration>) -> PasswordCell {
    PasswordCell::new(PasswordCommand {
        user: "app".to_owned(),
        words: Vec::new(),
        lifetime,
        time_limit: Duration::from_secs(1),
        hidden: Vec::new(),
        max_scram_iterations: 4096,
    })
}

/// The command has printed this password.
fn printed(cell: &PasswordCell, password: &str, life: Option<Duration>) -> Option<Duration> {
    cell.finish(&Ok(Arc::new(login_of(password, life))))
}

fn login_of(password: &str, life: Option<Duration>) -> FetchedLogin {
    let now = Instant::now();
    FetchedLogin {
        user: "app".to_owned(),
        password: Secret::new(password.as_bytes().to_vec()),
        keys: Arc::new(KeyCache::new()),
        expires: life.map(|life| now + life),
        expires_unix_s: None,
        fetched: now,
    }
}

fn due_in(cell: &PasswordCell) -> Option<Duration> {
    cell.state().due.map(|due| due.saturating_duration_since(Instant::now()))
}

#[test]
fn the_first_password_is_awaited_and_a_failure_is_told() {
    let cell = cell(None);
    let now = Instant::now();
    assert_eq!((cell.availability(now), cell.version()), (Availability::Pending, 0));
    assert!(cell.take_due(now) && !cell.take_due(now) && cell.is_fetching(now));
    assert_eq!(cell.finish(&Err(FetchError::Expired)), Some(SHORTEST_PAUSE));
    let Availability::None(reason) = cell.availability(now) else { panic!("it has failed") };
    assert!(reason.starts_with("no password yet: the password that"), "{reason}");
    // Pauses grow, up to a limit.
    let pauses: Vec<_> = (0..8).filter_map(|_| cell.finish(&Err(FetchError::Expired))).collect();
    assert_eq!((pauses[0], pauses[7]), (SHORTEST_PAUSE * 2, LONGEST_PAUSE));
    assert_eq!(printed(&cell, "x", None), None);
    assert_eq!((cell.availability(now), cell.version()), (Availability::Ready, 1));
    // Without an expiry, it need not be fetched again.
    assert_eq!(due_in(&cell), None);
    assert!(!cell.is_fetching(now));
}

#[test]
fn a_password_is_replaced_when_most_of_its_life_has_passed() {
    let cell = cell(None);
    for _ in 0..50 {
        printed(&cell, "x", Some(Duration::from_secs(1000)));
        let due = due_in(&cell).unwrap().as_secs_f64();
        assert!((719.0..=800.0).contains(&due), "{due}");
    }
    // A cached token whose end is near is not fetched all the time.
    printed(&cell, "x", Some(Duration::from_millis(10)));
    assert!(due_in(&cell).unwrap() > SHORTEST_PAUSE / 2);
    let later = Instant::now() + Duration::from_secs(1);
    assert_eq!(cell.availability(later), Availability::Pending);
    cell.finish(&Err(FetchError::Expired));
    let Availability::None(reason) = cell.availability(later) else { panic!("it has expired") };
    assert!(reason.starts_with("it has expired, and no new one came: "), "{reason}");
}

#[test]
fn a_refused_password_is_fetched_again_only_if_it_worked_or_is_old() {
    let cell = cell(None);
    let now = Instant::now();
    cell.state().due = None;
    printed(&cell, "one", None);
    assert_eq!(cell.refused(1, now), AfterRefusal::Fail);
    assert_eq!(cell.refused(0, now), AfterRefusal::Retry);
    cell.accepted(1);
    assert_eq!((cell.refused(1, now), cell.refused(1, now)), (AfterRefusal::Wait, AfterRefusal::Wait));
    assert!(cell.take_due(now));
    assert_eq!(cell.refused(1, now), AfterRefusal::Wait);
    // The same password again, and then a refusal for another reason: waiting would not end.
    printed(&cell, "one", None);
    assert_eq!((cell.version(), cell.refused(1, now)), (1, AfterRefusal::Fail));
    printed(&cell, "two", None);
    assert_eq!((cell.version(), cell.refused(2, now)), (2, AfterRefusal::Fail));
    let old = now + REFETCH_AFTER * 2;
    assert_eq!(cell.refused(2, old), AfterRefusal::Wait);
    cell.finish(&Err(FetchError::Expired));
    assert_eq!(cell.refused(2, old), AfterRefusal::Wait);
}

#[test]
fn a_command_with_other_limits_uses_the_password_that_is_there() {
    let before = cell(None);
    printed(&before, "x", Some(Duration::from_hours(2)));
    let now = Instant::now();
    let hour = Duration::from_hours(1);
    let command = PasswordCommand { hidden: vec!["OTHER".to_owned()], ..before.command().clone() };
    let after = before.succeeded_by(command.clone());
    assert_eq!((after.availability(now), after.version()), (Availability::Ready, 1));
    assert!(after.is_fetching(Instant::now()), "its own command is due");
    // Its life is the shorter one, and it does not become longer.
    let life = |command: PasswordCommand| {
        let login = before.succeeded_by(command).login().unwrap();
        login.expires.unwrap().saturating_duration_since(now)
    };
    assert!(life(PasswordCommand { lifetime: Some(hour), ..command.clone() }) <= hour);
    assert!(life(PasswordCommand { lifetime: Some(hour * 9), ..command.clone() }) <= hour * 2);
    let other_words = PasswordCommand { words: vec!["other".to_owned()], ..command.clone() };
    assert!(command.prints_the_same(before.command()) && !other_words.prints_the_same(&command));
}
