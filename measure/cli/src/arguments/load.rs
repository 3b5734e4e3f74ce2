//! The load of `predict` and `advise`.

use std::num::NonZeroU32;

use ciphertoll_model::duration::Span;
use ciphertoll_model::{Bytes, Link, LinkShape};
use ciphertoll_stats::advice::{Need, Optimize, Worth};
use ciphertoll_stats::cost::{Cores, Load, SessionQueries};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::RecordArguments;

/// A load; what is absent does not limit it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArguments {
    /// Connections opened per second, such as 500/s; default: as many as possible
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) connects: Option<f64>,
    /// Queries on each connection, on average
    #[arg(long, value_name = "N", value_parser = queries)]
    pub(crate) queries_per_connection: Option<f64>,
    /// Round-trip time between clients and server, such as 45ms or 0.2ms; default: that of one machine
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    pub(crate) rtt: Option<LinkShape>,
    /// Number of concurrent clients; default: as many as the cores can serve
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<NonZeroU32>,
    /// Size of each query's result: 300, 16k, 1m; default: small
    #[arg(long, value_name = "BYTES", value_parser = row_bytes)]
    pub(crate) row_bytes: Option<Bytes>,
    /// Cores of the server's host
    #[arg(long, value_name = "N", value_parser = cores, conflicts_with = "shared_cores")]
    pub(crate) cores: Option<f64>,
    /// Cores of the clients' host; default: as many as needed
    #[arg(long, value_name = "N", value_parser = cores, requires = "cores")]
    pub(crate) client_cores: Option<f64>,
    /// Cores of one host for clients and server; default: those of the recorded run's machine
    #[arg(long, value_name = "N", value_parser = cores)]
    pub(crate) shared_cores: Option<f64>,
}

const PREDICT_EXAMPLES: &str = "\
Examples:
  ciphertoll run calibrate
      measures every term of the cost model in under ten minutes
  ciphertoll predict calibrate --connects 500/s --queries-per-connection 3 --rtt 45ms --cores 8
      latency, cores and throughput of this load, for every configuration of the run
  ciphertoll predict calibrate --clients 200 --row-bytes 16k --json
      the same as JSON
  ciphertoll predict calibrate --observed latest
      the load that observe saw last
  ciphertoll predict calibrate --terms
      the terms of the cost model: CPU time of a handshake, a login, a query, a byte

Throughput is clients ÷ response time or cores ÷ CPU time per session, whichever is lower; it assumes
linear cores. Loss, jitter and bandwidth limits of a link are not predicted. See docs/measure/method.md.";

/// A load that `observe` saw.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct ObservedArguments {
    /// Read connects, the distribution of queries and the round trip from what `observe` saw: its record's name, a file of
    /// its JSON, or `latest`; options of the load take precedence
    #[arg(long, value_name = "OBSERVATION")]
    pub(crate) observed: Option<String>,
    /// With --observed: the server, as `observe` prints it; default: that with most connects
    #[arg(long, value_name = "ADDRESS:PORT", requires = "observed")]
    pub(crate) observed_server: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = PREDICT_EXAMPLES)]
pub(crate) struct PredictArguments {
    #[command(flatten)]
    pub(crate) record: RecordArguments,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    #[command(flatten)]
    pub(crate) observed: ObservedArguments,
    /// Print the terms of the cost model instead of a prediction
    #[arg(long)]
    pub(crate) terms: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

// The price of a core is set once, for all runs.
const CORE_PRICE: &str = "CIPHERTOLL_CORE_PRICE";

/// The price of CPU time.
#[derive(Args, Debug)]
pub(crate) struct PriceArguments {
    /// Price of one core per month, such as 30/month, to say in money what a choice saves
    #[arg(long, value_name = "PRICE", env = CORE_PRICE, hide_env_values = true, value_parser = price)]
    pub(crate) core_price: Option<f64>,
}

const ADVISE_EXAMPLES: &str = "\
Examples:
  ciphertoll advise calibrate --connects 500/s --queries-per-connection 3
      the configuration with the lowest cost for this load, and the settings for it
  ciphertoll advise calibrate --need end-to-end,no-new-process --rtt 45ms
      only configurations without a proxy or a tunnel
  ciphertoll advise calibrate --connects 2000/s --core-price 30/month
      the cost in money
  ciphertoll advise calibrate --connects 20/s --rtt 45ms --optimize latency --min-time 5ms
      the configuration with the lowest latency, if it saves at least 5 ms per connect or query
  ciphertoll advise calibrate --url prod=postgres://app@db.example/shop
      the load of a running server, from its own counters; nothing is written there
  ciphertoll advise calibrate --observed latest
      the load that observe saw last, and what today's connections cost

The rules are in docs/measure/advise.md.";

#[derive(Args, Debug)]
#[command(after_help = ADVISE_EXAMPLES)]
pub(crate) struct AdviseArguments {
    #[command(flatten)]
    pub(crate) record: RecordArguments,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    /// Read connects and statements from the counters of a running server, as for `run`; options of the load take precedence
    #[arg(long, value_name = "NAME=URL", help_heading = "Load", conflicts_with = "observed")]
    pub(crate) url: Option<String>,
    /// With --url: time between two readings; PostgreSQL: at least 10s
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "url", help_heading = "Load")]
    pub(crate) interval: Span,
    #[command(flatten)]
    pub(crate) observed: ObservedArguments,
    /// What a configuration must fulfil, beyond encryption and a verified server: end-to-end, at-rest, no-new-process,
    /// no-driver-change; verify is always required
    #[arg(long, value_name = "NEED", value_delimiter = ',', value_parser = need())]
    pub(crate) need: Vec<Need>,
    /// What to keep low: CPU time of all roles, latency, or both
    #[arg(long, value_name = "WHAT", default_value = "both", value_parser = optimize())]
    pub(crate) optimize: Optimize,
    /// A smaller saving in cores is not worth a change
    #[arg(long, value_name = "N", default_value = "0.1", value_parser = least_cores)]
    pub(crate) min_cores: f64,
    /// A smaller saving per connect or query is not worth a change
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    pub(crate) min_time: Span,
    #[command(flatten)]
    pub(crate) price: PriceArguments,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

impl AdviseArguments {
    pub(crate) fn worth(&self) -> Worth {
        Worth { cores: self.min_cores, time_ns: self.min_time.duration().as_nanos() as f64 }
    }
}

impl LoadArguments {
    /// The load on a machine like the run's, unless cores are given.
    pub(crate) fn load(&self, cpus_of_run: Option<u16>) -> Option<Load> {
        let cores = match (self.cores, self.shared_cores) {
            (Some(server), _) => Cores::Separate { server, clients: self.client_cores },
            (None, Some(shared)) => Cores::Shared(shared),
            (None, None) => Cores::Shared(f64::from(cpus_of_run?)),
        };
        Some(Load {
            connects_per_s: self.connects,
            queries: SessionQueries::of_mean(self.queries_per_connection.unwrap_or(1.0)),
            rtt_ns: self.rtt.map_or(0.0, |shape| shape.rtt_ns() as f64),
            clients: self.clients,
            row_bytes: self.row_bytes.map_or(0, Bytes::number),
            cores,
        })
    }
}

fn number(text: &str, range: std::ops::RangeInclusive<f64>, expected: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|number| range.contains(number));
    found.ok_or_else(|| format!("\"{text}\" is not {expected}"))
}

fn rate(text: &str) -> Result<f64, String> {
    let number_of = text.strip_suffix("/s").unwrap_or(text);
    number(number_of, 1e-3..=1e9, "a rate, such as 500/s")
}

fn queries(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1e9, "a number of queries from 0 to 1000000000")
}

fn row_bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text)
        .ok_or_else(|| format!("\"{text}\" is not a size from 1 to 1024m, such as 300, 16k or 1m"))
}

fn cores(text: &str) -> Result<f64, String> {
    number(text, 0.01..=1e6, "a number of cores, such as 8 or 0.5")
}

fn least_cores(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1e6, "a number of cores, such as 0.1")
}

fn price(text: &str) -> Result<f64, String> {
    let number_of =
        text.strip_suffix("/month").ok_or_else(|| format!("\"{text}\" is not a price, such as 30/month"))?;
    number(number_of, 0.0..=1e9, "a price, such as 30/month")
}

fn round_trip(text: &str) -> Result<LinkShape, String> {
    let link: Link =
        text.parse().map_err(|_| format!("\"{text}\" is not a round-trip time, such as 45ms or 0.2ms"))?;
    match link.shape() {
        Some(shape) if shape.is_pure_delay() => Ok(shape),
        Some(_) => {
            Err("loss, jitter and rate of a link are not predicted: give its round-trip time only".to_owned())
        }
        None => Ok(LinkShape::of_rtt_us(0)),
    }
}

fn optimize() -> impl TypedValueParser<Value = Optimize> {
    let names = PossibleValuesParser::new(Optimize::ALL.map(Optimize::label));
    names.try_map(|name| Optimize::ALL.into_iter().find(|one| one.label() == name).ok_or("unknown word"))
}

fn need() -> impl TypedValueParser<Value = Need> {
    let names = PossibleValuesParser::new(Need::ALL.map(Need::label));
    names.try_map(|name| Need::ALL.into_iter().find(|need| need.label() == name).ok_or("unknown need"))
}
