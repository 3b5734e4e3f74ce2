//! Parses a tool's output: either totals found by patterns, or a log with a line for each operation.

use std::collections::BTreeMap;

use regex::Regex;
use serde::{Deserialize, Deserializer, de};

/// How a tool's results are read.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum ResultRule {
    /// Totals, found by patterns in the output.
    Text(Box<TextRule>),
    /// Log files with a line for each operation.
    Log(LogRule),
}

/// Totals by patterns; each pattern has one group, which is a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextRule {
    /// If absent, the number requested by `{operations}`.
    operations: Option<Pattern>,
    statements: Option<Pattern>,
    retries: Option<Pattern>,
    /// How long the tool ran.
    seconds: Measure,
    /// Sum of the times of all operations; more precise than a rounded mean.
    sum: Option<Measure>,
    mean: Option<Measure>,
    p50: Option<Measure>,
    p95: Option<Measure>,
    p99: Option<Measure>,
    max: Option<Measure>,
}

/// A time: a pattern and the unit of its number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measure {
    pattern: Pattern,
    unit: Unit,
}

/// Columns of a log, counted from 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogRule {
    /// The common beginning of the file names.
    pub(super) files: String,
    client: usize,
    latency: LatencyRule,
    /// When the operation ended: whole seconds of any clock.
    ended_s: usize,
    /// And microseconds.
    ended_us: usize,
}

/// How an operation's latency is found in a log.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", untagged)]
enum LatencyRule {
    Column { column: usize, unit: Unit },
    Other(LatencySource),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LatencySource {
    /// From the end of the client's previous operation, which is when this one began in a closed loop.
    SinceLastEnd,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Unit {
    S,
    Ms,
    Us,
    Ns,
}

#[derive(Clone, Debug)]
struct Pattern(Regex);

/// The results of a tool's run. Zero or absent if the tool does not report them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ToolResult {
    pub(super) operations: u64,
    pub(super) by_half: [u64; 2],
    pub(super) statements: Option<u64>,
    pub(super) retries: u64,
    pub(super) window_ns: u64,
    pub(super) sum_ns: Option<f64>,
    pub(super) p50_ns: u64,
    pub(super) p95_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
    /// The time of every operation, if the tool reports it.
    pub(super) samples_ns: Vec<u64>,
}

impl Unit {
    fn ns(self) -> f64 {
        match self {
            Self::S => 1e9,
            Self::Ms => 1e6,
            Self::Us => 1e3,
            Self::Ns => 1.0,
        }
    }
}

impl TextRule {
    /// Reads totals; `asked` is the number of operations requested.
    pub(super) fn read(&self, text: &str, asked: u64) -> Result<ToolResult, String> {
        let count = |pattern: &Option<Pattern>| {
            pattern.as_ref().map(|pattern| pattern.find(text)).transpose().map(|it| it.map(|it| it as u64))
        };
        let time = |measure: &Option<Measure>| {
            measure.as_ref().map(|measure| measure.find_ns(text)).transpose().map(Option::unwrap_or_default)
        };
        let operations = count(&self.operations)?.unwrap_or(asked);
        let sum_ns = match (&self.sum, &self.mean) {
            (Some(sum), _) => Some(sum.find_ns(text)?),
            (None, Some(mean)) => Some(mean.find_ns(text)? * operations as f64),
            (None, None) => None,
        };
        Ok(ToolResult {
            operations,
            sum_ns,
            statements: count(&self.statements)?,
            retries: count(&self.retries)?.unwrap_or_default(),
            window_ns: self.seconds.find_ns(text)? as u64,
            p50_ns: time(&self.p50)? as u64,
            p95_ns: time(&self.p95)? as u64,
            p99_ns: time(&self.p99)? as u64,
            max_ns: time(&self.max)? as u64,
            ..ToolResult::default()
        })
    }
}

impl Measure {
    fn find_ns(&self, text: &str) -> Result<f64, String> {
        Ok(self.pattern.find(text)? * self.unit.ns())
    }
}

impl Pattern {
    fn find(&self, text: &str) -> Result<f64, String> {
        let number = self.0.captures(text).and_then(|captures| captures.get(1)?.as_str().parse::<f64>().ok());
        number
            .filter(|number| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| format!("nothing matches '{}'", self.0.as_str()))
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let regex = Regex::new(&text).map_err(|error| de::Error::custom(format!("'{text}': {error}")))?;
        // The whole match counts as a group.
        if regex.captures_len() != 2 {
            return Err(de::Error::custom(format!("'{text}' needs one group, around the number")));
        }
        Ok(Self(regex))
    }
}

struct LogLine {
    client: u64,
    latency_ns: Option<u64>,
    ended_ns: u64,
}

impl LogRule {
    /// Reads a log, given as the texts of its files. The window is from the beginning of the first operation with a
    /// known time to the end of the last.
    pub(super) fn read<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Result<ToolResult, String> {
        let lines = texts.flat_map(str::lines).filter(|line| !line.trim().is_empty());
        let entries: Vec<LogLine> = lines.map(|line| self.entry(line)).collect::<Result<_, _>>()?;
        let mut last_ends = BTreeMap::new();
        let mut operations = Vec::with_capacity(entries.len());
        for entry in &entries {
            let last_end = last_ends.insert(entry.client, entry.ended_ns);
            let since_last = last_end.map(|last| entry.ended_ns.saturating_sub(last));
            if let Some(took_ns) = entry.latency_ns.or(since_last) {
                operations.push((entry.ended_ns, took_ns));
            }
        }
        let begins = operations.iter().map(|(ended, took)| ended.saturating_sub(*took)).min();
        let ends = operations.iter().map(|(ended, _)| *ended).max();
        let (Some(begins), Some(ends)) = (begins, ends) else {
            return Err("the log has no operation".to_owned());
        };
        let middle = begins.midpoint(ends);
        let second_half = operations.iter().filter(|(ended, _)| *ended >= middle).count() as u64;
        let count = operations.len() as u64;
        Ok(ToolResult {
            operations: count,
            by_half: [count - second_half, second_half],
            window_ns: ends - begins,
            samples_ns: operations.into_iter().map(|(_, took)| took).collect(),
            ..ToolResult::default()
        })
    }

    fn entry(&self, line: &str) -> Result<LogLine, String> {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let column = |number: usize| -> Result<u64, String> {
            let text = number.checked_sub(1).and_then(|index| columns.get(index));
            text.and_then(|text| text.parse().ok())
                .ok_or_else(|| format!("column {number} of \"{line}\" is not a number"))
        };
        let latency_ns = match &self.latency {
            LatencyRule::Column { column: number, unit } => {
                Some((column(*number)? as f64 * unit.ns()) as u64)
            }
            LatencyRule::Other(LatencySource::SinceLastEnd) => None,
        };
        let ended_ns = column(self.ended_s)?
            .checked_mul(1_000_000_000)
            .zip(column(self.ended_us)?.checked_mul(1_000))
            .and_then(|(seconds, micros)| seconds.checked_add(micros));
        let ended_ns = ended_ns.ok_or_else(|| format!("\"{line}\" has a time out of range"))?;
        Ok(LogLine { client: column(self.client)?, latency_ns, ended_ns })
    }
}

#[cfg(test)]
mod tests;
