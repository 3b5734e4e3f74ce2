//! One thread's clients on one readiness loop.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use ciphertoll_model::{Script, TrialOperation, TrialPace, TrialSpec};
use ciphertoll_net::{Dialer, Reactor, SourceAddresses};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::churn::{ChurnClient, ChurnShared, ConnectOperation, Query};
use crate::drive::{ClosedLoop, EventLoop, LoadClient};
use crate::legs::Legs;
use crate::limit::RateLimit;
use crate::recorder::Recorder;
use crate::repetition::Repetition;
use crate::schedule::Schedule;
use crate::script::CompiledScript;
use crate::transaction::{TransactionClient, TransactionShared};
use crate::window::MeasurementWindow;
use crate::ycsb::Inserts;

/// Time for clients to connect before the window.
pub(crate) const SET_UP_LIMIT: Duration = Duration::from_secs(20);

/// Makes the schedule's random numbers differ from those of the keys.
const SCHEDULE_SEED: u64 = 0x006f_7065_6e20_6c6f;

pub(crate) struct ThreadAssignment<'a> {
    pub(crate) spec: &'a TrialSpec,
    pub(crate) dialer: &'a Dialer,
    pub(crate) lane: u16,
    pub(crate) clients: usize,
    /// The records inserted by all clients of the trial.
    pub(crate) inserts: Arc<Inserts>,
}

/// Where threads synchronise before the window: each reports that it is ready, then all learn when the window opens.
pub(crate) struct StartBarrier {
    pub(crate) ready: Sender<Result<(), Error>>,
    pub(crate) window: Receiver<MeasurementWindow>,
}

/// Drives the thread's clients through a trial; `None` if the trial never started.
pub(crate) fn run(assignment: &ThreadAssignment<'_>, start: &StartBarrier) -> Option<Recorder> {
    let query = |script| assignment.query(script);
    let result = match &assignment.spec.work {
        TrialOperation::Connect => run_churn(assignment, Ok(ConnectOperation::Connect), start),
        TrialOperation::ConnectQuery(script) => {
            run_churn(assignment, query(script).map(ConnectOperation::ConnectQuery), start)
        }
        TrialOperation::FirstQuery(script) => {
            run_churn(assignment, query(script).map(ConnectOperation::FirstQuery), start)
        }
        TrialOperation::Transactions(script) => run_pool(assignment, script, start),
    };
    result.unwrap_or_else(|error| {
        // If another thread has failed, the receiver is gone and that error is reported.
        let _ = start.ready.send(Err(error));
        None
    })
}

impl ThreadAssignment<'_> {
    fn query(&self, script: &Script) -> Result<Query, Error> {
        let inserts = Arc::clone(&self.inserts);
        let program = CompiledScript::as_text(self.spec.engine, script, inserts)?;
        Ok(Query::new(program, self.random()))
    }

    fn random(&self) -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(self.spec.seed.wrapping_add(u64::from(self.lane)))
    }

    /// The thread's share of the rate is its share of the clients.
    fn share(&self, per_s: f64) -> f64 {
        per_s * self.clients as f64 / f64::from(self.spec.clients.count())
    }

    /// Waits for the window and drives the clients through it; `None` if the trial never started.
    fn drive<C: LoadClient>(
        &self,
        start: &StartBarrier,
        reactor: Reactor,
        clients: Vec<C>,
        shared: &mut C::Shared<'_>,
    ) -> Result<Option<(Recorder, Vec<C>)>, Error> {
        let Some(window) = start.line_up() else { return Ok(None) };
        let recorder = Recorder::new(window, self.spec.pace);
        let mut event_loop = EventLoop { clients, shared, reactor, recorder };
        match self.spec.pace {
            TrialPace::Closed => {
                // Threads begin one after the other, as one limit for all of them would let them.
                let first = |per_s: f64| {
                    let first = Duration::try_from_secs_f64(f64::from(self.lane) / per_s);
                    first.unwrap_or_default().min(window.closes - window.starts)
                };
                let limit =
                    |per_s| RateLimit::new(window.starts + first(per_s), self.share(per_s), self.clients);
                let limit = self.spec.max_per_s.map(limit);
                event_loop.run(&mut ClosedLoop { closes: window.closes, limit, next: None })?;
            }
            TrialPace::Open { per_s } => {
                let seed = self.spec.seed.wrapping_add(u64::from(self.lane)) ^ SCHEDULE_SEED;
                let mut schedule = Schedule::new(window, self.share(per_s), self.clients, seed);
                event_loop.run(&mut schedule)?;
                event_loop.recorder.unfinished(schedule.unfinished());
            }
        }
        Ok(Some((event_loop.recorder, event_loop.clients)))
    }
}

fn run_churn(
    assignment: &ThreadAssignment<'_>,
    purpose: Result<ConnectOperation, Error>,
    start: &StartBarrier,
) -> Result<Option<Recorder>, Error> {
    let mut churn = ChurnShared {
        dialer: assignment.dialer,
        sources: SourceAddresses::lane(assignment.lane),
        purpose: purpose?,
        repetition: Repetition::of(assignment.spec.repeated_share),
        legs: Legs::default(),
    };
    let clients = (0..assignment.clients).map(ChurnClient::new).collect();
    let driven = assignment.drive(start, Reactor::new()?, clients, &mut churn)?;
    Ok(driven.map(|(mut recorder, _)| {
        recorder.legs(churn.legs);
        recorder
    }))
}

fn run_pool(
    assignment: &ThreadAssignment<'_>,
    script: &Script,
    start: &StartBarrier,
) -> Result<Option<Recorder>, Error> {
    let mut reactor = Reactor::new()?;
    let mut pool = TransactionShared {
        dialer: assignment.dialer,
        program: CompiledScript::of(assignment.spec.engine, script, Arc::clone(&assignment.inserts))?,
        random: assignment.random(),
        legs: Legs::default(),
        sql: String::new(),
    };
    let mut clients: Vec<_> = (0..assignment.clients).map(TransactionClient::new).collect();
    set_up(&mut reactor, &mut pool, &mut clients)?;
    let driven = assignment.drive(start, reactor, clients, &mut pool)?;
    Ok(driven.map(|(mut recorder, clients)| {
        clients.into_iter().for_each(TransactionClient::close);
        recorder.legs(pool.legs);
        recorder
    }))
}

/// Connects all clients and prepares their statements.
fn set_up(
    reactor: &mut Reactor,
    pool: &mut TransactionShared<'_>,
    clients: &mut [TransactionClient],
) -> Result<(), Error> {
    for client in clients.iter_mut() {
        client.connect(pool, reactor)?;
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

impl StartBarrier {
    fn line_up(&self) -> Option<MeasurementWindow> {
        self.ready.send(Ok(())).ok()?;
        self.window.recv().ok()
    }
}
