//! Clients that do random things in transaction pooling, each checked against a model.

use std::thread;

use ciphertoll_wire::mysql::Param;
use ciphertoll_wire::mysql::ok::OkPacket;

use super::cases::prepare;
use super::fixture::{Fixture, Proxy};
use super::raw::RawClient;
use super::transactions::{NUMBER, close, run};

/// The session state that a client must find.
struct Model {
    client_loop: u64,
    random: u64,
    time_zone: Option<String>,
    timeout: Option<u64>,
    last_key: u64,
    statements: Vec<(u32, u64)>,
}

impl Model {
    fn draw(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn step(&mut self, raw: &mut RawClient) {
        match self.draw(11) {
            0 => {
                let zone = format!("+0{}:{}", self.draw(10), 10 + self.draw(50));
                self.executes(raw, &format!("SET time_zone = '{zone}'"));
                self.time_zone = Some(zone);
            }
            1 => {
                let timeout = 100 + self.draw(1000);
                self.executes(raw, &format!("SET @@session.net_write_timeout = {timeout}"));
                self.timeout = Some(timeout);
            }
            2 => {
                let mark = self.draw(1000);
                let sql = format!("SELECT CONCAT('{}-{mark}-', ?)", self.client_loop);
                self.statements.push((prepare(raw, &sql).statement_id, mark));
            }
            3 if !self.statements.is_empty() => {
                let at = self.draw(self.statements.len() as u64) as usize;
                close(raw, self.statements.swap_remove(at).0);
            }
            4 => {
                raw.query(&format!("INSERT INTO anything (lane) VALUES ({})", self.client_loop));
                let ok = OkPacket::parse(&raw.word()).expect("a row");
                self.last_key = ok.last_insert_id;
            }
            5 => {
                self.executes(raw, "BEGIN");
                let number = raw.value(NUMBER);
                self.find(raw);
                assert_eq!(raw.value(NUMBER), number);
                self.executes(raw, "ROLLBACK");
            }
            6 => {
                raw.query("SELECT nonsense");
                assert_eq!(RawClient::error(&raw.results()), Some(1054));
            }
            7 if self.draw(4) == 0 => {
                raw.command(b"\x1f");
                assert_eq!(raw.word()[0], 0);
                (self.time_zone, self.timeout, self.last_key) = (None, None, 0);
                self.statements.clear();
            }
            8 if self.draw(6) == 0 => self.executes(raw, &format!("SET @own = {}", self.client_loop)),
            _ => self.find(raw),
        }
    }

    fn executes(&self, raw: &mut RawClient, sql: &str) {
        raw.query(sql);
        assert_eq!(RawClient::error(&raw.results()), None, "{}: {sql}", self.client_loop);
    }

    fn find(&mut self, raw: &mut RawClient) {
        let zone = self.time_zone.as_deref().unwrap_or("SYSTEM");
        assert_eq!(raw.value("SELECT @@time_zone"), zone, "{}", self.client_loop);
        let timeout = self.timeout.unwrap_or(60).to_string();
        assert_eq!(raw.value("SELECT @@net_write_timeout"), timeout, "{}", self.client_loop);
        assert_eq!(raw.value("SELECT LAST_INSERT_ID()"), self.last_key.to_string(), "{}", self.client_loop);
        if let Some((statement, mark)) = self.statements.last() {
            let answer = run(raw, *statement, &[Param::Bytes(b"x")]);
            assert_eq!(answer, Ok(format!("{}-{mark}-x", self.client_loop)));
        }
    }
}

pub(super) fn anything(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "3"]);
    let mut maker = proxy.raw();
    for sql in [
        "DROP TABLE IF EXISTS anything",
        "CREATE TABLE anything (id INT AUTO_INCREMENT PRIMARY KEY, lane INT)",
    ] {
        maker.query(sql);
        assert_eq!(RawClient::error(&maker.results()), None, "{sql}");
    }
    thread::scope(|scope| {
        for client_loop in 1..=8 {
            let proxy: &Proxy = &proxy;
            scope.spawn(move || {
                for session in 0..4 {
                    let mut raw = proxy.raw();
                    let (random, statements) = (client_loop * 1000 + session, Vec::new());
                    let mut model = Model {
                        client_loop,
                        random,
                        time_zone: None,
                        timeout: None,
                        last_key: 0,
                        statements,
                    };
                    (0..40).for_each(|_| model.step(&mut raw));
                    model.find(&mut raw);
                }
            });
        }
    });
    maker.query("DROP TABLE anything");
    maker.results();
}
