//! The terms of the model by name, for tables.

use ciphertoll_model::{Auth, Path, Resumption, Treatment, labelled};

use super::sum::WeightedSum;
use super::{CostModel, Profile, Role};
use crate::estimate::Estimate;

/// A cost per event, with the configuration that it is of.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTerm<'a> {
    pub treatment: &'a Treatment,
    pub term: Term,
    /// CPU time, µs; for round trips a number; for memory bytes.
    pub by_role: Vec<(Role, Estimate)>,
}

labelled! {
    pub enum Term {
        Connect = "connect and close",
        /// Beyond a connect without encryption by the same authentication.
        FullHandshake = "full TLS handshake",
        ResumedHandshake = "resumed TLS handshake",
        /// Beyond a connect without a password.
        Authentication = "authentication",
        FirstQuery = "first query of a connection",
        Query = "further query",
        /// Its share of a record included.
        Kibibyte = "KiB of a long result",
        Record = "record of 16 KiB of a result, beyond its bytes",
        ConnectRoundTrips = "round trips of a connect",
        QueryRoundTrips = "round trips of a query",
        ConnectionMemory = "memory per connection",
    }
}

impl CostModel {
    /// Every term that the run measured, by configuration.
    pub fn terms(&self) -> Vec<NamedTerm<'_>> {
        self.profiles.iter().flat_map(|profile| self.terms_of(profile)).collect()
    }

    fn terms_of<'a>(&'a self, profile: &'a Profile) -> Vec<NamedTerm<'a>> {
        let estimate = |sum: WeightedSum| self.means.value(&sum).estimate();
        let cpu = |term: Term, of: &dyn Fn(Role) -> Option<WeightedSum>| {
            let by_role: Vec<_> =
                Role::ALL.into_iter().filter_map(|role| Some((role, estimate(of(role)?)))).collect();
            (term, by_role)
        };
        let costs = |role: Role| profile.cpu.get(&role);
        let connect = |of: &Profile, role: Role| of.cpu.get(&role)?.connect.at(1.0);
        let beyond =
            |other: Option<&Profile>, role: Role| Some(connect(profile, role)? - &connect(other?, role)?);
        let (unencrypted, unauthenticated) = (self.without_tls(profile), self.without_password(profile));
        let handshake = match profile.treatment.path {
            Path::Tls(tls) if tls.resumption == Resumption::Never => Some(Term::FullHandshake),
            Path::Tls(_) => Some(Term::ResumedHandshake),
            _ => None,
        };
        let rows = |role: Role| costs(role)?.rows.as_ref();
        let trips = profile.round_trips.as_ref();
        let total =
            |sum: Option<WeightedSum>| sum.map(|sum| (Role::Total, estimate(sum))).into_iter().collect();
        let memory =
            |(role, costs): (&Role, &super::MemoryCosts)| (*role, estimate(costs.per_connection.clone()));
        let all = [
            Some(cpu(Term::Connect, &|role| connect(profile, role))),
            handshake.map(|term| cpu(term, &|role| beyond(unencrypted, role))),
            Some(cpu(Term::Authentication, &|role| beyond(unauthenticated, role))),
            Some(cpu(Term::FirstQuery, &|role| costs(role)?.first_query.clone())),
            Some(cpu(Term::Query, &|role| costs(role)?.further_query.at(1.0))),
            Some(cpu(Term::Kibibyte, &|role| Some(rows(role)?.per_byte_of_long_rows() * 1024.0))),
            Some(cpu(Term::Record, &|role| Some(rows(role)?.per_record.clone()))),
            Some((Term::ConnectRoundTrips, total(trips.map(|trips| trips.connect.clone())))),
            Some((Term::QueryRoundTrips, total(trips.map(|trips| trips.query.clone())))),
            Some((Term::ConnectionMemory, profile.memory.iter().map(memory).collect())),
        ];
        let named = |(term, by_role)| NamedTerm { treatment: &profile.treatment, term, by_role };
        all.into_iter().flatten().filter(|(_, by_role)| !by_role.is_empty()).map(named).collect()
    }

    /// The same configuration without TLS.
    pub fn without_tls(&self, profile: &Profile) -> Option<&Profile> {
        let like = Treatment { path: Path::Plain, ctx: None, ..profile.treatment.clone() };
        self.profiles.iter().find(|other| other.treatment == like)
    }

    fn without_password(&self, profile: &Profile) -> Option<&Profile> {
        let like = Treatment { auth: Auth::Trust, ..profile.treatment.clone() };
        self.profiles.iter().find(|other| other.treatment == like && profile.treatment != like)
    }
}
