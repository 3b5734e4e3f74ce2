//! `compare`: two records, and whether a toll has changed.

use ciphertoll_model::ExitCode;
use ciphertoll_record::Record;
use ciphertoll_report::ComparisonReport;
use ciphertoll_stats::{ChangeVerdict, Comparison, Run, compare as compare_runs};

use crate::arguments::CompareArguments;
use crate::failure::Failure;
use crate::{print_document, report};

pub(crate) fn compare(arguments: &CompareArguments) -> Result<ExitCode, Failure> {
    let open = |asked: &str| Record::open(&ciphertoll_record::resolve(&arguments.run_dir, asked)?);
    let (base, new) = (open(&arguments.base)?, open(&arguments.new)?);
    let comparison = compare_runs(&run(&base), &run(&new));
    let names = (base.name(), new.name());
    let plans = [&base.plan, &new.plan];
    let report = ComparisonReport { base: &names.0, new: &names.1, plans, comparison: &comparison };
    let document = if arguments.json {
        ciphertoll_report::comparison_json(&report)
            .map_err(|error| Failure::new(ExitCode::Internal, format!("cannot write the JSON: {error}")))?
    } else {
        ciphertoll_report::comparison(&report, report::width())
    };
    print_document(&document)?;
    Ok(exit_code(&comparison, arguments.allow_inconclusive))
}

fn run(record: &Record) -> Run<'_> {
    Run { plan: &record.plan, events: &record.events }
}

/// A regression wins over doubt. Runs without a toll in common leave everything open.
fn exit_code(comparison: &Comparison, allow_inconclusive: bool) -> ExitCode {
    let any = |is: fn(ChangeVerdict) -> bool| comparison.changes.iter().any(|change| is(change.verdict));
    if any(|verdict| verdict == ChangeVerdict::Regression) {
        return ExitCode::Regression;
    }
    let open =
        comparison.changes.is_empty() || any(|verdict| matches!(verdict, ChangeVerdict::Inconclusive { .. }));
    if open && !allow_inconclusive { ExitCode::Inconclusive } else { ExitCode::Done }
}
