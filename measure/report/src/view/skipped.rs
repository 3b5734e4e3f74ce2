//! What a plan leaves out, and what it does not compare.

use ciphertoll_model::{Plan, ServerLevel, Skipped, Unlike};

use super::text::clean;
use crate::lists::grouped;
use crate::number::plural;

/// Skipped cells by reason. A server whose cells are all skipped is named alone, with the number of its cells.
pub(crate) fn by_reason<'a>(
    plan: &Plan,
    skipped: impl IntoIterator<Item = &'a Skipped>,
) -> Vec<(String, Vec<String>)> {
    let all = grouped(skipped.into_iter().map(|skipped| (clean(&skipped.reason), skipped)));
    let servers: Vec<String> = plan.servers().into_iter().map(ServerLevel::short_name).collect();
    all.into_iter().map(|(reason, alike)| (reason, without_absent(&servers, &alike))).collect()
}

/// Cells of a server that the plan does not contain are counted, not listed.
fn without_absent(present: &[String], skipped: &[&Skipped]) -> Vec<String> {
    let name = |Skipped { id, server, .. }: &Skipped| {
        let absent = server.as_ref().filter(|server| !present.contains(server));
        absent.map_or_else(|| clean(id), |server| format!("all of {}", clean(server)))
    };
    let names = grouped(skipped.iter().map(|skipped| (name(skipped), ())));
    let line = |(name, all): (String, Vec<()>)| match all.len() {
        1 => name,
        count => format!("{name} ({})", plural(count as u64, "configuration")),
    };
    names.into_iter().map(line).collect()
}

/// Why drivers are not compared under a workload that several of them run.
pub(crate) fn unlike(plan: &Plan) -> Vec<String> {
    let line = |unlike: &Unlike| {
        let Unlike { driver, workload, reason } = unlike;
        format!("Drivers are not compared under {workload}: with {driver}, {}.", clean(reason))
    };
    plan.unlike.iter().map(line).collect()
}
