//! `predict`: what a load costs, from the record of a run.

use ciphertoll_model::ExitCode;
use ciphertoll_record::Record;
use ciphertoll_report::CostReport;
use ciphertoll_stats::RunFacts;
use ciphertoll_stats::cost::{CostModel, Load};

use crate::arguments::{LoadArguments, PredictArguments};
use crate::ascii::on_screen;
use crate::failure::Failure;
use crate::observed::ObservedServer;
use crate::output::print_document;
use crate::progress::tell;
use crate::report;

pub(crate) fn predict(arguments: &PredictArguments) -> Result<ExitCode, Failure> {
    let path = ciphertoll_record::resolve(&arguments.record.run_dir, &arguments.record.run)?;
    let record = Record::open(&path)?;
    let facts = RunFacts::of(&record.plan, &record.events);
    let mut model = CostModel::fit(&record.plan, &facts);
    let mut load = load_for(&model, &arguments.load)?;
    let name = record.name();
    if let Some(observed) = ObservedServer::read(&arguments.record.run_dir, &arguments.observed)? {
        observed.fill_in(&mut load, &arguments.load)?;
        observed.keep_its_engine(&mut model, &name)?;
        tell(&observed.sentence());
    }
    let document = CostReport { run: &name, facts: &facts, model: &model, load: &load };
    require_profiles(&document)?;
    print_document(&match (arguments.terms, arguments.json) {
        (true, false) => {
            on_screen(&ciphertoll_report::terms(&document, report::style(), report::width())).into_owned()
        }
        (true, true) => ciphertoll_report::terms_json(&document)?,
        (false, true) => ciphertoll_report::predictions_json(&document)?,
        (false, false) => {
            on_screen(&ciphertoll_report::predictions(&document, report::style(), report::width()))
                .into_owned()
        }
    })
}

/// The load, on the machine of the run unless cores are given.
pub(crate) fn load_for(model: &CostModel, arguments: &LoadArguments) -> Result<Load, Failure> {
    arguments.load(model.cpus).ok_or_else(|| {
        Failure::usage(
            "the record does not say how many cores its machine has: add --cores or --shared-cores",
        )
    })
}

/// A run without a cost of a connect or a query has nothing to predict from.
pub(crate) fn require_profiles(report: &CostReport<'_>) -> Result<(), Failure> {
    if report.model.profiles.is_empty() {
        let run = report.run;
        return Err(Failure::usage(format!(
            "{run} has no cost of a connect or a query to predict from; measure them: ciphertoll run calibrate"
        )));
    }
    Ok(())
}
