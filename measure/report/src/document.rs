//! The JSON document. A value that does not apply is absent, never 0 and never null.

use std::collections::BTreeMap;

use ciphertoll_model::presets::Published;
use ciphertoll_model::{
    AtRest, Auth, CellId, ConnectedHost, CpuPart, Ctx, Driver, Ending, Environment, Flag, HandshakeSize,
    HostRole, KeyExchangeTime, Leg, Link, Margins, Metric, Pace, Path, ProfiledRole, RelativeScale,
    SCHEMA_VERSION, SignatureTime, Skipped, Storage, Workload, is_default,
};
use ciphertoll_observe::Observation;
use ciphertoll_stats::assemble::TrialCounts;
use ciphertoll_stats::{
    CellAnalysis, Comparison, Doubt, Estimate, HostTotal, PairedRatio, PrimitiveTimes, SearchedFiles,
    UnevenCheckpoints, Verdict, VoidedTrial,
};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use crate::RunReport;
use crate::number::is_certain;
use crate::study_document::{self, StudyDocument};
use crate::view::connect_cost::{self, CostPart, ServerCosts};
use crate::view::{self, StratumView, profile, published};

/// The report of a run.
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
    /// The machine; absent if the run ended before it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// Other machines that ran clients, or the server; absent if there was none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load_hosts: Vec<HostDocument>,
    /// The smallest overlap of the load hosts' measurement windows in a trial, as a share; absent without load hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_window_overlap: Option<f64>,
    /// The baseline as `FACTOR=LEVEL`.
    pub baseline: String,
    /// Confidence level of every interval.
    pub confidence_level: f64,
    /// Half-widths of "the same", as shares.
    pub margins: Margins,
    /// The noise floor as a share, by the baseline's id and metric: the largest difference between two copies of the baseline.
    pub noise_floor: BTreeMap<CellId, BTreeMap<Metric, f64>>,
    /// Configurations that were not measured, with the reason.
    pub skipped: Vec<Skipped>,
    /// How many trials count, and how many something disturbed.
    pub trials: TrialsDocument,
    /// Every configuration that was not skipped.
    pub cells: Vec<CellDocument>,
    /// Comparisons in a second factor: for example authentications, if the baseline is a path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<AlsoDocument>,
    /// The primitives behind `connect_cost_ns` of the cells; absent if none were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primitives: Option<PrimitivesDocument>,
    /// Whether written data is readable in the files of each server; absent if encryption at rest is not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_rest_proofs: Vec<AtRestProofDocument>,
    /// The published study that the run repeats; absent if it repeats none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub study: Option<StudyDocument>,
    /// Storage of private servers: `tmpfs`; absent for the disk.
    #[serde(skip_serializing_if = "is_default")]
    pub storage: Storage,
}

/// Another machine that took part, with the work of its clients in all trials that count.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HostDocument {
    #[serde(flatten)]
    pub host: ConnectedHost,
    /// The most clients of a trial; absent if it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u16>,
    /// Operations per second, mean over all trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// CPU time of its clients per operation, mean over all trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_op: Option<f64>,
    /// Peak memory of its load process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// The largest schedule lag of a trial (p99); absent in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_lag_ns_p99: Option<u64>,
    /// The largest uncertainty of its clock's offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_uncertainty_ns: Option<u64>,
}

/// The result of a search for a written marker in all files of a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AtRestProofDocument {
    /// The server's name.
    pub server: String,
    /// The encryption of its files.
    pub at_rest: AtRest,
    /// Files that were searched completely.
    pub files: u64,
    /// Their total size.
    pub bytes: u64,
    /// Files that contain the marker unencrypted: none, if they are encrypted.
    pub files_with_marker: u64,
    /// The cipher of the kernel, as the kernel names it, if the kernel encrypts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_cipher: Option<String>,
}

/// Times of cryptographic primitives on this machine, each timed alone with the client's TLS library.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PrimitivesDocument {
    /// By the label of the key.
    pub signatures: BTreeMap<String, SignatureTime>,
    /// By the label of the group.
    pub key_exchanges: BTreeMap<String, KeyExchangeTime>,
}

/// A comparison in a second factor.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AlsoDocument {
    /// The baseline as `FACTOR=LEVEL`.
    pub baseline: String,
    /// Id of the baseline cell.
    pub compared_with: CellId,
    /// Id of the compared cell.
    pub id: CellId,
    /// Compared cell ÷ baseline cell.
    pub toll: BTreeMap<Metric, TollDocument>,
}

/// One configuration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CellDocument {
    /// The levels joined by `/`.
    pub id: CellId,
    /// The server's name.
    pub server: String,
    /// The version that the server reports; absent if it never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// The path.
    pub path: Path,
    /// The authentication.
    pub auth: Auth,
    /// How clients build the TLS context; absent if the path has none.
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
    /// The requested scale if it was not a number of rows: `0.5cache` is half of the server's buffers, `1.2mem` is 1.2 times the
    /// memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_scale: Option<RelativeScale>,
    /// `closed`, or the rate of an open loop: `500/s`, `50%` of the baseline's capacity.
    pub pace: Pace,
    /// Blocks that were planned.
    pub blocks_planned: u32,
    /// Blocks that count for this cell.
    pub blocks_used: u32,
    /// Dropped trials.
    pub voided: Vec<VoidedDocument>,
    /// Warnings about the valid trials of either copy.
    pub flags: Vec<FlagDocument>,
    /// The measured value of each metric with its interval.
    pub metrics: BTreeMap<Metric, Estimate>,
    /// Why applicable metrics are absent, by metric, with the flag that helps, if any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<Metric, String>,
    /// The ratio to its baseline in each metric; absent for a baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toll: Option<BTreeMap<Metric, TollDocument>>,
    /// The ratios of a published study, if the run repeats one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<Metric, PublishedDocument>,
    /// Breakdown of connect time, ns: `network`, `tls_context`, `signature`, `chain`, `key_exchange`, `other_handshake`,
    /// `authentication` and `close`, which add up to `latency_ns_mean`. The parts of the handshake are from `primitives`. Only
    /// for the smallest number of clients of each server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connect_cost_ns: BTreeMap<CostPart, f64>,
    /// Where its CPU time goes; absent unless the run was profiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_profile: Option<CpuProfileDocument>,
    /// Pairs of trials with different numbers of checkpoints, and whether they count; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uneven_checkpoints: Option<UnevenCheckpoints>,
    /// Negotiated parameters.
    pub legs: Vec<LegDocument>,
}

/// Where the CPU time of a configuration goes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CpuProfileDocument {
    /// Shares of the CPU time of all roles by part. They add up to 1 if they come from samples; otherwise they are computed from
    /// `primitives`, and the rest is not known.
    pub shares: BTreeMap<CpuPart, f64>,
    /// Samples by role and part; absent if the shares are computed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<ProfiledRole, BTreeMap<CpuPart, u64>>,
}

/// The trials of completed blocks, copies of baselines included.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct TrialsDocument {
    /// All of them.
    pub attempts: u32,
    /// Dropped trials: the sum of `voided` over `cells`.
    pub voided: u32,
    /// Trials that count and carry at least one flag. The sum of `flags` over `cells` is higher if a trial has several.
    pub flagged: u32,
    /// `voided` and `flagged`.
    pub disturbed: u32,
}

/// A dropped trial.
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
    /// The published build, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<&'static str>,
    /// The ratio.
    pub value: f64,
    /// Its standard deviation, from those of numerator and denominator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_deviation: Option<f64>,
    /// The ratios of the other published builds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<&'static str, f64>,
}

/// A ratio to the baseline.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TollDocument {
    /// The ratio and its interval.
    #[serde(flatten)]
    pub ratio: Estimate,
    /// Hodges–Lehmann estimate of the same ratio: if it lies outside the interval, single blocks dominate the ratio.
    pub hodges_lehmann: f64,
    /// The verdict; absent if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictDocument>,
}

/// The verdict on a ratio.
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
    /// Neither a difference nor sameness is shown.
    Inconclusive {
        /// The smallest detectable difference, as a share; absent if no difference is detectable.
        #[serde(skip_serializing_if = "Option::is_none")]
        smallest_visible_effect: Option<f64>,
        /// Blocks needed for a verdict; absent if no practicable number is enough.
        #[serde(skip_serializing_if = "Option::is_none")]
        blocks_needed: Option<u32>,
        /// Why it is inconclusive.
        why: Doubt,
    },
}

/// The negotiated parameters of one hop, and the number of connections.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LegDocument {
    /// The negotiated parameters.
    #[serde(flatten)]
    pub leg: Leg,
    /// Number of connections.
    pub connections: u64,
    /// The mean size of the TLS handshake; absent without TLS, and if the driver does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<HandshakeSize>,
}

/// The run as one JSON text; ends in a newline.
pub fn json(report: &RunReport<'_>) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&Document::from(report))?;
    text.push('\n');
    Ok(text)
}

/// The JSON Schema of [`Document`]; ends in a newline.
pub fn json_schema() -> String {
    schema_of::<Document>()
}

/// The JSON Schema of what `observe --format json` prints; ends in a newline.
pub fn observation_schema() -> String {
    schema_of::<Observation>()
}

fn schema_of<T: JsonSchema>() -> String {
    let generator = SchemaSettings::default().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    forbid_null(&mut schema);
    format!("{schema:#}\n")
}

/// Optional fields are absent, never null; schemars cannot infer that from an `Option`.
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
        let RunReport { plan, analysis, ref facts, .. } = *report;
        let was_skipped = |cell: &CellAnalysis| facts.skipped.iter().any(|skipped| skipped.id == cell.id.0);
        let cells = analysis.cells().into_iter();
        let measured = cells.filter(|cell| !was_skipped(cell) || !cell.metrics.is_empty());
        let costs = connect_cost::of(report);
        let noise_floor =
            analysis.strata.iter().map(|stratum| (stratum.baseline.id.clone(), finite(&stratum.noise_floor)));
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: report.tool_version().to_owned(),
            run: report.run.to_owned(),
            experiment: plan.name.clone(),
            seed: plan.seed,
            complete: facts.ending == Some(Ending::Complete),
            environment: facts.environment.cloned(),
            load_hosts: facts.hosts.iter().map(|host| host_document(report, host)).collect(),
            least_window_overlap: facts.host_totals.least_overlap.map(|(share, _)| share),
            baseline: plan.baseline.to_string(),
            confidence_level: analysis.confidence_level,
            margins: plan.margins,
            noise_floor: noise_floor.collect(),
            trials: trials(report),
            cells: measured.map(|cell| cell_document(report, &costs, cell)).collect(),
            also: also(report),
            primitives: facts.primitives.map(primitives),
            at_rest_proofs: facts.searched_files.values().map(at_rest_document).collect(),
            study: study_document::of_report(report),
            storage: report.plan.storage,
            skipped: facts.skipped.iter().map(|skipped| (*skipped).clone()).collect(),
        }
    }
}

fn host_document(report: &RunReport<'_>, host: &ConnectedHost) -> HostDocument {
    let total = report.facts.host_totals.hosts.get(host.name.as_str());
    let total = total.filter(|_| host.role == HostRole::Load);
    HostDocument {
        host: host.clone(),
        clients: total.map(|total| total.clients.1),
        rate_per_s: total.map(HostTotal::rate_per_s),
        cpu_us_per_op: total.and_then(HostTotal::cpu_us_per_op),
        rss_bytes: total.map(|total| total.rss_peak_bytes),
        schedule_lag_ns_p99: total.and_then(|total| total.schedule_lag_ns_p99),
        clock_uncertainty_ns: total.map(|total| total.clock_uncertainty_ns),
    }
}

fn also(report: &RunReport<'_>) -> Vec<AlsoDocument> {
    let Some(baseline) = &report.plan.also else { return Vec::new() };
    let of_stratum = |stratum: &StratumView<'_>| {
        let document = |comparison: &&Comparison| AlsoDocument {
            baseline: baseline.to_string(),
            compared_with: stratum.baseline.id.clone(),
            id: comparison.cell.id.clone(),
            toll: tolls(comparison),
        };
        stratum.treatments.iter().map(document).collect::<Vec<_>>()
    };
    let strata = view::strata(report);
    strata.iter().filter(|stratum| stratum.plan.factor.is_some()).flat_map(of_stratum).collect()
}

fn trials(report: &RunReport<'_>) -> TrialsDocument {
    let counts = report.facts.trials.counts();
    let TrialCounts { attempts, voided, flagged } = counts;
    TrialsDocument { attempts, voided, flagged, disturbed: counts.disturbed() }
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

fn primitives(PrimitiveTimes { signatures, key_exchanges }: PrimitiveTimes<'_>) -> PrimitivesDocument {
    PrimitivesDocument { signatures: signatures.clone(), key_exchanges: key_exchanges.clone() }
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
        server_version: report.facts.server_version(&server).map(str::to_owned),
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
        toll: report.analysis.comparison_of(analysed).map(tolls),
        published: published(report, analysed),
        connect_cost_ns: connect_cost(costs, analysed),
        cpu_profile: cpu_profile(report, analysed),
        uneven_checkpoints: Some(analysed.checkpoints.clone()).filter(|uneven| !uneven.blocks.is_empty()),
        legs: analysed
            .legs
            .iter()
            .map(|count| LegDocument {
                leg: count.leg.clone(),
                connections: count.connections,
                handshake: count.handshake,
            })
            .collect(),
    }
}

fn cpu_profile(report: &RunReport<'_>, cell: &CellAnalysis) -> Option<CpuProfileDocument> {
    let found = profile::of(report).into_iter().find(|found| found.cell.id == cell.id)?;
    let samples = found.profile.map(|profile| profile.roles.clone()).unwrap_or_default();
    Some(CpuProfileDocument { shares: found.shares, samples })
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

/// Leaves out numbers that are not finite, which JSON does not have.
fn certain(metrics: &BTreeMap<Metric, Estimate>) -> BTreeMap<Metric, Estimate> {
    let known = metrics.iter().filter(|(_, estimate)| is_certain(estimate));
    known.map(|(metric, estimate)| (*metric, *estimate)).collect()
}

fn tolls(comparison: &Comparison) -> BTreeMap<Metric, TollDocument> {
    let known = comparison.ratios.iter().filter(|(_, ratio)| is_certain(&ratio.ratio));
    let document = |ratio: &PairedRatio| TollDocument {
        ratio: ratio.ratio,
        hodges_lehmann: ratio.hodges_lehmann,
        verdict: ratio.verdict.map(VerdictDocument::from),
    };
    known.map(|(metric, ratio)| (*metric, document(ratio))).collect()
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
            Verdict::Inconclusive { smallest_detectable_difference: effect, blocks_needed, why } => {
                Self::Inconclusive {
                    smallest_visible_effect: Some(effect).filter(|effect| effect.is_finite()),
                    blocks_needed,
                    why,
                }
            }
        }
    }
}
