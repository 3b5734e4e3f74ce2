//! The agent: the process on a host that starts load processes there, by what the coordinator says on stdin.

mod files;
mod listener;
mod message;
mod pod;
mod running;

use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ciphertoll_load::monotonic_now_ns;
use ciphertoll_model::Endpoint;
use ciphertoll_record::{SCRATCH_DIRECTORY_VARIABLE, Scratch, scratch_root, scratch_root_below};

use self::files::place;
use self::listener::ServerProcesses;
use self::message::{Input, ended, is_last, trial_of};
pub(crate) use self::pod::POD_IDLE_LIMIT;
pub use self::pod::{POD_COMMAND, wait_in_pod};
use self::running::RunningLoad;
use crate::protocol::{FromHost, Hello, HostTrial, PROTOCOL_VERSION, ToHost, read_line, write_line};

/// The hidden command that becomes the agent.
pub const HOST_COMMAND: &str = "__host";

/// An agent that hears nothing for this long, without a load process, has lost its coordinator behind a network that
/// swallows packets.
const IDLE_LIMIT: Duration = Duration::from_mins(30);

/// Runs the agent until the end of stdin.
pub fn run_host_process() -> io::Result<()> {
    let output = io::stdout().lock();
    let mut agent = match Agent::new(output) {
        Ok(agent) => agent,
        Err(reason) => {
            let refused = FromHost::Refused { reason: reason.clone() };
            write_line(io::stdout().lock(), &refused)?;
            return Err(io::Error::other(reason));
        }
    };
    write_line(&mut agent.output, &FromHost::Hello(hello()))?;
    agent.serve()
}

struct Agent<W> {
    output: W,
    program: PathBuf,
    scratch: Scratch,
    inputs: (Sender<Input>, Receiver<Input>),
    load: Option<RunningLoad>,
    servers: ServerProcesses,
}

fn hello() -> Hello {
    let environment = ciphertoll_host::environment::environment();
    Hello {
        protocol_version: PROTOCOL_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        kernel: environment.kernel,
        cpu_model: environment.cpu_model,
        processors: environment.cpus,
        tls_library: environment.tls_library,
        boot_id: boot_id(),
    }
}

/// The identity of this boot of this machine.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

impl<W: Write> Agent<W> {
    fn new(output: W) -> Result<Self, String> {
        let program =
            std::env::current_exe().map_err(|error| format!("cannot find the executable: {error}"))?;
        let chosen = std::env::var_os(SCRATCH_DIRECTORY_VARIABLE);
        let root = chosen.map_or_else(scratch_root, |directory| scratch_root_below(Path::new(&directory)));
        // What killed agents left, and killed runs on this machine. What cannot be removed is no obstacle.
        let _ = ciphertoll_record::sweep(&root);
        let scratch = Scratch::create(&root).map_err(|error| error.to_string())?;
        let servers = ServerProcesses::default();
        Ok(Self { output, program, scratch, inputs: mpsc::channel(), load: None, servers })
    }

    fn serve(&mut self) -> io::Result<()> {
        let sender = self.inputs.0.clone();
        thread::spawn(move || listen(&sender));
        loop {
            let input = match self.inputs.1.recv_timeout(IDLE_LIMIT) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) if self.load.is_some() => continue,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match input {
                Input::Said { message: ToHost::Bye, .. } | Input::Ended(None) => return Ok(()),
                Input::Ended(Some(error)) => {
                    write_line(&mut self.output, &FromHost::Refused { reason: error.to_string() })?;
                    return Err(error);
                }
                Input::Said { at_ns, message } => self.obey(at_ns, message)?,
                Input::Load(message) => self.forward(&message)?,
            }
        }
    }

    fn obey(&mut self, at_ns: u64, message: ToHost) -> io::Result<()> {
        match message {
            ToHost::Ping { number } => {
                let sent_ns = monotonic_now_ns();
                write_line(&mut self.output, &FromHost::Pong { number, received_ns: at_ns, sent_ns })
            }
            ToHost::Trial(trial) => self.start(*trial),
            ToHost::BeginAt { trial, monotonic_ns } => {
                if let Some(load) = self.load.as_mut().filter(|load| load.trial() == trial) {
                    load.begin_at(monotonic_ns);
                }
                Ok(())
            }
            ToHost::Abort { trial } => {
                self.load.take_if(|load| load.trial() == trial);
                Ok(())
            }
            ToHost::ReadServerCpu { number, port } => {
                let answer = self.servers.read(number, port);
                write_line(&mut self.output, &answer)
            }
            ToHost::Bye => Ok(()),
        }
    }

    /// A trial that cannot start ends at once, with the reason.
    fn start(&mut self, trial: HostTrial) -> io::Result<()> {
        // The one before it, if any, was given up.
        self.load = None;
        let HostTrial { number, mut spec, files } = trial;
        (spec.namespace, spec.processors) = (None, None);
        spec.threads = threads(spec.clients.count(), &spec.endpoint);
        let placed = place(&self.scratch, number, &mut spec, &files);
        drop(files);
        let started = placed.and_then(|placed| {
            RunningLoad::start(&self.program, &spec, number, placed, &self.scratch, self.inputs.0.clone())
        });
        match started {
            Ok(load) => {
                self.load = Some(load);
                Ok(())
            }
            Err(error) => write_line(&mut self.output, &ended(number, &error)),
        }
    }

    fn forward(&mut self, message: &FromHost) -> io::Result<()> {
        let Some(trial) = trial_of(message) else { return Ok(()) };
        // A trial that was given up may have said more.
        if self.load.as_ref().is_none_or(|load| load.trial() != trial) {
            return Ok(());
        }
        if is_last(message) {
            self.load = None;
        }
        write_line(&mut self.output, message)
    }
}

/// Reads messages until stdin ends.
fn listen(inputs: &Sender<Input>) {
    let mut stdin = BufReader::new(io::stdin().lock());
    loop {
        let read = read_line(&mut stdin);
        let at_ns = monotonic_now_ns();
        let input = match read {
            Ok(Some(message)) => Input::Said { at_ns, message },
            Ok(None) => Input::Ended(None),
            Err(error) => Input::Ended(Some(error)),
        };
        let is_last = matches!(input, Input::Ended(_));
        if inputs.send(input).is_err() || is_last {
            return;
        }
    }
}

/// One thread per processor of this host, but not more than clients. Clients that resolve names wait in turn, so that
/// they need more.
fn threads(clients: u16, endpoint: &Endpoint) -> u16 {
    const AT_LEAST_TO_RESOLVE: u16 = 16;
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u16);
    let wanted = match endpoint {
        Endpoint::Host { .. } => processors.max(AT_LEAST_TO_RESOLVE),
        Endpoint::Tcp(_) | Endpoint::Unix(_) => processors,
    };
    clients.min(wanted)
}
