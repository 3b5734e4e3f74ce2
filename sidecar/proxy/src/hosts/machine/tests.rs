use proptest::prelude::*;

use super::*;

const READ_WRITE: RoleKind = RoleKind::ReadWrite;
const STANDBY: RoleKind = RoleKind::Standby;

struct Case {
    hosts: Hosts,
    now: Instant,
}

impl Case {
    fn of(count: usize, target: TargetSession) -> Self {
        Self { hosts: Hosts::new(count, target, LoadBalance::Disable), now: Instant::now() }
    }

    fn choose(&mut self) -> Option<usize> {
        self.hosts.choose(self.now, 0)
    }

    fn wait(&mut self) {
        self.now += LONGEST_PAUSE;
    }

    fn tells(&mut self, at: usize, kind: RoleKind, timeline: Option<u32>) -> (Verdict, News) {
        let epoch = self.hosts.epoch(at);
        self.hosts.confirm(at, epoch, ServerRole { kind, timeline }, self.now)
    }

    fn fails(&mut self, at: usize) {
        self.hosts.failed(at, "refused".to_owned(), self.now);
    }
}

#[test]
fn hosts_are_tried_in_order_until_one_has_the_role() {
    let mut case = Case::of(3, TargetSession::ReadWrite);
    assert_eq!(case.choose(), Some(0));
    assert_eq!(case.choose(), Some(1), "there is one attempt at a time at each host");
    assert_eq!(case.choose(), Some(2));
    assert_eq!(case.choose(), None);
    case.fails(0);
    assert_eq!(case.tells(1, STANDBY, None).0, Verdict::Unfit(NOT_IN_ROLE));
    assert_eq!(case.choose(), None, "not again at once");
    let (verdict, news) = case.tells(2, READ_WRITE, Some(1));
    assert_eq!((verdict, news.is_found, news.left), (Verdict::Usable, true, None));
    for _ in 0..3 {
        assert_eq!(case.choose(), Some(2), "connects to it are not limited");
    }
    case.wait();
    assert_eq!(case.choose(), Some(2), "it is preferred to hosts that would have to be asked");
}

#[test]
fn logins_outside_of_the_pool_are_on_a_host_that_has_the_role() {
    let mut case = Case::of(3, TargetSession::ReadWrite);
    assert_eq!(case.hosts.login_candidates(), [0, 1, 2], "nothing is known");
    case.tells(0, STANDBY, None);
    assert_eq!(case.hosts.login_candidates(), [1, 2]);
    case.tells(2, READ_WRITE, Some(2));
    assert_eq!(case.hosts.login_candidates(), [2]);
    case.tells(1, READ_WRITE, Some(1));
    assert_eq!(case.hosts.login_candidates(), [2], "the other one is a former primary");
    let epoch = case.hosts.epoch(2);
    case.hosts.doubt(2, epoch);
    assert_eq!(case.hosts.login_candidates(), [2], "it may still have the role");
    case.tells(2, STANDBY, None);
    assert!(case.hosts.login_candidates().is_empty(), "logins wait");
}

#[test]
fn a_host_whose_connect_was_given_up_is_tried_again() {
    let mut case = Case::of(1, TargetSession::ReadWrite);
    assert_eq!((case.choose(), case.choose()), (Some(0), None));
    case.hosts.given_up(0);
    assert_eq!(case.choose(), Some(0));
}

#[test]
fn a_doubted_host_is_asked_again_before_others() {
    let mut case = Case::of(2, TargetSession::ReadWrite);
    case.tells(1, READ_WRITE, None);
    let epoch = case.hosts.epoch(1);
    assert!(case.hosts.doubt(1, epoch));
    assert!(!case.hosts.doubt(1, epoch), "one event counts once");
    assert_ne!(case.hosts.epoch(1), epoch);
    assert_eq!(case.hosts.unusable_reason(1), None, "its connections may be asked");
    assert_eq!(case.choose(), Some(1));
    // An answer to a role query that was sent before the doubt does not count.
    let role = ServerRole { kind: READ_WRITE, timeline: None };
    assert_eq!(case.hosts.confirm(1, epoch, role, case.now).0, Verdict::AskAgain);
    assert!(case.hosts.is_searching());
    assert_eq!(case.tells(1, READ_WRITE, None).0, Verdict::Usable);
    assert!(!case.hosts.is_searching());
    assert_eq!(case.hosts.failovers(), 0);
}

#[test]
fn the_higher_timeline_wins_for_ever() {
    let mut case = Case::of(2, TargetSession::ReadWrite);
    case.tells(0, READ_WRITE, Some(3));
    let epoch = case.hosts.epoch(0);
    let (verdict, news) = case.tells(1, READ_WRITE, Some(4));
    assert_eq!((verdict, news.left), (Verdict::Usable, Some(0)));
    assert!(case.hosts.is_left(0) && case.hosts.epoch(0) != epoch, "its sessions are ended");
    case.wait();
    let (verdict, news) = case.tells(0, READ_WRITE, Some(3));
    assert_eq!((verdict, news.is_rival), (Verdict::Unfit(SUPERSEDED), true));
    // It is not used even if no other host answers.
    case.fails(1);
    case.hosts.fell_silent(1, case.hosts.epoch(1), case.now);
    case.wait();
    assert_eq!(case.tells(0, READ_WRITE, Some(3)).0, Verdict::Unfit(SUPERSEDED));
    assert_eq!(case.tells(0, STANDBY, None).0, Verdict::Unfit(NOT_IN_ROLE));
    assert_eq!(case.tells(0, READ_WRITE, Some(5)).0, Verdict::Usable, "it was promoted again");
    assert_eq!(case.hosts.failovers(), 2);
}

#[test]
fn without_timelines_the_last_confirmed_server_is_used_as_long_as_it_has_the_role() {
    let mut case = Case::of(2, TargetSession::ReadWrite);
    case.tells(0, READ_WRITE, None);
    let (verdict, news) = case.tells(1, READ_WRITE, None);
    assert_eq!((verdict, news.is_rival), (Verdict::Unfit(SUPERSEDED), true));
    assert!(!case.tells(1, READ_WRITE, None).1.is_rival, "it is reported once");
    assert_eq!(case.tells(0, STANDBY, None).0, Verdict::Unfit(NOT_IN_ROLE));
    assert_eq!(case.tells(1, READ_WRITE, None).0, Verdict::Usable);
    assert_eq!(case.hosts.failovers(), 1);
}

#[test]
fn a_doubt_alone_makes_no_other_server_the_current_one() {
    let mut case = Case::of(2, TargetSession::ReadWrite);
    case.tells(1, READ_WRITE, None);
    assert_eq!(case.tells(0, READ_WRITE, None).0, Verdict::Unfit(SUPERSEDED));
    case.wait();
    case.hosts.doubt(1, case.hosts.epoch(1));
    assert_eq!(case.hosts.poll(case.now, LONGEST_PAUSE), Some(1));
    assert_eq!(case.tells(0, READ_WRITE, None).0, Verdict::Unfit(SUPERSEDED));
    assert_eq!(case.tells(1, READ_WRITE, None).0, Verdict::Usable);
    // Nor does a login that it refuses, such as one too many.
    case.hosts.doubt(1, case.hosts.epoch(1));
    case.hosts.refused(1, case.now);
    assert_eq!(case.tells(0, READ_WRITE, None).0, Verdict::Unfit(SUPERSEDED));
    case.wait();
    // An attempt that fails means more than a doubt.
    assert_eq!(case.tells(0, READ_WRITE, None).0, Verdict::Unfit(SUPERSEDED));
    case.fails(1);
    assert_eq!(case.choose(), Some(0), "it is asked at once");
    assert_eq!(case.tells(0, READ_WRITE, None).1.left, Some(1));
}

#[test]
fn a_host_that_fails_is_tried_again_after_pauses_that_grow() {
    let mut case = Case::of(1, TargetSession::Primary);
    let mut pauses = Vec::new();
    for _ in 0..ATTEMPTS_PER_PAUSE * 7 {
        assert_eq!(case.choose(), Some(0));
        case.fails(0);
        let began = case.now;
        assert_eq!(case.choose(), None);
        while case.hosts.all[0].retry.is_some_and(|retry| case.now < retry) {
            case.now += FIRST_PAUSE;
        }
        pauses.push(case.now - began);
    }
    assert_eq!((pauses[0], pauses.last().copied()), (FIRST_PAUSE, Some(LONGEST_PAUSE)));
}

#[test]
fn standbys_are_preferred_and_a_primary_is_better_than_none() {
    let mut case = Case::of(2, TargetSession::PreferStandby);
    assert_eq!(case.choose(), Some(0));
    assert_eq!(case.tells(0, READ_WRITE, Some(1)).0, Verdict::SecondChoice);
    assert_eq!(case.choose(), Some(1), "it may be a standby");
    assert_eq!(case.choose(), None, "what it is will be known soon");
    case.fails(1);
    assert_eq!(case.choose(), Some(0));
    assert_eq!(case.tells(0, READ_WRITE, Some(1)).0, Verdict::Usable);
    case.wait();
    assert_eq!(case.tells(1, STANDBY, None).0, Verdict::Usable);
    assert_eq!(case.choose(), Some(1));
}

#[test]
fn without_a_role_the_next_host_is_tried_if_the_first_one_takes_long() {
    let mut case = Case::of(2, TargetSession::Any);
    assert_eq!((case.choose(), case.choose()), (Some(0), None));
    case.now += RECENT;
    assert_eq!((case.choose(), case.choose()), (Some(1), None));
    case.tells(1, RoleKind::NotAsked, None);
    assert_eq!(case.choose(), Some(1));
    case.tells(0, RoleKind::NotAsked, None);
    assert_eq!(case.choose(), Some(0), "the order is that of the URL");
    assert_eq!(case.hosts.failovers(), 0);
}

#[test]
fn one_host_without_a_role_is_never_waited_for() {
    let mut case = Case::of(1, TargetSession::Any);
    for _ in 0..3 {
        assert_eq!(case.choose(), Some(0));
        case.fails(0);
    }
    assert_eq!(case.choose(), Some(0));
}

#[test]
fn random_order_reaches_all_hosts() {
    let mut hosts = Hosts::new(3, TargetSession::Any, LoadBalance::Random);
    let now = Instant::now();
    for at in 0..3 {
        hosts.confirm(at, 0, ServerRole { kind: RoleKind::NotAsked, timeline: None }, now);
    }
    let mut counts = [0; 3];
    (0..60).for_each(|random| counts[hosts.choose(now, random).unwrap()] += 1);
    assert_eq!(counts, [20; 3]);
}

#[derive(Clone, Copy, Debug)]
enum HostEvent {
    Choose,
    Tells(usize, RoleKind, Option<u32>),
    Doubt(usize),
    Fails(usize),
    Silent(usize),
    Waits,
}

fn events() -> impl Strategy<Value = Vec<HostEvent>> {
    let kind = prop_oneof![Just(READ_WRITE), Just(STANDBY), Just(RoleKind::ReadOnlyPrimary)];
    let host = 0..3_usize;
    let event = prop_oneof![
        Just(HostEvent::Choose),
        (host.clone(), kind, proptest::option::of(1..5_u32))
            .prop_map(|(at, kind, line)| { HostEvent::Tells(at, kind, line.filter(|_| kind.is_primary())) }),
        host.clone().prop_map(HostEvent::Doubt),
        host.clone().prop_map(HostEvent::Fails),
        host.prop_map(HostEvent::Silent),
        Just(HostEvent::Waits),
    ];
    proptest::collection::vec(event, 0..60)
}

proptest! {
    #[test]
    fn at_most_one_server_has_the_role_and_never_one_of_a_lower_timeline(events in events()) {
        let mut case = Case::of(3, TargetSession::ReadWrite);
        let mut highest = None;
        // The server that has the role, as far as its own answers and failures tell.
        let mut held = None;
        for event in events {
            match event {
                HostEvent::Choose => drop(case.choose()),
                HostEvent::Tells(at, kind, timeline) => {
                    let (verdict, _) = case.tells(at, kind, timeline);
                    if verdict == Verdict::Usable {
                        prop_assert_eq!(kind, READ_WRITE);
                        prop_assert!(timeline.is_none() || timeline >= highest);
                        let is_promoted = highest.is_some() && timeline > highest;
                        prop_assert!(is_promoted || held.is_none_or(|held| held == at));
                        highest = highest.max(timeline);
                        held = Some(at);
                    } else if held == Some(at) {
                        held = None;
                    }
                }
                HostEvent::Doubt(at) => drop(case.hosts.doubt(at, case.hosts.epoch(at))),
                HostEvent::Fails(at) => {
                    case.fails(at);
                    held = held.filter(|held| *held != at);
                }
                HostEvent::Silent(at) => {
                    case.hosts.fell_silent(at, case.hosts.epoch(at), case.now);
                    held = held.filter(|held| *held != at);
                }
                HostEvent::Waits => case.wait(),
            }
            let usable = case.hosts.all.iter().filter(|host| host.standing == Standing::Usable).count();
            prop_assert!(usable <= 1);
        }
        // Whatever has happened, a server that has the role is found. Attempts end.
        (0..3).for_each(|at| case.fails(at));
        for _ in 0..3 {
            case.wait();
            while let Some(at) = case.choose() {
                if case.tells(at, READ_WRITE, Some(9)).0 == Verdict::Usable {
                    return Ok(());
                }
            }
        }
        prop_assert!(!case.hosts.is_searching());
    }
}
