//! `__reference`: a page of the documentation in Markdown, from the types themselves. The site contains the pages; no copy
//! is kept that could go stale.

use std::fmt::Write as _;

use ciphertoll_model::{
    AtRest, Auth, Ctx, ExitCode, Factor, Group, Metric, MetricDirection, ServerKey, Suite, TlsVersion, Unit,
    Workload,
};
use clap::CommandFactory;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::print_document;

pub(crate) const REFERENCE_COMMAND: &str = "__reference";

/// Prints the page of this name.
pub(crate) fn reference(page: &str) -> Result<ExitCode, Failure> {
    let text = match page {
        "levels" => levels(),
        "metrics" => metrics(),
        "exit-codes" => exit_codes(),
        _ => {
            let message = format!("unknown page \"{page}\"; the pages are levels, metrics, exit-codes");
            return Err(Failure::usage(message));
        }
    };
    print_document(&text)
}

fn levels() -> String {
    let mut page = String::from(
        "# Levels\n\nA run compares levels of factors. Each factor is a flag of `ciphertoll run` and a key of a \
         specification; a flag takes several levels, separated by commas.\n\n| factor | levels |\n| --- | --- |\n",
    );
    let command = Arguments::command();
    let run = command.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    let flags: Vec<_> = run.collect();
    for factor in Factor::ALL {
        let help = flags
            .iter()
            .find(|flag| flag.get_long() == Some(factor.label()))
            .and_then(|flag| flag.get_long_help().or_else(|| flag.get_help()))
            .map(ToString::to_string)
            .unwrap_or_default();
        add_row(&mut page, &[&format!("`{}`", factor.label()), &help.replace('\n', " ")]);
    }
    page.push_str("\n## Names within levels\n\n| kind | names |\n| --- | --- |\n");
    let sets = [
        ("workload", names(Workload::ALL.iter())),
        ("authentication", names(Auth::ALL.iter())),
        ("TLS context", names(Ctx::ALL.iter())),
        ("encryption at rest", names(AtRest::ALL.iter())),
        ("TLS version", names(TlsVersion::ALL.iter())),
        ("key of a certificate", names(ServerKey::ALL.iter())),
        ("key exchange group (`+group=`)", names(Group::ALL.iter())),
        ("cipher suite (`+suite=`)", names(Suite::ALL.iter())),
    ];
    for (kind, names) in sets {
        add_row(&mut page, &[kind, &names]);
    }
    page
}

fn names<T: ToString>(values: impl Iterator<Item = T>) -> String {
    values.map(|value| format!("`{}`", value.to_string())).collect::<Vec<_>>().join(", ")
}

fn metrics() -> String {
    let mut page = String::from(
        "# Metrics\n\nNames contain the unit. A metric that does not apply to a cell is absent.\n\n\
         | metric | in reports | unit | better |\n| --- | --- | --- | --- |\n",
    );
    for metric in Metric::ALL.iter().copied() {
        let unit = match metric.unit() {
            Unit::PerSecond => "1/s",
            Unit::Nanoseconds => "ns",
            Unit::CpuMicroseconds => "µs of CPU",
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        };
        let better = match metric.direction() {
            MetricDirection::HigherIsBetter => "higher",
            MetricDirection::LowerIsBetter => "lower",
        };
        add_row(&mut page, &[&format!("`{}`", metric.label()), metric.title(), unit, better]);
    }
    page
}

fn exit_codes() -> String {
    let mut page = String::from("# Exit codes\n\n| code | meaning |\n| ---: | --- |\n");
    for code in ExitCode::ALL {
        add_row(&mut page, &[&code.code().to_string(), code.meaning()]);
    }
    page
}

fn add_row(page: &mut String, columns: &[&str]) {
    for column in columns {
        // A bar would begin another column, and a bracket could begin a tag.
        let text = column.replace('|', "\\|").replace('<', "&lt;");
        let _ = write!(page, "| {text} ");
    }
    page.push_str("|\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_factor_metric_and_code_has_a_row_with_text() {
        let levels = levels();
        for factor in Factor::ALL {
            let row = levels.lines().find(|line| line.starts_with(&format!("| `{}` |", factor.label())));
            assert!(row.is_some_and(|row| row.len() > 30), "{factor:?}: {levels}");
        }
        let count = |page: &str| page.lines().filter(|line| line.starts_with("| ")).count();
        // The head of the table is a row, too.
        assert_eq!(count(&metrics()), Metric::ALL.len() + 2);
        assert_eq!(count(&exit_codes()), ExitCode::ALL.len() + 2);
    }
}
