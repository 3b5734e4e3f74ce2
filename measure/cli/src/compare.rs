//! `compare`: whether a cost has changed between two runs.

use std::fs;

use ciphertoll_model::ExitCode;
use ciphertoll_record::Record;
use ciphertoll_report::ComparisonReport;
use ciphertoll_stats::{ChangeVerdict, ComparedRun, RunComparison, compare as compare_runs};

use crate::arguments::CompareArguments;
use crate::ascii::on_screen;
use crate::failure::Failure;
use crate::output::print_document;
use crate::report;

pub(crate) fn compare(arguments: &CompareArguments) -> Result<ExitCode, Failure> {
    let resolve = |name: &str| ciphertoll_record::resolve(&arguments.run_dir, name);
    let paths = [resolve(&arguments.base)?, resolve(&arguments.new)?];
    if let [Ok(base), Ok(new)] = paths.each_ref().map(fs::canonicalize)
        && base == new
    {
        let (base, new) = (&arguments.base, &arguments.new);
        return Err(Failure::usage(format!(
            "cannot compare: {new} is the same run as {base}; name two runs"
        )));
    }
    let (base, new) = (Record::open(&paths[0])?, Record::open(&paths[1])?);
    let comparison = compare_runs(&run(&base), &run(&new));
    let names = (base.name(), new.name());
    if comparison.changes.is_empty() {
        return Err(nothing_in_common(&names.0, &names.1, &comparison));
    }
    let plans = [&base.plan, &new.plan];
    let report = ComparisonReport { base: &names.0, new: &names.1, plans, comparison: &comparison };
    let document = if arguments.json {
        ciphertoll_report::comparison_json(&report)?
    } else {
        on_screen(&ciphertoll_report::comparison(&report, report::width())).into_owned()
    };
    print_document(&document)?;
    Ok(exit_code(&comparison, arguments.allow_inconclusive))
}

fn run(record: &Record) -> ComparedRun<'_> {
    ComparedRun { plan: &record.plan, events: &record.events }
}

/// A CI gate that compares nothing must not pass, even with `--allow-inconclusive`.
fn nothing_in_common(base: &str, new: &str, comparison: &RunComparison) -> Failure {
    let RunComparison { only_in_base, only_in_new, .. } = comparison;
    let example = match (only_in_base.first(), only_in_new.first()) {
        (Some(base), Some(new)) => format!("one measured {base}, the other {new}"),
        (None, None) => "neither has a valid ratio".to_owned(),
        (None, Some(_)) => format!("{base} has no valid ratio"),
        (Some(_), None) => format!("{new} has no valid ratio"),
    };
    Failure::usage(format!("cannot compare: {base} and {new} have no comparison in common: {example}"))
}

/// A regression takes precedence over inconclusive comparisons.
fn exit_code(comparison: &RunComparison, allow_inconclusive: bool) -> ExitCode {
    let any = |is: fn(ChangeVerdict) -> bool| comparison.changes.iter().any(|change| is(change.verdict));
    if any(|verdict| verdict == ChangeVerdict::Regression) {
        return ExitCode::Regression;
    }
    let is_inconclusive = any(|verdict| matches!(verdict, ChangeVerdict::Inconclusive { .. }));
    if is_inconclusive && !allow_inconclusive { ExitCode::Inconclusive } else { ExitCode::Done }
}
