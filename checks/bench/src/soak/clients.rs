//! The clients: thousands that stay, and some that come and go. Every statement has a nonce, which its answer must carry.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use ciphertoll_model::Engine;
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::{Login, Row};

use super::control;
use super::tally::Tally;

/// Every so many statements of a client are a transaction of its own.
const TRANSACTION_EVERY: u64 = 4;

/// How clients reach the sidecar, and when they stop.
pub struct Load {
    engine: Engine,
    address: Address,
    login: Login,
    pub tally: Tally,
    is_over: AtomicBool,
    /// Increased by an upgrade: clients of an earlier generation connect again.
    generation: AtomicU64,
}

/// A client that stays.
struct Lasting {
    client: Option<Client>,
    generation: u64,
    number: usize,
    /// When it got its last answer.
    last_served: Instant,
}

impl Lasting {
    fn new(number: usize) -> Self {
        Self { client: None, generation: 0, number, last_served: Instant::now() }
    }
}

impl Load {
    pub fn new(engine: Engine, socket: &Path, user: &str, database: &str) -> Result<Self> {
        // The sidecar checks who connects, not a password.
        let login = control::login(engine, user, Vec::new(), database)?;
        let address = Address::Unix(PathBuf::from(socket));
        Ok(Self {
            engine,
            address,
            login,
            tally: Tally::default(),
            is_over: AtomicBool::new(false),
            generation: AtomicU64::new(0),
        })
    }

    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Makes every lasting client connect again, at its next turn.
    pub fn reconnect_all(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Keeps these clients connected and gives each its turn, `per_s` turns per second.
    pub fn hold(&self, numbers: std::ops::Range<usize>, per_s: f64) {
        let mut clients: Vec<Lasting> = numbers.map(Lasting::new).collect();
        // Connecting is not paced: all clients should be there soon.
        for lasting in clients.iter_mut().take_while(|_| !self.is_over()) {
            self.connect_lasting(lasting);
        }
        let mut pace = Pace::new(per_s);
        for round in 0_u64.. {
            for lasting in &mut clients {
                if self.is_over() {
                    return;
                }
                pace.wait();
                self.take_turn(lasting, round);
            }
        }
    }

    fn connect_lasting(&self, lasting: &mut Lasting) {
        if lasting.client.take().is_some() {
            self.tally.connected.fetch_sub(1, Ordering::Relaxed);
        }
        lasting.generation = self.generation.load(Ordering::Relaxed);
        let Some(mut client) = self.connect() else { return };
        let set = match self.engine {
            Engine::Postgres => format!("SET application_name = 'c{}'", lasting.number),
            _ => format!("SET sql_select_limit = {}", setting(lasting.number)),
        };
        match client.execute(&set) {
            Ok(()) => {
                lasting.client = Some(client);
                lasting.last_served = Instant::now();
                self.tally.connected.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.tally.note_error(&error.to_string(), Instant::now()),
        }
    }

    fn take_turn(&self, lasting: &mut Lasting, round: u64) {
        if lasting.client.is_none() || lasting.generation != self.generation.load(Ordering::Relaxed) {
            self.connect_lasting(lasting);
        }
        let number = lasting.number;
        let Some(client) = &mut lasting.client else { return };
        let nonce = format!("n{number}-{round}");
        let (query, own) = match self.engine {
            Engine::Postgres => {
                (format!("SELECT '{nonce}', current_setting('application_name')"), format!("c{number}"))
            }
            _ => (format!("SELECT '{nonce}', @@sql_select_limit"), setting(number).to_string()),
        };
        let in_transaction = (round + number as u64).is_multiple_of(TRANSACTION_EVERY);
        let expected = [nonce, own];
        let kind = if in_transaction { Statement::InTransaction } else { Statement::Alone };
        match self.ask(client, &query, &expected, kind) {
            Ok(()) => lasting.last_served = Instant::now(),
            Err(error) => {
                self.tally.note_error(&error, lasting.last_served);
                lasting.client = None;
                self.tally.connected.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Connects, asks and disconnects again and again.
    pub fn churn(&self, number: usize, per_s: f64) {
        let mut pace = Pace::new(per_s);
        for round in 0_u64.. {
            if self.is_over() {
                return;
            }
            pace.wait();
            let Some(mut client) = self.connect() else { continue };
            let nonce = format!("churn{number}-{round}");
            let query = format!("SELECT '{nonce}'");
            let began = Instant::now();
            match self.ask(&mut client, &query, &[nonce], Statement::Alone) {
                Ok(()) => drop(client.close()),
                Err(error) => self.tally.note_error(&error, began),
            }
        }
    }

    fn connect(&self) -> Option<Client> {
        let began = Instant::now();
        match Client::connect(&self.address, self.login.clone(), None) {
            Ok(client) => {
                self.tally.connects.fetch_add(1, Ordering::Relaxed);
                Some(client)
            }
            Err(error) => {
                self.tally.note_error(&format!("connect: {error}"), began);
                None
            }
        }
    }

    /// Sends the query and counts the answer; after an error, the connection must be given up.
    fn ask(
        &self,
        client: &mut Client,
        query: &str,
        expected: &[String],
        kind: Statement,
    ) -> Result<(), String> {
        let rows = exchange(client, query, kind).map_err(|error| error.to_string())?;
        self.tally.answers.fetch_add(1, Ordering::Relaxed);
        let values: Vec<Option<Vec<u8>>> = rows.into_iter().flatten().collect();
        let is_right = values.len() == expected.len()
            && values.iter().zip(expected).all(|(value, own)| value.as_deref() == Some(own.as_bytes()));
        if !is_right {
            self.tally.wrong.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Whether a statement is sent within `BEGIN` and `COMMIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statement {
    Alone,
    InTransaction,
}

fn exchange(client: &mut Client, query: &str, kind: Statement) -> Result<Vec<Row>, ciphertoll_net::Error> {
    if kind == Statement::Alone {
        return client.query(query);
    }
    client.execute("BEGIN")?;
    let rows = client.query(query)?;
    client.execute("COMMIT")?;
    Ok(rows)
}

/// A different value for each client, large enough to have no effect.
fn setting(number: usize) -> usize {
    const SMALLEST: usize = 1_000_000;
    SMALLEST + number
}

/// Begins turns at a fixed rate; skips turns that are in the past.
struct Pace {
    next: Instant,
    interval: Duration,
}

impl Pace {
    fn new(per_s: f64) -> Self {
        Self { next: Instant::now(), interval: Duration::from_secs_f64(1.0 / per_s) }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        if self.next > now {
            thread::sleep(self.next - now);
        }
        self.next = (self.next + self.interval).max(now);
    }
}
