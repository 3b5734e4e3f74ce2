//! `presets`: the published studies that can be repeated, and other named runs.

use ciphertoll_model::ExitCode;
use ciphertoll_model::presets::{Claim, Measures, PRESETS, Preset, PublishedNumber};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{print_document, print_text};
use crate::request;

pub(crate) fn presets(name: Option<&str>, as_json: bool) -> Result<ExitCode, Failure> {
    let shown: Vec<&Preset> = match name {
        Some(name) => vec![
            ciphertoll_model::presets::find(name)
                .ok_or_else(|| request::no_preset(name, "no published study"))?,
        ],
        None => PRESETS.iter().collect(),
    };
    if as_json {
        let presets: Vec<Value> = shown.into_iter().map(document).collect();
        return print_document(&serde_json::to_string_pretty(&json!({ "presets": presets }))?);
    }
    let text: Vec<String> = match name {
        Some(_) => shown.into_iter().map(|preset| listing(preset) + &page(preset)).collect(),
        None => shown.into_iter().map(listing).collect(),
    };
    print_text(&text.join("\n"))
}

fn document(preset: &Preset) -> Value {
    let Preset { name, about, source, deviations, study, .. } = preset;
    let servers = preset.servers();
    let mut document = json!({
        "name": name, "about": about, "source": source, "servers": servers, "deviations": deviations
    });
    if let Some(study) = study {
        let number = |number: PublishedNumber| json!({ "configuration": number.subject, "published": number.printed, "not_compared": number.unlike });
        document["told"] = json!(study.sentences);
        document["numbers"] = preset.numbers().into_iter().map(number).collect();
        document["conclusions"] = study.conclusions.iter().map(|conclusion| json!(conclusion.said)).collect();
    }
    document
}

fn listing(preset: &Preset) -> String {
    let Preset { name, about, source, deviations, .. } = preset;
    let deviations =
        deviations.iter().map(|line| format!("  deviation: {line}\n")).collect::<Vec<_>>().concat();
    let servers: Vec<String> = preset.servers().iter().map(ToString::to_string).collect();
    let (servers, command) = match preset.measures {
        Measures::EveryServer => {
            (format!("{}, if installed", servers.join(" and ")), format!("{name} --size small"))
        }
        Measures::OneServer => {
            (format!("the first installed of {}, or --server", servers.join(", ")), (*name).to_owned())
        }
    };
    let source =
        if preset.study.is_none() { (*source).to_owned() } else { format!("published by: {source}") };
    format!(
        "{name}: {about}\n  {source}\n{deviations}  servers: {servers}\n  run it: ciphertoll run {command}\n"
    )
}

/// The study in five sentences, its conclusions and its numbers.
fn page(preset: &Preset) -> String {
    let Some(study) = &preset.study else { return String::new() };
    let told: Vec<String> = study.sentences.iter().map(|sentence| format!("  {sentence}.\n")).collect();
    let conclusions = study.conclusions.iter().map(|conclusion| match conclusion.claim {
        Claim::NotTested(why) => format!("  {} (not tested: {why})\n", conclusion.said),
        _ => format!("  {}\n", conclusion.said),
    });
    let number = |PublishedNumber { subject, printed, unlike, .. }: PublishedNumber| {
        let why = unlike.map_or(String::new(), |why| format!(" (not comparable: {why})"));
        format!("  {subject}: {printed}{why}\n")
    };
    let numbers: Vec<String> = preset.numbers().into_iter().map(number).collect();
    format!(
        "\nThe study\n{}\nConclusions of the authors\n{}\nPublished numbers\n{}",
        told.concat(),
        conclusions.collect::<String>(),
        numbers.concat()
    )
}
