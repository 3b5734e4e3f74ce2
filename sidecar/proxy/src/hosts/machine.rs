//! What is known of each host, and what follows from it.

use std::time::{Duration, Instant};

use super::target::{LoadBalance, RoleKind, ServerRole, TargetSession};

/// The shortest time between two attempts at a host that could not be used.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// An attempt that began within this time may still succeed soon.
const RECENT: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// After so many attempts, the pause is twice as long.
const ATTEMPTS_PER_PAUSE: u32 = 32;

/// The hosts of one server.
pub(crate) struct Hosts {
    target: TargetSession,
    balance: LoadBalance,
    all: Vec<Host>,
    /// The last host that was used, if only one may be.
    current: Option<usize>,
    /// The highest timeline that a server has been confirmed to write.
    timeline: Option<u32>,
    failovers: u64,
}

struct Host {
    standing: Standing,
    role: Option<ServerRole>,
    confirmed: Option<Instant>,
    epoch: u64,
    doubts: u64,
    attempt: Attempt,
    tried: Option<Instant>,
    /// Attempts since it could be used.
    misses: u32,
    retry: Option<Instant>,
    reason: Option<String>,
}

/// Whether a host can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not tried yet.
    Unknown,
    /// Its last answer was that it has the role.
    Usable,
    /// It had the role. Something has happened since that may have ended it.
    Doubtful,
    /// It has another role.
    Unfit,
    /// It does not answer.
    Silent,
    /// Another server was used in its place. It has not answered since.
    Left,
    /// It says that it has the role, and another server has it.
    Superseded,
}

/// Whether a connect to a host that is not known to be usable is in progress. There is at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    None,
    Running,
}

/// What a confirmed role means for the connection that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A client may get it.
    Usable,
    /// A client may keep it. A new connection should be to a standby, if there is one.
    SecondChoice,
    /// Something has happened since it was asked.
    AskAgain,
    /// It must be closed, for this reason.
    Unfit(&'static str),
}

/// What has changed, for the log and for clients that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// The host can be used, which it could not before.
    pub(crate) is_found: bool,
    /// The host that this one replaces.
    pub(crate) left: Option<usize>,
    /// The role is not what the host said before.
    pub(crate) is_new_role: bool,
    /// For the first time, it reports the role but must not be used, because another server has the role.
    pub(crate) is_rival: bool,
}

/// A host as the status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSummary {
    pub role: &'static str,
    pub standing: &'static str,
    pub confirmed: Option<Instant>,
    pub timeline: Option<u32>,
    pub doubts: u64,
    pub reason: Option<String>,
}

/// Reasons for closing a connection.
pub(crate) const NOT_IN_ROLE: &str = "its server does not have the role";
pub(crate) const SUPERSEDED: &str = "another server has taken the role of its server";

impl Host {
    fn new() -> Self {
        Self {
            standing: Standing::Unknown,
            role: None,
            confirmed: None,
            epoch: 0,
            doubts: 0,
            attempt: Attempt::None,
            tried: None,
            misses: 0,
            retry: None,
            reason: None,
        }
    }

    fn can_be_tried(&self, now: Instant) -> bool {
        self.attempt == Attempt::None && self.retry.is_none_or(|retry| now >= retry)
    }

    /// Whether its last answer was that it has the role, and no question has failed since. A doubt alone ends nothing.
    fn has_role(&self) -> bool {
        match self.standing {
            Standing::Usable => true,
            Standing::Doubtful => self.misses == 0,
            Standing::Unknown
            | Standing::Unfit
            | Standing::Silent
            | Standing::Left
            | Standing::Superseded => false,
        }
    }

    /// Whether a promising attempt began a moment ago.
    fn has_just_been_tried(&self, now: Instant) -> bool {
        let is_recent = self.tried.is_some_and(|tried| now.duration_since(tried) < RECENT);
        let is_open = matches!(self.standing, Standing::Unknown | Standing::Doubtful);
        is_open && self.attempt == Attempt::Running && is_recent
    }

    /// It cannot be used now, and is tried again after a pause.
    fn missed(&mut self, standing: Standing, now: Instant) {
        if matches!(self.standing, Standing::Usable | Standing::Doubtful) {
            self.epoch += 1;
        }
        self.attempt = Attempt::None;
        self.standing = standing;
        // Connects that began together fail together.
        if self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << (self.misses / ATTEMPTS_PER_PAUSE).min(6));
        self.misses = self.misses.saturating_add(1);
        self.retry = Some(now + pause.min(LONGEST_PAUSE));
    }
}

impl Hosts {
    pub(crate) fn new(count: usize, target: TargetSession, balance: LoadBalance) -> Self {
        let all = (0..count).map(|_| Host::new()).collect();
        Self { target, balance, all, current: None, timeline: None, failovers: 0 }
    }

    pub(crate) fn epochs(&self) -> impl Iterator<Item = u64> {
        self.all.iter().map(|host| host.epoch)
    }

    pub(crate) fn failovers(&self) -> u64 {
        self.failovers
    }

    /// The host of the next connect, which begins now; `None` if clients must wait. `random` is any number.
    pub(crate) fn choose(&mut self, now: Instant, random: usize) -> Option<usize> {
        let found = self.find(now, random)?;
        let host = &mut self.all[found];
        host.tried = Some(now);
        if host.standing != Standing::Usable {
            host.attempt = Attempt::Running;
        }
        Some(found)
    }

    fn find(&self, now: Instant, random: usize) -> Option<usize> {
        // There is only one host, and no role is needed.
        if self.all.len() == 1 && self.target == TargetSession::Any {
            return Some(0);
        }
        let order = self.order(random);
        let usable = |at: &usize| self.all[*at].standing == Standing::Usable;
        let standing = |at: usize| self.all[at].standing;
        let first = |condition: &dyn Fn(usize) -> bool| order.iter().copied().find(|at| condition(*at));
        let untried = |at: usize| standing(at) == Standing::Unknown && self.all[at].can_be_tried(now);
        if self.target == TargetSession::PreferStandby {
            let is_open = |at: usize| self.may_be_standby(at, now) && self.all[at].can_be_tried(now);
            let standby = first(&|at| self.is_usable_standby(at)).or_else(|| first(&is_open));
            if standby.is_some() || (0..self.all.len()).any(|at| self.may_be_standby(at, now)) {
                return standby;
            }
            return first(&|at| usable(&at)).or_else(|| first(&|at| self.all[at].can_be_tried(now)));
        }
        if self.balance == LoadBalance::Random && !self.target.is_of_one_server() {
            let balanced = first(&|at| usable(&at) || untried(at));
            return balanced.or_else(|| first(&|at| self.all[at].can_be_tried(now)));
        }
        if !self.target.is_of_one_server() {
            // The next one is tried only if this one takes long: the order is that of the URL.
            return first(&|at| usable(&at))
                .or_else(|| {
                    first(&|at| self.all[at].can_be_tried(now) || self.all[at].has_just_been_tried(now))
                })
                .filter(|at| usable(at) || self.all[*at].can_be_tried(now));
        }
        let is_last = |at: usize| self.current == Some(at) && self.all[at].can_be_tried(now);
        first(&|at| usable(&at))
            .or_else(|| first(&is_last))
            .or_else(|| first(&|at| self.all[at].can_be_tried(now)))
    }

    fn is_usable_standby(&self, at: usize) -> bool {
        let host = &self.all[at];
        host.standing == Standing::Usable && host.role.is_some_and(|role| role.kind == RoleKind::Standby)
    }

    /// A connect was given up for a reason that is not the host's.
    pub(crate) fn given_up(&mut self, at: usize) {
        self.all[at].attempt = Attempt::None;
    }

    /// Whether this host may be a standby: an attempt to connect to it is in progress or possible.
    fn may_be_standby(&self, at: usize, now: Instant) -> bool {
        let host = &self.all[at];
        let is_open = matches!(host.standing, Standing::Unknown | Standing::Doubtful);
        is_open && (host.attempt == Attempt::Running || host.can_be_tried(now))
    }

    /// Whether a new connection should go to a standby instead of this primary.
    fn is_second_choice(&self, at: usize, role: ServerRole, now: Instant) -> bool {
        let may_be_better = |other: usize| self.is_usable_standby(other) || self.may_be_standby(other, now);
        self.target == TargetSession::PreferStandby
            && role.kind.is_primary()
            && (0..self.all.len()).any(|other| other != at && may_be_better(other))
    }

    fn order(&self, random: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        if self.balance == LoadBalance::Random {
            // Each permutation of the hosts that are left, as in a shuffle.
            let mut random = random;
            for at in (1..order.len()).rev() {
                order.swap(at, random % (at + 1));
                random /= at + 1;
            }
        }
        order
    }

    /// Whether no host is known to be usable.
    pub(crate) fn is_searching(&self) -> bool {
        !self.all.iter().any(|host| host.standing == Standing::Usable)
    }

    /// When a host can be tried that cannot be now.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.all.iter().filter_map(|host| host.retry).min()
    }

    /// A host that should tell its role: it is doubted, or no host can be used, or it has not told it for this long. The
    /// last one that was used is the first. Its connect begins now.
    pub(crate) fn poll(&mut self, now: Instant, interval: Duration) -> Option<usize> {
        let is_old =
            |moment: Option<Instant>| moment.is_none_or(|moment| now.duration_since(moment) >= interval);
        let is_searching = self.is_searching();
        let is_due = |host: &Host| {
            let is_urgent = is_searching || host.standing == Standing::Doubtful;
            is_urgent && host.can_be_tried(now) || is_old(host.tried) && is_old(host.confirmed)
        };
        let order = self.current.into_iter().chain(0..self.all.len());
        let mut free = order.filter(|at| self.all[*at].attempt == Attempt::None);
        let found = free.find(|at| is_due(&self.all[*at]))?;
        let host = &mut self.all[found];
        host.tried = Some(now);
        host.attempt = Attempt::Running;
        Some(found)
    }

    /// Hosts for a login outside of the pool: those with the role, the current one first. If none is known to have it, those
    /// that may have it.
    pub(crate) fn login_candidates(&self) -> Vec<usize> {
        let with = |fits: &dyn Fn(Standing) -> bool| -> Vec<usize> {
            let others = (0..self.all.len()).filter(|at| Some(*at) != self.current);
            self.current.into_iter().chain(others).filter(|at| fits(self.all[*at].standing)).collect()
        };
        let usable = with(&|standing| standing == Standing::Usable);
        if usable.is_empty() {
            with(&|standing| matches!(standing, Standing::Unknown | Standing::Doubtful))
        } else {
            usable
        }
    }

    /// A server has said what its role is. `epoch` is that of the host when it was asked.
    pub(crate) fn confirm(
        &mut self,
        at: usize,
        epoch: u64,
        role: ServerRole,
        now: Instant,
    ) -> (Verdict, News) {
        self.all[at].attempt = Attempt::None;
        if self.all[at].epoch != epoch {
            return (Verdict::AskAgain, News::default());
        }
        let is_new_role = self.all[at].role.map(|role| role.kind) != Some(role.kind);
        let mut news = News { is_new_role, ..News::default() };
        let host = &mut self.all[at];
        (host.role, host.confirmed, host.reason) = (Some(role), Some(now), None);
        if !self.target.accepts(role.kind) {
            host.missed(Standing::Unfit, now);
            self.retry_rivals(at);
            return (Verdict::Unfit(NOT_IN_ROLE), news);
        }
        if self.is_superseded(at, role) {
            news.is_rival = self.all[at].standing != Standing::Superseded;
            self.all[at].missed(Standing::Superseded, now);
            return (Verdict::Unfit(SUPERSEDED), news);
        }
        let host = &mut self.all[at];
        news.is_found = host.standing != Standing::Usable;
        (host.standing, host.misses, host.retry) = (Standing::Usable, 0, None);
        self.timeline = self.timeline.max(role.timeline);
        if self.target.is_of_one_server() {
            news.left = self.current.replace(at).filter(|left| *left != at);
        }
        if let Some(left) = news.left {
            self.failovers += 1;
            self.leave(left, now);
        }
        let is_second = self.is_second_choice(at, role, now);
        (if is_second { Verdict::SecondChoice } else { Verdict::Usable }, news)
    }

    /// Another host is used in place of this one.
    fn leave(&mut self, at: usize, now: Instant) {
        let host = &mut self.all[at];
        if host.standing != Standing::Unfit {
            host.missed(Standing::Left, now);
        }
    }

    /// Whether a server that has the role must not be used, because another one has it.
    fn is_superseded(&self, at: usize, role: ServerRole) -> bool {
        if !self.target.is_of_one_server() {
            return false;
        }
        // A timeline that is lower than one before is that of a server whose successor was promoted.
        let has_timelines = self.timeline.is_some() && role.timeline.is_some();
        if has_timelines && role.timeline != self.timeline {
            return role.timeline < self.timeline;
        }
        self.current.is_some_and(|current| current != at && self.all[current].has_role())
    }

    /// The current host may have lost the role: those that it has superseded are asked without a pause.
    fn retry_rivals(&mut self, at: usize) {
        if self.current == Some(at) && !self.all[at].has_role() {
            let rivals = self.all.iter_mut().filter(|host| host.standing == Standing::Superseded);
            rivals.for_each(|host| host.retry = None);
        }
    }

    /// A connect has failed: other hosts are tried first. Open connections are asked again before they are used.
    /// Returns whether that is new.
    pub(crate) fn failed(&mut self, at: usize, reason: String, now: Instant) -> bool {
        let host = &mut self.all[at];
        let was_usable = matches!(host.standing, Standing::Usable | Standing::Doubtful);
        host.missed(if was_usable { Standing::Doubtful } else { Standing::Silent }, now);
        let is_new = host.reason.as_ref() != Some(&reason);
        host.reason = Some(reason);
        self.retry_rivals(at);
        is_new
    }

    /// An open connection of this epoch does not answer: none of them is used any more.
    pub(crate) fn fell_silent(&mut self, at: usize, epoch: u64, now: Instant) {
        let host = &mut self.all[at];
        if host.epoch == epoch {
            host.missed(Standing::Silent, now);
            host.reason = Some("it does not answer".to_owned());
            self.retry_rivals(at);
        }
    }

    /// The server has answered a connect, but refuses this login.
    pub(crate) fn refused(&mut self, at: usize, now: Instant) {
        let host = &mut self.all[at];
        if host.standing == Standing::Usable {
            host.attempt = Attempt::None;
        } else {
            let (standing, misses) = (host.standing, host.misses);
            host.missed(standing, now);
            if standing == Standing::Doubtful {
                // It is there, and has not said that it has lost the role.
                host.misses = misses;
            }
        }
    }

    /// Something on a connection of this epoch may mean that the server has lost its role. Returns whether that is new.
    pub(crate) fn doubt(&mut self, at: usize, epoch: u64) -> bool {
        let host = &mut self.all[at];
        let is_new = host.epoch == epoch && host.standing == Standing::Usable;
        if is_new {
            host.epoch += 1;
            host.doubts += 1;
            (host.standing, host.retry) = (Standing::Doubtful, None);
        }
        is_new
    }

    /// Why a connection of this host cannot be used, whatever it answers.
    pub(crate) fn unusable_reason(&self, at: usize) -> Option<&'static str> {
        match self.all[at].standing {
            Standing::Unknown | Standing::Usable | Standing::Doubtful => None,
            Standing::Silent => Some("its server does not answer"),
            Standing::Unfit => Some(NOT_IN_ROLE),
            Standing::Left | Standing::Superseded => Some(SUPERSEDED),
        }
    }

    /// Whether sessions should end between two commands, because another host has the role.
    pub(crate) fn is_to_be_left(&self, at: usize) -> bool {
        let has_other_role = self.all[at].standing == Standing::Unfit || self.is_left(at);
        has_other_role && self.target.is_of_one_server() && !self.is_searching()
    }

    pub(crate) fn is_usable(&self, at: usize) -> bool {
        self.all[at].standing == Standing::Usable
    }

    /// Whether another server has taken the role of this one.
    pub(crate) fn is_left(&self, at: usize) -> bool {
        matches!(self.all[at].standing, Standing::Left | Standing::Superseded)
    }

    pub(crate) fn epoch(&self, at: usize) -> u64 {
        self.all[at].epoch
    }

    pub(crate) fn role(&self, at: usize) -> Option<ServerRole> {
        self.all[at].role
    }

    pub(crate) fn summaries(&self) -> impl Iterator<Item = HostSummary> {
        self.all.iter().map(|host| HostSummary {
            role: host.role.map_or("unknown", |role| role.kind.label()),
            standing: match host.standing {
                Standing::Unknown => "untried",
                Standing::Usable => "usable",
                Standing::Doubtful => "doubtful",
                Standing::Unfit => "unfit",
                Standing::Silent => "unreachable",
                Standing::Left => "left",
                Standing::Superseded => "superseded",
            },
            confirmed: host.confirmed,
            timeline: host.role.and_then(|role| role.timeline),
            doubts: host.doubts,
            reason: host.reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
