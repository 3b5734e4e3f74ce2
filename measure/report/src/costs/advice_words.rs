//! An advice in sentences.

use ciphertoll_model::{Metric, Path, TlsVersion, Treatment};
use ciphertoll_stats::advice::{Advice, Choice, Optimize, Rank, RefusedClients, RefusedKind, Saving};
use ciphertoll_stats::cost::{BreakEven, Cores, Limit, MissingTerm, Profile, Role, Side};
use ciphertoll_stats::{Estimate, Interval};

use super::advice_report::{AdviceReport, CurrentTransport};
use super::today::Comparison;
use super::{CostReport, short};
use crate::lists::listed;
use crate::number::{is_certain, measured, percent, significant};
use crate::subject;

/// Names a configuration.
pub(super) trait Label: Fn(&Treatment) -> String {}
impl<F: Fn(&Treatment) -> String> Label for F {}

/// Whether the load is possible, the first choice, what it saves, and from when on another one costs less.
pub(super) fn sentences(
    report: &AdviceReport<'_>,
    advice: &Advice<'_>,
    first: &Choice<'_>,
    label: &impl Label,
) -> Vec<String> {
    let mut sentences: Vec<String> = impossible(report, advice, label).into_iter().collect();
    sentences.extend(match Comparison::of(report, &first.profile.treatment.server, first.profile) {
        Some(observed) => observed.sentence(&label(&first.profile.treatment), label),
        None => compared_with_now(report, first, label),
    });
    sentences.push(choice(report, advice, first, label));
    let others = advice.choices.iter().skip(1);
    sentences.extend(others.filter_map(|other| compared(report, first, other, label)));
    if let Some((plain, prediction)) = &advice.plain {
        let total =
            prediction.cpu_us.iter().find_map(|(role, found)| (*role == Role::Total).then(|| found.ok())?);
        if let Some((total, own)) = total.zip(first.cpu_us) {
            let more = own.value / total.value;
            let name_of_plain = label(&plain.treatment);
            sentences.push(format!(
                "Compared with {name_of_plain} ({}): {} ×.",
                cpu(&total),
                significant(more)
            ));
        }
    }
    sentences.push(rule(report));
    sentences.extend(not_compared(report, first));
    sentences
}

/// `Impossible: even with proxy, 100000 connects/s need 256 cores, and there are 2. At most 781 connects/s are possible.`
fn impossible(report: &AdviceReport<'_>, advice: &Advice<'_>, label: &impl Label) -> Option<String> {
    let load = report.costs.load;
    let ((profile, most), rate) = (advice.overload?, load.connects_per_s?);
    let (there, what) = match (most.limit, load.cores) {
        (Limit::Clients, _) => (load.clients.map_or(1.0, |clients| f64::from(clients.get())), "clients"),
        (Limit::ClientCores, Cores::Separate { clients: Some(cores), .. }) => (cores, "cores of the clients"),
        (_, Cores::Separate { server, .. }) => (server, "cores of the server"),
        (_, Cores::Shared(cores)) => (cores, "cores"),
    };
    let most = most.sessions_per_s.value;
    Some(format!(
        "Impossible: even with {}, {} connects/s need {} {what}, and there are {}. At most {} connects/s are possible.",
        label(&profile.treatment),
        short(rate),
        significant(there * rate / most),
        short(there),
        significant(most)
    ))
}

/// `Use proxy: 210 µs ±3 % of CPU time and 46.1 ms ±1 % per session.`
fn choice(report: &AdviceReport<'_>, advice: &Advice<'_>, first: &Choice<'_>, label: &impl Label) -> String {
    let name = label(&first.profile.treatment);
    let time = first.prediction.session_ns.ok().map(|time| measured(Metric::LatencyNsMean, &time));
    let costs: Vec<String> = first.cpu_us.as_ref().map(cpu).into_iter().chain(time).collect();
    let costs = format!("{} per session", costs.join(" and "));
    match report.current() {
        _ if !is_left_as_it_is(advice) => format!("Use {name}: {costs}."),
        Some(CurrentTransport::Plain) => {
            format!("Use {name}, the simplest ({costs}): nothing else saves so much that it is worth more.")
        }
        Some(CurrentTransport::Tls(version)) if is_version(first.profile, version) => {
            format!(
                "Leave it as it is, {name} ({costs}): nothing else saves so much that it is worth a change."
            )
        }
        _ => format!(
            "Leave it as it is if you use {name} ({costs}), and use it otherwise: nothing else saves so much that it is \
             worth a change."
        ),
    }
}

/// Whether another choice costs less, and not so much less that a change is worth it.
pub(super) fn is_left_as_it_is(advice: &Advice<'_>) -> bool {
    advice.choices.iter().any(|choice| {
        let Some(Saving { cpu_us, connect_ns, query_ns, .. }) = choice.saving else { return false };
        let is_less = |saving: Estimate| saving.is_known_to_differ() && saving.value < 0.0;
        choice.rank == Rank::NotWorthIt && [cpu_us, connect_ns, query_ns].into_iter().flatten().any(is_less)
    })
}

/// What the first choice saves compared with another one.
fn compared(
    report: &AdviceReport<'_>,
    first: &Choice<'_>,
    other: &Choice<'_>,
    label: &impl Label,
) -> Option<String> {
    let (name, alternative) = (label(&first.profile.treatment), label(&other.profile.treatment));
    let [saved, lost] = saved_and_lost(report, other.saving.as_ref()?).map(|parts| listed(&parts));
    let less = lost.replace(" more", "");
    let not_worth = format!("less than {}", threshold(report));
    Some(match (other.rank, saved.is_empty(), lost.is_empty()) {
        (Rank::AsCheap, ..) | (_, true, true) => {
            format!("{alternative} is not known to cost more or less: {name} is simpler.")
        }
        (Rank::NotWorthIt, true, false) => format!("{alternative} would save {less}: {not_worth}."),
        (Rank::NotWorthIt, false, true) => {
            format!("It saves {saved} compared with {alternative}: {not_worth}.")
        }
        (Rank::NotWorthIt, false, false) => {
            format!("{alternative} would save {less} ({not_worth}); {name} saves {saved}.")
        }
        (Rank::CostsMore, ..) => {
            let more = if lost.is_empty() { String::new() } else { format!(", and costs {lost}") };
            let pays = other.break_even.map_or(String::new(), |found| until(&found, &alternative));
            format!("It saves {saved} compared with {alternative}{more}{pays}.")
        }
    })
}

/// What a first configuration saves and what it costs more than another one, as far as it is known:
/// `183 ms ±1 % per connect at 45 ms`, `0.03 cores (59 µs ±3 % of CPU time per session)`.
fn saved_and_lost(report: &AdviceReport<'_>, saving: &Saving) -> [Vec<String>; 2] {
    let load = report.costs.load;
    let link =
        if load.rtt_ns > 0.0 { format!(" at {} ms", short(load.rtt_ns * 1e-6)) } else { String::new() };
    let more = |found: &Estimate| if found.value > 0.0 { "" } else { " more" };
    let time = |found: Option<Estimate>, per: String| {
        let found = found?;
        let words = format!("{}{} {per}", measured(Metric::LatencyNsMean, &found.abs()), more(&found));
        Some((found, words))
    };
    let cpu = saving.cpu_us.map(|found| {
        let per_session = format!("{} per session", cpu(&found.abs()));
        let cores = saving.cores.filter(|_| load.connects_per_s.is_some()).map(f64::abs);
        let words = cores.map_or_else(
            || per_session.replacen(" of CPU", &format!("{} of CPU", more(&found)), 1),
            |cores| {
                let price =
                    report.core_price.map(|price| format!(", {} per month", significant(cores * price)));
                let price = price.unwrap_or_default();
                format!("{}{} cores ({per_session}{price})", significant(cores), more(&found))
            },
        );
        (found, words)
    });
    let queries = saving.query_ns.filter(|_| load.queries.mean() > 0.0);
    let connects = time(saving.connect_ns, format!("per connect{link}"));
    let parts = [connects, time(queries, "per query".to_owned()), cpu];
    let known =
        parts.into_iter().flatten().filter(|(found, _)| found.is_known_to_differ() && is_certain(found));
    let (saved, lost): (Vec<_>, Vec<_>) = known.partition(|(found, _)| found.value > 0.0);
    [saved, lost].map(|parts| parts.into_iter().map(|(_, words)| words).collect())
}

/// `0.1 cores and 1 ms per connect or query`
fn threshold(report: &AdviceReport<'_>) -> String {
    let cores = format!("{} cores", short(report.worth.cores));
    let time = format!("{} ms per connect or query", short(report.worth.time_ns * 1e-6));
    match report.optimize {
        Optimize::Cpu => cores,
        Optimize::Latency => time,
        Optimize::Both => format!("{cores} and {time}"),
    }
}

/// How the choice was made.
fn rule(report: &AdviceReport<'_>) -> String {
    let (chosen, decides) = match report.optimize {
        Optimize::Cpu => ("the least CPU time", ""),
        Optimize::Latency => ("the least time per session", ""),
        Optimize::Both => (
            "the least CPU time and time per session",
            ". If these disagree, the larger saving decides, as a share of what the other costs",
        ),
    };
    let counts = threshold(report).replace(" and ", " or ");
    format!(
        "Rule (--optimize {}): {chosen}. A saving counts from {counts} on (--min-cores, --min-time); below, the simplest is \
         chosen{decides}.",
        report.optimize.label()
    )
}

/// What the run lacks of what is to be compared.
fn not_compared(report: &AdviceReport<'_>, first: &Choice<'_>) -> Option<String> {
    let cpu = || report.costs.model.session_cpu(first.profile, Role::Total, report.costs.load).err();
    let (what, term) = match (first.cpu_us, first.prediction.session_ns) {
        (_, Err(term)) if report.optimize != Optimize::Cpu => ("Times are", term),
        (None, _) if report.optimize != Optimize::Latency => {
            ("CPU time is", cpu().unwrap_or(MissingTerm::Connect))
        }
        _ => return None,
    };
    Some(format!("{what} not compared: the run lacks {term}."))
}

/// `Now: tls1.2-p256 costs 0.9 cores; proxy would save 0.8 of them.`
fn compared_with_now(report: &AdviceReport<'_>, first: &Choice<'_>, label: &impl Label) -> Option<String> {
    let CostReport { model, load, .. } = report.costs;
    let (current, rate) = (report.current()?, load.connects_per_s?);
    let is_current = |profile: &&Profile| {
        let Treatment { path, auth, driver, .. } = &profile.treatment;
        let is_path = match current {
            CurrentTransport::Plain => *path == Path::Plain,
            CurrentTransport::Tls(version) => is_version(profile, version),
        };
        is_path && (auth, driver) == (&first.profile.treatment.auth, &first.profile.treatment.driver)
    };
    let now = model.profiles.iter().find(is_current)?;
    let cpu = |profile| model.session_cpu(profile, Role::Total, load).ok();
    let cores = |sum| model.means.value(sum).value * rate * 1e-6;
    let (used, saved) = (cpu(now)?, cpu(now)? - &cpu(first.profile)?);
    let cost = format!("Now: {} costs {} cores", label(&now.treatment), significant(cores(&used)));
    if now.treatment == first.profile.treatment {
        return Some(format!("{cost}."));
    }
    let name = label(&first.profile.treatment);
    Some(match cores(&saved) {
        saved if saved > 0.0 => format!("{cost}; {name} would save {} of them.", significant(saved)),
        saved => format!("{cost}; {name} would cost {} more.", significant(-saved)),
    })
}

fn is_version(profile: &Profile, version: TlsVersion) -> bool {
    profile.treatment.path.as_tls().is_some_and(|tls| tls.parameters.version == version)
}

fn cpu(estimate: &Estimate) -> String {
    format!("{} of CPU time", measured(Metric::CpuUsPerOpTotal, estimate))
}

/// Up to how many queries per connection the first choice costs less.
fn until(found: &BreakEven, other: &str) -> String {
    match found {
        BreakEven::Always(_) => ", at any number of queries per connection".to_owned(),
        BreakEven::At { interval: None, .. } => {
            ", for short-lived connections: no difference per query is known".to_owned()
        }
        BreakEven::At { queries, interval: Some(Interval { low, high }), below } => {
            let limits = format!(" ({}–{})", significant(*low), significant(*high));
            let (direction, there) = match below {
                Side::First => ("up to", "above"),
                Side::Second => ("from", "below"),
            };
            format!(
                ", {direction} {}{limits} queries per connection; {there} that, {other} costs less CPU time",
                significant(*queries)
            )
        }
        BreakEven::Unknown => String::new(),
    }
}

/// Which clients the settings lock out, today's if the server counts them.
pub(super) fn locked_out(report: &AdviceReport<'_>, refused: &[RefusedClients]) -> Option<String> {
    let what = |refused: &RefusedClients| match refused.kind {
        RefusedKind::WithoutTls => "clients without TLS".to_owned(),
        RefusedKind::OlderThan { version } => {
            format!("clients with a version older than {}", subject::protocol(version))
        }
        RefusedKind::WithoutCertificate => "clients without a certificate".to_owned(),
    };
    let counted = |refused: &RefusedClients| match refused.share {
        Some(share) if share > 0.0 => {
            format!("{} ({} of today's connections)", what(refused), percent(share))
        }
        Some(_) => format!("{} (none of today's connections)", what(refused)),
        None => format!("{} (how many is unknown)", what(refused)),
    };
    if refused.is_empty() {
        return None;
    }
    let listed =
        |name: &dyn Fn(&RefusedClients) -> String| listed(&refused.iter().map(name).collect::<Vec<_>>());
    Some(if report.today.is_some() {
        format!("These settings lock out {}.", listed(&counted))
    } else {
        format!(
            "These settings lock out {}. To count today's: ciphertoll advise {} --url NAME=URL",
            listed(&what),
            report.costs.run
        )
    })
}
