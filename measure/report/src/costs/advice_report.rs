//! What an advice is asked with.

use ciphertoll_model::{ServerLevel, ServerUrl, TlsVersion};
use ciphertoll_stats::advice::{Advice, ConnectionShares, Need, Optimize, Question, TransportToday, Worth};
use ciphertoll_stats::cost::MissingTerm;

use super::CostReport;

/// The input of the report of an advice.
#[derive(Clone, Copy, Debug)]
pub struct AdviceReport<'a> {
    pub costs: CostReport<'a>,
    pub needs: &'a [Need],
    /// Price of a core per month, in the user's currency.
    pub core_price: Option<f64>,
    /// How the load was read from a server, if it was.
    pub load_source: Option<&'a str>,
    /// How the clients of that server are connected.
    pub today: Option<&'a ConnectionShares>,
    /// How the connections that `observe` saw are encrypted; empty without an observation.
    pub observed: &'a [(TransportToday, u64)],
    /// The URL of that server, whose names the settings use.
    pub url: Option<&'a ServerUrl>,
    pub optimize: Optimize,
    pub worth: Worth,
}

impl<'a> AdviceReport<'a> {
    pub(super) fn advice(&self, server: &ServerLevel) -> Result<Advice<'a>, MissingTerm> {
        let today = match self.current() {
            Some(CurrentTransport::Tls(version)) => Some(version),
            Some(CurrentTransport::Plain) | None => None,
        };
        let (needs, optimize, worth) = (self.needs, self.optimize, self.worth);
        let question = Question { needs, load: self.costs.load, optimize, worth, today };
        ciphertoll_stats::advice::advise(self.costs.model, server, &question)
    }

    /// How most of the server's connections are encrypted; `None` if it does not say.
    pub(super) fn current(&self) -> Option<CurrentTransport> {
        const MOST: f64 = 0.5;
        let today = self.today?;
        if today.without_tls.is_some_and(|share| share > MOST) {
            return Some(CurrentTransport::Plain);
        }
        let most = today.by_version.iter().find(|(_, share)| *share > MOST)?;
        Some(CurrentTransport::Tls(most.0))
    }
}

/// How most connections of a running server are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CurrentTransport {
    Plain,
    Tls(TlsVersion),
}
