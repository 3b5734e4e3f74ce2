//! Driver files. Parsed and checked as a whole once; nothing afterwards parses a string.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Auth, ChannelBinding, Engine, Path, ProxyFront, StatementProtocol, TlsStart, Workload,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::output::ResultRule;
use super::placeholder::{Placeholder, TextTemplate};

#[derive(Clone, Debug)]
pub enum DriverFile {
    /// A program that speaks the protocol of `__load`.
    Program(Box<ProgramFile>),
    Tool(Box<ToolFile>),
}

/// A program that speaks the protocol of `__load`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramFile {
    #[serde(rename = "kind")]
    _kind: KindName,
    pub(super) about: String,
    pub(super) command: Vec<TextTemplate>,
    pub(super) build: Option<BuildRecipe>,
    pub(super) can: Abilities,
    #[serde(default)]
    pub(super) without: Reasons,
    #[serde(default)]
    pub(super) unlike: DifferentWorkloads,
}

/// How a program is built from its sources.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RecipeTable")]
pub(super) struct BuildRecipe {
    pub(super) sources: Vec<String>,
    pub(super) how: BuildMethod,
    pub(super) needs: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BuildMethod {
    /// A command for `sh`, run in a directory with the sources; its result goes to `$OUTPUT`.
    Shell(String),
    /// A Python virtual environment with the packages of a requirements file, and the sources next to it.
    Python {
        /// A requirements file with hashes; one of the sources.
        requirements: String,
    },
}

/// `[build]` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipeTable {
    sources: Vec<String>,
    command: Option<String>,
    python: Option<String>,
    needs: String,
}

impl TryFrom<RecipeTable> for BuildRecipe {
    type Error = &'static str;

    fn try_from(table: RecipeTable) -> Result<Self, Self::Error> {
        let RecipeTable { mut sources, command, python, needs } = table;
        let how = match (command, python) {
            (Some(command), None) => BuildMethod::Shell(command),
            (None, Some(requirements)) => {
                if !sources.contains(&requirements) {
                    sources.push(requirements.clone());
                }
                BuildMethod::Python { requirements }
            }
            _ => return Err("[build] needs either `command` or `python`"),
        };
        Ok(Self { sources, how, needs })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Abilities {
    pub(super) engines: Vec<Engine>,
    pub(super) paths: Vec<PathKind>,
    /// All if absent.
    pub(super) workloads: Option<Vec<WorkloadName>>,
    /// All if absent.
    pub(super) auths: Option<Vec<AuthKind>>,
    #[serde(default)]
    pub(super) paces: Paces,
}

/// Which loops a program supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Paces {
    #[default]
    Closed,
    Any,
}

/// Reasons, by the name of an engine, workload, path, authentication or context that the driver does not support.
pub(super) type Reasons = BTreeMap<String, String>;

/// Workloads that this driver does differently, with a description.
pub(super) type DifferentWorkloads = BTreeMap<WorkloadName, String>;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolFile {
    #[serde(rename = "kind")]
    _kind: KindName,
    pub(super) about: String,
    pub(super) program: String,
    pub(super) needs: String,
    #[serde(default)]
    pub(super) arguments: Vec<TextTemplate>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, TextTemplate>,
    #[serde(default)]
    pub(super) files: BTreeMap<String, TextTemplate>,
    pub(super) engines: BTreeMap<Engine, EngineSection>,
    pub(super) workloads: BTreeMap<WorkloadName, WorkloadSection>,
    #[serde(default)]
    pub(super) protocols: BTreeMap<StatementProtocol, ToolSetting>,
    pub(super) result: ResultRule,
    #[serde(default)]
    pub(super) without: Reasons,
    #[serde(default)]
    pub(super) unlike: DifferentWorkloads,
}

/// Additions to the tool's arguments, environment and files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolSetting {
    #[serde(default)]
    pub(super) arguments: Vec<TextTemplate>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, TextTemplate>,
    #[serde(default)]
    pub(super) files: BTreeMap<String, TextTemplate>,
}

/// Arguments, environment and files of a section.
pub(super) type SettingParts<'a> =
    (&'a Vec<TextTemplate>, &'a BTreeMap<String, TextTemplate>, &'a BTreeMap<String, TextTemplate>);

/// Additions for an engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineSection {
    #[serde(default)]
    pub(super) arguments: Vec<TextTemplate>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, TextTemplate>,
    #[serde(default)]
    pub(super) files: BTreeMap<String, TextTemplate>,
    /// All if absent.
    pub(super) auths: Option<Vec<AuthKind>>,
    pub(super) paths: BTreeMap<PathKind, ToolSetting>,
    #[serde(default)]
    pub(super) without: Reasons,
}

/// Additions for a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadSection {
    #[serde(default)]
    pub(super) arguments: Vec<TextTemplate>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, TextTemplate>,
    #[serde(default)]
    pub(super) files: BTreeMap<String, TextTemplate>,
    /// Replaces the tool's.
    pub(super) result: Option<ResultRule>,
}

/// The kinds of path that drivers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathKind {
    /// TCP without encryption.
    Plain,
    Unix,
    /// TLS requested in the database protocol.
    Tls,
    /// TLS from the first byte.
    TlsDirect,
}

/// An authentication without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AuthKind {
    Trust,
    Scram,
    ScramPlus,
    ScramSha1,
    Md5,
    Native,
    CachingSha2,
    Ed25519,
    Parsec,
    Cert,
    AsAsked,
}

/// A workload without its modifiers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct WorkloadName(String);

/// The kind of a driver file. Read separately first: serde loses line numbers when a key selects the type.
#[derive(Deserialize)]
struct Kind {
    kind: KindName,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KindName {
    Program,
    Tool,
}

/// The error is one line that begins with its line number in `text`.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().trim().replace('\n', "; ");
        match error.span() {
            Some(span) => {
                let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
                format!("line {line}: {message}")
            }
            None => message,
        }
    })
}

impl DriverFile {
    pub fn parse(text: &str) -> Result<Self, String> {
        let Kind { kind } = read(text)?;
        match kind {
            KindName::Program => {
                let program: ProgramFile = read(text)?;
                program.check().map(|()| Self::Program(Box::new(program)))
            }
            KindName::Tool => {
                let tool: ToolFile = read(text)?;
                tool.check().map(|()| Self::Tool(Box::new(tool)))
            }
        }
    }

    /// How the driver's workload differs from what others do by that name.
    pub(super) fn unlike(&self, workload: Workload) -> Option<&str> {
        let unlike = match self {
            Self::Program(program) => &program.unlike,
            Self::Tool(tool) => &tool.unlike,
        };
        unlike.get(&WorkloadName::of(workload)).map(String::as_str)
    }

    pub fn about(&self) -> &str {
        match self {
            Self::Program(program) => &program.about,
            Self::Tool(tool) => &tool.about,
        }
    }
}

impl ProgramFile {
    fn check(&self) -> Result<(), String> {
        let Some(first) = self.command.first() else { return Err("`command` is empty".to_owned()) };
        if first.names(Placeholder::Build) && self.build.is_none() {
            return Err("`command` names {build}, but there is no [build]".to_owned());
        }
        let of_one_trial =
            |part: &TextTemplate| part.fill(&[(Placeholder::Build, String::new())].into()).is_none();
        if self.command.iter().any(of_one_trial) {
            return Err("`command` may name {build} only: a program reads its trial on stdin".to_owned());
        }
        let names = self.build.iter().flat_map(|recipe| &recipe.sources);
        names.map(String::as_str).try_for_each(check_file_name)
    }
}

impl ToolFile {
    fn check(&self) -> Result<(), String> {
        let mut settings: Vec<_> = vec![(&self.arguments, &self.environment, &self.files)];
        for engine in self.engines.values() {
            settings.push((&engine.arguments, &engine.environment, &engine.files));
            settings.extend(engine.paths.values().map(ToolSetting::parts));
        }
        settings.extend(self.workloads.values().map(|one| (&one.arguments, &one.environment, &one.files)));
        settings.extend(self.protocols.values().map(ToolSetting::parts));
        for (arguments, environment, files) in settings {
            if arguments.iter().any(|argument| argument.names(Placeholder::Password)) {
                let why = "{password} in `arguments`: every user of the machine could read it there; put it \
                         into `environment` or a file of `files`";
                return Err(why.to_owned());
            }
            let all = arguments.iter().chain(environment.values()).chain(files.values());
            if all.into_iter().any(|text| text.names(Placeholder::Build)) {
                return Err("{build} is for drivers of the kind \"program\"".to_owned());
            }
            files.keys().map(String::as_str).try_for_each(check_file_name)?;
        }
        Ok(())
    }
}

impl ToolSetting {
    pub(super) fn parts(&self) -> SettingParts<'_> {
        (&self.arguments, &self.environment, &self.files)
    }
}

/// A file name may not lead out of the directory.
fn check_file_name(name: &str) -> Result<(), String> {
    let is_name = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    if is_name { Ok(()) } else { Err(format!("\"{name}\" is not a file name next to the driver's file")) }
}

impl PathKind {
    pub fn of(path: Path) -> Self {
        match path {
            // A driver does not notice a tunnel.
            Path::Plain | Path::Compressed(_) | Path::Tunnel(_) => Self::Plain,
            Path::Unix => Self::Unix,
            // Nor a proxy.
            Path::Proxy(proxy) => match proxy.front {
                ProxyFront::Unix => Self::Unix,
                ProxyFront::Tcp => Self::Plain,
            },
            Path::Tls(tls) => match tls.start {
                TlsStart::Requested | TlsStart::Eager => Self::Tls,
                TlsStart::Direct => Self::TlsDirect,
            },
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Unix => "unix",
            Self::Tls => "tls",
            Self::TlsDirect => "tls-direct",
        }
    }
}

impl AuthKind {
    pub(super) fn of(auth: Auth) -> Self {
        match auth {
            Auth::Trust => Self::Trust,
            Auth::Scram { binding: ChannelBinding::Unbound, .. } => Self::Scram,
            Auth::Scram { binding: ChannelBinding::ServerEndPoint, .. } => Self::ScramPlus,
            Auth::ScramSha1 => Self::ScramSha1,
            Auth::Md5 => Self::Md5,
            Auth::Native => Self::Native,
            Auth::CachingSha2 => Self::CachingSha2,
            Auth::Ed25519 => Self::Ed25519,
            Auth::Parsec => Self::Parsec,
            Auth::Cert => Self::Cert,
            Auth::AsAsked => Self::AsAsked,
        }
    }

    /// Its name in driver files.
    pub(super) fn name_of(auth: Auth) -> String {
        match Self::of(auth) {
            Self::Scram => "scram".to_owned(),
            Self::ScramPlus => "scram-plus".to_owned(),
            _ => auth.to_string(),
        }
    }
}

impl WorkloadName {
    pub(super) fn of(workload: Workload) -> Self {
        Self(workload.name().to_owned())
    }
}

impl TryFrom<String> for WorkloadName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known = Workload::ALL.map(Workload::name);
        if known.contains(&name.as_str()) {
            Ok(Self(name))
        } else {
            Err(format!("unknown workload \"{name}\"; it is one of: {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: &str = include_str!("../../../../drivers/mysqlslap.toml");

    #[test]
    fn a_password_may_not_be_an_argument() {
        let text = TOOL.replace("--user={user}", "--password={password}");
        let error = DriverFile::parse(&text).unwrap_err();
        assert!(error.contains("every user of the machine could read it there"), "{error}");
    }

    #[test]
    fn unknown_keys_workloads_and_places_are_errors() {
        let wrong = |from: &str, to: &str, words: &str| {
            assert!(TOOL.contains(from), "{from}");
            let error = DriverFile::parse(&TOOL.replace(from, to)).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        };
        wrong("needs =", "wants =", "wants");
        wrong("[workloads.connect-query]", "[workloads.conect]", "unknown workload \"conect\"");
        wrong("files.options", "files.\"../options\"", "not a file name next to the driver's file");
        wrong("unit = \"s\"", "unit = \"h\"", "h");
        wrong("kind = \"tool\"", "kind = \"tol\"", "tol");
    }

    #[test]
    fn a_program_is_built_in_one_way() {
        let text = |build: &str| {
            format!(
                "kind = \"program\"\nabout = \"x\"\ncommand = [\"{{build}}/bin/python3\"]\n[build]\nsources = [\"x.py\"]\n\
                 needs = \"x\"\n{build}\n[can]\nengines = [\"ferretdb\"]\npaths = [\"plain\"]\n"
            )
        };
        let DriverFile::Program(program) = DriverFile::parse(&text("python = \"x.txt\"")).unwrap() else {
            panic!("a program");
        };
        let recipe = program.build.unwrap();
        assert_eq!(recipe.how, BuildMethod::Python { requirements: "x.txt".to_owned() });
        assert_eq!(recipe.sources, ["x.py", "x.txt"]);
        let wrong = |build: &str, words: &str| {
            let error = DriverFile::parse(&text(build)).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        };
        wrong("", "either `command` or `python`");
        wrong("command = \"x\"\npython = \"x.txt\"", "either `command` or `python`");
        wrong("python = \"../x.txt\"", "not a file name next to the driver's file");
        wrong("pyton = \"x.txt\"", "pyton");
    }

    #[test]
    fn a_programs_command_has_no_trial_placeholders() {
        let text = "kind = \"program\"\nabout = \"x\"\ncommand = [\"x\", \"{port}\"]\n[can]\n\
                    engines = [\"mariadb\"]\npaths = [\"plain\"]\n";
        assert!(DriverFile::parse(text).unwrap_err().contains("reads its trial on stdin"));
        assert!(DriverFile::parse(&text.replace("{port}", "{build}")).is_ok());
        assert!(DriverFile::parse(&text.replace("\"x\", \"{port}\"", "\"{build}\"")).is_err());
    }
}
