//! The workloads of document databases: `MongoDB`'s commands as JSON, YCSB's records and mixes.

use ciphertoll_model::ycsb::{COLLECTION, FIELD_BYTES, FIELDS, LONGEST_SCAN};
use ciphertoll_model::{
    Branch, Draw, FindAny, Scale, Script, ScriptStatement, ScriptStep, StatementProtocol, TrialOperation,
    Workload, YcsbMix,
};

use crate::script_parts::{add_step, add_variable};

/// Minimum size of a record: the values of its fields, without names, key and BSON overhead.
const RECORD_BYTES: u64 = FIELDS as u64 * FIELD_BYTES as u64;
/// `WriteConflict`, after which a client must retry.
const WRITE_CONFLICT: &str = "112";

/// The operation of `workload` if `scale` records are loaded; `query` is the command of [`Workload::Query`]. SQL
/// workloads have no step.
pub(crate) fn work(workload: Workload, scale: Scale, query: Option<&str>) -> TrialOperation {
    let mut builder = DocumentScriptBuilder { script: Script::default(), records: i64::from(scale.rows()) };
    match workload {
        Workload::Connect => return TrialOperation::Connect,
        Workload::ConnectQuery { queries } => {
            let mut script = builder.find_one();
            let again = script.steps.iter().cycle().take(usize::from(queries.count()));
            script.steps = again.cloned().collect();
            return TrialOperation::ConnectQuery(script);
        }
        Workload::FirstQuery => return TrialOperation::FirstQuery(builder.find_one()),
        Workload::FindOne => return TrialOperation::Transactions(builder.find_one()),
        Workload::FindAny(FindAny::Connect) => return TrialOperation::ConnectQuery(builder.find_any()),
        Workload::FindAny(FindAny::First) => return TrialOperation::FirstQuery(builder.find_any()),
        Workload::FindAny(FindAny::Open) => return TrialOperation::Transactions(builder.find_any()),
        Workload::Ycsb(mix) => builder.ycsb(mix),
        Workload::Query => {
            let step = builder.step(query.unwrap_or(r#"{"ping":1}"#), &[]);
            builder.script.steps.push(step);
        }
        Workload::PointSelect
        | Workload::SelectOnly
        | Workload::TpcbLike
        | Workload::OltpReadOnly
        | Workload::OltpReadWrite
        | Workload::BulkRead { .. } => {}
    }
    TrialOperation::Transactions(builder.script)
}

struct DocumentScriptBuilder {
    script: Script,
    records: i64,
}

impl DocumentScriptBuilder {
    /// Finds a whole record, all equally likely.
    fn find_one(mut self) -> Script {
        let number = self.variable(Draw::Uniform { first: 0, last: self.records - 1 });
        let key = self.variable(Draw::YcsbKey { of: number });
        let step = self.read(key);
        self.script.steps.push(step);
        self.script.min_row_bytes = RECORD_BYTES;
        self.script
    }

    /// Finds a whole record, whichever the server comes to first.
    fn find_any(mut self) -> Script {
        let find = r#"{"find":"COLLECTION","filter":{},"limit":1,"singleBatch":true}"#;
        let step = self.own_step(find, &[]);
        self.script.steps.push(step);
        self.script.min_row_bytes = RECORD_BYTES;
        self.script
    }

    /// YCSB's core workloads: weights in thousandths, as in YCSB's files `workloads/workload[a-f]`.
    fn ycsb(&mut self, mix: YcsbMix) {
        let draw = match mix {
            YcsbMix::A | YcsbMix::B | YcsbMix::C | YcsbMix::E | YcsbMix::F => {
                Draw::ScrambledZipfian { first: 0, last: self.records - 1 }
            }
            YcsbMix::D => Draw::Latest { loaded: self.records },
        };
        let number = self.variable(draw);
        let key = self.variable(Draw::YcsbKey { of: number });
        match mix {
            YcsbMix::A => {
                self.reads(500, key);
                self.updates(500, key, None);
            }
            YcsbMix::B => {
                self.reads(950, key);
                self.updates(50, key, None);
            }
            YcsbMix::C => {
                let step = self.read(key);
                self.script.steps.push(step);
                self.script.min_row_bytes = RECORD_BYTES;
            }
            YcsbMix::D => {
                self.reads(950, key);
                self.inserts(50);
            }
            YcsbMix::E => {
                self.scans(950, key);
                self.inserts(50);
            }
            YcsbMix::F => {
                self.reads(500, key);
                let read = self.read(key);
                self.updates(500, key, Some(&read));
            }
        }
        if mix != YcsbMix::C {
            self.script.retry_on.push(WRITE_CONFLICT.to_owned());
        }
    }

    fn reads(&mut self, weight: u32, key: usize) {
        let step = self.read(key);
        self.branch(weight, vec![step], RECORD_BYTES);
    }

    fn read(&mut self, key: usize) -> ScriptStep {
        let find = r#"{"find":"COLLECTION","filter":{"_id":{"$param":0}},"limit":1,"singleBatch":true}"#;
        self.own_step(find, &[key])
    }

    /// Scans in key order from a random record, with uniformly distributed length.
    fn scans(&mut self, weight: u32, key: usize) {
        let length = self.variable(Draw::Uniform { first: 1, last: i64::from(LONGEST_SCAN) });
        let find = r#"{"find":"COLLECTION","filter":{"_id":{"$gte":{"$param":0}}},"sort":{"_id":1},"limit":{"$param":1},"singleBatch":true}"#;
        let step = self.own_step(find, &[key, length]);
        self.branch(weight, vec![step], RECORD_BYTES);
    }

    /// Updates one field of a record, chosen uniformly: a branch for each field. `first` precedes the update.
    fn updates(&mut self, weight: u32, key: usize, first: Option<&ScriptStep>) {
        let value = self.value();
        for field in 0..FIELDS {
            let update = r#"{"update":"COLLECTION","updates":[{"q":{"_id":{"$param":0}},"u":{"$set":{"FIELD":{"$param":1}}}}]}"#;
            let step = self.own_step(&update.replace("FIELD", &format!("field{field}")), &[key, value]);
            let steps = first.cloned().into_iter().chain([step]).collect();
            let least = if first.is_some() { RECORD_BYTES } else { 0 };
            self.branch(weight / u32::from(FIELDS), steps, least);
        }
    }

    fn inserts(&mut self, weight: u32) {
        let number = self.variable(Draw::Insert);
        let key = self.variable(Draw::YcsbKey { of: number });
        let mut parameters = vec![key];
        let mut fields = vec![r#""_id":{"$param":0}"#.to_owned()];
        for field in 0..FIELDS {
            parameters.push(self.value());
            fields.push(format!(r#""field{field}":{{"$param":{}}}"#, field + 1));
        }
        let insert =
            r#"{"insert":"COLLECTION","documents":[{DOCUMENT}]}"#.replace("DOCUMENT", &fields.join(","));
        let step = self.own_step(&insert, &parameters);
        self.branch(weight, vec![step], 0);
    }

    fn value(&mut self) -> usize {
        self.variable(Draw::Printable { bytes: FIELD_BYTES as u16 })
    }

    fn variable(&mut self, draw: Draw) -> usize {
        add_variable(&mut self.script, draw)
    }

    fn branch(&mut self, weight: u32, steps: Vec<ScriptStep>, min_row_bytes: u64) {
        self.script.branches.push(Branch { weight, steps, min_row_bytes });
    }

    /// A step on YCSB's collection.
    fn own_step(&mut self, command: &str, parameters: &[usize]) -> ScriptStep {
        self.step(&command.replace("COLLECTION", COLLECTION), parameters)
    }

    fn step(&mut self, command: &str, parameters: &[usize]) -> ScriptStep {
        let statement = ScriptStatement { sql: command.to_owned(), protocol: StatementProtocol::Text };
        add_step(&mut self.script, statement, parameters)
    }
}
