//! `report`: a report, made only from the record.

use std::fs;
use std::io::IsTerminal;

use ciphertoll_model::ExitCode;
use ciphertoll_record::Record;
use ciphertoll_report::{Plot, RunReport, Style};
use ciphertoll_stats::{RunFacts, analyse_trials};

use crate::arguments::{ReportArguments, ReportFormat};
use crate::ascii::on_screen;
use crate::failure::Failure;
use crate::output::print_document;

const DEFAULT_WIDTH: u16 = 100;

pub(crate) fn report(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let path = ciphertoll_record::resolve(&arguments.record.run_dir, &arguments.record.run)?;
    let document =
        document(&Record::open(&path)?, arguments.format, arguments.plot, arguments.price.core_price)?;
    match &arguments.output {
        None => print_document(&document),
        Some(file) => {
            fs::write(file, document).map_err(|error| {
                Failure::new(ExitCode::HostResource, format!("cannot write {}: {error}", file.display()))
            })?;
            Ok(ExitCode::Done)
        }
    }
}

pub(crate) fn print(
    record: &Record,
    format: ReportFormat,
    core_price: Option<f64>,
) -> Result<ExitCode, Failure> {
    print_document(&document(record, format, Plot::Tolls, core_price)?)
}

pub(crate) fn document(
    record: &Record,
    format: ReportFormat,
    plot: Plot,
    core_price: Option<f64>,
) -> Result<String, Failure> {
    let Record { plan, events, .. } = record;
    let facts = RunFacts::of(plan, events);
    let analysis = analyse_trials(plan, &facts.trials);
    let report = RunReport { run: &record.name(), plan, facts, analysis: &analysis, core_price };
    Ok(match format {
        ReportFormat::Json => ciphertoll_report::json(&report)?,
        ReportFormat::Terminal => {
            on_screen(&ciphertoll_report::terminal(&report, style(), width())).into_owned()
        }
        ReportFormat::Summary => {
            on_screen(&ciphertoll_report::summary(&report, style(), width())).into_owned()
        }
        ReportFormat::Html => ciphertoll_report::html(&report),
        ReportFormat::Markdown => ciphertoll_report::markdown(&report),
        ReportFormat::Csv => ciphertoll_report::csv(&report, plot),
    })
}

/// Uses colours on a terminal, unless `NO_COLOR` is set.
pub(crate) fn style() -> Style {
    let terminal = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if terminal { Style::Colour } else { Style::Plain }
}

/// Columns of the terminal, clamped to the widths that the tables support.
pub(crate) fn width() -> u16 {
    const NARROWEST: u16 = 40;
    const WIDEST: u16 = 120;
    let columns = console::Term::stdout().size_checked().map(|(_, columns)| columns);
    columns.map_or(DEFAULT_WIDTH, |columns| columns.clamp(NARROWEST, WIDEST))
}
