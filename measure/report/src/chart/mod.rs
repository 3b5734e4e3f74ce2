//! The charts of a report, drawn from the same numbers as its tables. Each comes with a table of its numbers, for readers
//! who cannot see it or want exact values.

mod bars;
mod blocks;
mod connect_cost;
mod cpu;
mod crossings;
mod figure;
mod forest;
mod observed;
mod percentiles;
mod phases;
mod profile;
mod rates;
mod round_trips;

use crate::view::StratumView;

pub(crate) use blocks::ratios_by_block;
pub(crate) use connect_cost::of_servers as connect_costs;
pub(crate) use crossings::of_report as crossings;
pub(crate) use figure::Figure;
pub(crate) use observed::connect_phases as observed_phases;
pub(crate) use rates::{Rates, of_sweeps as rates};
pub(crate) use round_trips::of_loads as round_trips;

/// Every chart of a stratum that its numbers allow. `id` is the stratum's.
pub(crate) fn of_stratum(stratum: &StratumView<'_>, id: &str) -> Vec<Figure> {
    let charts =
        [forest::figure, phases::figure, percentiles::figure, cpu::figure, profile::figure, blocks::figure];
    charts.into_iter().filter_map(|chart| chart(stratum, id)).collect()
}
