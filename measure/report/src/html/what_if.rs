//! The what-if panel: `ciphertoll predict` in the page. Its script, `assets/what-if.js`, interpolates between the
//! predictions in an attribute.

use ciphertoll_stats::cost::{Cores, CostModel, Load, Profile, Role, SessionQueries};

use super::part::{PagePart, paragraph};
use super::table::scrolling;
use crate::RunReport;
use crate::costs::{self, CostReport, PageModel, ServerPredictions};
use crate::markup::Element;

pub(super) const SCRIPT: &str = include_str!("assets/what-if.js");
/// See [`super::SCRIPT_SHA256`].
pub(super) const SCRIPT_SHA256: &str = "sha256-mTTkdyK7U6VbSDNgEzFKS2OD+l3uNqZfVKlmDZFhR6Y=";

/// A number that the reader may change.
struct Field {
    /// Its name in the fragment of the page's address.
    name: &'static str,
    label: &'static str,
    value: f64,
    /// The option of `predict`, and the unit of its argument.
    option: (&'static str, &'static str),
    min: f64,
    max: f64,
    /// Of the arrow keys. Any number between the limits is valid.
    step: f64,
}

const FIELDS: [Field; 4] = [
    Field {
        name: "connects",
        label: "Connects per second",
        value: 500.0,
        option: ("--connects", ""),
        min: 1.0,
        max: 1e6,
        step: 1.0,
    },
    Field {
        name: "queries",
        label: "Queries per connection",
        value: 3.0,
        option: ("--queries-per-connection", ""),
        min: 0.0,
        max: 1e6,
        step: 0.5,
    },
    Field {
        name: "rtt-ms",
        label: "Round-trip time, ms",
        value: 0.0,
        option: ("--rtt", "ms"),
        min: 0.0,
        max: 1e4,
        step: 1.0,
    },
    Field {
        name: "cores",
        label: "Cores of the server\u{2019}s host",
        value: 8.0,
        option: ("--cores", ""),
        min: 1.0,
        max: 1024.0,
        step: 1.0,
    },
];

const ABOUT: &str = "Times, throughput and cores of another load, predicted from the costs that this run measured. A query is \
                     a short one on an open connection: add what your own query needs in the server to each configuration \
                     alike. The second line of a field is the 95 % interval for a repetition.";

/// `None` if the run measured no configuration's CPU time of a connect and of a query.
pub(super) fn part(report: &RunReport<'_>) -> Option<PagePart> {
    let model = CostModel::fit(report.plan, &report.facts);
    if !model.profiles.iter().any(is_measured) {
        return None;
    }
    let load = load(FIELDS.map(|field| field.value));
    let costs = CostReport { run: report.run, facts: &report.facts, model: &model, load: &load };
    let data = serde_json::to_string(&PageModel::of(&costs)).ok()?;
    let words = costs::load_in_words(&load);
    let panel = Element::new("div")
        .with("id", "what-if-panel")
        .with("data-model", data)
        // The script shows the fields.
        .child(Element::new("div").class("fields").with("hidden", "").children(FIELDS.iter().map(field)))
        .child(
            paragraph(
                "muted",
                &format!("The load: {words}. To change the load, open the page with JavaScript."),
            )
            .with("data-without-script", ""),
        )
        .child(Element::new("p").class("muted").with("id", "what-if-status").with("role", "status"))
        .children(costs::by_server(&costs).into_iter().map(of_server))
        .child(command(report.run));
    Some(PagePart::new("what-if", "What if", vec![paragraph("prose", ABOUT), panel]))
}

fn is_measured(profile: &Profile) -> bool {
    let total = profile.cpu.get(&Role::Total);
    total.is_some_and(|costs| !costs.connect.is_empty() && !costs.further_query.is_empty())
}

fn load([connects, queries, rtt_ms, cores]: [f64; 4]) -> Load {
    Load {
        connects_per_s: Some(connects),
        queries: SessionQueries::of_mean(queries),
        rtt_ns: rtt_ms * 1e6,
        ..Load::simple(Cores::Separate { server: cores, clients: None })
    }
}

fn field(field: &Field) -> Element {
    let id = format!("what-if-{}", field.name);
    let input = Element::new("input")
        .with("id", id.clone())
        .with("name", field.name)
        .with("type", "number")
        .with("value", costs::short(field.value))
        .with("min", costs::short(field.min))
        .with("max", costs::short(field.max))
        .with("step", costs::short(field.step))
        .with("data-option", field.option.0)
        .with("data-unit", field.option.1)
        .with("autocomplete", "off");
    Element::new("div").child(Element::new("label").with("for", id).text(field.label)).child(input)
}

fn of_server(ServerPredictions { name, table, notes }: ServerPredictions) -> Element {
    let caption = format!("Predicted for each configuration: {name}");
    let notes = notes.iter().map(|note| paragraph("note", note));
    Element::new("div")
        .with("data-predictions", "")
        .child(Element::new("h3").text(name))
        .child(scrolling(&table, &caption))
        .child(Element::new("div").class("predicted-notes").children(notes))
}

/// The same prediction in a terminal.
fn command(run: &str) -> Element {
    let option =
        |Field { option: (name, unit), value, .. }: &Field| format!(" {name} {}{unit}", costs::short(*value));
    let start = format!("ciphertoll predict {run}");
    let options: String = FIELDS.iter().map(option).collect();
    let code = Element::new("code")
        .with("id", "what-if-command")
        .with("data-start", start.clone())
        .text(start + &options);
    Element::new("p").class("muted").text("In a terminal: ").child(code)
}
