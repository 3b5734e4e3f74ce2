//! What one configuration saves compared with another, and whether that is worth a change.

use ciphertoll_model::{TlsVersion, labelled};

use super::need::Need;
use crate::Estimate;
use crate::cost::{CostModel, Load, Profile, Role, Timed, WeightedSum};

labelled! {
    /// What a choice is to keep low.
    pub enum Optimize {
        /// CPU time of all roles.
        Cpu = "cpu",
        /// Time of a session.
        Latency = "latency",
        Both = "both",
    }
}

/// Smaller savings are not worth a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// Processors, of all roles.
    pub cores: f64,
    /// Time of each connect or of each query, ns.
    pub time_ns: f64,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub needs: &'a [Need],
    pub load: &'a Load,
    pub optimize: Optimize,
    pub worth: Worth,
    /// The TLS version of most connections today, if it is known.
    pub today: Option<TlsVersion>,
}

/// What a first configuration saves compared with another one; below 0 it costs more. Absent: the run lacks it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saving {
    /// CPU time of all roles per session, µs.
    pub cpu_us: Option<Estimate>,
    /// The same in processors, at the load's rate or at the highest that both can serve.
    pub cores: Option<f64>,
    /// Time of a connect, of each query, and of a session of both, ns.
    pub connect_ns: Option<Estimate>,
    pub query_ns: Option<Estimate>,
    pub session_ns: Option<Estimate>,
    /// Logarithms of the other's CPU time and time per session ÷ the first's.
    ratios: [f64; 2],
}

impl Default for Worth {
    fn default() -> Self {
        Self { cores: 0.1, time_ns: 1e6 }
    }
}

impl<'a> Question<'a> {
    /// Without needs, for both CPU time and time.
    pub fn about(load: &'a Load) -> Self {
        Self { needs: &[], load, optimize: Optimize::Both, worth: Worth::default(), today: None }
    }
}

impl Saving {
    pub fn between(model: &CostModel, first: &Profile, other: &Profile, load: &Load) -> Self {
        let value = |sum: &WeightedSum| model.means.value(sum).estimate();
        let both = |of: &dyn Fn(&Profile) -> Option<WeightedSum>| {
            let (first, other) = (of(first)?, of(other)?);
            let ratio = (value(&other).value / value(&first).value).ln();
            Some((value(&(other - &first)), if ratio.is_finite() { ratio } else { 0.0 }))
        };
        let cpu = both(&|profile| model.session_cpu(profile, Role::Total, load).ok());
        let time = |of: Timed| both(&|profile| model.time(profile, of, load).ok());
        let session = time(Timed::Session);
        let rate = load.connects_per_s.or_else(|| {
            let most = |profile| Some(model.predict(profile, load).throughput.ok()?.sessions_per_s.value);
            Some(most(first)?.min(most(other)?))
        });
        let ratio = |found: Option<(Estimate, f64)>| found.map_or(0.0, |(_, ratio)| ratio);
        let saving = |found: Option<(Estimate, f64)>| found.map(|(saving, _)| saving);
        Self {
            cpu_us: saving(cpu),
            cores: cpu.zip(rate).map(|((saving, _), rate)| saving.value * rate * 1e-6),
            connect_ns: saving(time(Timed::Connect)),
            query_ns: saving(time(Timed::Query)),
            session_ns: saving(session),
            ratios: [ratio(cpu), ratio(session)],
        }
    }

    /// Above 0 the first configuration is preferred, below 0 the other one. A difference counts if it is known and worth a
    /// change; of two that disagree, the larger ratio decides.
    pub fn gain(&self, optimize: Optimize, worth: Worth) -> f64 {
        let [cpu, time] = self.ratios;
        let cpu = if self.is_cpu_worth(worth) { cpu } else { 0.0 };
        let time = if self.is_time_worth(worth) { time } else { 0.0 };
        match optimize {
            Optimize::Cpu => cpu,
            Optimize::Latency => time,
            Optimize::Both => cpu + time,
        }
    }

    fn is_cpu_worth(&self, worth: Worth) -> bool {
        self.cpu_us.is_some_and(|cpu| cpu.is_known_to_differ())
            && self.cores.is_none_or(|cores| cores.abs() >= worth.cores)
    }

    /// A connect or a query must differ as the session does.
    fn is_time_worth(&self, worth: Worth) -> bool {
        let Some(session) = self.session_ns.filter(Estimate::is_known_to_differ) else { return false };
        [self.connect_ns, self.query_ns].into_iter().flatten().any(|part| {
            part.is_known_to_differ()
                && part.value.abs() >= worth.time_ns
                && part.value.is_sign_positive() == session.value.is_sign_positive()
        })
    }

    /// Whether anything is known to differ in what is optimised, however little.
    pub fn is_known(&self, optimize: Optimize) -> bool {
        let cpu = optimize != Optimize::Latency && self.cpu_us.is_some_and(|cpu| cpu.is_known_to_differ());
        let times = [self.connect_ns, self.query_ns, self.session_ns];
        cpu || (optimize != Optimize::Cpu
            && times.into_iter().flatten().any(|time| time.is_known_to_differ()))
    }
}
