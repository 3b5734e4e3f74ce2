//! `report`: what a recorded run says, made from the record alone.

use std::io::IsTerminal;

use ciphertoll_model::{Event, ExitCode};
use ciphertoll_record::Record;
use ciphertoll_report::{RunReport, Style};

use crate::arguments::{ReportArguments, ReportFormat};
use crate::failure::Failure;
use crate::print_document;

const DEFAULT_WIDTH: u16 = 100;

pub(crate) fn report(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let path = ciphertoll_record::resolve(&arguments.run_dir, &arguments.run)?;
    print(&Record::open(&path)?, arguments.format)
}

/// Prints the one document of a run.
pub(crate) fn print(record: &Record, format: ReportFormat) -> Result<ExitCode, Failure> {
    let Record { plan, events, .. } = record;
    let version = events.iter().find_map(|stamped| match &stamped.event {
        Event::RunStarted { tool_version, .. } => Some(tool_version.as_str()),
        _ => None,
    });
    let analysis = ciphertoll_stats::analyse(plan, events);
    let tool_version = version.unwrap_or("unknown");
    let report = RunReport { run: &record.name(), tool_version, plan, events, analysis: &analysis };
    let document = match format {
        ReportFormat::Json => ciphertoll_report::json(&report)
            .map_err(|error| Failure::new(ExitCode::Internal, format!("cannot write the JSON: {error}")))?,
        ReportFormat::Terminal => {
            let terminal = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let style = if terminal { Style::Colour } else { Style::Plain };
            ciphertoll_report::terminal(&report, style, width())
        }
    };
    print_document(&document)
}

/// Columns of the terminal, within what the tables are made for.
fn width() -> u16 {
    const NARROWEST: u16 = 80;
    const WIDEST: u16 = 120;
    match terminal_columns() {
        Some(columns) => columns.clamp(NARROWEST, WIDEST),
        None => DEFAULT_WIDTH,
    }
}

fn terminal_columns() -> Option<u16> {
    console::Term::stdout().size_checked().map(|(_, columns)| columns)
}
