//! Makes a session from a seed.

use super::avoided::avoid_documented;
use super::message::{Bind, Frontend};
use super::texts::{ADMIN, CONSTANTS, Feature, PARAMETRISED, SETTINGS_OF_CONSTANTS, STORIES, TEXTS};
use super::{Login, PostgresSession};
use crate::options::Options;
use crate::parts::{Part, Parts};
use crate::random::Random;
use crate::session::{Session, Step};

const STATEMENTS: [&str; 4] = ["", "s1", "s2", "S1"];
const PORTALS: [&str; 3] = ["", "p1", "c"];
const LINES: [&str; 7] = ["1\tone\n", "2\n", "3,three\n", "7", "\tx\n", "\\.\n", ""];
const BAD_LINES: [&str; 2] = ["bad\tbad\n", "1\t2\t3\t4\n"];
const MAX_STEPS: usize = 12;
/// Each is valid for another type.
const TEXT_VALUES: [&str; 3] = ["row 1", "2.5", "2020-01-03"];
/// `int4pl`, `length(text)`, and no function.
const FUNCTIONS: [u32; 3] = [177, 1317, 1];

/// Parts of the grammar in use.
pub(crate) struct Features {
    texts: Vec<(Feature, &'static [&'static str])>,
    parts: Parts,
}

impl Features {
    pub(crate) fn of(options: &Options) -> Self {
        let is_in = |feature: Feature| options.has_feature(&format!("{feature:?}").to_lowercase());
        assert!(Feature::ALL.iter().all(|feature| TEXTS.iter().any(|(other, _)| other == feature)));
        Self {
            texts: TEXTS.iter().copied().filter(|(feature, _)| is_in(*feature)).collect(),
            parts: Parts::of(options),
        }
    }

    fn has(&self, feature: Feature) -> bool {
        self.texts.iter().any(|(other, _)| *other == feature)
    }
}

struct Generator<'a> {
    random: Random,
    features: &'a Features,
    /// The texts that this session prefers: a few, so that related statements meet.
    preferred: Vec<&'static str>,
    /// The number of parameters of each client's statements, by their place in `STATEMENTS`.
    parameters: Vec<[usize; STATEMENTS.len()]>,
}

pub(crate) fn session(seed: u64, features: &Features) -> PostgresSession {
    let mut random = Random::new(seed);
    let clients = *random.pick(&[1, 1, 1, 2, 2, 3]);
    let preferred = preferred(&mut random, features);
    let parameters = vec![[0; STATEMENTS.len()]; clients];
    let mut generator = Generator { random, features, preferred, parameters };
    let logins: Vec<Login> = (0..clients).map(|_| generator.login()).collect();
    let mut steps = Vec::new();
    // With such a search path, tables are temporary.
    let is_temporary = |login: &Login| login.iter().any(|(_, value)| value.contains("pg_temp"));
    if let Some(client) = logins.iter().position(is_temporary) {
        let stages = STORIES.iter().find(|(feature, _)| *feature == Feature::Temporary).map(|story| story.1);
        generator.stages(client, stages.unwrap_or_default(), &mut steps);
    }
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
    session
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
        const CHOICES: [&[(&str, &str)]; 9] = [
            &[("application_name", "of the login")],
            &[("TimeZone", "Europe/Berlin")],
            &[("DateStyle", "ISO, DMY")],
            &[("options", "-c work_mem=3MB")],
            &[("DateStyle", "ISO"), ("options", "-c DateStyle=German")],
            &[("options", "-c search_path=other,public")],
            &[("options", "-c search_path=pg_temp,public")],
            &[("TimeZone", "Europe/Berlin"), ("options", "-c TimeZone=Asia/Tokyo -c DateStyle=German")],
            &[
                ("options", "-c work_mem=3MB -c WORK_MEM=2MB"),
                ("DateStyle", "SQL"),
                ("datestyle", "ISO, YMD"),
            ],
        ];
        if !self.features.parts.has(Part::Logins) || self.random.percent(85) {
            return Vec::new();
        }
        let settings = self.random.pick(&CHOICES).iter();
        settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn text(&mut self) -> String {
        // Transactions are what sessions have in common.
        let chance = self.random.below(100);
        let texts = if chance < 20 && self.features.has(Feature::Transaction) {
            self.features
                .texts
                .iter()
                .find(|(feature, _)| *feature == Feature::Transaction)
                .map(|found| found.1)
        } else if chance < 30 {
            Some(self.random.pick(&self.features.texts).1)
        } else {
            Some(&self.preferred[..])
        };
        (*self.random.pick(texts.unwrap_or(&["SELECT 1"]))).to_owned()
    }

    fn query(&mut self) -> String {
        let number = *self.random.pick(&[1, 1, 1, 1, 2, 3]);
        let texts: Vec<String> = (0..number).map(|_| self.text()).collect();
        texts.join("; ")
    }

    fn name(&mut self, names: &[&str]) -> String {
        (*self.random.pick(names)).to_owned()
    }

    fn cuts(&mut self) -> Vec<u16> {
        if self.random.percent(60) {
            return Vec::new();
        }
        (0..=self.random.below(3)).map(|_| self.random.below(65_536) as u16).collect()
    }

    /// A few steps of one client, with others in between.
    fn scene(&mut self, client: usize, steps: &mut Vec<Step<Frontend>>) {
        if self.features.parts.has(Part::Extended) && self.random.percent(20) {
            return self.life_of_statement(client, steps);
        }
        if self.random.percent(18) {
            return self.story(client, steps);
        }
        let mut messages = match self.random.below(10) {
            0..4 => vec![Frontend::Query(self.query())],
            4..8 if self.features.parts.has(Part::Extended) => self.extended(client),
            8 => self.copy(),
            _ => {
                let first = vec![Frontend::Query(self.query())];
                let has_extended = self.features.parts.has(Part::Extended);
                let second = if has_extended { self.extended(client) } else { Vec::new() };
                [first, second].concat()
            }
        };
        self.disturb(&mut messages);
        if !self.features.parts.has(Part::Pipelines) {
            messages = with_syncs(messages);
        }
        // Parts of a batch that are sent after each other, with others in between.
        while !messages.is_empty() {
            let whole =
                messages.len() == 1 || self.random.percent(75) || !self.features.parts.has(Part::Pipelines);
            let number = if whole { messages.len() } else { 1 + self.random.below(messages.len()) };
            let batch: Vec<Frontend> = messages.drain(..number).collect();
            let cuts = self.cuts();
            steps.push(Step::Send { client, messages: batch, cuts });
            self.others(steps);
        }
    }

    /// A statement is prepared. Something happens that may change its meaning, or end it; then it is used.
    fn life_of_statement(&mut self, client: usize, steps: &mut Vec<Step<Frontend>>) {
        let place = self.random.below(STATEMENTS.len());
        let name = STATEMENTS[place].to_owned();
        let has_constants = self.features.has(Feature::Setting) && self.random.percent(30);
        let (sql, parameters) = if has_constants { (CONSTANTS, 0) } else { *self.random.pick(PARAMETRISED) };
        self.parameters[client][place] = parameters;
        let types = self.types(parameters);
        let mut messages = vec![Frontend::Parse { name: name.clone(), sql: sql.to_owned(), types }];
        if let Some(other) = sql.strip_prefix("DEALLOCATE ") {
            let (name, sql) = (other.to_owned(), "SELECT 'other'".to_owned());
            messages.insert(0, Frontend::Parse { name, sql, types: Vec::new() });
        }
        if self.random.percent(30) {
            messages.push(Frontend::DescribeStatement(name.clone()));
        }
        if self.random.percent(40) {
            messages.push(self.bind("", &name, parameters));
            self.execute("", &mut messages);
        }
        messages.push(Frontend::Sync);
        steps.push(Step::Send { client, messages, cuts: self.cuts() });
        self.others(steps);
        for _ in 0..=self.random.below(2) {
            if self.features.parts.has(Part::Admin) && self.random.percent(50) {
                steps.push(Step::Admin((*self.random.pick(ADMIN)).to_owned()));
            } else {
                let failing = |name: &str| Frontend::Parse {
                    name: name.to_owned(),
                    sql: "SELECT nope".to_owned(),
                    types: Vec::new(),
                };
                let messages = match self.random.below(8) {
                    // Without a name it ends the statement all the same.
                    0 => vec![failing(&name), Frontend::Sync],
                    // The server skips what follows.
                    6 => {
                        let sql = "SELECT 'other'".to_owned();
                        let other = Frontend::Parse { name: name.clone(), sql, types: Vec::new() };
                        let close = Frontend::CloseStatement(name.clone());
                        vec![failing("s3"), close, other, Frontend::Sync]
                    }
                    7 => {
                        vec![Frontend::Query(format!("BEGIN; SELECT nope; DEALLOCATE \"{name}\"; ROLLBACK"))]
                    }
                    1 => vec![Frontend::Query(self.use_by_sql(&name))],
                    _ if has_constants && self.random.percent(60) => {
                        vec![Frontend::Query(self.name(&SETTINGS_OF_CONSTANTS))]
                    }
                    _ => vec![Frontend::Query(self.text_for_statements())],
                };
                steps.push(Step::Send { client, messages, cuts: self.cuts() });
            }
            self.others(steps);
        }
        let messages = match self.random.below(9) {
            0 | 1 => {
                let sql = self.use_by_sql(&name);
                self.by_any_protocol(sql)
            }
            2 => vec![Frontend::DescribeStatement(name), Frontend::Sync],
            3 => vec![Frontend::CloseStatement(name), Frontend::Sync],
            _ => {
                let mut messages = vec![self.bind("", &name, parameters)];
                self.execute("", &mut messages);
                messages.push(Frontend::Sync);
                messages
            }
        };
        steps.push(Step::Send { client, messages, cuts: self.cuts() });
        self.others(steps);
    }

    /// Texts that belong together, by any protocol.
    fn story(&mut self, client: usize, steps: &mut Vec<Step<Frontend>>) {
        let (feature, stages) = *self.random.pick(STORIES);
        if self.features.has(feature) {
            self.stages(client, stages, steps);
        }
    }

    fn stages(&mut self, client: usize, stages: &[&[&str]], steps: &mut Vec<Step<Frontend>>) {
        for stage in stages {
            let sql = self.name(stage);
            let messages = self.by_any_protocol(sql);
            steps.push(Step::Send { client, messages, cuts: self.cuts() });
            self.others(steps);
        }
    }

    fn by_any_protocol(&mut self, sql: String) -> Vec<Frontend> {
        if !self.features.parts.has(Part::Extended) || self.random.percent(60) {
            return vec![Frontend::Query(sql)];
        }
        let parse = Frontend::Parse { name: String::new(), sql, types: Vec::new() };
        let mut messages = vec![parse, self.bind("", "", 0)];
        self.execute("", &mut messages);
        messages.push(Frontend::Sync);
        messages
    }

    /// A text that names a statement of the protocol.
    fn use_by_sql(&mut self, name: &str) -> String {
        let verbs = ["EXECUTE", "EXPLAIN (COSTS OFF) EXECUTE", "DEALLOCATE", "DEALLOCATE PREPARE"];
        let quote = *self.random.pick(&["\"", ""]);
        format!("{} {quote}{name}{quote}", self.random.pick(&verbs))
    }

    /// A text that may change what statements mean. Some fail before that.
    fn text_for_statements(&mut self) -> String {
        if self.features.has(Feature::Setting) && self.random.percent(15) {
            return self.name(&SETTINGS_OF_CONSTANTS);
        }
        let fails = if self.random.percent(20) { "SELECT 1/0; " } else { "" };
        fails.to_owned() + &self.any_text_for_statements()
    }

    fn any_text_for_statements(&mut self) -> String {
        let matters = |feature: &Feature| {
            matches!(
                feature,
                Feature::Transaction
                    | Feature::Setting
                    | Feature::Deallocate
                    | Feature::Discard
                    | Feature::Definition
                    | Feature::SearchPath
            )
        };
        let texts = self.features.texts.iter().filter(|(feature, _)| matters(feature));
        let texts: Vec<_> = texts.map(|(_, texts)| *texts).collect();
        if texts.is_empty() {
            return self.text();
        }
        let texts = *self.random.pick(&texts);
        (*self.random.pick(texts)).to_owned()
    }

    fn others(&mut self, steps: &mut Vec<Step<Frontend>>) {
        if self.features.parts.has(Part::Admin) && self.random.percent(12) {
            steps.push(Step::Admin((*self.random.pick(ADMIN)).to_owned()));
        }
        if self.random.percent(55) {
            steps.push(Step::Steal);
        }
    }

    /// Commands of the extended protocol, mostly in a sensible order.
    fn extended(&mut self, client: usize) -> Vec<Frontend> {
        let mut messages = Vec::new();
        for _ in 0..*self.random.pick(&[1, 1, 1, 2, 3]) {
            self.extended_command(client, &mut messages);
        }
        match self.random.below(10) {
            0 => messages.push(Frontend::Flush),
            1 => {}
            2 => messages.extend([Frontend::Flush, Frontend::Sync]),
            _ => messages.push(Frontend::Sync),
        }
        messages
    }

    fn extended_command(&mut self, client: usize, messages: &mut Vec<Frontend>) {
        let (place, portal) = (self.random.below(STATEMENTS.len()), self.name(&PORTALS));
        let statement = STATEMENTS[place].to_owned();
        let (sql, parameters) = if self.random.percent(60) {
            let (sql, parameters) = *self.random.pick(PARAMETRISED);
            (sql.to_owned(), parameters)
        } else {
            (self.text(), 0)
        };
        let shape = self.random.below(12);
        if shape < 8 {
            let types = self.types(parameters);
            self.parameters[client][place] = parameters;
            messages.push(Frontend::Parse { name: statement.clone(), sql, types });
        }
        if matches!(shape, 3 | 4) || shape == 10 && self.random.percent(50) {
            messages.push(Frontend::DescribeStatement(statement.clone()));
        }
        let parameters = self.parameters[client][place];
        if shape > 0 && shape < 11 {
            messages.push(self.bind(&portal, &statement, parameters));
            if self.random.percent(30) {
                messages.push(Frontend::DescribePortal(portal.clone()));
            }
            self.execute(&portal, messages);
        }
        if shape == 11 || self.random.percent(8) {
            let close = if self.random.percent(70) {
                Frontend::CloseStatement(statement)
            } else {
                Frontend::ClosePortal(portal)
            };
            messages.push(close);
        }
    }

    fn execute(&mut self, portal: &str, messages: &mut Vec<Frontend>) {
        let rows = *self.random.pick(&[0, 0, 0, 1, 2]);
        let execute = || Frontend::Execute { portal: portal.to_owned(), rows };
        messages.push(execute());
        if rows > 0 && self.random.percent(60) {
            messages.push(execute());
        }
    }

    fn types(&mut self, parameters: usize) -> Vec<u32> {
        match self.random.below(10) {
            0..5 => Vec::new(),
            5 => vec![0; parameters],
            6 => vec![25; parameters],
            7 => vec![20; parameters],
            8 => vec![23; parameters.min(1)],
            _ => vec![23; parameters],
        }
    }

    fn bind(&mut self, portal: &str, statement: &str, parameters: usize) -> Frontend {
        let number = if self.random.percent(93) { parameters } else { self.random.below(3) };
        let is_binary = self.random.percent(25);
        let values = (0..number).map(|_| self.value(is_binary)).collect();
        let result_formats = match self.random.below(6) {
            0 => vec![1],
            1 => vec![0],
            _ => Vec::new(),
        };
        Frontend::Bind(Bind {
            portal: portal.to_owned(),
            statement: statement.to_owned(),
            formats: if is_binary { vec![1] } else { Vec::new() },
            values,
            result_formats,
        })
    }

    fn value(&mut self, is_binary: bool) -> Option<Vec<u8>> {
        if self.random.percent(8) {
            return None;
        }
        let number = *self.random.pick(&[1_i32, 2, 3, 42]);
        if !is_binary {
            let is_number = self.random.percent(75);
            let text = if is_number { number.to_string() } else { self.name(&TEXT_VALUES) };
            return Some(text.into_bytes());
        }
        if self.random.percent(60) {
            Some(number.to_be_bytes().to_vec())
        } else {
            Some(i64::from(number).to_be_bytes().to_vec())
        }
    }

    /// A COPY into a table, by one of the protocols; the data may come too early, too late or not at all.
    fn copy(&mut self) -> Vec<Frontend> {
        if !self.features.has(Feature::CopyIn) {
            return vec![Frontend::Query(self.query())];
        }
        let texts =
            TEXTS.iter().find(|(feature, _)| *feature == Feature::CopyIn).map_or(&[][..], |found| found.1);
        let sql = (*self.random.pick(texts)).to_owned();
        let mut messages = if self.features.parts.has(Part::Extended) && self.random.percent(50) {
            let mut messages = vec![
                Frontend::Parse { name: String::new(), sql, types: Vec::new() },
                self.bind("", "", 0),
                Frontend::Execute { portal: String::new(), rows: 0 },
            ];
            if self.random.percent(70) {
                messages.push(Frontend::Sync);
            }
            messages
        } else {
            vec![Frontend::Query(sql)]
        };
        for _ in 0..self.random.below(4) {
            let lines = if self.random.percent(80) { &LINES[..] } else { &BAD_LINES[..] };
            messages.push(Frontend::CopyData(self.random.pick(lines).as_bytes().to_vec()));
        }
        messages.push(if self.random.percent(80) {
            Frontend::CopyDone
        } else {
            Frontend::CopyFail("stop".to_owned())
        });
        if self.random.percent(75) {
            messages.push(Frontend::Sync);
        }
        messages
    }

    /// Removes, doubles, moves and adds messages.
    fn disturb(&mut self, messages: &mut Vec<Frontend>) {
        if self.features.parts.has(Part::Illegal) && self.random.percent(25) {
            let at = self.random.below(messages.len());
            match self.random.below(4) {
                0 if messages.len() > 1 => {
                    messages.remove(at);
                }
                1 => messages.insert(at, messages[at].clone()),
                2 => {
                    let other = self.random.below(messages.len());
                    messages.swap(at, other);
                }
                _ => {
                    let message = self.anything();
                    messages.insert(at, message);
                }
            }
        }
        if self.features.parts.has(Part::Leaving) && self.random.percent(5) {
            messages.push(if self.random.percent(50) { Frontend::Terminate } else { Frontend::HalfClose });
        }
    }

    fn anything(&mut self) -> Frontend {
        match self.random.below(10) {
            0 => Frontend::Sync,
            1 => Frontend::Flush,
            2 => Frontend::CopyDone,
            3 => Frontend::CopyFail("why".to_owned()),
            4 => Frontend::CopyData(b"1\tone\n".to_vec()),
            5 => Frontend::FunctionCall {
                function: *self.random.pick(&FUNCTIONS),
                arguments: (0..self.random.below(3)).map(|_| Some(b"1".to_vec())).collect(),
            },
            6 => Frontend::Query(self.query()),
            7 => Frontend::Parse { name: self.name(&STATEMENTS), sql: "SELEC".to_owned(), types: Vec::new() },
            8 => Frontend::CloseStatement(self.name(&STATEMENTS)),
            _ => Frontend::DescribeStatement(self.name(&STATEMENTS)),
        }
    }

    /// Asks for state that should still be there, after the end of whatever was going on.
    fn look_back(&mut self, client: usize) -> Vec<Step<Frontend>> {
        let send = |messages: Vec<Frontend>| Step::Send { client, messages, cuts: Vec::new() };
        let query = |sql: &str| Frontend::Query(sql.to_owned());
        let mut steps = vec![
            send(vec![Frontend::CopyFail("end".to_owned()), Frontend::Sync]),
            send(vec![query("ROLLBACK")]),
        ];
        if self.random.percent(70) {
            steps.push(Step::Steal);
        }
        steps.push(send(vec![query(
            "SELECT current_setting('DateStyle'), current_setting('TimeZone'), current_setting('work_mem'), \
             current_setting('search_path'), current_setting('extra_float_digits'), \
             current_setting('default_transaction_read_only'), current_setting('client_encoding'), \
             to_regclass('tt') IS NULL, to_regclass('tv') IS NULL, to_regclass('x') IS NULL",
        )]));
        steps.push(send(vec![
            query("SELECT id, v, n FROM t ORDER BY id"),
            query("SELECT a, b FROM u ORDER BY a, b"),
        ]));
        if self.features.parts.has(Part::Extended) {
            for (name, parameters) in STATEMENTS.into_iter().zip(self.parameters[client]) {
                let describe = Frontend::DescribeStatement(name.to_owned());
                let execute = Frontend::Execute { portal: String::new(), rows: 0 };
                steps.push(send(vec![describe, self.bind("", name, parameters), execute, Frontend::Sync]));
            }
        }
        steps
    }
}

/// With a Sync in front of each command but those that belong to the one before.
fn with_syncs(messages: Vec<Frontend>) -> Vec<Frontend> {
    let mut separate = Vec::new();
    for message in messages {
        let belongs = matches!(message, Frontend::Execute { .. } | Frontend::DescribePortal(_));
        if !belongs && !separate.last().is_none_or(Frontend::ends_in_ready) {
            separate.push(Frontend::Sync);
        }
        separate.push(message);
    }
    if !separate.last().is_none_or(Frontend::ends_in_ready) {
        separate.push(Frontend::Sync);
    }
    separate
}
