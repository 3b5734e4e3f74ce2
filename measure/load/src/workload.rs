//! The script of each workload, in the engine's SQL.

use ciphertoll_model::{
    Draw, Engine, QueryLanguage, Scale, Script, ScriptStatement, StatementProtocol, TrialOperation, Workload,
};

use crate::documents;
use crate::script_parts::{add_step, add_variable};

const TELLERS_PER_BRANCH: i64 = 10;
/// The largest change of a balance in pgbench's transaction.
const MAX_DELTA: i64 = 5_000;
/// sysbench's point selects in a transaction, and the rows of its ranges.
const POINT_SELECTS: usize = 10;
const RANGE_ROWS: i64 = 100;
/// Groups of digits in sysbench's `c` and `pad`: 119 and 59 characters.
const C_GROUPS: u8 = 10;
const PAD_GROUPS: u8 = 5;

/// The operation of `workload` if its tables have `scale`; `query` is the statement of [`Workload::Query`]. A
/// workload that is impossible on the engine has no step.
pub fn work(engine: Engine, workload: Workload, scale: Scale, query: Option<&str>) -> TrialOperation {
    match engine.query_language() {
        QueryLanguage::Sql => sql_work(engine, workload, scale, query),
        QueryLanguage::Documents => documents::work(workload, scale, query),
    }
}

fn sql_work(engine: Engine, workload: Workload, scale: Scale, query: Option<&str>) -> TrialOperation {
    let mut builder = SqlScriptBuilder { engine, script: Script::default() };
    let rows = i64::from(scale.rows());
    match workload {
        Workload::Connect => return TrialOperation::Connect,
        Workload::ConnectQuery { queries } => {
            (0..queries.count()).for_each(|_| builder.text("SELECT 1", &[]));
            return TrialOperation::ConnectQuery(builder.script);
        }
        Workload::FirstQuery => {
            let id = builder.uniform(1, rows);
            builder.text("SELECT c FROM sbtest1 WHERE id = ?", &[id]);
            return TrialOperation::FirstQuery(builder.script);
        }
        Workload::PointSelect => {
            let id = builder.uniform(1, rows);
            builder.prepared("SELECT c FROM sbtest1 WHERE id = ?", &[id]);
        }
        Workload::SelectOnly => {
            let aid = builder.uniform(1, rows);
            builder.prepared("SELECT abalance FROM pgbench_accounts WHERE aid = ?", &[aid]);
        }
        Workload::TpcbLike => builder.tpcb_like(scale),
        Workload::OltpReadOnly => {
            builder.text("BEGIN", &[]);
            builder.oltp_reads(rows);
            builder.text("COMMIT", &[]);
        }
        Workload::OltpReadWrite => {
            builder.text("BEGIN", &[]);
            builder.oltp_reads(rows);
            builder.oltp_writes(rows);
            builder.text("COMMIT", &[]);
        }
        Workload::BulkRead { bytes } => {
            builder.prepared(&format!("SELECT REPEAT('x', {})", bytes.number()), &[]);
            builder.script.min_row_bytes = u64::from(bytes.number());
        }
        Workload::Query => {
            // A question mark in it is not a placeholder.
            let sql = query.unwrap_or("SELECT 1").to_owned();
            let statement = ScriptStatement { sql, protocol: StatementProtocol::Text };
            let step = add_step(&mut builder.script, statement, &[]);
            builder.script.steps.push(step);
        }
        Workload::FindOne | Workload::FindAny(_) | Workload::Ycsb(_) => {}
    }
    TrialOperation::Transactions(builder.script)
}

struct SqlScriptBuilder {
    engine: Engine,
    script: Script,
}

impl SqlScriptBuilder {
    /// pgbench's default transaction.
    fn tpcb_like(&mut self, scale: Scale) {
        let branches = i64::from(scale.branches());
        let aid = self.uniform(1, i64::from(scale.rows()));
        let bid = self.uniform(1, branches);
        let tid = self.uniform(1, TELLERS_PER_BRANCH * branches);
        let delta = self.uniform(-MAX_DELTA, MAX_DELTA);
        self.text("BEGIN", &[]);
        self.prepared("UPDATE pgbench_accounts SET abalance = abalance + ? WHERE aid = ?", &[delta, aid]);
        self.prepared("SELECT abalance FROM pgbench_accounts WHERE aid = ?", &[aid]);
        self.prepared("UPDATE pgbench_tellers SET tbalance = tbalance + ? WHERE tid = ?", &[delta, tid]);
        self.prepared("UPDATE pgbench_branches SET bbalance = bbalance + ? WHERE bid = ?", &[delta, bid]);
        self.prepared(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP)",
            &[tid, bid, aid, delta],
        );
        // `END` is specific to PostgreSQL.
        self.text(
            match self.engine {
                Engine::Postgres => "END",
                _ => "COMMIT",
            },
            &[],
        );
        self.retry_conflicts();
    }

    /// The statements that both sysbench transactions begin with.
    fn oltp_reads(&mut self, rows: i64) {
        for _ in 0..POINT_SELECTS {
            let id = self.special(rows);
            self.prepared("SELECT c FROM sbtest1 WHERE id = ?", &[id]);
        }
        for sql in [
            "SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ?",
            "SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN ? AND ?",
            "SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY c",
            "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY c",
        ] {
            let first = self.special(rows);
            let last = self.variable(Draw::Offset { of: first, by: RANGE_ROWS - 1 });
            self.prepared(sql, &[first, last]);
        }
    }

    /// The writes of sysbench's read-write transaction: the row that it deletes is inserted again.
    fn oltp_writes(&mut self, rows: i64) {
        let id = self.special(rows);
        self.prepared("UPDATE sbtest1 SET k = k + 1 WHERE id = ?", &[id]);
        let c = self.variable(Draw::DigitGroups { groups: C_GROUPS });
        let id = self.special(rows);
        self.prepared("UPDATE sbtest1 SET c = ? WHERE id = ?", &[c, id]);
        let id = self.special(rows);
        let k = self.special(rows);
        let c = self.variable(Draw::DigitGroups { groups: C_GROUPS });
        let pad = self.variable(Draw::DigitGroups { groups: PAD_GROUPS });
        self.prepared("DELETE FROM sbtest1 WHERE id = ?", &[id]);
        self.prepared("INSERT INTO sbtest1 (id, k, c, pad) VALUES (?, ?, ?, ?)", &[id, k, c, pad]);
        self.retry_conflicts();
        if self.engine == Engine::Postgres {
            // Two transactions delete and insert the same row: the second one finds the first one's row.
            self.script.retry_on.push("23505".to_owned());
        }
    }

    /// The errors that sysbench retries, too: deadlock, changed row and lock timeout; deadlock and serialisation
    /// failure.
    fn retry_conflicts(&mut self) {
        let codes: &[&str] = match self.engine {
            Engine::MariaDb => &["1213", "1020", "1205"],
            Engine::MySql => &["1213", "1205"],
            Engine::Postgres => &["40P01", "40001"],
            Engine::MongoDb | Engine::FerretDb => &[],
        };
        self.script.retry_on.extend(codes.iter().map(|&code| code.to_owned()));
    }

    fn uniform(&mut self, first: i64, last: i64) -> usize {
        self.variable(Draw::Uniform { first, last })
    }

    fn special(&mut self, rows: i64) -> usize {
        self.variable(Draw::Special { first: 1, last: rows })
    }

    fn variable(&mut self, draw: Draw) -> usize {
        add_variable(&mut self.script, draw)
    }

    fn text(&mut self, sql: &str, parameters: &[usize]) {
        self.step(sql, StatementProtocol::Text, parameters);
    }

    fn prepared(&mut self, sql: &str, parameters: &[usize]) {
        self.step(sql, StatementProtocol::Prepared, parameters);
    }

    /// Adds a step, and its statement unless an earlier step has it.
    fn step(&mut self, sql: &str, protocol: StatementProtocol, parameters: &[usize]) {
        let sql = match self.engine {
            Engine::Postgres => with_numbered_parameters(sql),
            _ => sql.to_owned(),
        };
        let step = add_step(&mut self.script, ScriptStatement { sql, protocol }, parameters);
        self.script.steps.push(step);
    }
}

/// Replaces each `?` by `$1`, `$2` and so on. Only for the statements above, which quote none.
fn with_numbered_parameters(sql: &str) -> String {
    let mut numbered = String::new();
    for (number, part) in sql.split('?').enumerate() {
        if number > 0 {
            numbered.push('$');
            numbered.push_str(&number.to_string());
        }
        numbered.push_str(part);
    }
    numbered
}

#[cfg(test)]
mod tests;
