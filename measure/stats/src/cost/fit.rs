//! Fits the model to a run: finds the cells that each term needs.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Arm, Bytes, Legacy, Link, LinkShape, Metric, Pace, Path, Plan, Queries, Resumption, Treatment, Workload,
};

use super::session::{ByClients, RowCosts, SessionCosts};
use super::sum::{Means, MeasuredMean, Source, WeightedSum};
use super::{CostModel, MemoryCosts, Profile, Role, RoundTripCosts, Utilisation};
use crate::assemble::Visited;
use crate::facts::RunFacts;

/// The metrics that terms are made of.
const METRICS: [Metric; 8] = [
    Metric::RatePerS,
    Metric::LatencyNsMean,
    Metric::CpuUsPerOpClient,
    Metric::CpuUsPerOpMiddle,
    Metric::CpuUsPerOpServer,
    Metric::CpuUsPerOpTotal,
    Metric::RssBytesServer,
    Metric::RssBytesMiddle,
];

/// With fewer clients per processor a closed loop need not saturate the machine.
const SATURATING_CLIENTS_PER_CPU: u16 = 2;

impl CostModel {
    /// The model of a run, finished or not. Cells in an open loop and on links with loss, jitter or a limited rate are not used.
    pub fn fit(plan: &Plan, facts: &RunFacts<'_>) -> Self {
        let cpus = facts.environment.map(|environment| environment.cpus);
        let fit = Fit { plan, facts, means: means(plan, facts), cpus };
        let mut treatments: Vec<Treatment> = Vec::new();
        for cell in plan.cells.iter().filter(|cell| cell.pace == Pace::Closed) {
            let treatment = on_local_link(&cell.treatment);
            if !treatments.contains(&treatment) {
                treatments.push(treatment);
            }
        }
        let profiles: Vec<Profile> = treatments.iter().map(|treatment| fit.profile(treatment)).collect();
        let has_costs = |profile: &Profile| !profile.cpu.is_empty() || !profile.latency.connect.is_empty();
        Self { profiles: profiles.into_iter().filter(has_costs).collect(), means: fit.means, cpus }
    }
}

struct Fit<'a> {
    plan: &'a Plan,
    facts: &'a RunFacts<'a>,
    means: Means,
    cpus: Option<u16>,
}

fn means(plan: &Plan, facts: &RunFacts<'_>) -> Means {
    let mut means = BTreeMap::new();
    for cell in 0..plan.cells.len() {
        let mut values: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
        for observation in facts.trials.observations(Visited { cell, arm: Arm::Main }) {
            for (metric, value) in &observation.metrics {
                if METRICS.contains(metric) && value.is_finite() {
                    values.entry(*metric).or_default().push(*value);
                }
            }
        }
        for (metric, values) in values {
            if let Some(mean) = MeasuredMean::of(&values) {
                means.insert(Source { cell, metric }, mean);
            }
        }
    }
    Means(means)
}

/// A VPN has no loopback: its local link is an emulated one without delay.
fn on_local_link(treatment: &Treatment) -> Treatment {
    let link = match treatment.link {
        Link::Emulated(_) => Link::Local,
        other => other,
    };
    Treatment { link, ..treatment.clone() }
}

/// The configuration whose established connections cost the same: resumption only changes the handshake.
fn established(treatment: &Treatment) -> Treatment {
    let mut like = treatment.clone();
    if let Path::Tls(tls) = &mut like.path {
        tls.resumption = Resumption::Never;
    }
    like
}

impl Fit<'_> {
    fn profile(&self, treatment: &Treatment) -> Profile {
        let like = established(treatment);
        let costs = |role: Role| {
            let of = |cell: usize| self.cpu(cell, role);
            let costs = self.session_costs([treatment, &like], of);
            let is_known = !(costs.connect.is_empty() && costs.further_query.is_empty());
            is_known.then_some((role, costs))
        };
        let mut latency =
            self.session_costs([treatment, &like], |cell| self.source(cell, Metric::LatencyNsMean));
        // With more clients, operations wait for processors.
        latency.connect.0.retain(|(clients, _)| *clients == 1);
        latency.further_query.0.retain(|(clients, _)| *clients == 1);
        Profile {
            treatment: treatment.clone(),
            negotiated_legacy: self.negotiated_legacy(treatment),
            cpu: Role::ALL.into_iter().filter_map(costs).collect(),
            latency,
            round_trips: self.round_trips(treatment, &like),
            utilisation: self.utilisation(treatment, &like),
            memory: [Role::Middle, Role::Server]
                .into_iter()
                .filter_map(|role| Some((role, self.memory(&like, role)?)))
                .collect(),
        }
    }

    /// Over any link.
    fn negotiated_legacy(&self, treatment: &Treatment) -> Option<Legacy> {
        let cells = self.plan.cells.iter().enumerate();
        let cells = cells.filter(|(_, cell)| on_local_link(&cell.treatment) == *treatment);
        let visited = |(cell, _)| self.facts.trials.observations(Visited { cell, arm: Arm::Main });
        cells.flat_map(visited).flat_map(|observation| &observation.legs).find_map(|count| count.leg.legacy())
    }

    /// `treatment` itself, and the one with the same established connections.
    fn session_costs(
        &self,
        [treatment, like]: [&Treatment; 2],
        of: impl Fn(usize) -> Option<WeightedSum>,
    ) -> SessionCosts {
        let cost = |treatment, workload, clients| of(self.local(treatment, workload, clients)?);
        let connect = |treatment, clients| cost(treatment, Workload::Connect, clients);
        let first_of =
            |treatment| Some(cost(treatment, Workload::CONNECT_QUERY, 1)? - &connect(treatment, 1)?);
        let first_query = first_of(treatment);
        let mut further_query = ByClients(self.by_clients(|clients| {
            let (queries, several) = self.several(like, clients)?;
            let sessions = of(several)? - &connect(like, clients)?;
            Some((sessions - &first_of(like)?) * f64::from(queries.count() - 1).recip())
        }));
        if further_query.is_empty() {
            further_query = ByClients(self.by_clients(|clients| cost(like, Workload::PointSelect, clients)));
        }
        let sizes = [1 << 10, 16 << 10, 256 << 10].map(|bytes| {
            let bytes = Bytes::new(bytes)?;
            cost(like, Workload::BulkRead { bytes }, 1)
        });
        let rows = match sizes {
            [Some(small), Some(medium), Some(large)] => Some(RowCosts::of([small, medium, large])),
            _ => None,
        };
        SessionCosts {
            connect: ByClients(self.by_clients(|clients| connect(treatment, clients))),
            first_query,
            further_query,
            rows,
        }
    }

    fn by_clients(&self, cost: impl Fn(u16) -> Option<WeightedSum>) -> Vec<(u16, WeightedSum)> {
        let mut clients: Vec<u16> = self.plan.cells.iter().map(|cell| cell.clients.count()).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.into_iter().filter_map(|clients| Some((clients, cost(clients)?))).collect()
    }

    /// The local cell with the most queries per connection, if more than one.
    fn several(&self, treatment: &Treatment, clients: u16) -> Option<(Queries, usize)> {
        let queries = self.plan.cells.iter().filter_map(|cell| match cell.workload {
            Workload::ConnectQuery { queries } if queries != Queries::ONE => Some(queries),
            _ => None,
        });
        let mut all: Vec<Queries> = queries.collect();
        all.sort_unstable();
        let found = |queries: &Queries| {
            let workload = Workload::ConnectQuery { queries: *queries };
            Some((*queries, self.local(treatment, workload, clients)?))
        };
        all.iter().rev().find_map(found)
    }

    /// The cell of a load on a local link, that of a VPN on a link without delay.
    fn local(&self, treatment: &Treatment, workload: Workload, clients: u16) -> Option<usize> {
        let no_delay = Treatment { link: Link::Emulated(LinkShape::of_rtt_us(0)), ..treatment.clone() };
        let find = |treatment| self.find(treatment, workload, clients);
        find(treatment).or_else(|| find(&no_delay))
    }

    fn find(&self, treatment: &Treatment, workload: Workload, clients: u16) -> Option<usize> {
        self.plan.cells.iter().position(|cell| {
            cell.treatment == *treatment
                && (cell.workload, cell.clients.count(), cell.pace) == (workload, clients, Pace::Closed)
        })
    }

    fn source(&self, cell: usize, metric: Metric) -> Option<WeightedSum> {
        let source = Source { cell, metric };
        self.means.get(source).map(|_| WeightedSum::of(source))
    }

    /// The CPU time of a role. If it was too short to be reported, it is the rest of the total.
    fn cpu(&self, cell: usize, role: Role) -> Option<WeightedSum> {
        let of = |role: Role| self.source(cell, role.cpu_metric());
        let has_middle = matches!(self.plan.cells[cell].treatment.path, Path::Proxy(_) | Path::Tunnel(_));
        let others = [Role::Client, Role::Middle, Role::Server].into_iter().filter(|other| *other != role);
        of(role).or_else(|| match role {
            Role::Total => None,
            Role::Middle if !has_middle => None,
            Role::Client | Role::Middle | Role::Server => {
                let needed = others.filter(|other| *other != Role::Middle || has_middle);
                needed.map(of).try_fold(of(Role::Total)?, |rest, other| Some(rest - &other?))
            }
        })
    }

    /// From the longest emulated link; the others check it.
    fn round_trips(&self, treatment: &Treatment, like: &Treatment) -> Option<RoundTripCosts> {
        let of = |treatment: &Treatment, workload| {
            let local = self.source(self.local(treatment, workload, 1)?, Metric::LatencyNsMean)?;
            let over_link = |shape: &LinkShape| {
                let treatment = Treatment { link: Link::Emulated(*shape), ..treatment.clone() };
                self.source(self.find(&treatment, workload, 1)?, Metric::LatencyNsMean)
            };
            let links = self.links();
            let (longest, others) = links.split_last()?;
            let trips = (over_link(longest)? - &local) * self.rtt_ns(*longest).recip();
            let error = |shape: &LinkShape| {
                let predicted =
                    self.means.value(&(local.clone() + &(trips.clone() * self.rtt_ns(*shape)))).value;
                let measured = self.means.value(&over_link(shape)?).value;
                Some((predicted / measured).ln().abs())
            };
            let error = others.iter().filter_map(error).fold(0.0, f64::max);
            Some((trips, error))
        };
        let (session, error) = of(treatment, Workload::CONNECT_QUERY)?;
        // A statement on an open connection takes one round trip; it is measured where the run has such a cell.
        let (query, of_query) = of(like, Workload::PointSelect)?;
        let mut connect = session - &query;
        // A proxy on the clients' host needs none, and less than half of one is noise.
        if self.means.value(&connect).value < 0.5 {
            connect = WeightedSum::default();
        }
        Some(RoundTripCosts { connect, query, error: error.max(of_query) })
    }

    /// Emulated links without loss, jitter and rate, the longest last.
    fn links(&self) -> Vec<LinkShape> {
        let mut shapes: Vec<LinkShape> =
            self.plan.cells.iter().filter_map(|cell| cell.treatment.link.shape()).collect();
        shapes.retain(|shape| shape.rtt_ns() > 0 && shape.is_pure_delay());
        shapes.sort_unstable();
        shapes.dedup();
        shapes
    }

    /// The measured round trip, or the configured one.
    fn rtt_ns(&self, shape: LinkShape) -> f64 {
        self.facts.round_trip_ns_p50.get(&shape).copied().unwrap_or(shape.rtt_ns()) as f64
    }

    fn utilisation(&self, treatment: &Treatment, like: &Treatment) -> Utilisation {
        let of = |treatment: &Treatment, workload| self.used_share(treatment, workload);
        let connect = of(treatment, Workload::Connect);
        let query = of(like, Workload::PointSelect);
        Utilisation { connect: connect.or(query).unwrap_or(1.0), query: query.or(connect).unwrap_or(1.0) }
    }

    /// `None` if no trial saturated the machine.
    fn used_share(&self, treatment: &Treatment, workload: Workload) -> Option<f64> {
        /// Below, clients waited for something else.
        const SATURATED: f64 = 0.6;
        let cpus = self.cpus?;
        let clients = self.by_clients(|clients| {
            let is_enough = clients >= cpus.saturating_mul(SATURATING_CLIENTS_PER_CPU);
            is_enough.then(|| self.source(self.local(treatment, workload, clients)?, Metric::RatePerS))?
        });
        let (clients, rate) = clients.last()?;
        let cpu = self.cpu(self.local(treatment, workload, *clients)?, Role::Total)?;
        let used = self.means.value(rate).value * self.means.value(&cpu).value * 1e-6 / f64::from(cpus);
        (used >= SATURATED).then_some(used.min(1.0))
    }

    fn memory(&self, treatment: &Treatment, role: Role) -> Option<MemoryCosts> {
        let metric = match role {
            Role::Server => Metric::RssBytesServer,
            Role::Middle => Metric::RssBytesMiddle,
            Role::Client | Role::Total => return None,
        };
        let at = self.by_clients(|clients| {
            self.source(self.local(treatment, Workload::PointSelect, clients)?, metric)
        });
        let ((few, low), (many, high)) = (at.first()?, at.last()?);
        let more = many.checked_sub(*few).filter(|more| *more > 0)?;
        let per_connection = (high.clone() - low) * f64::from(more).recip();
        let base = low.clone() - &(per_connection.clone() * f64::from(few - 1));
        Some(MemoryCosts { base, per_connection })
    }
}
