use ciphertoll_model::{Branch, Draw, ScriptStatement};
use proptest::prelude::*;
use rand::SeedableRng;

use super::*;

fn script(sql: &str, protocol: StatementProtocol, parameters: &[usize]) -> Script {
    Script {
        statements: vec![ScriptStatement { sql: sql.to_owned(), protocol }],
        variables: vec![
            Draw::Uniform { first: 7, last: 7 },
            Draw::Uniform { first: -5, last: -5 },
            Draw::DigitGroups { groups: 1 },
        ],
        steps: vec![ScriptStep { statement: 0, parameters: parameters.to_vec() }],
        ..Script::default()
    }
}

fn inserts() -> Arc<Inserts> {
    Arc::new(Inserts::from(ciphertoll_model::ycsb::first_insert(1, 0)))
}

fn compiled(engine: Engine, script: &Script) -> Result<CompiledScript, Error> {
    CompiledScript::of(engine, script, inserts())
}

/// The text that is sent for the script's only step.
fn sent(engine: Engine, sql: &str, parameters: &[usize]) -> String {
    let program = compiled(engine, &script(sql, StatementProtocol::Text, parameters)).unwrap();
    let mut values = program.values();
    let place = program.draw(&mut Pcg64Mcg::seed_from_u64(1), &mut values);
    let CompiledStep::Text(pieces) = program.step(place) else { panic!("it is text") };
    let mut text = "previous content".to_owned();
    write_text(pieces, &values, &mut text);
    text
}

#[test]
fn placeholders_are_replaced_by_numbers() {
    let (mariadb, postgres) = (Engine::MariaDb, Engine::Postgres);
    assert_eq!(sent(mariadb, "SELECT 1", &[]), "SELECT 1");
    assert_eq!(sent(mariadb, "a = ? AND b = ?", &[0, 1]), "a = 7 AND b = -5");
    assert_eq!(sent(mariadb, "a = '?' AND b = ? + $1", &[1]), "a = '?' AND b = -5 + $1");
    assert_eq!(sent(postgres, "a = $1 AND b = $2", &[0, 1]), "a = 7 AND b = -5");
    assert_eq!(sent(postgres, "$2-$1-$2", &[0, 1]), "-5-7--5");
    assert_eq!(sent(postgres, "'$1', \"$9\", $, $0, ? $1", &[0]), "'$1', \"$9\", $, $0, ? 7");
}

#[test]
fn a_statement_is_prepared_once() {
    let prepared = script("SELECT ?", StatementProtocol::Prepared, &[0]);
    let again = ScriptStep { statement: 0, parameters: vec![1] };
    let script = Script { steps: vec![prepared.steps[0].clone(), again], ..prepared };
    let program = compiled(Engine::MariaDb, &script).unwrap();
    assert_eq!(program.to_prepare, ["SELECT ?"]);
    assert_eq!(program.branches[0].steps.len(), 2);
    let text = CompiledScript::as_text(Engine::MariaDb, &script, inserts()).unwrap();
    assert_eq!((text.to_prepare.len(), text.branches[0].steps.len()), (0, 2));
}

#[test]
fn invalid_scripts_are_refused() {
    let text = |sql, parameters: &[usize]| script(sql, StatementProtocol::Text, parameters);
    let step = ScriptStep { statement: 0, parameters: vec![0] };
    let mix = |weight, steps| Script {
        branches: vec![Branch { weight, steps, min_row_bytes: 0 }],
        steps: vec![],
        ..text("SELECT ?", &[])
    };
    let both = Script { steps: vec![step.clone()], ..mix(1, vec![step.clone()]) };
    for (script, what) in [
        (text("SELECT ?", &[]), "step 0 has 0 parameters where its statement takes 1"),
        (text("SELECT ?", &[9]), "step 0 refers to no variable"),
        (text("SELECT ?", &[2]), "step 0 writes a variable into its text that is not a number"),
        (Script { statements: vec![], ..text("", &[]) }, "step 0 refers to no statement"),
        (Script { steps: vec![], ..text("", &[]) }, "it has no step"),
        (both, "it has both steps and branches"),
        (mix(1, vec![]), "branch 0, it has no step"),
        (mix(0, vec![step]), "its branches have no weight"),
    ] {
        let refused = compiled(Engine::MariaDb, &script).unwrap_err().to_string();
        assert_eq!(refused, format!("the trial's script cannot be run: {what}"));
    }
}

#[test]
fn a_document_command_is_json() {
    let refused = |sql, parameters| {
        let script = script(sql, StatementProtocol::Text, parameters);
        compiled(Engine::FerretDb, &script).unwrap_err().to_string()
    };
    let find = r#"{"find":"a","filter":{"_id":{"$param":0}}}"#;
    assert!(refused(find, &[]).ends_with("step 0 has 0 parameters where its statement takes 1"));
    assert!(refused("SELECT 1", &[]).contains("step 0 is not a command: "));
    // A text parameter is allowed where JSON has text.
    let program = compiled(Engine::FerretDb, &script(find, StatementProtocol::Text, &[2])).unwrap();
    assert!(
        matches!(&program.branches[0].steps[0], CompiledStep::Document { variables, .. } if *variables == [2])
    );
    assert_eq!((program.to_prepare.len(), program.rollback()), (0, None));
}

/// Branches are chosen by weight, and only their variables are drawn.
#[test]
fn branches_are_weighted() {
    let branch = |weight, parameters: &[usize], min_row_bytes| Branch {
        weight,
        steps: vec![ScriptStep { statement: parameters.len(), parameters: parameters.to_vec() }; 2],
        min_row_bytes,
    };
    let statement = |sql: &str| ScriptStatement { sql: sql.to_owned(), protocol: StatementProtocol::Text };
    let script = Script {
        statements: vec![statement("SELECT 1"), statement("SELECT ?")],
        variables: vec![Draw::Insert, Draw::Uniform { first: 1, last: 9 }],
        branches: vec![branch(70, &[1], 5), branch(0, &[1], 0), branch(25, &[], 0), branch(5, &[0], 0)],
        ..Script::default()
    };
    let program = compiled(Engine::MariaDb, &script).unwrap();
    let (mut random, mut values) = (Pcg64Mcg::seed_from_u64(2), program.values());
    let mut counts = [0_i64; 4];
    let first = ciphertoll_model::ycsb::first_insert(1, 0).cast_signed();
    for _ in 0..100_000 {
        let place = program.draw(&mut random, &mut values);
        if place.branch == 3 {
            assert_eq!(values.number(0), first + counts[3]);
        }
        counts[place.branch] += 1;
    }
    for (count, share) in counts.iter().zip([70_000, 0, 25_000, 5_000]) {
        assert!((count - share).abs() < 500, "{counts:?}");
    }
    let place = StepIndex { branch: 0, step: 0 };
    let next = program.next(place).unwrap();
    assert_eq!((next, program.next(next)), (StepIndex { branch: 0, step: 1 }, None));
    assert!(matches!(program.check(next, 4), Err(Error::ShortAnswer { bytes: 4, least: 5 })));
    assert!(program.check(next, 5).is_ok());
}

proptest! {
    #[test]
    fn the_pieces_of_any_text_join(sql in "[a-z?$'\"0-9é ]{0,40}") {
        for engine in Engine::ALL {
            let found = placeholders(engine, &sql);
            let originals: Vec<_> = found.iter().map(|(range, _)| sql[range.clone()].to_owned()).collect();
            let variables: Vec<_> = (0..=usize::from(u16::MAX)).collect();
            let mut originals = originals.into_iter();
            let joined: String = pieces(&sql, found, &variables).into_iter().map(|piece| match piece {
                TextPiece::Literal(text) => text,
                TextPiece::Number(_) => originals.next().unwrap(),
            }).collect();
            prop_assert_eq!(&joined, &sql);
        }
    }
}
