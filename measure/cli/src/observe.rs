//! `observe`: what database connections do, from a capture or from this machine's interfaces.

mod clients;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ciphertoll_host::accounting::own_cpu_time;
use ciphertoll_host::companion::{Companion, end_with_parent};
use ciphertoll_host::privileges;
use ciphertoll_link::{HAND_OVER, LiveCapture, MOST_PORTS};
use ciphertoll_model::ExitCode;
use ciphertoll_observe::{
    Capture, CaptureError, Frame, LinkType, Observation, Ports, Question, SourceEnd, Watch,
};
use ciphertoll_record::ObservationDirectory;
use ciphertoll_wire::passive::AccountNames;
use jiff::Timestamp;

use crate::arguments::{ObserveArguments, ObserveFormat, ServerName};
use crate::failure::Failure;
use crate::observe::clients::ClientWatch;
use crate::observed::RunModels;
use crate::output::{OutputFile, print_document, print_text};
use crate::program::{program, watch_signals};
use crate::progress::tell;

const NO_RIGHT: &str = "\
cannot observe: the right to capture packets (CAP_NET_RAW) is missing; run it with sudo, or give the right to the program \
(setcap cap_net_raw+ep), or read a capture: sudo tcpdump -w - … | ciphertoll observe --pcap -";

/// The hidden command of the process that asks for names and servers.
pub(crate) const ASK_COMMAND: &str = "__observe-ask";
/// And of its answer.
const MAX_QUESTION_BYTES: usize = 4 << 20;
/// What the companion may take more than its own limits.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How often an idle observer looks whether it is to end.
const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// At the end, how long the kernel has to hand over what has arrived: many times what it should take.
const LAST_WAIT: Duration = Duration::from_millis(20 * HAND_OVER.as_millis() as u64);

pub(crate) fn observe(arguments: &ObserveArguments) -> Result<ExitCode, Failure> {
    let ports: Ports = arguments.port.iter().map(|server| (server.port, server.protocol)).collect();
    // Later, nothing can be opened.
    let models = RunModels::find(&arguments.run_dir, arguments.model.as_deref())?;
    let output = arguments.output.as_deref().map(OutputFile::open).transpose()?;
    let record = make_record(&arguments.run_dir);
    let companion = (arguments.resolve || arguments.probe).then(start_asking).transpose()?;
    let observation = match &arguments.pcap {
        Some(path) => read(path, ports, arguments.names()),
        None => watch(arguments, ports),
    };
    let mut observation = match observation {
        Ok(observation) => observation,
        Err(failure) => {
            if let Some(record) = record {
                record.abandon();
            }
            return Err(failure);
        }
    };
    if let Some(companion) = companion {
        ask(companion, arguments, &mut observation);
    }
    if let Some(unknown) = models.add_costs(&mut observation) {
        tell(&unknown);
    }
    let code = print(&observation, output, arguments.format)?;
    keep(record, &observation)?;
    Ok(code)
}

fn start_asking() -> Result<Companion, Failure> {
    Companion::start(&program()?, &[ASK_COMMAND]).map_err(|error| {
        Failure::new(ExitCode::HostResource, format!("cannot start the process that asks: {error}"))
    })
}

/// Asks for names, and servers for what they accept. What was seen is printed in any case.
fn ask(mut companion: Companion, arguments: &ObserveArguments, observation: &mut Observation) {
    let mut question = Question::about(observation, arguments.resolve, arguments.probe);
    for ServerName { server, name } in &arguments.server_name {
        if !question.set_server_name(*server, name) {
            tell(&format!("--server-name {server}={name}: this server was not seen"));
        }
    }
    if question.is_empty() {
        return;
    }
    if arguments.probe {
        tell(&question.words());
    }
    let answer = serde_json::to_vec(&question).map_err(io::Error::from).and_then(|text| {
        companion.send(&text)?;
        let answer = companion.answer(MAX_QUESTION_BYTES, question.limit() + ANSWER_WAIT)?;
        Ok(serde_json::from_slice(&answer)?)
    });
    match answer {
        Ok(answer) => observation.add_answer(answer),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            tell("interrupted: names and servers were not asked for");
        }
        Err(error) => tell(&format!("cannot ask for names and servers: {error}")),
    }
}

/// The companion's part: it has no privileges, and ends with its answer.
pub(crate) fn answer() -> io::Result<()> {
    privileges::give_up()?;
    // While it asks, it does not read its input.
    end_with_parent()?;
    let mut question = Vec::new();
    io::stdin().lock().take(MAX_QUESTION_BYTES as u64).read_to_end(&mut question)?;
    if question.is_empty() {
        // The observer has ended.
        return Ok(());
    }
    let question: Question = serde_json::from_slice(&question)?;
    Ok(serde_json::to_writer(io::stdout(), &question.ask())?)
}

fn print(
    observation: &Observation,
    output: Option<OutputFile>,
    format: ObserveFormat,
) -> Result<ExitCode, Failure> {
    let screen = ciphertoll_observe::first_screen(observation);
    match (output, format) {
        (None, ObserveFormat::Terminal) => print_text(&screen),
        (None, format) => print_document(&document(observation, format)?),
        (Some(output), format) => {
            output.replace(&document(observation, format)?)?;
            print_text(&screen)
        }
    }
}

/// The record's directory. To read a capture, none is needed.
fn make_record(runs: &Path) -> Option<ObservationDirectory> {
    match ObservationDirectory::create(runs, Timestamp::now()) {
        Ok(record) => Some(record),
        Err(error) => {
            tell(&format!("this observation is not recorded: {error}"));
            None
        }
    }
}

fn keep(record: Option<ObservationDirectory>, observation: &Observation) -> Result<(), Failure> {
    let Some(record) = record else { return Ok(()) };
    if observation.pairs.is_empty() {
        record.abandon();
        return Ok(());
    }
    let document = serde_json::to_string_pretty(observation)?;
    let path = record.path().display().to_string();
    match record.finish(&document) {
        Ok(()) => tell(&format!("recorded in {path}")),
        Err(error) => tell(&format!("this observation is not recorded: {error}")),
    }
    Ok(())
}

fn document(observation: &Observation, format: ObserveFormat) -> Result<String, Failure> {
    let json = match format {
        ObserveFormat::Terminal => return Ok(ciphertoll_observe::first_screen(observation)),
        ObserveFormat::Html => return Ok(ciphertoll_report::observation_html(observation)),
        ObserveFormat::Markdown => return Ok(ciphertoll_report::observation_markdown(observation)),
        ObserveFormat::Csv => return Ok(ciphertoll_report::observation_csv(observation)),
        ObserveFormat::Cyclonedx => ciphertoll_observe::cyclonedx(observation),
        ObserveFormat::Json => serde_json::to_string_pretty(observation),
    };
    json.map_err(|error| Failure::new(ExitCode::Internal, error.to_string()))
}

fn read(path: &Path, ports: Ports, names: AccountNames) -> Result<Observation, Failure> {
    let unreadable = |error: &CaptureError| Failure::usage(error.to_string());
    let name = path.display().to_string();
    let (name, input): (_, Box<dyn Read>) = if name == "-" {
        ("standard input".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let file = File::open(path).map_err(|source| CaptureError::Unreadable { path: path.into(), source });
        (name, Box::new(file.map_err(|error| unreadable(&error))?))
    };
    let watch = Watch::new(ports, names);
    confine()?;
    let capture = Capture::from_reader(&name, input).map_err(|error| unreadable(&error))?;
    watch.read(&name, capture).map_err(|error| unreadable(&error))
}

/// Watches this machine's interfaces until the time is over, or Ctrl-C.
#[expect(clippy::print_stderr, reason = "progress")]
fn watch(arguments: &ObserveArguments, ports: Ports) -> Result<Observation, Failure> {
    let interface = arguments.interface.as_deref();
    let mut live = open(interface, &ports)?;
    // It needs rights that are given up here.
    let mut clients = ClientWatch::start(&ports);
    let (mut watch, interrupt) = (Watch::new(ports, arguments.names()), watch_signals()?);
    confine()?;
    let name = interface.map_or_else(|| "all interfaces".to_owned(), |name| format!("interface {name}"));
    let most = arguments.r#for.duration();
    eprintln!("observing {name} for {}; Ctrl-C ends it and prints what was seen", arguments.r#for);
    let begun = Instant::now();
    let mut ending: Option<Ending> = None;
    loop {
        if ending.is_none() && (begun.elapsed() >= most || interrupt.ending().is_some()) {
            ending = Some(Ending::now());
            clients.ask();
        }
        let Some(packet) = live.take() else {
            let left = match &ending {
                Some(ending) => ending.until.saturating_duration_since(Instant::now()),
                None => LONGEST_WAIT.min(most.saturating_sub(begun.elapsed())),
            };
            if ending.is_some() && left.is_zero() {
                break;
            }
            live.wait(left).map_err(|error| cannot_observe(&error))?;
            continue;
        };
        if ending.as_ref().is_some_and(|ending| packet.time_ns > ending.last_ns) {
            break;
        }
        watch.frame(&Frame {
            time_ns: packet.time_ns,
            link_type: LinkType::Ip,
            interface: packet.interface,
            direction: None,
            wire_bytes: packet.wire_bytes,
            data: packet.data,
        });
    }
    let dropped = live.take_dropped();
    let watched = begun.elapsed();
    let mut observation = watch.finish(SourceEnd { name, dropped, truncated: false });
    let naming = clients.name_in(&mut observation);
    tell_own_cpu(watched, naming);
    Ok(observation)
}

/// What looking cost: the CPU time of this process and of the one that names clients.
fn tell_own_cpu(watched: Duration, naming: Duration) {
    let Ok(own) = own_cpu_time() else { return };
    let seconds = (own + naming).as_secs_f64();
    let share = ciphertoll_report::significant(100.0 * seconds / watched.as_secs_f64());
    let seconds = ciphertoll_report::significant(seconds);
    tell(&format!("the observer used {seconds} s of CPU time: {share} % of a processor"));
}

/// The end of a live observation: what arrived before it is read, too.
struct Ending {
    /// The time of the last packet, since the epoch.
    last_ns: u64,
    until: Instant,
}

impl Ending {
    fn now() -> Self {
        // What was sent before the end may be captured a little later: the kernel delivers it when it gets to it.
        let last = SystemTime::now() + HAND_OVER;
        let since_epoch = last.duration_since(UNIX_EPOCH).unwrap_or_default();
        let last_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        Self { last_ns, until: Instant::now() + LAST_WAIT }
    }
}

/// From here on, this process has no privileges and can open nothing. Whatever else is needed, such as the file to be written,
/// must have been opened or read before.
fn confine() -> Result<(), Failure> {
    privileges::give_up().and_then(|()| privileges::confine()).map_err(|error| cannot_observe(&error))
}

fn cannot_observe(error: &io::Error) -> Failure {
    Failure::new(ExitCode::HostResource, format!("cannot observe: {error}"))
}

fn open(interface: Option<&str>, ports: &Ports) -> Result<LiveCapture, Failure> {
    if ports.len() > MOST_PORTS {
        return Err(Failure::usage(format!("--port: more than {MOST_PORTS} ports")));
    }
    let numbers: Vec<_> = ports.keys().copied().collect();
    LiveCapture::open(interface, &numbers).map_err(|error| {
        if error.kind() == io::ErrorKind::PermissionDenied {
            return Failure::new(ExitCode::HostResource, NO_RIGHT);
        }
        let on = interface.map(|name| format!(" on {name}")).unwrap_or_default();
        Failure::new(ExitCode::HostResource, format!("cannot observe{on}: {error}"))
    })
}
