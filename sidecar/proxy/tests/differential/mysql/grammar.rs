//! Makes a session from a seed.

use ciphertoll_model::Engine;

use super::command::{Command, Statement, Types, Value};
use super::texts::{ADMIN, CHANGES, Feature, PARAMETRISED, STORIES, TEXTS};
use super::{Database, Login, MySqlSession, Terms};
use crate::options::Options;
use crate::parts::{Part, Parts};
use crate::random::Random;
use crate::session::{Session, Step};

const MAX_STEPS: usize = 12;
const SLOTS: usize = 3;
const READ_ONLY_CURSOR: u8 = 1;

/// Parts of the grammar in use.
pub(crate) struct Features {
    texts: Vec<(Feature, &'static [&'static str])>,
    parts: Parts,
    engine: Engine,
}

impl Features {
    pub(crate) fn of(engine: Engine, options: &Options) -> Self {
        let is_in = |feature: Feature| options.has_feature(&format!("{feature:?}").to_lowercase());
        Self {
            texts: TEXTS.iter().copied().filter(|(feature, _)| is_in(*feature)).collect(),
            parts: Parts::of(options),
            engine,
        }
    }
}

struct Generator<'a> {
    random: Random,
    features: &'a Features,
    /// The texts that this session prefers: a few, so that related statements meet.
    preferred: Vec<&'static str>,
    /// The number of parameters of each client's statements.
    parameters: Vec<[usize; SLOTS]>,
    /// Whether they may call procedures.
    calls: Vec<[bool; SLOTS]>,
}

pub(crate) fn session(seed: u64, features: &Features) -> MySqlSession {
    let mut random = Random::new(seed);
    let clients = *random.pick(&[1, 1, 1, 2, 2, 3]);
    let preferred = preferred(&mut random, features);
    let (parameters, calls) = (vec![[0; SLOTS]; clients], vec![[false; SLOTS]; clients]);
    let mut generator = Generator { random, features, preferred, parameters, calls };
    let logins = (0..clients).map(|_| generator.login()).collect();
    let mut steps = Vec::new();
    let wanted = 2 + generator.random.below(6);
    for _ in 0..MAX_STEPS {
        if steps.len() < wanted {
            let client = generator.random.below(clients);
            generator.scene(client, &mut steps);
        }
    }
    steps.truncate(MAX_STEPS);
    if generator.random.percent(60) {
        (0..clients).for_each(|client| steps.extend(generator.look_back(client)));
    }
    let mut session = Session { logins, steps };
    avoid_documented(&mut session);
    avoid_options_of_other_users(&mut session);
    avoid_long_data(&mut session);
    if features.engine == Engine::MySql {
        avoid_rows_of_calls(&mut session);
    }
    session
}

/// Texts about the command before.
const LAST_RESULTS: [&str; 4] = ["SHOW WARNINGS", "SHOW COUNT", "SHOW ERRORS", "_count"];

/// Warnings of older commands than the last are lost when a client moves, see `Documented::LastResults`: each look at them
/// gets some of its own.
fn avoid_documented(session: &mut MySqlSession) {
    let looks = |sql: &String| LAST_RESULTS.iter().any(|text| sql.contains(text));
    for step in &mut session.steps {
        let Step::Send { messages, .. } = step else { continue };
        let mut longer = Vec::new();
        for message in messages.drain(..) {
            match message {
                Command::Query(sql) if looks(&sql) => {
                    longer.push(Command::Query("SELECT 1/0, CAST('x' AS SIGNED)".to_owned()));
                    longer.push(Command::Query(sql));
                }
                Command::Prepare { slot, sql } if looks(&sql) => {
                    longer.push(Command::Prepare { slot, sql: "SELECT 'warnings'".to_owned() });
                }
                other => longer.push(other),
            }
        }
        *messages = longer;
    }
}

/// A change of the user forgets what a `COM_SET_OPTION` before it has set, see `Documented::ChangeOfUser`.
fn avoid_options_of_other_users(session: &mut MySqlSession) {
    let mut changes_later = vec![false; session.logins.len()];
    for step in session.steps.iter_mut().rev() {
        let Step::Send { client, messages, .. } = step else { continue };
        for message in messages.iter_mut().rev() {
            match message {
                Command::ChangeUser { .. } => changes_later[*client] = true,
                Command::SetOption(_) if changes_later[*client] => *message = Command::Ping,
                _ => {}
            }
        }
    }
}

/// MariaDB reads data that was sent ahead as the type that the parameter had at the last execute, see
/// `docs/sidecar/what-a-client-can-tell.md`: none is sent behind a number. Nor is any while a table has another name: a
/// statement that could not be prepared for its data fails, although the table is back.
fn avoid_long_data(session: &mut MySqlSession) {
    let mut has_had_numbers = vec![false; session.logins.len()];
    let mut is_renamed = false;
    for step in &mut session.steps {
        if let Step::Admin(sql) = step
            && sql.contains(" RENAME ")
        {
            is_renamed = !sql.ends_with(" u");
        }
        let Step::Send { client, messages, .. } = step else { continue };
        let had = &mut has_had_numbers[*client];
        messages.retain(|message| {
            *had |= match message {
                Command::Execute { values, .. } => values.iter().any(is_number),
                Command::Bulk { .. } => true,
                _ => false,
            };
            !((*had || is_renamed) && matches!(message, Command::LongData { .. }))
        });
    }
    session.steps.retain(|step| !matches!(step, Step::Send { messages, .. } if messages.is_empty()));
}

/// The rows that MySQL says a call has changed, which changes none, are those of an earlier statement.
fn avoid_rows_of_calls(session: &mut MySqlSession) {
    for step in &mut session.steps {
        let Step::Send { messages, .. } = step else { continue };
        for message in messages {
            if let Command::Query(sql) = message {
                *sql = sql.replace("CALL gives", "DO 0; CALL gives");
            }
        }
    }
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Long(_))
}

/// Texts of one to four features.
fn preferred(random: &mut Random, features: &Features) -> Vec<&'static str> {
    let themes: Vec<_> = (0..=random.below(4)).map(|_| *random.pick(&features.texts)).collect();
    let number = 5 + random.below(8);
    let mut texts = Vec::new();
    for _ in 0..number {
        let theme = *random.pick(&themes);
        texts.push(*random.pick(theme.1));
    }
    texts
}

impl Generator<'_> {
    fn login(&mut self) -> Login {
        if !self.features.parts.has(Part::Logins) || self.random.percent(50) {
            return Login::default();
        }
        let terms = [Terms::WithEof, Terms::WithEof, Terms::Tracking, Terms::Single, Terms::Bulk];
        let terms = *self.random.pick(&terms);
        let database = if self.random.percent(90) { Database::Default } else { Database::None };
        Login { terms, database }
    }

    fn text(&mut self) -> String {
        let chance = self.random.below(100);
        let of = |feature: Feature| TEXTS.iter().find(|(other, _)| *other == feature).map(|found| found.1);
        let texts = if chance < 15 {
            of(Feature::Transaction)
        } else if chance < 30 {
            Some(self.random.pick(&self.features.texts).1)
        } else {
            Some(&self.preferred[..])
        };
        (*self.random.pick(texts.unwrap_or(&["SELECT 1"]))).to_owned()
    }

    fn text_of(&mut self, texts: &[&'static str]) -> &'static str {
        texts[self.random.below(texts.len())]
    }

    fn query(&mut self) -> Command {
        let number = *self.random.pick(&[1, 1, 1, 1, 1, 2, 3]);
        let texts: Vec<String> = (0..number).map(|_| self.text()).collect();
        Command::Query(texts.join("; "))
    }

    fn cuts(&mut self) -> Vec<u16> {
        if self.random.percent(60) {
            return Vec::new();
        }
        (0..=self.random.below(3)).map(|_| self.random.below(65_536) as u16).collect()
    }

    /// A few steps of one client, with others in between.
    fn scene(&mut self, client: usize, steps: &mut Vec<Step<Command>>) {
        if self.features.parts.has(Part::Statements) && self.random.percent(18) {
            return self.life_of_statement(client, steps);
        }
        if self.random.percent(18) {
            return self.story(client, steps);
        }
        let mut batches = match self.random.below(10) {
            0..5 => vec![vec![self.query()]],
            5..8 if self.features.parts.has(Part::Statements) => self.statements(client),
            8 => vec![vec![self.alone()]],
            _ => vec![vec![self.query(), self.query()]],
        };
        let is_change = matches!(batches[0][0], Command::ChangeUser { .. });
        if self.features.parts.has(Part::Illegal) && !is_change && self.random.percent(15) {
            let other = self.other();
            let at = self.random.below(batches.len());
            batches[at].push(other);
        }
        // The server reads what follows a change of the user as its proof.
        if self.features.parts.has(Part::Leaving) && !is_change && self.random.percent(4) {
            let leaving = if self.random.percent(50) { Command::Quit } else { Command::HalfClose };
            batches.last_mut().into_iter().for_each(|batch| batch.push(leaving.clone()));
        }
        for messages in batches {
            let cuts = self.cuts();
            steps.push(Step::Send { client, messages, cuts });
            self.others(steps);
        }
    }

    fn others(&mut self, steps: &mut Vec<Step<Command>>) {
        if self.features.parts.has(Part::Admin) && self.random.percent(8) {
            steps.push(Step::Admin((*self.random.pick(ADMIN)).to_owned()));
        }
        if self.random.percent(55) {
            steps.push(Step::Steal);
        }
    }

    /// Texts that belong together.
    fn story(&mut self, client: usize, steps: &mut Vec<Step<Command>>) {
        let (feature, stages) = *self.random.pick(STORIES);
        if !self.features.texts.iter().any(|(other, _)| *other == feature) {
            return;
        }
        for stage in stages {
            let messages = vec![Command::Query(self.text_of(stage).to_owned())];
            steps.push(Step::Send { client, messages, cuts: self.cuts() });
            self.others(steps);
        }
    }

    /// A statement is prepared. Something happens that may change its meaning, or end it; then it is executed.
    fn life_of_statement(&mut self, client: usize, steps: &mut Vec<Step<Command>>) {
        let slot = self.random.below(SLOTS);
        let (sql, parameters) = self.parametrised();
        let messages = vec![self.prepare(client, slot, sql, parameters)];
        steps.push(Step::Send { client, messages, cuts: self.cuts() });
        self.others(steps);
        let (feature, change) = *self.random.pick(CHANGES);
        if self.features.parts.has(Part::Admin) && self.random.percent(40) {
            steps.push(Step::Admin((*self.random.pick(ADMIN)).to_owned()));
        } else if self.features.texts.iter().any(|(other, _)| *other == feature) {
            let messages = vec![Command::Query(change.to_owned())];
            steps.push(Step::Send { client, messages, cuts: self.cuts() });
        }
        self.others(steps);
        for _ in 0..=self.random.below(2) {
            let messages = vec![self.of_statement(client, slot, Statement::Slot(slot))];
            steps.push(Step::Send { client, messages, cuts: self.cuts() });
            self.others(steps);
        }
    }

    /// Commands of prepared statements, in batches.
    fn statements(&mut self, client: usize) -> Vec<Vec<Command>> {
        let slot = self.random.below(SLOTS);
        let mut batches = Vec::new();
        if self.random.percent(65) {
            let (sql, parameters) = if self.random.percent(75) {
                let (sql, parameters) = self.parametrised();
                (sql.to_owned(), parameters)
            } else {
                (self.text(), 0)
            };
            let mut batch = vec![self.prepare(client, slot, &sql, parameters)];
            if self.features.engine == Engine::MariaDb && self.random.percent(25) {
                batch.push(self.execute(client, slot, Statement::Last));
            }
            batches.push(batch);
        }
        let statement = if self.random.percent(96) { Statement::Slot(slot) } else { Statement::Unknown };
        let mut batch = Vec::new();
        for _ in 0..*self.random.pick(&[1, 1, 1, 2, 3]) {
            batch.push(self.of_statement(client, slot, statement));
            if self.random.percent(60) {
                batches.push(std::mem::take(&mut batch));
            }
        }
        batches.push(batch);
        batches.retain(|batch| !batch.is_empty());
        batches
    }

    /// The rows that MySQL says a call has changed are those of an earlier statement.
    fn parametrised(&mut self) -> (&'static str, usize) {
        let is_left_out = |sql: &str| self.features.engine == Engine::MySql && sql.contains("CALL");
        let left: Vec<_> = PARAMETRISED.iter().filter(|(sql, _)| !is_left_out(sql)).collect();
        **self.random.pick(&left)
    }

    fn prepare(&mut self, client: usize, slot: usize, sql: &str, parameters: usize) -> Command {
        self.parameters[client][slot] = parameters;
        // If this one fails, the slot keeps the statement that it has.
        self.calls[client][slot] |= sql.to_lowercase().contains("call");
        Command::Prepare { slot, sql: sql.to_owned() }
    }

    fn of_statement(&mut self, client: usize, slot: usize, statement: Statement) -> Command {
        match self.random.below(14) {
            0 => Command::Reset(statement),
            1 => Command::Close(statement),
            // MySQL refuses a number behind long data for the same parameter, on the connection that has had them. MariaDB
            // reads the data for a call as what the procedure's last values were.
            2 if self.parameters[client][slot] > 0
                && self.features.engine == Engine::MariaDb
                && !self.calls[client][slot] =>
            {
                Command::LongData { statement, parameter: 0, data: self.text_of(&["1", "long", ""]) }
            }
            3 | 4 if self.features.parts.has(Part::Fetches) => {
                Command::Fetch { statement, rows: 1 + self.random.below(3) as u32 }
            }
            5 if self.features.engine == Engine::MariaDb && self.parameters[client][slot] > 0 => {
                let parameters = self.parameters[client][slot];
                let rows = (0..=self.random.below(2)).map(|_| vec![Value::Int(7); parameters]).collect();
                Command::Bulk { statement, rows }
            }
            _ => self.execute(client, slot, statement),
        }
    }

    fn execute(&mut self, client: usize, slot: usize, statement: Statement) -> Command {
        let values = (0..self.parameters[client][slot]).map(|_| self.value()).collect();
        let values = match self.features.engine {
            // The first value decides which type a parameter has.
            Engine::MySql => vec![Value::Long(42); self.parameters[client][slot]],
            _ => values,
        };
        let asks_for_cursor = match self.features.engine {
            // MySQL 9.7 answers an execute without a cursor behind one with a cursor by columns and no rows.
            Engine::MySql => slot == 1,
            _ => self.random.percent(25),
        };
        let has_cursor = self.features.parts.has(Part::Cursors) && asks_for_cursor;
        let flags = if has_cursor { READ_ONLY_CURSOR } else { 0 };
        // Without types, an execute of the last statement fails with another number than one by its own number, and a call
        // takes the types that the procedure's last values had.
        let must_be_typed = statement == Statement::Last || self.calls[client][slot];
        let is_typed = must_be_typed || self.random.percent(85);
        let types = if is_typed { Types::Sent } else { Types::Absent };
        Command::Execute { statement, flags, types, values }
    }

    fn value(&mut self) -> Value {
        let number = *self.random.pick(&[1, 2, 3, 42]);
        match self.random.below(8) {
            0 => Value::Null,
            1 | 2 => Value::Text("x"),
            3 | 4 => Value::Long(i64::from(number)),
            _ => Value::Int(number),
        }
    }

    /// The proxy's documentation excludes a change of the user behind commands that are not answered.
    fn alone(&mut self) -> Command {
        if self.features.parts.has(Part::ChangeUser)
            && self.features.engine == Engine::MariaDb
            && self.random.percent(15)
        {
            return Command::ChangeUser { database: "sbtest" };
        }
        self.other()
    }

    fn other(&mut self) -> Command {
        match self.random.below(12) {
            0 => Command::InitDb("information_schema"),
            1 => Command::InitDb("sbtest"),
            2 => Command::InitDb("nope"),
            3 => Command::SetOption(0),
            4 => Command::SetOption(1),
            5 | 6 => Command::ResetConnection,
            7 => Command::Statistics,
            8 => Command::FieldList(self.text_of(&["t", "missing"])),
            10 if self.features.parts.has(Part::Illegal) => {
                Command::Other(*self.random.pick(&[0x00, 0x1d, 0x7f, 0x05]))
            }
            _ => Command::Ping,
        }
    }

    /// Asks for state that should still be there.
    fn look_back(&mut self, client: usize) -> Vec<Step<Command>> {
        let send = |messages: Vec<Command>| Step::Send { client, messages, cuts: Vec::new() };
        let query = |sql: &str| Command::Query(sql.to_owned());
        let mut steps = vec![send(vec![query("ROLLBACK")])];
        if self.random.percent(70) {
            steps.push(Step::Steal);
        }
        let isolation = match self.features.engine {
            Engine::MariaDb => "@@tx_isolation, @@tx_read_only",
            _ => "@@transaction_isolation, @@transaction_read_only",
        };
        steps.push(send(vec![query(&format!(
            "SELECT @@time_zone, @@net_write_timeout, @@sql_mode, @@autocommit, {isolation}, \
             @@character_set_client, @@collation_connection, DATABASE()"
        ))]));
        if self.features.parts.has(Part::Statements) {
            for slot in 0..SLOTS {
                let execute = self.execute(client, slot, Statement::Slot(slot));
                steps.push(send(vec![execute]));
            }
        }
        steps.push(send(vec![query("SELECT id, v FROM t ORDER BY id")]));
        steps
    }
}
