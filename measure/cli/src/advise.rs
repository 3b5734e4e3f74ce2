//! `advise`: which configuration to switch on for a load, from the record of a run.

use ciphertoll_lab::server_load::ServerLoad;
use ciphertoll_lab::{Passwords, remote, server_load};
use ciphertoll_model::{Engine, ExitCode, ServerUrl};
use ciphertoll_record::Record;
use ciphertoll_report::{AdviceReport, CostReport};
use ciphertoll_stats::RunFacts;
use ciphertoll_stats::advice::ConnectionShares;
use ciphertoll_stats::cost::{CostModel, Load, SessionQueries};

use crate::arguments::{AdviseArguments, LoadArguments};
use crate::ascii::on_screen;
use crate::failure::Failure;
use crate::observed::{ObservedServer, keep_engines};
use crate::output::print_document;
use crate::predict::{load_for, require_profiles};
use crate::progress::tell;
use crate::{passwords, report, request};

pub(crate) fn advise(arguments: &AdviseArguments) -> Result<ExitCode, Failure> {
    let path = ciphertoll_record::resolve(&arguments.record.run_dir, &arguments.record.run)?;
    let record = Record::open(&path)?;
    let facts = RunFacts::of(&record.plan, &record.events);
    let mut model = CostModel::fit(&record.plan, &facts);
    let mut load = load_for(&model, &arguments.load)?;
    let name = record.name();
    let counted = match &arguments.url {
        Some(url) => Some(count(url, arguments, &mut model, &name)?),
        None => None,
    };
    if let Some(counted) = &counted {
        fill_in(&mut load, &arguments.load, &counted.load)?;
    }
    let observed = ObservedServer::read(&arguments.record.run_dir, &arguments.observed)?;
    if let Some(observed) = &observed {
        observed.fill_in(&mut load, &arguments.load)?;
        observed.keep_its_engine(&mut model, &name)?;
    }
    let costs = CostReport { run: &name, facts: &facts, model: &model, load: &load };
    require_profiles(&costs)?;
    let today = counted.as_ref().map(|counted| shares(&counted.load));
    let today = today.or_else(|| observed.as_ref().map(ObservedServer::shares));
    let transports = observed.as_ref().map(ObservedServer::transports).unwrap_or_default();
    let load_source = counted.as_ref().map(|counted| counted.sentence.clone());
    let load_source = load_source.or_else(|| observed.as_ref().map(ObservedServer::sentence));
    let advice = AdviceReport {
        costs,
        needs: &arguments.need,
        core_price: arguments.price.core_price,
        load_source: load_source.as_deref(),
        today: today.as_ref(),
        observed: &transports,
        url: counted.as_ref().map(|counted| &counted.url),
        optimize: arguments.optimize,
        worth: arguments.worth(),
    };
    let document = if arguments.json {
        ciphertoll_report::advice_json(&advice)?
    } else {
        on_screen(&ciphertoll_report::advice(&advice, report::style(), report::width())).into_owned()
    };
    print_document(&document)
}

/// What a running server counts.
struct Counted {
    load: ServerLoad,
    sentence: String,
    url: ServerUrl,
}

/// Reads the counters, and leaves only configurations of the same engine in the model.
fn count(
    url: &str,
    arguments: &AdviseArguments,
    model: &mut CostModel,
    run: &str,
) -> Result<Counted, Failure> {
    let mut given = Passwords::new();
    let server = request::server_at(url, &mut given)?;
    let Some(url) = server.url.as_deref() else { return Err(Failure::usage("--url must be NAME=URL")) };
    let engine = server.engine;
    let is_like = |other: Engine| other == engine || (other.is_mysql_family() && engine.is_mysql_family());
    keep_engines(model, run, engine, is_like)?;
    request::check_files([&server])?;
    let name = server.short_name();
    let passwords = passwords::gather([&server], given)?;
    let host = remote::choose_host(&name, url, &passwords)?;
    let url = host.as_ref().map_or(url, |host| &host.url);
    tell(&format!("reading the counters of {name} twice"));
    let load = server_load::read(&name, url, &passwords, arguments.interval.duration())?;
    let sentence = format!("{name}: {}", server_load::describe(&load));
    Ok(Counted { load, sentence, url: url.clone() })
}

/// Takes from the server what the command line does not say.
fn fill_in(load: &mut Load, asked: &LoadArguments, counted: &ServerLoad) -> Result<(), Failure> {
    if asked.connects.is_none() {
        let rate = counted.connects_per_s.filter(|rate| *rate > 0.0);
        load.connects_per_s = Some(rate.ok_or_else(|| {
            Failure::usage(
                "the server counted no connects in this time: add --connects, or a longer --interval",
            )
        })?);
    }
    if asked.queries_per_connection.is_none() {
        let per_connection = counted.statements_per_connection.or(counted.transactions_per_connection());
        let mean = per_connection.ok_or_else(|| {
            Failure::usage("the server does not count statements: add --queries-per-connection")
        })?;
        load.queries = SessionQueries::of_mean(mean);
    }
    Ok(())
}

/// How its clients are connected.
fn shares(counted: &ServerLoad) -> ConnectionShares {
    ConnectionShares {
        without_tls: counted.encrypted_connect_share.map(|share| 1.0 - share),
        by_version: counted.versions.iter().map(|of| (of.version, of.share)).collect(),
    }
}
