//! Ranks the configurations of a run for a load.

use std::cmp::Reverse;

use crate::Estimate;
use crate::cost::{BreakEven, CostModel, Load, MissingTerm, Prediction, Profile, Role};
use ciphertoll_model::{Auth, Driver, Legacy, Path, ServerLevel, TlsVersion, Treatment};

use crate::advice::Need;
use crate::advice::need::insufficient;

/// The configurations of one server for a load, the first choice first.
#[derive(Debug)]
pub struct Advice<'a> {
    /// The first one is advised.
    pub choices: Vec<Choice<'a>>,
    pub excluded: Vec<Excluded<'a>>,
    /// The unencrypted configuration that costs are compared with: plain TCP.
    pub plain: Option<(&'a Profile, Prediction)>,
}

/// A configuration that fulfils every need.
#[derive(Debug)]
pub struct Choice<'a> {
    pub profile: &'a Profile,
    pub prediction: Prediction,
    /// CPU time of all roles per session, µs.
    pub cpu_us: Estimate,
    /// Saved CPU time per session compared with this configuration if the first choice is used instead, µs; absent for the first
    /// choice.
    pub saving_us: Option<Estimate>,
    /// Compared with the first choice (`Side::First`); absent for it.
    pub break_even: Option<BreakEven>,
    /// Whether it is known to cost more than the cheapest.
    pub rank: Rank,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// It costs the least, or its cost is not known to be higher.
    AsCheap,
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
///    and fulfil every need are ranked.
/// 2. The cheapest is the one with the least CPU time of all roles per session.
/// 3. Among those not known to cost more, the simplest is the first choice: without a tunnel, without a new process, the newest
///    protocol.
/// 4. The others follow by cost.
///
/// All have the same authentication and driver.
pub fn advise<'a>(
    model: &'a CostModel,
    server: &ServerLevel,
    needs: &[Need],
    load: &Load,
) -> Result<Advice<'a>, MissingTerm> {
    let mut advice = Advice { choices: Vec::new(), excluded: Vec::new(), plain: None };
    let mut missing = None;
    let of_server: Vec<&Profile> =
        model.profiles.iter().filter(|profile| profile.treatment.server == *server).collect();
    let login = login(&of_server);
    let newest = of_server
        .iter()
        .filter(|profile| never_advised(profile).is_none())
        .filter_map(|profile| Some(profile.treatment.path.as_tls()?.version))
        .max();
    for profile in of_server {
        let treatment = &profile.treatment;
        if login.is_some_and(|login| (&treatment.auth, &treatment.driver) != login) {
            let reason = format!("another login: auth {}, driver {}", treatment.auth, treatment.driver);
            advice.excluded.push(Excluded { treatment, reason });
            continue;
        }
        if treatment.path == Path::Plain && advice.plain.is_none() {
            advice.plain = Some((profile, model.predict(profile, load)));
        }
        let unmet = never_advised(profile)
            .or_else(|| newest.and_then(|newest| older_protocol(treatment.path, newest)))
            .or_else(|| needs.iter().find_map(|need| need.unmet(treatment)))
            .map(str::to_owned);
        match (unmet, session_cpu(model, profile, load)) {
            (Some(reason), _) => advice.excluded.push(Excluded { treatment, reason }),
            (None, Err(term)) => {
                missing.get_or_insert(term);
                let reason = format!("the run lacks {term}");
                advice.excluded.push(Excluded { treatment, reason });
            }
            (None, Ok(cpu_us)) => advice.choices.push(Choice {
                profile,
                prediction: model.predict(profile, load),
                cpu_us,
                saving_us: None,
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
    advice.order(model, load)?;
    Ok(advice)
}

/// Why a configuration is never advised, by its levels or by what its connections negotiated.
fn never_advised(profile: &Profile) -> Option<&'static str> {
    insufficient(&profile.treatment).or_else(|| profile.negotiated_legacy.map(Legacy::reason))
}

/// CPU time of all roles per session, with its interval, µs: without one nothing is known to cost more.
fn session_cpu(model: &CostModel, profile: &Profile, load: &Load) -> Result<Estimate, MissingTerm> {
    let cpu = model.session_cpu(profile, Role::Total, load)?;
    let estimate = model.means.value(&cpu).estimate();
    if estimate.interval().is_some() { Ok(estimate) } else { Err(MissingTerm::Intervals) }
}

impl Advice<'_> {
    fn order(&mut self, model: &CostModel, load: &Load) -> Result<(), MissingTerm> {
        self.choices.sort_by(|left, right| left.cpu_us.value.total_cmp(&right.cpu_us.value));
        let Some(cheapest) = self.choices.first().map(|choice| choice.profile) else { return Ok(()) };
        let cpu = |profile| model.session_cpu(profile, Role::Total, load);
        for choice in self.choices.iter_mut().skip(1) {
            let more = model.means.value(&(cpu(choice.profile)? - &cpu(cheapest)?)).estimate();
            choice.rank = if more.low() > 0.0 { Rank::CostsMore } else { Rank::AsCheap };
        }
        // Stable: among those that cost more, the cheapest stays first.
        self.choices.sort_by_key(|choice| {
            let is_tied = choice.rank == Rank::AsCheap;
            (choice.rank, is_tied.then(|| Complexity::of(&choice.profile.treatment)))
        });
        let first = self.choices[0].profile;
        for choice in self.choices.iter_mut().skip(1) {
            let saving = cpu(choice.profile)? - &cpu(first)?;
            choice.saving_us = Some(model.means.value(&saving).estimate());
            choice.break_even = model.break_even(first, choice.profile, load).ok();
        }
        Ok(())
    }
}

/// Peers will require the newest protocol next, so that an older one is no choice even if it costs less.
fn older_protocol(path: Path, newest: TlsVersion) -> Option<&'static str> {
    let is_older = path.as_tls().is_some_and(|tls| tls.version < newest);
    is_older.then_some("an older protocol than the newest that was measured")
}

/// The authentication and the driver that all choices share, as they are not a question of encryption: those of the first
/// configuration with a password.
fn login<'a>(profiles: &[&'a Profile]) -> Option<(&'a Auth, &'a Driver)> {
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
            Path::Tls(tls) => (Process::None, tls.version),
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
