use std::fmt::Write as _;

use ciphertoll_model::ScriptStep;

use super::*;

/// A script as lines, for snapshots with readable differences.
fn told(work: &TrialOperation) -> String {
    let (kind, script) = match work {
        TrialOperation::Connect => return "connect\n".to_owned(),
        TrialOperation::ConnectQuery(script) => ("connect and query", script),
        TrialOperation::FirstQuery(script) => ("first query", script),
        TrialOperation::Transactions(script) => ("transactions", script),
    };
    let mut text = format!("{kind}\n");
    let tell = |text: &mut String, steps: &[ScriptStep], indent: &str| {
        for step in steps {
            let statement = &script.statements[step.statement];
            let protocol = match statement.protocol {
                StatementProtocol::Text => "text",
                StatementProtocol::Prepared => "prepared",
            };
            writeln!(text, "{indent}{protocol}: {} {:?}", statement.sql, step.parameters).unwrap();
        }
    };
    tell(&mut text, &script.steps, "  ");
    let total: u32 = script.branches.iter().map(|branch| branch.weight).sum();
    for branch in &script.branches {
        let share = f64::from(branch.weight) * 100.0 / f64::from(total);
        writeln!(text, "  {share} %, at least {} bytes", branch.min_row_bytes).unwrap();
        tell(&mut text, &branch.steps, "    ");
    }
    for (number, draw) in script.variables.iter().enumerate() {
        writeln!(text, "  {number}: {draw:?}").unwrap();
    }
    writeln!(text, "  retry on {:?}, at least {} bytes", script.retry_on, script.min_row_bytes).unwrap();
    text
}

fn all_told(engine: Engine) -> String {
    let scale: Scale = "200000".parse().unwrap();
    let query = match engine.query_language() {
        QueryLanguage::Sql => "SELECT 'a?'",
        QueryLanguage::Documents => r#"{"count": "usertable"}"#,
    };
    let possible = Workload::ALL.into_iter().filter(|workload| workload.impossible(engine).is_none());
    let tell = |workload| format!("{workload}: {}", told(&work(engine, workload, scale, Some(query))));
    possible.map(tell).collect::<Vec<_>>().concat()
}

#[test]
fn scripts_of_mariadb() {
    insta::assert_snapshot!(all_told(Engine::MariaDb));
}

/// Except for a conflict that only MariaDB reports.
#[test]
fn scripts_of_mysql_equal_mariadbs() {
    let mariadbs = all_told(Engine::MariaDb).replace("\"1213\", \"1020\"", "\"1213\"");
    assert_eq!(all_told(Engine::MySql), mariadbs);
}

#[test]
fn scripts_of_postgres() {
    insta::assert_snapshot!(all_told(Engine::Postgres));
}

#[test]
fn scripts_of_documents() {
    insta::assert_snapshot!(all_told(Engine::FerretDb));
    assert_eq!(all_told(Engine::MongoDb), all_told(Engine::FerretDb));
}

#[test]
fn every_script_can_be_run_and_sent() {
    for engine in Engine::ALL {
        for workload in Workload::ALL.into_iter().filter(|workload| workload.impossible(engine).is_none()) {
            let work = work(engine, workload, Scale::DEFAULT, None);
            let (TrialOperation::ConnectQuery(script)
            | TrialOperation::FirstQuery(script)
            | TrialOperation::Transactions(script)) = &work
            else {
                continue;
            };
            let inserts =
                std::sync::Arc::new(crate::ycsb::Inserts::from(ciphertoll_model::ycsb::first_insert(1, 0)));
            crate::script::CompiledScript::of(engine, script, inserts).unwrap();
            let sent = serde_json::to_string(&work).unwrap();
            assert_eq!(serde_json::from_str::<TrialOperation>(&sent).unwrap(), work);
        }
    }
}
