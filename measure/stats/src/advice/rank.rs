//! Ranks the configurations of a run for a load.

use std::cmp::Reverse;

use crate::Estimate;
use crate::cost::{
    BreakEven, CostModel, Load, MissingTerm, Prediction, Profile, Role, Throughput, Timed, WeightedSum,
};
use ciphertoll_model::{Auth, Driver, Legacy, Path, ServerLevel, TlsVersion, Treatment};

use super::need::{Need, insufficient};
use super::weigh::{Optimize, Question, Saving};

/// The configurations of one server for a load, the first choice first.
#[derive(Debug)]
pub struct Advice<'a> {
    /// The first one is advised.
    pub choices: Vec<Choice<'a>>,
    pub excluded: Vec<Excluded<'a>>,
    /// The unencrypted configuration that costs are compared with: plain TCP.
    pub plain: Option<(&'a Profile, Prediction)>,
    /// The choice with the highest throughput, if no choice can serve the load.
    pub overload: Option<(&'a Profile, Throughput)>,
}

/// A configuration that fulfils every need.
#[derive(Debug)]
pub struct Choice<'a> {
    pub profile: &'a Profile,
    pub prediction: Prediction,
    /// CPU time of all roles per session, µs; absent if the run lacks it, and times decide.
    pub cpu_us: Option<Estimate>,
    /// What the first choice saves compared with this one; absent for the first choice.
    pub saving: Option<Saving>,
    /// In CPU time, compared with the first choice (`Side::First`); absent for it.
    pub break_even: Option<BreakEven>,
    /// How it compares with the first choice.
    pub rank: Rank,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The first choice, or not known to differ from it.
    AsCheap,
    /// It differs, but not so much that a change is worth it.
    NotWorthIt,
    CostsMore,
}

/// A configuration that is not advised.
#[derive(Debug)]
pub struct Excluded<'a> {
    pub treatment: &'a Treatment,
    pub reason: String,
}

/// Ranks the configurations of `server`.
///
/// 1. Only configurations that encrypt every connection between hosts and verify the server, use the newest measured TLS version,
///    fulfil every need and can serve the load are ranked; if none can serve it, all are.
/// 2. The simplest is the first choice: without a tunnel, without a new process, the newest protocol. If most connections use a
///    version `today`, that is where it starts.
/// 3. Each other one is chosen instead if it is preferred: [`Saving::gain`].
/// 4. The others follow by cost.
///
/// All have the same authentication and driver.
pub fn advise<'a>(
    model: &'a CostModel,
    server: &ServerLevel,
    question: &Question<'_>,
) -> Result<Advice<'a>, MissingTerm> {
    let mut advice = Advice { choices: Vec::new(), excluded: Vec::new(), plain: None, overload: None };
    let mut missing = None;
    let of_server: Vec<&Profile> =
        model.profiles.iter().filter(|profile| profile.treatment.server == *server).collect();
    let login = login(&of_server);
    let newest = of_server
        .iter()
        .filter(|profile| never_advised(profile).is_none())
        .filter_map(|profile| Some(profile.treatment.path.as_tls()?.parameters.version))
        .max();
    for profile in of_server {
        let treatment = &profile.treatment;
        if login.is_some_and(|login| (&treatment.auth, &treatment.driver) != login) {
            let reason = format!("another login: auth {}, driver {}", treatment.auth, treatment.driver);
            advice.excluded.push(Excluded { treatment, reason });
            continue;
        }
        if treatment.path == Path::Plain && advice.plain.is_none() {
            advice.plain = Some((profile, model.predict(profile, question.load)));
        }
        let unmet = never_advised(profile)
            .or_else(|| newest.and_then(|newest| older_protocol(treatment.path, newest)))
            .or_else(|| question.needs.iter().find_map(|need| need.unmet(treatment)))
            .map(str::to_owned);
        match (unmet, costs(model, profile, question)) {
            (Some(reason), _) => advice.excluded.push(Excluded { treatment, reason }),
            (None, Err(term)) => {
                missing.get_or_insert(term);
                let reason = format!("the run lacks {term}");
                advice.excluded.push(Excluded { treatment, reason });
            }
            (None, Ok(cpu_us)) => advice.choices.push(Choice {
                profile,
                prediction: model.predict(profile, question.load),
                cpu_us,
                saving: None,
                break_even: None,
                rank: Rank::AsCheap,
            }),
        }
    }
    if advice.choices.is_empty()
        && let Some(term) = missing
    {
        return Err(term);
    }
    advice.exclude_overloaded(question.load);
    advice.order(model, question);
    Ok(advice)
}

/// Why a configuration is never advised, by its levels or by what its connections negotiated.
fn never_advised(profile: &Profile) -> Option<&'static str> {
    insufficient(&profile.treatment).or_else(|| profile.negotiated_legacy.map(Legacy::reason))
}

/// The CPU time of all roles per session, µs, if the question needs no more than the run has. Without intervals nothing is
/// known to cost more.
fn costs(
    model: &CostModel,
    profile: &Profile,
    question: &Question<'_>,
) -> Result<Option<Estimate>, MissingTerm> {
    let with_interval = |sum: WeightedSum| {
        let estimate = model.means.value(&sum).estimate();
        if estimate.interval().is_some() { Ok(estimate) } else { Err(MissingTerm::Intervals) }
    };
    let cpu = model.session_cpu(profile, Role::Total, question.load).and_then(with_interval);
    let time = || model.time(profile, Timed::Session, question.load).and_then(with_interval);
    match question.optimize {
        Optimize::Cpu => cpu.map(Some),
        Optimize::Latency => time().map(|_| cpu.ok()),
        Optimize::Both => match (time(), cpu) {
            (Ok(_), cpu) => Ok(cpu.ok()),
            (Err(_), Ok(cpu)) => Ok(Some(cpu)),
            // At a URL, where times are easier to have.
            (Err(of_time), Err(MissingTerm::ServerCpu | MissingTerm::ConnectCpu)) => Err(of_time),
            (Err(_), Err(of_cpu)) => Err(of_cpu),
        },
    }
}

impl<'a> Advice<'a> {
    /// Keeps the choices that can serve the load, or all of them if none can.
    fn exclude_overloaded(&mut self, load: &Load) {
        let Some(rate) = load.connects_per_s else { return };
        let is_overloaded = |choice: &Choice<'_>| {
            choice.prediction.throughput.is_ok_and(|most| most.sessions_per_s.value < rate)
        };
        if self.choices.iter().all(is_overloaded) {
            let most = |choice: &Choice<'a>| Some((choice.profile, choice.prediction.throughput.ok()?));
            let by_rate = |(_, one): &(_, Throughput), (_, other): &(_, Throughput)| {
                one.sessions_per_s.value.total_cmp(&other.sessions_per_s.value)
            };
            self.overload = self.choices.iter().filter_map(most).max_by(by_rate);
            return;
        }
        for overloaded in self.choices.extract_if(.., |choice| is_overloaded(choice)) {
            let reason = "it cannot serve this load".to_owned();
            self.excluded.push(Excluded { treatment: &overloaded.profile.treatment, reason });
        }
    }

    fn order(&mut self, model: &CostModel, question: &Question<'_>) {
        let Question { load, optimize, worth, .. } = *question;
        let by_cost = |choice: &Choice<'_>| {
            let time = || choice.prediction.session_ns.map_or(f64::INFINITY, |time| time.value);
            choice.cpu_us.filter(|_| optimize != Optimize::Latency).map_or_else(time, |cpu| cpu.value)
        };
        self.choices.sort_by(|left, right| by_cost(left).total_cmp(&by_cost(right)));
        let Some(first) = self.first(model, question) else { return };
        for choice in &mut self.choices {
            if choice.profile == first {
                continue;
            }
            let saving = Saving::between(model, first, choice.profile, load);
            choice.rank = if saving.gain(optimize, worth) > 0.0 {
                Rank::CostsMore
            } else if saving.is_known(optimize) {
                Rank::NotWorthIt
            } else {
                Rank::AsCheap
            };
            choice.saving = Some(saving);
            choice.break_even = model.break_even(first, choice.profile, load).ok();
        }
        // Stable: of the same rank, the cheapest stays first.
        self.choices.sort_by_key(|choice| (choice.saving.is_some(), choice.rank));
    }

    /// The first choice.
    fn first(&self, model: &CostModel, question: &Question<'_>) -> Option<&'a Profile> {
        let Question { load, optimize, worth, .. } = *question;
        let mut simplest: Vec<&'a Profile> = self.choices.iter().map(|choice| choice.profile).collect();
        // Stable: of the same complexity, the cheapest is tried first.
        simplest.sort_by_cached_key(|profile| {
            let is_today = question.today.is_some()
                && profile.treatment.path.as_tls().map(|tls| tls.parameters.version) == question.today;
            (Reverse(is_today), Complexity::of(&profile.treatment))
        });
        let preferred = |first: &'a Profile, other: &'a Profile| {
            let gain = Saving::between(model, first, other, load).gain(optimize, worth);
            if gain < 0.0 { other } else { first }
        };
        simplest.into_iter().reduce(preferred)
    }
}

/// Peers will require the newest protocol next, so that an older one is no choice even if it costs less.
fn older_protocol(path: Path, newest: TlsVersion) -> Option<&'static str> {
    let is_older = path.as_tls().is_some_and(|tls| tls.parameters.version < newest);
    is_older.then_some("an older protocol than the newest that was measured")
}

/// The authentication and the driver that all choices share, as they are not a question of encryption: those of the first
/// configuration with a password.
pub(super) fn login<'a>(profiles: &[&'a Profile]) -> Option<(&'a Auth, &'a Driver)> {
    let login = |profile: &&'a Profile| (&profile.treatment.auth, &profile.treatment.driver);
    let mut all = profiles.iter().map(login);
    all.clone().find(|(auth, _)| **auth != Auth::Trust).or_else(|| all.next())
}

/// How much a configuration adds. The simpler one compares as less, by the first field that differs.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Complexity {
    at_rest: Added,
    process: Process,
    driver: Added,
    protocol: Reverse<TlsVersion>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Added {
    Nothing,
    Something,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Process {
    None,
    Proxy,
    Tunnel,
}

impl Complexity {
    fn of(treatment: &Treatment) -> Self {
        let (process, version) = match treatment.path {
            Path::Plain | Path::Compressed(_) | Path::Unix => (Process::None, TlsVersion::Tls13),
            Path::Tls(tls) => (Process::None, tls.parameters.version),
            Path::Proxy(proxy) => (Process::Proxy, proxy.version),
            Path::Tunnel(_) => (Process::Tunnel, TlsVersion::Tls13),
        };
        let added = |is_added| if is_added { Added::Something } else { Added::Nothing };
        Self {
            at_rest: added(treatment.at_rest.encrypts()),
            process,
            driver: added(Need::NoDriverChange.unmet(treatment).is_some()),
            protocol: Reverse(version),
        }
    }
}
