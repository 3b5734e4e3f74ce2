//! The JSON document: what does not apply is absent, never 0 and never null.

use std::collections::BTreeMap;

use ciphertoll_model::{
    AtRest, Auth, CellId, Ctx, Driver, Ending, Environment, Flag, KeyExchangeTime, Leg, Link, Margins,
    Metric, Pace, Path, RelativeScale, SCHEMA_VERSION, SignatureTime, Skipped, Storage, Workload,
};
use ciphertoll_presets::Published;
use ciphertoll_stats::{
    CellAnalysis, Doubt, Estimate, Role, StratumAnalysis, Toll, UnevenCheckpoints, Verdict, VoidedTrial,
};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use crate::RunReport;
use crate::number::is_certain;
use crate::view::at_rest::{self, SearchedFiles};
use crate::view::connect_cost::{self, CostPart, ServerCosts, Times};
use crate::view::published;

/// A run for machines.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "ciphertoll report")]
pub struct Document {
    /// Version of this format.
    pub schema_version: u32,
    /// Version of the ciphertoll that wrote it.
    pub tool_version: String,
    /// Name of the run's directory.
    pub run: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Seed of every random order.
    pub seed: u64,
    /// Whether the run ended as planned.
    pub complete: bool,
    /// The machine; absent where the run ended before it was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// `FACTOR=LEVEL` that everything is compared with.
    pub baseline: String,
    /// Of every interval.
    pub confidence_level: f64,
    /// Half-widths of "the same", as shares.
    pub margins: Margins,
    /// What two copies of a baseline differ by at most, as a share: by the baseline's id and metric.
    pub noise_floor: BTreeMap<CellId, BTreeMap<Metric, f64>>,
    /// What was asked and not measured, and why.
    pub skipped: Vec<Skipped>,
    /// Every cell of the plan that was not skipped.
    pub cells: Vec<CellDocument>,
    /// Comparisons beside those with the baseline: authentications, where paths are what is compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<AlsoDocument>,
    /// What `connect_cost_ns` of the cells rests on; absent where nothing was timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primitives: Option<PrimitivesDocument>,
    /// Whether what was written into each server can be read in its files; absent where files are not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_rest_proofs: Vec<AtRestProofDocument>,
    /// What private servers' files lay on, `tmpfs`; absent where it is the disk.
    #[serde(skip_serializing_if = "Storage::is_default")]
    pub storage: Storage,
}

/// What became of a text that was written into a server and looked for in all of its files.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AtRestProofDocument {
    /// The server's name.
    pub server: String,
    /// What encrypts its files.
    pub at_rest: AtRest,
    /// Files that were read from beginning to end.
    pub files: u64,
    /// How much that was.
    pub bytes: u64,
    /// Those that had it in them, in the clear: none, where they are encrypted.
    pub files_with_marker: u64,
    /// What in the kernel encrypts, in the kernel's own words, where it is the kernel that does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_cipher: Option<String>,
}

/// What cryptographic primitives take on the machine, each timed alone with the client's TLS library.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PrimitivesDocument {
    /// By the label of the key.
    pub signatures: BTreeMap<String, SignatureTime>,
    /// By the label of the group.
    pub key_exchanges: BTreeMap<String, KeyExchangeTime>,
}

/// A comparison beside those with the baseline.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AlsoDocument {
    /// `FACTOR=LEVEL` of the cell compared with.
    pub baseline: String,
    /// Id of that cell.
    pub compared_with: CellId,
    /// Id of the cell compared.
    pub id: CellId,
    /// The one ÷ the other.
    pub toll: BTreeMap<Metric, TollDocument>,
}

/// A cell for machines.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CellDocument {
    /// The levels joined by `/`.
    pub id: CellId,
    /// The server's name.
    pub server: String,
    /// The server's version, from its own mouth; absent where it never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// The path.
    pub path: Path,
    /// The authentication.
    pub auth: Auth,
    /// Who builds the TLS context; absent where the path has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ctx: Option<Ctx>,
    /// The client code.
    pub driver: Driver,
    /// The network.
    pub link: Link,
    /// The layer under the files.
    pub at_rest: AtRest,
    /// What one operation is.
    pub workload: Workload,
    /// How many clients.
    pub clients: u16,
    /// Rows.
    pub scale: u32,
    /// What was asked for, where it was not a number of rows: `0.5cache` is half of the server's buffers, `1.2mem` 1.2
    /// times the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_scale: Option<RelativeScale>,
    /// `closed`, or when operations begin in an open loop: `500/s`, `50%` of the baseline's capacity.
    pub pace: Pace,
    /// Blocks that were planned.
    pub blocks_planned: u32,
    /// Blocks that count for this cell.
    pub blocks_used: u32,
    /// Trials whose numbers were dropped.
    pub voided: Vec<VoidedDocument>,
    /// What to know about the trials that count.
    pub flags: Vec<FlagDocument>,
    /// The cell's level in each metric, with its interval.
    pub metrics: BTreeMap<Metric, Estimate>,
    /// Why metrics that apply are absent: by the metric, in one line, with the flag that helps, where one does.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<Metric, String>,
    /// The cell ÷ its baseline in each metric; absent on a baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toll: Option<BTreeMap<Metric, TollDocument>>,
    /// What a published study found for the same ratio, where the run repeats one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<Metric, PublishedDocument>,
    /// What its connects are made of, ns: `network`, `tls_context`, `signature`, `chain`, `key_exchange`,
    /// `other_handshake`, `authentication` and `close`, which add up to `latency_ns_mean`; those of the handshake by the
    /// `primitives`. Only where the fewest clients of its server connect.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connect_cost_ns: BTreeMap<CostPart, f64>,
    /// Pairs of trials of which one had another number of checkpoints than the other, and whether they count; absent where
    /// there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uneven_checkpoints: Option<UnevenCheckpoints>,
    /// What was negotiated.
    pub legs: Vec<LegDocument>,
}

/// A trial whose numbers were dropped.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VoidedDocument {
    /// Its block.
    pub block: u32,
    /// Why, in one line.
    pub reason: String,
}

/// A flag and the number of trials that carry it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlagDocument {
    /// How many trials.
    pub trials: u32,
    /// Which flag, with its number.
    #[serde(flatten)]
    pub flag: Flag,
}

/// A published ratio to the baseline.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PublishedDocument {
    /// Of which build then, where there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<&'static str>,
    /// The ratio.
    pub value: f64,
    /// Its standard deviation, from those of both parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_deviation: Option<f64>,
    /// The ratios of the other builds then.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<&'static str, f64>,
}

/// A ratio to the baseline.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TollDocument {
    /// The ratio and its interval.
    #[serde(flatten)]
    pub ratio: Estimate,
    /// Hodges–Lehmann estimate of the same ratio: where it lies outside the interval, single blocks
    /// carry the estimate.
    pub hodges_lehmann: f64,
    /// What can be said of it; absent where no verdict is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictDocument>,
}

/// What can be said of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum VerdictDocument {
    /// It differs from the baseline, and by more than the noise floor.
    Differs,
    /// It is the same within ± the margin.
    SameWithin {
        /// The margin, as a share.
        margin: f64,
    },
    /// It differs, by less than the margin.
    RealButNegligible {
        /// The margin, as a share.
        margin: f64,
    },
    /// This run cannot tell.
    Inconclusive {
        /// The smallest effect it would have seen, as a share; absent where it would have seen none.
        #[serde(skip_serializing_if = "Option::is_none")]
        smallest_visible_effect: Option<f64>,
        /// Blocks it would take; absent where no practicable number would do.
        #[serde(skip_serializing_if = "Option::is_none")]
        blocks_needed: Option<u32>,
        /// Why it cannot tell.
        why: Doubt,
    },
}

/// What was negotiated on one hop, and on how many connections.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LegDocument {
    /// What was negotiated.
    #[serde(flatten)]
    pub leg: Leg,
    /// On how many connections.
    pub connections: u64,
}

/// The run as one JSON text; ends in a newline.
pub fn json(report: &RunReport<'_>) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&Document::from(report))?;
    text.push('\n');
    Ok(text)
}

/// The JSON Schema of [`Document`]; ends in a newline.
pub fn json_schema() -> String {
    let generator = SchemaSettings::default().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Document>().to_value();
    forbid_null(&mut schema);
    format!("{schema:#}\n")
}

/// What may be absent is never null; schemars cannot know that of an `Option`.
fn forbid_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(forbid_null),
        Value::Object(rules) => {
            rules.values_mut().for_each(forbid_null);
            if let Some(Value::Array(types)) = rules.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    rules.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = rules.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    rules.remove("anyOf");
                    rules.extend(only);
                }
            }
        }
        _ => {}
    }
}

impl From<&RunReport<'_>> for Document {
    fn from(report: &RunReport<'_>) -> Self {
        let RunReport { plan, analysis, .. } = *report;
        let skipped: Vec<Skipped> = report.skipped().into_iter().cloned().collect();
        let was_skipped = |cell: &CellAnalysis| skipped.iter().any(|skipped| skipped.id == cell.id.0);
        let measured = analysis.cells.iter().filter(|cell| !was_skipped(cell) || !cell.metrics.is_empty());
        let costs = connect_cost::of(report);
        let noise_floor =
            analysis.strata.iter().map(|stratum| (stratum.baseline.clone(), finite(&stratum.noise_floor)));
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: report.tool_version.to_owned(),
            run: report.run.to_owned(),
            experiment: plan.name.clone(),
            seed: plan.seed,
            complete: report.ending() == Some(Ending::Complete),
            environment: report.environment().cloned(),
            baseline: plan.baseline.to_string(),
            confidence_level: analysis.confidence_level,
            margins: plan.margins,
            noise_floor: noise_floor.collect(),
            cells: measured.map(|cell| cell_document(report, &costs, cell)).collect(),
            also: also(report),
            primitives: primitives(report),
            at_rest_proofs: at_rest::proofs(report).map(|proof| at_rest_document(&proof)).collect(),
            storage: report.plan.storage,
            skipped,
        }
    }
}

fn also(report: &RunReport<'_>) -> Vec<AlsoDocument> {
    let Some(baseline) = &report.plan.also else { return Vec::new() };
    let of_stratum = |stratum: &StratumAnalysis| {
        let compared_with = stratum.baseline.clone();
        let document = move |cell: &CellAnalysis| AlsoDocument {
            baseline: baseline.to_string(),
            compared_with: compared_with.clone(),
            id: cell.id.clone(),
            toll: tolls(&cell.tolls),
        };
        stratum.also_compared.iter().map(document).collect::<Vec<_>>()
    };
    report.analysis.strata.iter().flat_map(of_stratum).collect()
}

fn at_rest_document(proof: &SearchedFiles<'_>) -> AtRestProofDocument {
    AtRestProofDocument {
        server: proof.server.to_owned(),
        at_rest: proof.at_rest,
        files: proof.files,
        bytes: proof.bytes,
        files_with_marker: proof.files_with_marker,
        kernel_cipher: proof.kernel_cipher.map(ToOwned::to_owned),
    }
}

fn primitives(report: &RunReport<'_>) -> Option<PrimitivesDocument> {
    let Times { signatures, key_exchanges } = Times::of(report)?;
    Some(PrimitivesDocument { signatures: signatures.clone(), key_exchanges: key_exchanges.clone() })
}

fn connect_cost(costs: &[ServerCosts<'_>], cell: &CellAnalysis) -> BTreeMap<CostPart, f64> {
    let mut bars = costs.iter().flat_map(|costs| &costs.bars);
    bars.find(|bar| bar.cell.id == cell.id).map(|bar| bar.parts.clone()).unwrap_or_default()
}

fn cell_document(report: &RunReport<'_>, costs: &[ServerCosts<'_>], analysed: &CellAnalysis) -> CellDocument {
    let treatment = &analysed.cell.treatment;
    let server = treatment.server.short_name();
    let voided =
        |trial: &VoidedTrial| VoidedDocument { block: trial.block, reason: trial.reason.to_string() };
    CellDocument {
        id: analysed.id.clone(),
        server_version: report.server_version(&server).map(str::to_owned),
        server,
        path: treatment.path,
        auth: treatment.auth,
        ctx: treatment.ctx,
        driver: treatment.driver.clone(),
        link: treatment.link,
        at_rest: treatment.at_rest,
        workload: analysed.cell.workload,
        clients: analysed.cell.clients.count(),
        scale: analysed.cell.scale.rows(),
        relative_scale: analysed.cell.relative,
        pace: analysed.cell.pace,
        blocks_planned: analysed.blocks_planned,
        blocks_used: analysed.blocks_used,
        voided: analysed.voided.iter().map(voided).collect(),
        flags: analysed
            .flags
            .iter()
            .map(|(trials, flag)| FlagDocument { trials: *trials, flag: flag.clone() })
            .collect(),
        metrics: certain(&analysed.metrics),
        absent: analysed.absent.iter().map(|(metric, absence)| (*metric, absence.to_string())).collect(),
        toll: (analysed.role == Role::Treatment).then(|| tolls(&analysed.tolls)),
        published: published(report, analysed),
        connect_cost_ns: connect_cost(costs, analysed),
        uneven_checkpoints: Some(analysed.checkpoints.clone()).filter(|uneven| !uneven.blocks.is_empty()),
        legs: analysed
            .legs
            .iter()
            .map(|count| LegDocument { leg: count.leg.clone(), connections: count.connections })
            .collect(),
    }
}

fn published(report: &RunReport<'_>, cell: &CellAnalysis) -> BTreeMap<Metric, PublishedDocument> {
    let mut documents: BTreeMap<Metric, PublishedDocument> = BTreeMap::new();
    for Published { metric, of, ratio: value, ratio_sd: standard_deviation, .. } in
        published::of_cell(report, cell)
    {
        if let Some(first) = documents.get_mut(&metric) {
            first.others.extend(of.map(|of| (of, value)));
        } else {
            let others = BTreeMap::new();
            documents.insert(metric, PublishedDocument { of, value, standard_deviation, others });
        }
    }
    documents
}

/// Numbers without an interval are left out: JSON has no infinity, and a guess is no measurement.
fn certain(metrics: &BTreeMap<Metric, Estimate>) -> BTreeMap<Metric, Estimate> {
    let known = metrics.iter().filter(|(_, estimate)| is_certain(estimate));
    known.map(|(metric, estimate)| (*metric, *estimate)).collect()
}

fn tolls(tolls: &BTreeMap<Metric, Toll>) -> BTreeMap<Metric, TollDocument> {
    let known = tolls.iter().filter(|(_, toll)| is_certain(&toll.ratio));
    let document = |toll: &Toll| TollDocument {
        ratio: toll.ratio,
        hodges_lehmann: toll.hodges_lehmann,
        verdict: toll.verdict.map(VerdictDocument::from),
    };
    known.map(|(metric, toll)| (*metric, document(toll))).collect()
}

fn finite(floors: &BTreeMap<Metric, f64>) -> BTreeMap<Metric, f64> {
    floors.iter().filter(|(_, floor)| floor.is_finite()).map(|(metric, floor)| (*metric, *floor)).collect()
}

impl From<Verdict> for VerdictDocument {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Differs => Self::Differs,
            Verdict::SameWithin { margin } => Self::SameWithin { margin },
            Verdict::RealButNegligible { margin } => Self::RealButNegligible { margin },
            Verdict::Inconclusive { smallest_visible_effect: effect, blocks_needed, why } => {
                Self::Inconclusive {
                    smallest_visible_effect: Some(effect).filter(|effect| effect.is_finite()),
                    blocks_needed,
                    why,
                }
            }
        }
    }
}
