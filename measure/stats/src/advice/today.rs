//! What today's connections cost: each by the configuration of a run that is nearest to how it is encrypted.

use ciphertoll_model::{
    ClientCertificate, Path, Resumption, ServerKey, ServerLevel, TlsLibrary, TlsPath, TlsStart, TlsVersion,
    Treatment,
};

use super::rank::login;
use crate::Estimate;
use crate::cost::{CostModel, Load, MODEL_ERROR, MissingTerm, Profile, Role, Timed, WeightedSum};

/// How some of today's connections are encrypted, as an observer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportToday {
    Plain,
    Tls {
        version: TlsVersion,
        /// Of the server's certificate; TLS 1.3 hides it.
        key: Option<ServerKey>,
        resumption: Resumption,
    },
    /// Neither, or unknown.
    Other,
}

/// Today's connections, each as a configuration of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Today<'a> {
    /// The configurations of the server that differ in their paths only: the same login, and nothing encrypted at rest.
    candidates: Vec<&'a Profile>,
    /// Configurations with their shares of the connections that have one; the sum is 1.
    parts: Vec<(&'a Profile, f64)>,
    /// The share of all connections for which the run has no configuration.
    unknown: f64,
}

impl<'a> Today<'a> {
    /// `None` if the run has no configuration for any of the connections.
    pub fn of(model: &'a CostModel, server: &ServerLevel, seen: &[(TransportToday, u64)]) -> Option<Self> {
        let of_server: Vec<&Profile> =
            model.profiles.iter().filter(|profile| profile.treatment.server == *server).collect();
        let login = login(&of_server)?;
        let is_candidate = |profile: &&&'a Profile| {
            let Treatment { auth, driver, at_rest, .. } = &profile.treatment;
            (auth, driver) == login && !at_rest.encrypts()
        };
        let candidates: Vec<&'a Profile> = of_server.iter().filter(is_candidate).copied().collect();
        let (mut parts, mut known, mut all): (Vec<(&Profile, f64)>, f64, f64) = (Vec::new(), 0.0, 0.0);
        for (transport, connections) in seen {
            let connections = *connections as f64;
            all += connections;
            let Some(nearest) = transport.nearest(&candidates) else { continue };
            known += connections;
            match parts.iter_mut().find(|(profile, _)| *profile == nearest) {
                Some((_, sum)) => *sum += connections,
                None => parts.push((nearest, connections)),
            }
        }
        if known == 0.0 {
            return None;
        }
        for (_, share) in &mut parts {
            *share /= known;
        }
        parts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        Some(Self { candidates, parts, unknown: 1.0 - known / all })
    }

    /// The first configuration with such a path that today's connections can be compared with.
    pub fn find(&self, is_such: impl Fn(Path) -> bool) -> Option<&'a Profile> {
        self.candidates.iter().find(|profile| is_such(profile.treatment.path)).copied()
    }

    /// The configurations with their shares, the largest first.
    pub fn parts(&self) -> &[(&'a Profile, f64)] {
        &self.parts
    }

    pub fn unknown_share(&self) -> f64 {
        self.unknown
    }

    /// The CPU time of a session on average, µs.
    pub fn session_cpu(
        &self,
        model: &CostModel,
        role: Role,
        load: &Load,
    ) -> Result<WeightedSum, MissingTerm> {
        let parts = self.parts.iter().map(|(part, share)| Ok(model.session_cpu(part, role, load)? * *share));
        parts.reduce(|sum, part| Ok(sum? + &part?)).unwrap_or_else(|| Ok(WeightedSum::default()))
    }

    /// The processors that the connections use, of all roles; `None` without a rate.
    pub fn cores(&self, model: &CostModel, load: &Load) -> Option<Result<Estimate, MissingTerm>> {
        let rate = load.connects_per_s?;
        let cpu = self.session_cpu(model, Role::Total, load);
        Some(cpu.map(|cpu| model.means.value(&(cpu * (rate * 1e-6))).prediction(CostModel::cpu_error(load))))
    }

    /// The processors that `profile` would save, of all roles; `None` without a rate.
    pub fn cores_saved_by(
        &self,
        profile: &Profile,
        model: &CostModel,
        load: &Load,
    ) -> Option<Result<Estimate, MissingTerm>> {
        let rate = load.connects_per_s? * 1e-6;
        let cost = |profile: &Profile| Ok(model.session_cpu(profile, Role::Total, load)? * rate);
        Some(self.saved_by(profile, model, CostModel::cpu_error(load), cost))
    }

    /// The time of a connect that `profile` would save, ns.
    pub fn connect_saved_by(
        &self,
        profile: &Profile,
        model: &CostModel,
        load: &Load,
    ) -> Result<Estimate, MissingTerm> {
        self.saved_by(profile, model, MODEL_ERROR, |profile| model.time(profile, Timed::Connect, load))
    }

    /// Connections that have the configuration already save nothing, and that is certain: only the others are compared.
    fn saved_by(
        &self,
        profile: &Profile,
        model: &CostModel,
        error: f64,
        cost: impl Fn(&Profile) -> Result<WeightedSum, MissingTerm>,
    ) -> Result<Estimate, MissingTerm> {
        let (mut now, mut then) = (WeightedSum::default(), WeightedSum::default());
        for (part, share) in self.parts.iter().filter(|(part, _)| *part != profile) {
            now = now + &(cost(part)? * *share);
            then = then + &(cost(profile)? * *share);
        }
        Ok(model.predicted_saving(&then, &now, error))
    }
}

impl TransportToday {
    /// Of equally near ones, the first of the plan.
    fn nearest<'a>(self, candidates: &[&'a Profile]) -> Option<&'a Profile> {
        match self {
            Self::Other => None,
            Self::Plain => candidates.iter().find(|profile| profile.treatment.path == Path::Plain).copied(),
            Self::Tls { version, key, resumption } => {
                let distance = |profile: &&&Profile| {
                    let path = profile.treatment.path.as_tls()?;
                    let is_like = path.parameters.version == version && path.resumption == resumption;
                    let other_key = key.is_some() && path.key.is_some() && path.key != key;
                    is_like.then_some((other_key, unusual(path)))
                };
                let near = candidates.iter().filter_map(|profile| Some((distance(&profile)?, *profile)));
                near.min_by_key(|(distance, _)| *distance).map(|(_, profile)| profile)
            }
        }
    }
}

/// How many parameters of a path are not those of drivers by default.
fn unusual(path: TlsPath) -> usize {
    let TlsPath { parameters, key: _, resumption: _, client_certificate, start, chain, compressor } = path;
    [
        parameters.suite.is_some(),
        parameters.group.is_some(),
        parameters.library != TlsLibrary::OpenSsl,
        client_certificate != ClientCertificate::None,
        start != TlsStart::Requested,
        chain.is_some(),
        compressor.is_some(),
    ]
    .into_iter()
    .filter(|is_unusual| *is_unusual)
    .count()
}
