//! One thread's clients on one readiness loop.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use ciphertoll_model::{TrialPace, TrialSpec, Work};
use ciphertoll_net::{Dialer, Reactor, SourceAddresses};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::churn::{Churn, ChurnClient, Purpose, Query};
use crate::drive::{Client, Drive};
use crate::legs::Legs;
use crate::recorder::Recorder;
use crate::schedule::Schedule;
use crate::script::Program;
use crate::transaction::{Pool, TransactionClient};
use crate::window::Window;

/// How long clients may take to connect before the window can open.
pub(crate) const SET_UP_LIMIT: Duration = Duration::from_secs(20);

/// Has the schedule's times differ from what the keys are drawn with.
const SCHEDULE_SEED: u64 = 0x006f_7065_6e20_6c6f;

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
    let result = match job.purpose() {
        Ok(Some(purpose)) => run_churn(job, purpose, start),
        Ok(None) => run_pool(job, start),
        Err(error) => Err(error),
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

impl Job<'_> {
    /// What a connection is opened for; `None` where connections stay.
    fn purpose(&self) -> Result<Option<Purpose>, Error> {
        let query = |script| {
            let program = Program::first_as_text(self.spec.engine, script)?;
            Ok::<_, Error>(Query::new(program, self.random()))
        };
        Ok(match &self.spec.work {
            Work::Connect => Some(Purpose::Connect),
            Work::ConnectQuery(script) => Some(Purpose::ConnectQuery(query(script)?)),
            Work::FirstQuery(script) => Some(Purpose::FirstQuery(query(script)?)),
            Work::Transactions(_) => None,
        })
    }

    fn program(&self) -> Result<Program, Error> {
        match &self.spec.work {
            Work::Transactions(script) | Work::ConnectQuery(script) | Work::FirstQuery(script) => {
                Program::of(self.spec.engine, script)
            }
            Work::Connect => Err(Error::Script("it has no step".to_owned())),
        }
    }

    fn random(&self) -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(self.spec.seed.wrapping_add(u64::from(self.lane)))
    }

    fn injected_delay(&self) -> Duration {
        Duration::from_nanos(self.spec.injected_delay_ns)
    }

    /// The thread's share of the operations is its share of the clients.
    fn schedule(&self, window: Window, per_s: f64) -> Schedule {
        let share = self.clients as f64 / f64::from(self.spec.clients.count());
        let seed = self.spec.seed.wrapping_add(u64::from(self.lane)) ^ SCHEDULE_SEED;
        Schedule::new(window, per_s * share, self.clients, seed)
    }

    fn drive<C: Client>(&self, window: Window, mut drive: Drive<'_, '_, C>) -> Result<Vec<C>, Error> {
        match self.spec.pace {
            TrialPace::Closed => drive.closed(window)?,
            TrialPace::Open { per_s } => drive.open(window, self.schedule(window, per_s))?,
        }
        Ok(drive.clients)
    }
}

fn run_churn(job: &Job<'_>, purpose: Purpose, start: &StartLine) -> Result<Option<Recorder>, Error> {
    let mut reactor = Reactor::new()?;
    let mut churn = Churn {
        dialer: job.dialer,
        sources: SourceAddresses::lane(job.lane),
        purpose,
        injected_delay: job.injected_delay(),
        legs: Legs::default(),
    };
    let clients: Vec<_> = (0..job.clients).map(ChurnClient::new).collect();
    let Some(window) = start.line_up() else { return Ok(None) };
    let mut recorder = Recorder::new(window, job.spec.pace);
    let (reactor, shared) = (&mut reactor, &mut churn);
    job.drive(window, Drive { clients, shared, reactor, recorder: &mut recorder })?;
    recorder.legs(churn.legs);
    Ok(Some(recorder))
}

fn run_pool(job: &Job<'_>, start: &StartLine) -> Result<Option<Recorder>, Error> {
    let mut reactor = Reactor::new()?;
    let mut pool = Pool {
        dialer: job.dialer,
        program: job.program()?,
        random: job.random(),
        legs: Legs::default(),
        injected_delay: job.injected_delay(),
        sql: String::new(),
    };
    let mut clients: Vec<_> = (0..job.clients).map(TransactionClient::new).collect();
    set_up(&mut reactor, &mut pool, &mut clients)?;
    let Some(window) = start.line_up() else { return Ok(None) };
    let mut recorder = Recorder::new(window, job.spec.pace);
    let (reactor, shared) = (&mut reactor, &mut pool);
    let clients = job.drive(window, Drive { clients, shared, reactor, recorder: &mut recorder })?;
    clients.into_iter().for_each(TransactionClient::close);
    recorder.legs(pool.legs);
    Ok(Some(recorder))
}

/// Connects all clients and prepares their statements.
fn set_up(
    reactor: &mut Reactor,
    pool: &mut Pool<'_>,
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

impl StartLine {
    fn line_up(&self) -> Option<Window> {
        self.ready.send(Ok(())).ok()?;
        self.window.recv().ok()
    }
}
