//! `presets`: the published studies that can be repeated, and other named runs.

use ciphertoll_model::ExitCode;
use ciphertoll_model::presets::{Measures, PRESETS, Preset};
use serde_json::json;

use crate::failure::Failure;
use crate::output::print_document;

pub(crate) fn presets(as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        let presets: Vec<_> = PRESETS.iter().map(document).collect();
        return print_document(&serde_json::to_string_pretty(&json!({ "presets": presets }))?);
    }
    print_document(&PRESETS.iter().map(listing).collect::<Vec<_>>().join("\n"))
}

fn document(preset: &Preset) -> serde_json::Value {
    let Preset { name, about, source, deviations, .. } = preset;
    let servers = preset.servers();
    json!({ "name": name, "about": about, "source": source, "servers": servers, "deviations": deviations })
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
        if preset.published().is_empty() { (*source).to_owned() } else { format!("published by: {source}") };
    format!(
        "{name}: {about}\n  {source}\n{deviations}  servers: {servers}\n  run it: ciphertoll run {command}\n"
    )
}
