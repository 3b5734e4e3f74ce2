//! What a plan sets.

use ciphertoll_model::{LongerTrials, Plan};

/// `; connect over 170ms: 13600ms after 2720ms`, if trials over long links are longer.
pub(crate) fn longer(plan: &Plan) -> String {
    let others = plan.longer.iter().filter(|longer| longer.timing != plan.timing);
    let of = |longer: &LongerTrials| {
        let LongerTrials { link, workload, timing, .. } = longer;
        format!("; {workload} over {link}: {} after {}", timing.window, timing.warm_up)
    };
    others.map(of).collect()
}

/// The additional settings of private servers, with the name of the configuration.
pub(crate) fn settings(plan: &Plan) -> String {
    match &plan.config {
        Some(name) => format!("{name} ({})", plan.settings),
        None => plan.settings.to_string(),
    }
}
