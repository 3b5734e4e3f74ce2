//! From what `observe` saw to a load, and to what it costs by the cost model of a run.

use std::path::Path;

use ciphertoll_model::{Engine, ProxyProgram, Resumption, ServerKey, ServerLevel, TlsVersion};
use ciphertoll_observe::{
    Encryption, EncryptionKind, Estimated, Observation, ObservedLoad, Pair, PairCost, PathShare, Share,
    SidecarSaving,
};
use ciphertoll_record::Record;
use ciphertoll_stats::advice::{ConnectionShares, Today, TransportToday};
use ciphertoll_stats::cost::{Cores, CostModel, Load, MissingTerm, Profile, Role, SessionQueries};
use ciphertoll_stats::{Estimate, RunFacts};

use crate::arguments::{LoadArguments, ObservedArguments};
use crate::failure::Failure;

/// Fewer connects give no rate.
const FEW_CONNECTS: u64 = 5;
/// As `observe` names them.
const PROTOCOLS: [&str; 3] = ["postgres", "mysql", "mongodb"];
/// The rates that `--connects` takes.
const RATES: std::ops::RangeInclusive<f64> = 1e-3..=1e9;
/// A shorter round trip is that of one machine, which the model's local connections contain.
const LOCAL_ROUND_TRIP_MS: f64 = 0.1;

/// The kernel keeps 15 bytes of `ciphertoll-proxy`.
const SIDECAR_PROCESS: &str = "ciphertoll-prox";

/// Runs that are looked at for a cost model, the newest first.
const MAX_RUNS: usize = 50;
/// Servers that are named in a sentence.
const MAX_NAMED: usize = 5;

/// A cost model, and the run that it is from.
struct RunModel {
    run: String,
    model: CostModel,
}

/// The cost models by which observed connections are judged: for each protocol the newest run that has one.
pub(crate) struct RunModels(Vec<RunModel>);

impl RunModels {
    /// Those of the run that was asked for; without one, of the newest runs that are complete or can be resumed.
    pub(crate) fn find(runs: &Path, asked: Option<&str>) -> Result<Self, Failure> {
        if let Some(asked) = asked {
            let found = RunModel::open(&ciphertoll_record::resolve(runs, asked)?)?;
            if found.model.profiles.is_empty() {
                return Err(Failure::usage(format!(
                    "--model {asked}: {} has no cost of a connect or a query; measure them: ciphertoll run calibrate",
                    found.run
                )));
            }
            return Ok(Self(vec![found]));
        }
        let mut found: Vec<RunModel> = Vec::new();
        let newest_first = ciphertoll_record::runs_newest_first(runs).into_iter().take(MAX_RUNS);
        // A run that is being written lacks blocks, and one that cannot be read is not the answer.
        for path in newest_first.filter(|path| !ciphertoll_record::is_in_progress(path)) {
            let Ok(run) = RunModel::open(&path) else { continue };
            let is_new = |protocol: &&str| {
                run.has_costs_of(protocol) && !found.iter().any(|known| known.has_costs_of(protocol))
            };
            if PROTOCOLS.iter().any(is_new) {
                found.push(run);
            }
            if PROTOCOLS.iter().all(|protocol| found.iter().any(|known| known.has_costs_of(protocol))) {
                break;
            }
        }
        Ok(Self(found))
    }

    /// What the connections of each pair cost. Returns why nothing is known of some, if so.
    pub(crate) fn add_costs(&self, observation: &mut Observation) -> Option<String> {
        let seconds = observation.seconds;
        let mut unknown: Vec<String> = Vec::new();
        for pair in &mut observation.pairs {
            let observed = ObservedLoad::of_pair(pair, seconds);
            let (true, Some(protocol)) = (observed.sessions >= FEW_CONNECTS, pair.protocol.clone()) else {
                continue;
            };
            let run = self.0.iter().find(|run| run.has_costs_of(&protocol));
            pair.cost = run.and_then(|run| run.cost(&observed, &protocol));
            if is_of_sidecar(pair)
                && let Some(cost) = &mut pair.cost
            {
                cost.sidecar = None;
            }
            if pair.cost.as_ref().is_none_or(|cost| cost.cores.is_none()) && !unknown.contains(&protocol) {
                unknown.push(protocol);
            }
        }
        let protocols = (!unknown.is_empty()).then(|| unknown.join(" and "))?;
        Some(format!(
            "what these connections to {protocols} cost is not known: no run here has such configurations; measure them: \
             ciphertoll run calibrate"
        ))
    }
}

impl RunModel {
    fn open(path: &Path) -> Result<Self, Failure> {
        let record = Record::open(path)?;
        let facts = RunFacts::of(&record.plan, &record.events);
        Ok(Self { run: record.name(), model: CostModel::fit(&record.plan, &facts) })
    }

    /// Whether it has the CPU time of a connect and of a query of any server that speaks this protocol.
    fn has_costs_of(&self, protocol: &str) -> bool {
        let load = Load::simple(Cores::Shared(1.0));
        let has_cpu = |profile: &Profile| self.model.session_cpu(profile, Role::Total, &load).is_ok();
        let profiles = &self.model.profiles;
        profiles.iter().any(|profile| speaks(profile.treatment.server.engine, protocol) && has_cpu(profile))
    }

    fn cost(&self, observed: &ObservedLoad, protocol: &str) -> Option<PairCost> {
        let Self { run, model } = self;
        let server = server_of(model, protocol)?;
        let today = Today::of(model, server, &transports(&observed.encryption))?;
        let load = Load {
            connects_per_s: Some(observed.sessions_per_s),
            ..load_of(observed, Load::simple(Cores::Shared(f64::from(model.cpus.unwrap_or(1)))))?
        };
        let mut missing = Vec::new();
        let mut known = |found: Result<Estimate, MissingTerm>, factor: f64| {
            found
                .inspect_err(|term| missing.push(term.to_string()))
                .ok()
                .map(|found| estimated(&found, factor))
        };
        let cores = today.cores(model, &load).and_then(|cores| known(cores, 1.0));
        let plain = today.find(|path| path == ciphertoll_model::Path::Plain);
        let encryption_cores = plain.and_then(|plain| today.cores_saved_by(plain, model, &load));
        let encryption_cores = encryption_cores.and_then(|cores| known(cores, 1.0));
        let sidecar = today.find(is_sidecar).map(|sidecar| SidecarSaving {
            cores: today.cores_saved_by(sidecar, model, &load).and_then(|cores| known(cores, 1.0)),
            connect_ms: known(today.connect_saved_by(sidecar, model, &load), 1e-6),
        });
        missing.sort();
        missing.dedup();
        Some(PairCost {
            run: run.clone(),
            paths: path_shares(&today),
            unknown_share: today.unknown_share(),
            without_began_before: observed.began_before,
            cores,
            encryption_cores,
            sidecar,
            missing,
        })
    }
}

/// Whether these connections are the sidecar's own, which it pools already.
fn is_of_sidecar(pair: &Pair) -> bool {
    !pair.processes.is_empty() && pair.processes.iter().all(|process| process.name == SIDECAR_PROCESS)
}

/// What `observe` saw of one server.
pub(crate) struct ObservedServer {
    /// The observation's name.
    name: String,
    load: ObservedLoad,
    /// Other servers in the observation.
    others: Vec<String>,
}

impl ObservedServer {
    /// `None` if no observation was asked for.
    pub(crate) fn read(runs: &Path, arguments: &ObservedArguments) -> Result<Option<Self>, Failure> {
        let Some(asked) = &arguments.observed else { return Ok(None) };
        let (name, text) = ciphertoll_record::read_observation(runs, asked)?;
        // A name is printed, and may be that of any file.
        let name = name.replace(char::is_control, "?");
        let observation = Observation::from_json(&text)
            .map_err(|error| Failure::usage(format!("{name} is not a document of observe: {error}")))?;
        let mut loads = observation.loads();
        let known: Vec<String> = loads.iter().map(|load| load.server.clone()).collect();
        let place = match &arguments.observed_server {
            None => (!loads.is_empty()).then_some(0),
            Some(server) => known.iter().position(|known| known == server),
        };
        let Some(place) = place else {
            let known = if known.is_empty() { "no server".to_owned() } else { named(&known) };
            return Err(Failure::usage(format!("--observed: {name} has {known}")));
        };
        let load = loads.swap_remove(place);
        let others = known.into_iter().filter(|known| *known != load.server).collect();
        Ok(Some(Self { name, load, others }))
    }

    /// Takes from the observation what the command line does not say.
    pub(crate) fn fill_in(&self, load: &mut Load, asked: &LoadArguments) -> Result<(), Failure> {
        let Self { name, load: observed, .. } = self;
        let server = &observed.server;
        if asked.connects.is_none() {
            if observed.sessions < FEW_CONNECTS || !RATES.contains(&observed.sessions_per_s) {
                return Err(Failure::usage(format!(
                    "--observed: {name} has {} new connections to {server} that could be used, in {}: that gives no rate; observe for \
                     longer, or add --connects",
                    observed.sessions,
                    format_args!("{} s", ciphertoll_report::significant(observed.seconds)),
                )));
            }
            load.connects_per_s = Some(observed.sessions_per_s);
        }
        let seen = load_of(observed, *load);
        if asked.queries_per_connection.is_none() {
            let seen = seen.ok_or_else(|| {
                Failure::usage(format!(
                    "--observed: the queries on {server} could not be counted: add --queries-per-connection"
                ))
            })?;
            load.queries = seen.queries;
        }
        if asked.rtt.is_none() {
            load.rtt_ns = round_trip_ns(observed);
        }
        Ok(())
    }

    /// Leaves only configurations of servers with this protocol in the model.
    pub(crate) fn keep_its_engine(&self, model: &mut CostModel, run: &str) -> Result<(), Failure> {
        let Self { name, load, .. } = self;
        let Some(protocol) = load.protocol.as_deref() else {
            let server = &load.server;
            return Err(Failure::usage(format!("--observed: {name} does not say what {server} speaks")));
        };
        let engine = Engine::ALL.into_iter().find(|engine| speaks(*engine, protocol));
        keep_engines(model, run, engine.unwrap_or(Engine::Postgres), |other| speaks(other, protocol))
    }

    pub(crate) fn transports(&self) -> Vec<(TransportToday, u64)> {
        transports(&self.load.encryption)
    }

    /// How its clients are connected.
    pub(crate) fn shares(&self) -> ConnectionShares {
        let of = |is_counted: &dyn Fn(&Encryption) -> bool| {
            let counted = self.load.encryption.iter().filter(|seen| is_counted(seen));
            counted.map(|seen| seen.sessions as f64).sum::<f64>()
        };
        let plain = of(&|seen| matches!(seen.kind, EncryptionKind::None | EncryptionKind::Refused));
        let tls = |version: TlsVersion| {
            of(&|seen| seen.kind == EncryptionKind::Tls && version_of(seen) == Some(version))
        };
        let versions: Vec<(TlsVersion, f64)> =
            TlsVersion::ALL.into_iter().map(|version| (version, tls(version))).collect();
        let all = plain + versions.iter().map(|(_, count)| count).sum::<f64>();
        if all == 0.0 {
            return ConnectionShares::default();
        }
        let share = |(version, count): (TlsVersion, f64)| (count > 0.0).then_some((version, count / all));
        ConnectionShares {
            without_tls: Some(plain / all),
            by_version: versions.into_iter().filter_map(share).collect(),
        }
    }

    /// `20261130T…-observe-a3f1: 10.0.0.5:5432 took 212 connects/s from 3 client addresses, about 3.1 queries each`
    pub(crate) fn sentence(&self) -> String {
        let Self { name, load, others } = self;
        let clients = if load.clients == 1 { "1 client address" } else { "client addresses" };
        let clients =
            if load.clients == 1 { clients.to_owned() } else { format!("{} {clients}", load.clients) };
        let queries = load_of(load, Load::simple(Cores::Shared(1.0))).map(|seen| {
            let about = if load.by_turns { "about " } else { "" };
            let without = 1.0 - seen.queries.first();
            let without = if without >= 0.005 {
                format!(" ({:.0} % of connections have none)", without * 100.0)
            } else {
                String::new()
            };
            format!(", {about}{:.1} queries each{without}", seen.queries.mean())
        });
        let round_trip = match round_trip_ns(load) {
            0.0 => String::new(),
            ns => format!(", over a round trip of {:.1} ms", ns * 1e-6),
        };
        let others = match others.as_slice() {
            [] => String::new(),
            others => format!("; --observed-server selects another one: {}", named(others)),
        };
        let before = match load.began_before {
            0 => String::new(),
            before => {
                format!("; without {before} connections that began before, whose queries are not known")
            }
        };
        format!(
            "{name}: {} took {} connects/s from {clients}{}{round_trip}{before}{others}",
            load.server,
            ciphertoll_report::significant(load.sessions_per_s),
            queries.unwrap_or_default()
        )
    }
}

/// The first few of many.
fn named(servers: &[String]) -> String {
    let first = servers.get(..MAX_NAMED).unwrap_or(servers).join(", ");
    match servers.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Leaves only configurations of engines like this one in the model.
pub(crate) fn keep_engines(
    model: &mut CostModel,
    run: &str,
    engine: Engine,
    is_like: impl Fn(Engine) -> bool,
) -> Result<(), Failure> {
    model.profiles.retain(|profile| is_like(profile.treatment.server.engine));
    if model.profiles.is_empty() {
        let name = engine.display_name();
        return Err(Failure::usage(format!(
            "{run} has no {name}; measure one: ciphertoll run calibrate --server {}",
            engine.label()
        )));
    }
    Ok(())
}

/// The first server of a run that speaks this protocol.
fn server_of<'a>(model: &'a CostModel, protocol: &str) -> Option<&'a ServerLevel> {
    let mut servers = model.profiles.iter().map(|profile| &profile.treatment.server);
    servers.find(|server| speaks(server.engine, protocol))
}

/// Whether servers of this engine speak a protocol as `observe` names it.
fn speaks(engine: Engine, protocol: &str) -> bool {
    match protocol {
        "postgres" => engine == Engine::Postgres,
        "mysql" => engine.is_mysql_family(),
        "mongodb" => matches!(engine, Engine::MongoDb | Engine::FerretDb),
        _ => false,
    }
}

/// The queries and the round trip that were observed, in `load`; `None` if no queries could be counted.
fn load_of(observed: &ObservedLoad, load: Load) -> Option<Load> {
    let counts = observed.queries.iter().map(|Share { queries, connections }| (*queries, *connections));
    Some(Load { queries: SessionQueries::of_distribution(counts)?, rtt_ns: round_trip_ns(observed), ..load })
}

fn round_trip_ns(observed: &ObservedLoad) -> f64 {
    observed.round_trip_ms.filter(|ms| *ms >= LOCAL_ROUND_TRIP_MS).map_or(0.0, |ms| ms * 1e6)
}

/// How many connections were encrypted in which way.
fn transports(encryption: &[Encryption]) -> Vec<(TransportToday, u64)> {
    encryption
        .iter()
        .flat_map(|seen| match seen.kind {
            EncryptionKind::None | EncryptionKind::Refused => vec![(TransportToday::Plain, seen.sessions)],
            EncryptionKind::Tls => {
                let of = |resumption| transport(seen, resumption);
                // Of those that failed, it is not known whether they resumed.
                let resumed = seen.resumed.min(seen.sessions);
                vec![(of(Resumption::Never), seen.sessions - resumed), (of(Resumption::Always), resumed)]
            }
            EncryptionKind::Rejected
            | EncryptionKind::TlsFailed
            | EncryptionKind::Gss
            | EncryptionKind::Unknown => {
                vec![(TransportToday::Other, seen.sessions)]
            }
        })
        .filter(|(_, connections)| *connections > 0)
        .collect()
}

fn transport(seen: &Encryption, resumption: Resumption) -> TransportToday {
    let version = version_of(seen);
    let key = seen.certificate.as_ref().map(|certificate| certificate.key.as_str());
    let key = key.and_then(|key| ServerKey::ALL.into_iter().find(|known| known.label() == key));
    version.map_or(TransportToday::Other, |version| TransportToday::Tls { version, key, resumption })
}

fn version_of(seen: &Encryption) -> Option<TlsVersion> {
    let label = seen.version.as_deref()?;
    TlsVersion::ALL.into_iter().find(|version| version.label() == label)
}

fn is_sidecar(path: ciphertoll_model::Path) -> bool {
    path.as_proxy().is_some_and(|proxy| proxy.program == ProxyProgram::SIDECAR)
}

fn path_shares(today: &Today<'_>) -> Vec<PathShare> {
    let share = |(profile, share): &(&Profile, f64)| PathShare {
        path: profile.treatment.path.to_string(),
        share: *share,
    };
    today.parts().iter().map(share).collect()
}

fn estimated(found: &Estimate, factor: f64) -> Estimated {
    let limit = |limit: Option<f64>| limit.map(|limit| limit * factor);
    Estimated { value: found.value * factor, low: limit(found.ci_low), high: limit(found.ci_high) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_sidecar_would_save_is_not_said_of_its_own_connections() {
        let of_sidecar = |names: &[&str]| {
            let processes: Vec<_> =
                names.iter().map(|name| json!({ "name": name, "connections": 1 })).collect();
            let pair = json!({
                "client": "10.0.0.7", "server": "10.0.0.5:5432", "bytes": { "by_client": 0, "by_server": 0 },
                "connections": {
                    "begun": 1, "sessions": 1, "began_before": 0, "open": 0, "cancel_requests": 0, "unread": 0,
                },
                "phases": [], "encryption": [], "logins": [], "failures": [], "processes": processes,
            });
            is_of_sidecar(&serde_json::from_value(pair).expect("a pair"))
        };
        assert!(of_sidecar(&[SIDECAR_PROCESS]));
        for others in [&[][..], &["psql"], &[SIDECAR_PROCESS, "psql"]] {
            assert!(!of_sidecar(others), "{others:?}");
        }
    }
}
