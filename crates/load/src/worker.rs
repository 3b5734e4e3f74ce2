//! One thread's clients on one readiness loop.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use ciphertoll_model::{Engine, Statement, TrialSpec};
use ciphertoll_net::{Dialer, Reactor, SourceAddresses};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::churn::{Churn, ChurnClient};
use crate::pooled::{Pool, PooledClient};
use crate::recorder::{Legs, Recorder};
use crate::window::Window;

/// How long clients may take to connect before the window can open.
pub(crate) const SET_UP_LIMIT: Duration = Duration::from_secs(20);

/// What a thread is to do.
pub(crate) struct Job<'a> {
    pub(crate) spec: &'a TrialSpec,
    pub(crate) dialer: &'a Dialer,
    /// Number of the thread.
    pub(crate) lane: u16,
    /// Clients of this thread.
    pub(crate) clients: usize,
}

/// Where threads meet before the window: each says that it is ready, then all learn when it opens.
pub(crate) struct StartLine {
    pub(crate) ready: Sender<Result<(), Error>>,
    pub(crate) window: Receiver<Window>,
}

/// Drives the thread's clients through a trial. `None` where the trial never started.
pub(crate) fn run(job: &Job<'_>, start: &StartLine) -> Option<Recorder> {
    let result = match &job.spec.statement {
        Statement::Connect | Statement::ConnectQuery => run_churn(job, start),
        Statement::PointSelect { table, rows } => run_pool(job, table, *rows, start),
    };
    match result {
        Ok(recorder) => recorder,
        Err(error) => {
            // Nobody listens once another thread has failed; then that error is the one to report.
            let _ = start.ready.send(Err(error));
            None
        }
    }
}

fn run_churn(job: &Job<'_>, start: &StartLine) -> Result<Option<Recorder>, Error> {
    let mut reactor = Reactor::new()?;
    let mut churn = Churn {
        dialer: job.dialer,
        sources: SourceAddresses::lane(job.lane),
        statement: &job.spec.statement,
        injected_delay: Duration::from_nanos(job.spec.injected_delay_ns),
        legs: Legs::default(),
    };
    let mut clients: Vec<_> = (0..job.clients).map(ChurnClient::new).collect();
    let Some(window) = start.line_up() else { return Ok(None) };
    let mut recorder = Recorder::new(window);
    for client in &mut clients {
        if let Err(error) = client.begin(&mut churn, &reactor) {
            recorder.error(&error);
        }
    }
    drive(&mut reactor, window, job.clients, &mut recorder, |ready, reactor, recorder| {
        clients[ready.key].ready(ready.readiness, &mut churn, reactor, recorder)
    })?;
    recorder.legs(churn.legs);
    Ok(Some(recorder))
}

fn run_pool(job: &Job<'_>, table: &str, rows: u32, start: &StartLine) -> Result<Option<Recorder>, Error> {
    let mut reactor = Reactor::new()?;
    let mut pool = Pool {
        dialer: job.dialer,
        sql: point_select(job.spec.engine, table),
        rows,
        random: Pcg64Mcg::seed_from_u64(job.spec.seed.wrapping_add(u64::from(job.lane))),
        injected_delay: Duration::from_nanos(job.spec.injected_delay_ns),
        legs: Legs::default(),
    };
    let mut clients: Vec<_> = (0..job.clients).map(PooledClient::new).collect();
    set_up(&mut reactor, &mut pool, &mut clients)?;
    let Some(window) = start.line_up() else { return Ok(None) };
    let mut recorder = Recorder::new(window);
    for client in &mut clients {
        if let Err(error) = client.start(&mut pool) {
            recorder.error(&error);
        }
    }
    drive(&mut reactor, window, job.clients, &mut recorder, |ready, _, recorder| {
        clients[ready.key].ready(ready.readiness, &mut pool, recorder)
    })?;
    clients.into_iter().for_each(PooledClient::close);
    recorder.legs(pool.legs);
    Ok(Some(recorder))
}

fn point_select(engine: Engine, table: &str) -> String {
    let parameter = match engine {
        Engine::MariaDb => "?",
        Engine::Postgres => "$1",
    };
    format!("SELECT c FROM {table} WHERE id = {parameter}")
}

/// Connects all clients and prepares their statements.
fn set_up(reactor: &mut Reactor, pool: &mut Pool<'_>, clients: &mut [PooledClient]) -> Result<(), Error> {
    for client in clients.iter_mut() {
        client.begin(pool, reactor)?;
    }
    let deadline = Instant::now() + SET_UP_LIMIT;
    loop {
        let waiting = clients.iter().filter(|client| !client.is_prepared()).count();
        if waiting == 0 {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = SET_UP_LIMIT.as_secs();
            return Err(Error::NotReady { waiting, clients: clients.len(), seconds });
        }
        for ready in reactor.wait(left)? {
            clients[ready.key].set_up(ready.readiness, pool)?;
        }
    }
}

/// Goes on with whichever client can, until the window has closed. A client that fails stops; once
/// all have, there is nothing left to wait for.
fn drive(
    reactor: &mut Reactor,
    window: Window,
    clients: usize,
    recorder: &mut Recorder,
    mut ready: impl FnMut(ciphertoll_net::Ready, &Reactor, &mut Recorder) -> Result<(), ciphertoll_net::Error>,
) -> Result<(), Error> {
    let mut batch = Vec::new();
    loop {
        let left = window.closes.saturating_duration_since(Instant::now());
        if left.is_zero() || recorder.failed_operations() >= clients as u64 {
            return Ok(());
        }
        batch.extend(reactor.wait(left)?);
        for event in batch.drain(..) {
            if let Err(error) = ready(event, reactor, recorder) {
                recorder.error(&error);
            }
        }
    }
}

impl StartLine {
    fn line_up(&self) -> Option<Window> {
        self.ready.send(Ok(())).ok()?;
        self.window.recv().ok()
    }
}
