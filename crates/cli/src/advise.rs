//! `advise`: which configuration to switch on for a load, from the record of a run.

use ciphertoll_model::ExitCode;
use ciphertoll_record::Record;
use ciphertoll_report::{AdviceReport, CostReport};
use ciphertoll_stats::RunFacts;
use ciphertoll_stats::cost::CostModel;

use crate::arguments::AdviseArguments;
use crate::failure::Failure;
use crate::predict::{load_for, require_profiles};
use crate::{print_document, report};

pub(crate) fn advise(arguments: &AdviseArguments) -> Result<ExitCode, Failure> {
    let path = ciphertoll_record::resolve(&arguments.run_dir, &arguments.run)?;
    let record = Record::open(&path)?;
    let facts = RunFacts::of(&record.plan, &record.events);
    let model = CostModel::fit(&record.plan, &facts);
    let load = load_for(&model, &arguments.load)?;
    let name = record.name();
    let costs = CostReport { run: &name, facts: &facts, model: &model, load: &load };
    require_profiles(&costs)?;
    let advice =
        AdviceReport { costs, needs: &arguments.need, core_price: arguments.core_price, load_source: None };
    let document = if arguments.json {
        ciphertoll_report::advice_json(&advice)?
    } else {
        ciphertoll_report::advice(&advice, report::style(), report::width())
    };
    print_document(&document)
}
