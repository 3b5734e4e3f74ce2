//! From a trial and a tool's file to the tool's arguments, environment and files. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use ciphertoll_model::{
    Auth, ChannelBinding, Endpoint, Scale, ScriptStatement, StatementProtocol, TlsVersion, TrialOperation,
    TrialPace, TrialSpec, Workload,
};

use super::error::Error;
use super::file::{PathKind, SettingParts, ToolFile, WorkloadName};
use super::output::ResultRule;
use super::placeholder::{Placeholder, TextTemplate, Values};

/// A trial in terms of its cell, as tools have their own scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub workload: Workload,
    /// Rows of the largest table.
    pub scale: Scale,
}

impl Task {
    pub(super) fn parse(workload: &str, scale: &str) -> Result<Self, Error> {
        let wrong = |error: &dyn std::fmt::Display| Error::Trial(error.to_string());
        Ok(Self {
            workload: workload.parse().map_err(|error| wrong(&error))?,
            scale: scale.parse().map_err(|error| wrong(&error))?,
        })
    }

    pub(super) fn arguments(&self) -> [String; 2] {
        [self.workload.to_string(), self.scale.to_string()]
    }
}

/// How a tool is run for one trial.
pub(super) struct Invocation<'a> {
    pub(super) program: &'a str,
    pub(super) rule: &'a ResultRule,
    arguments: Vec<&'a TextTemplate>,
    environment: BTreeMap<&'a str, &'a TextTemplate>,
    files: BTreeMap<&'a str, &'a TextTemplate>,
}

impl<'a> Invocation<'a> {
    /// Builds the invocation for a trial. Later additions follow earlier ones, and replace those with the same name.
    pub(super) fn of(file: &'a ToolFile, spec: &TrialSpec, task: &Task) -> Result<Self, Error> {
        let absent = |what: String| Error::Trial(format!("{} does not do {what}", file.program));
        if spec.pace != TrialPace::Closed {
            return Err(absent("open loops: its clients wait for their answers".to_owned()));
        }
        let engine = file.engines.get(&spec.engine).ok_or_else(|| absent(spec.engine.to_string()))?;
        let kind = path_kind(spec);
        let path = engine.paths.get(&kind).ok_or_else(|| absent(format!("path {}", kind.label())))?;
        let workload = file
            .workloads
            .get(&WorkloadName::of(task.workload))
            .ok_or_else(|| absent(task.workload.to_string()))?;
        let mut invocation = Self {
            program: &file.program,
            rule: workload.result.as_ref().unwrap_or(&file.result),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        // The tool's own options come first, as some count only there.
        invocation.add((&file.arguments, &file.environment, &file.files));
        invocation.add((&engine.arguments, &engine.environment, &engine.files));
        invocation.add(path.parts());
        if let Some(protocol) = protocol(&spec.work).and_then(|protocol| file.protocols.get(&protocol)) {
            invocation.add(protocol.parts());
        }
        // A positional argument such as a script's name is often expected last.
        invocation.add((&workload.arguments, &workload.environment, &workload.files));
        Ok(invocation)
    }

    fn add(&mut self, (arguments, environment, files): SettingParts<'a>) {
        self.arguments.extend(arguments);
        self.environment.extend(environment.iter().map(|(name, value)| (name.as_str(), value)));
        self.files.extend(files.iter().map(|(name, value)| (name.as_str(), value)));
    }

    /// The arguments; those with a placeholder that has no value are omitted.
    pub(super) fn arguments(&self, values: &Values) -> Vec<String> {
        self.arguments.iter().filter_map(|argument| argument.fill(values)).collect()
    }

    /// The environment, likewise.
    pub(super) fn environment(&self, values: &Values) -> impl Iterator<Item = (&'a str, String)> {
        self.environment.iter().filter_map(|(name, value)| Some((*name, value.fill(values)?)))
    }

    /// The files' contents by name, likewise.
    pub(super) fn files(&self, values: &Values) -> impl Iterator<Item = (&'a str, String)> {
        self.files.iter().filter_map(|(name, text)| Some((*name, text.fill(values)?)))
    }

    /// Whether the tool counts operations instead of time.
    pub(super) fn counts_operations(&self) -> bool {
        self.arguments.iter().any(|argument| argument.names(Placeholder::Operations))
    }
}

fn path_kind(spec: &TrialSpec) -> PathKind {
    match (&spec.endpoint, &spec.tls) {
        (Endpoint::Unix(_), _) => PathKind::Unix,
        (Endpoint::Tcp(_) | Endpoint::Host { .. }, None) => PathKind::Plain,
        (Endpoint::Tcp(_) | Endpoint::Host { .. }, Some(tls)) => match tls.start {
            // Eager TLS is never requested of a tool.
            ciphertoll_model::TlsStart::Requested | ciphertoll_model::TlsStart::Eager => PathKind::Tls,
            ciphertoll_model::TlsStart::Direct => PathKind::TlsDirect,
        },
    }
}

/// How statements are sent. A script's frame, such as BEGIN, may be text while its statements are prepared.
fn protocol(work: &TrialOperation) -> Option<StatementProtocol> {
    let is_prepared = |one: &ScriptStatement| one.protocol == StatementProtocol::Prepared;
    match work {
        TrialOperation::Connect => None,
        TrialOperation::Transactions(script) if script.statements.iter().any(is_prepared) => {
            Some(StatementProtocol::Prepared)
        }
        TrialOperation::ConnectQuery(_) | TrialOperation::FirstQuery(_) | TrialOperation::Transactions(_) => {
            Some(StatementProtocol::Text)
        }
    }
}

/// The values of placeholders, except those of a single run ([`Placeholder::Seconds`], operations).
pub(super) fn values(
    spec: &TrialSpec,
    task: &Task,
    directory: &Path,
    password: &str,
) -> Result<Values, Error> {
    // Characters that an option file, an environment and a shell all accept unquoted.
    let is_plain = |character: char| character.is_ascii_graphic() && !"\"'\\`$#".contains(character);
    if !password.chars().all(is_plain) {
        let why = "the password has characters with a special meaning in the tool's option file";
        return Err(Error::Trial(why.to_owned()));
    }
    let text = |path: &Path| path.display().to_string();
    let mut values = Values::from([
        (Placeholder::User, spec.user.clone()),
        (Placeholder::Password, password.to_owned()),
        (Placeholder::Clients, spec.clients.to_string()),
        (Placeholder::Threads, spec.threads.clamp(1, spec.clients.count()).to_string()),
        (Placeholder::Rows, task.scale.to_string()),
        (Placeholder::Branches, task.scale.branches().to_string()),
        // Some tools' seeds are signed 32-bit numbers.
        (Placeholder::Seed, (spec.seed & 0x7fff_ffff).to_string()),
        (Placeholder::Directory, text(directory)),
        (Placeholder::ChannelBinding, channel_binding(spec.auth).to_owned()),
    ]);
    values.extend(spec.database.clone().map(|database| (Placeholder::Database, database)));
    match &spec.endpoint {
        Endpoint::Tcp(address) => {
            values.insert(Placeholder::Host, address.ip().to_string());
            values.insert(Placeholder::Port, address.port().to_string());
        }
        Endpoint::Host { host, port, .. } => {
            values.insert(Placeholder::Host, host.clone());
            values.insert(Placeholder::Port, port.to_string());
        }
        Endpoint::Unix(socket) => {
            values.insert(Placeholder::Socket, text(socket));
            values.extend(socket.parent().map(|parent| (Placeholder::SocketDirectory, text(parent))));
            // PostgreSQL names its sockets by port.
            let name = socket.file_name().and_then(|name| name.to_str());
            let port = name.and_then(|name| name.strip_prefix(".s.PGSQL."));
            values.extend(port.map(|port| (Placeholder::Port, port.to_owned())));
        }
    }
    if let Some(tls) = &spec.tls {
        values.extend(tls.ca_file.as_ref().map(|file| (Placeholder::CaFile, text(file))));
        values.insert(Placeholder::ServerName, tls.server_name.clone());
        values.insert(Placeholder::TlsVersion, version(tls.parameters.version).to_owned());
        if let Some(identity) = &tls.identity {
            values.insert(Placeholder::CertificateFile, text(&identity.certificate_file));
            values.insert(Placeholder::KeyFile, text(&identity.key_file));
        }
    }
    Ok(values)
}

/// OpenSSL's spelling, which every tool uses.
fn version(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::Tls10 => "TLSv1",
        TlsVersion::Tls11 => "TLSv1.1",
        TlsVersion::Tls12 => "TLSv1.2",
        TlsVersion::Tls13 => "TLSv1.3",
    }
}

fn channel_binding(auth: Auth) -> &'static str {
    match auth {
        Auth::Scram { binding: ChannelBinding::ServerEndPoint, .. } => "require",
        _ => "disable",
    }
}
