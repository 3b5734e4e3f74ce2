//! The command line, as types that clap parses.

#![expect(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments here are the text of --help, with its brackets"
)]

mod hosts;
mod load;
mod observe;
mod paths;
pub(crate) mod runs;
mod schema;
#[cfg(test)]
mod tests;
mod url;

use std::ffi::OsString;
use std::path::PathBuf;

use ciphertoll_fetch::{FETCHABLE, Fetchable};
use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    AtRest, Auth, Clients, CpuPinning, Ctx, Driver, LatenessLimit, Link, Pace, Path, ScaleLevel, ServerLevel,
    Setting, Size, StealLimit, Storage, Workload,
};
use ciphertoll_record::{DEFAULT_RUNS, SCRATCH_DIRECTORY_VARIABLE as SCRATCH_DIR};
use ciphertoll_report::Plot;
use clap::builder::styling::Styles;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use self::hosts::HostArguments;
pub(crate) use self::load::{
    AdviseArguments, LoadArguments, ObservedArguments, PredictArguments, PriceArguments,
};
pub(crate) use self::observe::{ObserveArguments, ObserveFormat, ServerName};
pub(crate) use self::runs::RecordArguments;
use self::runs::RunsArguments;
pub(crate) use self::schema::{SchemaArguments, SchemaDocument};
pub(crate) use self::url::UrlArguments;
use crate::tde::TdeArguments;

/// What does encryption cost your database, and how do you make it cost nothing?
#[derive(Debug, Parser)]
#[command(name = "ciphertoll", version, arg_required_else_help = true, styles = Styles::plain(),
          max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, no regression · 1 internal · 2 usage · 3 regression · 4 inconclusive (compare) · 5 nothing could run · 6 done in part ·
7 server refused · 8 record unusable · 9 host resource · 130/143 interrupted";

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Measure what encryption costs, on private servers or on your own
    Run(Box<RunArguments>),
    /// List published studies that can be repeated, or show one
    #[command(after_help = PRESETS_EXAMPLES)]
    Presets {
        /// Show this study: what it says, its numbers and its conclusions; default: list all
        #[arg(value_name = "PRESET")]
        name: Option<String>,
        /// Print JSON instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Run a command against a private server, over a chosen path and link
    Lab(Box<LabArguments>),
    /// Continue an interrupted run
    Resume(ResumeArguments),
    /// Show the results of a recorded run
    Report(ReportArguments),
    /// Compare two runs and report changed costs
    Compare(CompareArguments),
    /// Predict latency, throughput, cores and memory of a load that was not measured
    Predict(PredictArguments),
    /// Advise a configuration for a load: its cost, its saving, and the settings for it
    Advise(AdviseArguments),
    /// Say what your database connections do: how they are encrypted, how long a connect takes, what to change
    Observe(ObserveArguments),
    /// List the recorded runs; remove them
    Runs(RunsArguments),
    /// List the installed servers; fetch others
    #[command(args_conflicts_with_subcommands = true, after_help = SERVERS_EXAMPLES)]
    Servers {
        #[command(subcommand)]
        command: Option<ServersCommand>,
        /// Print JSON instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Check this machine and suggest fixes
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor {
        /// Print JSON instead of the table
        #[arg(long)]
        json: bool,
        /// The directory of scratch files to check, as for `run`
        #[arg(long, value_name = "DIR", env = SCRATCH_DIR, hide_env_values = true, value_parser = directory)]
        scratch_dir: Option<PathBuf>,
    },
    /// Encrypt PostgreSQL data: manage keys, convert clusters, run PostgreSQL programs
    Tde(TdeArguments),
    /// Print the JSON Schema of a document
    Schema(SchemaArguments),
    /// Print the completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES, override_usage = "ciphertoll completions <SHELL>")]
    Completions {
        /// The shell
        #[arg(value_parser = choice(&SHELLS))]
        shell: Option<Shell>,
    },
    /// Print a man page
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The subcommand; default: ciphertoll itself
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
}

// A machine with a known share of steal or lateness sets its limits once, for all runs.
const MAX_STEAL: &str = "CIPHERTOLL_MAX_STEAL";
const MAX_LATENESS: &str = "CIPHERTOLL_MAX_LATENESS";

/// Refuses what is not UTF-8, as the specification is text.
fn directory(text: &str) -> Result<PathBuf, &'static str> {
    if text.is_empty() { Err("it is empty") } else { Ok(text.into()) }
}

const RUN_EXAMPLES: &str = "\
Examples:
  ciphertoll run
      the quick run, on at most two installed servers: plain compared with TLS 1.3 and the sidecar
      (and with TLS 1.2 if everything fits in 165 s), for connects, connects without a password,
      and point selects
  ciphertoll run --path plain,unix,tls1.3-p256 --workload connect --clients 1,8 --blocks 10
      every combination of the listed levels, in ten paired blocks
  ciphertoll run --path plain,tls1.3-p256,tls1.3-rsa4096,tls1.2-rsa2048+suite=AES256-SHA
      the cost of key types, TLS versions and cipher suites
  ciphertoll run --server mariadb=/opt/mariadb-11.4 --ctx per-connect,shared --json > cost.json
      a specific build; a new TLS context per connect compared with a shared one; JSON on stdout
  ciphertoll run --server postgres --auth trust,scram-4096,md5 --path plain --baseline auth=trust
      the cost of authentication
  ciphertoll run --server mariadb --workload oltp-read-write --clients 8 --pace 50%,70% --pin auto
      transactions on a schedule, at 50 % and 70 % of the capacity of plain; latency counts from
      the scheduled start
  ciphertoll run --server postgres --driver native,libpq,pgbench --workload select-only
      the same workload through other client libraries and tools
  ciphertoll run --server postgres --set postgres.shared_buffers=1GB --set postgres.jit=off
      server settings: each is verified, recorded, and shown in the report
  ciphertoll run --url staging=postgres://app@db.example/shop --query 'SELECT count(*) FROM orders'
      your own server; its password comes from PGPASSWORD, ~/.pgpass or a prompt
  ciphertoll run --url prod=postgres://app@db.example/shop --load-hosts ssh:load1,load2
      clients on two other machines, whose measurement windows begin together
  ciphertoll run --server mariadb --path plain,tls1.3-p256 --profile
      where the CPU time of each configuration goes, sampled by Linux perf
  ciphertoll run --server postgres --workload oltp-read-write --scratch-dir /mnt/nvme
      the files of the private server on another disk
  ciphertoll run mysql-tls-2013 --size small
      repeat a published study: its ratios next to those measured here
  ciphertoll run --size full --dry-run --format toml > nightly.toml
      save the configuration; `ciphertoll run nightly.toml` runs it";

#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArguments {
    /// A published study (see `ciphertoll presets`) or a specification in TOML; default: the quick run, unless
    /// factors are given
    #[arg(value_name = "PRESET|FILE.toml")]
    pub(crate) what: Option<String>,

    #[command(flatten)]
    pub(crate) factors: FactorArguments,

    /// How long to measure
    #[arg(long, value_parser = choice(&SIZES), help_heading = "Method")]
    pub(crate) size: Option<Size>,
    /// Maximum number of paired blocks, 1 to 30; verdicts need 6
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Method")]
    pub(crate) blocks: Option<u32>,
    /// Length of each trial's measurement window: 500ms, 2s, 1m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Method")]
    pub(crate) trial_time: Option<Span>,
    /// Time limit: start no block that would end after it
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Method")]
    pub(crate) budget: Option<Span>,
    /// Seed of all random orders; the same seed gives the same plan
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Method")]
    pub(crate) seed: Option<u64>,
    /// Maximum CPU time that the hypervisor may take from a trial before it is voided [default: 3%]
    #[arg(long, value_name = "PERCENT", env = MAX_STEAL, hide_env_values = true, help_heading = "Method")]
    pub(crate) max_steal: Option<StealLimit>,
    /// Maximum mean lateness of a link's packets, as a share of its round trip, before a trial is voided
    /// [default: 1%]
    #[arg(long, value_name = "PERCENT", env = MAX_LATENESS, hide_env_values = true, help_heading = "Method")]
    pub(crate) max_lateness: Option<LatenessLimit>,
    /// Whether to pin clients and servers to separate processors
    #[arg(long, value_parser = choice(&PINNINGS), value_name = "HOW", help_heading = "Method")]
    pub(crate) pin: Option<CpuPinning>,
    /// After the measured trials, profile each configuration once with Linux perf: where the CPU time of server and
    /// clients goes
    #[arg(long, help_heading = "Method")]
    pub(crate) profile: bool,
    /// Where private servers store their files: disk, or tmpfs (in memory, to separate cipher cost from disk cost)
    #[arg(long, value_name = "WHERE", help_heading = "Method")]
    pub(crate) storage: Option<Storage>,
    /// The directory in which private servers have their data, sockets and keys, below ciphertoll-UID
    /// [default: /var/tmp]
    #[arg(long, value_name = "DIR", env = SCRATCH_DIR, hide_env_values = true, value_parser = directory,
          help_heading = "Method")]
    pub(crate) scratch_dir: Option<PathBuf>,
    /// A setting for all private servers of an engine; may be repeated
    #[arg(long, value_name = "ENGINE.NAME=VALUE", help_heading = "Method")]
    pub(crate) set: Vec<Setting>,
    /// A file of settings with the tables [postgres], [mariadb] and [mysql]; reports show the file's name
    #[arg(long, value_name = "FILE.toml", help_heading = "Method")]
    pub(crate) config: Option<PathBuf>,
    /// The baseline of all comparisons [default: path=plain]
    #[arg(long, value_name = "FACTOR=LEVEL", help_heading = "Method")]
    pub(crate) baseline: Option<String>,

    #[command(flatten)]
    pub(crate) url: UrlArguments,

    #[command(flatten)]
    pub(crate) hosts: HostArguments,

    /// The directory in which run directories are created
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS, help_heading = "Output")]
    pub(crate) run_dir: PathBuf,
    /// Show the plan; measure nothing
    #[arg(long, help_heading = "Output")]
    pub(crate) dry_run: bool,
    /// With --dry-run: the format of the plan
    #[arg(long, value_enum, requires = "dry_run", default_value = "table", help_heading = "Output")]
    pub(crate) format: PlanFormat,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// The output of `run` and `resume`.
#[derive(Args, Debug)]
pub(crate) struct OutputArguments {
    /// Print the JSON document instead of the table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Print all tables instead of the summary, as `ciphertoll report` does
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub(crate) details: bool,
    /// Print only warnings and errors on stderr
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// How to show progress on stderr
    #[arg(long, value_enum, default_value = "auto", help_heading = "Output")]
    pub(crate) progress: ProgressFormat,
    #[command(flatten, next_help_heading = "Output")]
    pub(crate) price: PriceArguments,
}

const PRESETS_EXAMPLES: &str = "\
Examples:
  ciphertoll presets
      the studies, their sources, and how the repetition differs
  ciphertoll presets mysql-tls-2013
      one study: what it says in five sentences, its conclusions, and every published number
  ciphertoll run mysql-tls-2013 --size small
      repeat one: its published ratios next to those measured here";

const RESUME_EXAMPLES: &str = "\
Examples:
  ciphertoll resume
      continue the newest run, whether Ctrl-C, SIGKILL or a power failure interrupted it
  ciphertoll resume 20261121T011500Z-quick-a3f1
      continue this run: the same plan in the same order, from the block that was interrupted";

#[derive(Args, Debug)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    pub(crate) record: RecordArguments,
    /// Another directory for the files of private servers; default: that of the run
    #[arg(long, value_name = "DIR", env = SCRATCH_DIR, hide_env_values = true, value_parser = directory)]
    pub(crate) scratch_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

#[derive(Args, Debug, Default, PartialEq)]
#[command(next_help_heading = "Factors (each takes a comma-separated list of levels)")]
pub(crate) struct FactorArguments {
    /// [LABEL:]ENGINE[-VERSION][=DIR]: mariadb, mysql-8.0, postgres-15, lts:mariadb=/opt/mariadb
    #[arg(long, value_name = "SERVER", value_delimiter = ',')]
    pub(crate) server: Option<Vec<ServerLevel>>,
    #[arg(long, value_name = "PATH", value_delimiter = ',', help = paths::help())]
    pub(crate) path: Option<Vec<Path>>,
    /// trust, cert; native (MariaDB, MySQL); caching-sha2 (MySQL); ed25519, parsec (MariaDB); scram-N,
    /// scram-N+plus, md5 (PostgreSQL); default: the default of each engine
    #[arg(long, value_name = "AUTH", value_delimiter = ',')]
    pub(crate) auth: Option<Vec<Auth>>,
    /// When the client builds its TLS context: per-connect, shared (once), per-connect-systemca (for each connect,
    /// with the system's CA certificates)
    #[arg(long, value_name = "CTX", value_delimiter = ',')]
    pub(crate) ctx: Option<Vec<Ctx>>,
    /// native, libpq, libmariadb, pymongo, pgbench, sysbench, mysqlslap, or your own driver (see docs/measure/drivers.md)
    #[arg(long, value_name = "DRIVER", value_delimiter = ',')]
    pub(crate) driver: Option<Vec<Driver>>,
    /// local, or an emulated link with this round-trip time: 45ms, 0.2ms, 0ms (separate networks without delay; the
    /// default for VPN paths); modifiers: +jitter=2ms, +loss=1%, +rate=100mbit
    #[arg(long, value_name = "LINK", value_delimiter = ',')]
    pub(crate) link: Option<Vec<Link>>,
    /// How a private server's files are encrypted: none; native (MariaDB, MySQL: the server encrypts tables, logs and
    /// temporary files); gocryptfs (any server: an encrypting file system); fscrypt (any server: an encrypted ext4
    /// directory); tde (PostgreSQL: a preloaded library encrypts pages; modifiers: +cipher=null (no encryption),
    /// +target=portable, aesni or vaes)
    #[arg(long, value_name = "LAYER", value_delimiter = ',')]
    pub(crate) at_rest: Option<Vec<AtRest>>,
    /// connect, connect-query, first-query, point-select, select-only, tpcb-like, oltp-read-only,
    /// oltp-read-write, bulk-read+bytes=16k; query (the statement of --query)
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',')]
    pub(crate) workload: Option<Vec<Workload>>,
    /// Number of concurrent clients, 1 to 256
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) clients: Option<Vec<Clients>>,
    /// Rows in the workload's largest table (for pgbench, a multiple of 100,000), or the size of the tables relative
    /// to the server's buffers (0.5cache, 2cache; 128 MB unless changed by --set) or to the memory of the machine or
    /// its cgroup (1.2mem)
    #[arg(long, value_name = "ROWS", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) scale: Option<Vec<ScaleLevel>>,
    /// closed (each client waits for its response), or a schedule: 500/s, or 50% of the baseline's capacity
    #[arg(long, value_name = "PACE", value_delimiter = ',')]
    pub(crate) pace: Option<Vec<Pace>>,
}

const LAB_EXAMPLES: &str = "\
Examples:
  ciphertoll lab --server mariadb --path tls1.3-p256 --link 45ms -- mariadb -e 'SELECT 1'
      the mariadb client over TLS, with a round-trip time of 45 ms
  ciphertoll lab --server postgres --path ssh-aes256-gcm --link 20ms -- psql -c 'SELECT 1'
      psql through an SSH tunnel, with a round-trip time of 20 ms
  ciphertoll lab --server postgres --path proxy -- psql -c 'SELECT 1'
      psql through the sidecar, which pools encrypted connections
  ciphertoll lab --server postgres --workload tpcb-like --scale 100000 -- pgbench --client=4 --time=5
      pgbench, with the tables of pgbench loaded
  ciphertoll lab --server mariadb --link 100ms -- bash -c 'time mariadb -e \"SELECT 1\"'
      a shell command; scripts can read the variables below

These variables tell the command how to connect: PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSFILE, PGSSLMODE and
PGSSLROOTCERT (PostgreSQL); MYSQL_HOME (with my.cnf), MYSQL_HOST and MYSQL_TCP_PORT (MariaDB, MySQL); CIPHERTOLL_URL,
CIPHERTOLL_PASSWORD and CIPHERTOLL_CA (all engines). The exit code is that of the command. See docs/measure/lab.md.";

#[derive(Args, Debug)]
#[command(after_help = LAB_EXAMPLES)]
pub(crate) struct LabArguments {
    /// The server to start, as for `run`: mariadb, mysql, postgres, or a build; default: the first installed one
    #[arg(long, value_name = "SERVER")]
    pub(crate) server: Option<ServerLevel>,
    /// The path to the server, as for `run`
    #[arg(long, value_name = "PATH", default_value = "plain")]
    pub(crate) path: Path,
    /// The authentication method, as for `run`; default: the engine's default
    #[arg(long, value_name = "AUTH")]
    pub(crate) auth: Option<Auth>,
    /// The link to the server, as for `run`
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<Link>,
    /// Load the tables of this workload; default: no tables
    #[arg(long, value_name = "WORKLOAD")]
    pub(crate) workload: Option<Workload>,
    /// Rows in its largest table, or the tables' size, as for `run`
    #[arg(long, value_name = "ROWS", allow_negative_numbers = true, requires = "workload")]
    pub(crate) scale: Option<ScaleLevel>,
    /// A server setting; may be repeated
    #[arg(long, value_name = "ENGINE.NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// The directory for the server's files, as for `run`
    #[arg(long, value_name = "DIR", env = SCRATCH_DIR, hide_env_values = true, value_parser = directory)]
    pub(crate) scratch_dir: Option<PathBuf>,
    /// Print only warnings and errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  ciphertoll report
      the newest run, in the terminal
  ciphertoll report --core-price 30/month
      what to do, with what it saves in money
  ciphertoll report quick --format html -o report.html
      the newest run named quick, as one self-contained HTML page
  ciphertoll report --format markdown >> \"$GITHUB_STEP_SUMMARY\"
      for a pull request
  ciphertoll report --format csv --plot phases
      the data of one plot";

#[derive(Args, Debug)]
#[command(after_help = REPORT_EXAMPLES)]
pub(crate) struct ReportArguments {
    #[command(flatten)]
    pub(crate) record: RecordArguments,
    /// Output format
    #[arg(long, value_enum, default_value = "terminal")]
    pub(crate) format: ReportFormat,
    /// With --format csv: the plot whose data to write
    #[arg(long, value_parser = plot(), default_value = "tolls")]
    pub(crate) plot: Plot,
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) price: PriceArguments,
}

fn plot() -> impl TypedValueParser<Value = Plot> {
    let names = PossibleValuesParser::new(Plot::ALL.iter().map(|plot| plot.label()));
    let find = |name: String| Plot::ALL.iter().copied().find(|plot| plot.label() == name);
    names.try_map(move |name| find(name).ok_or("unknown plot"))
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  ciphertoll compare before after
      exit code 3: a cost has increased; exit code 4: inconclusive
  ciphertoll compare baseline.run latest --allow-inconclusive --json
      in CI: fail only on a proven regression

Costs are ratios to the baseline of the same run, so a machine that was slower on one day does not
change them. A slowdown that affects encrypted and unencrypted paths equally is not detected.";

#[derive(Args, Debug)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArguments {
    /// The base run: a directory, a name, or `latest`
    #[arg(value_name = "BASE")]
    pub(crate) base: String,
    /// The new run
    #[arg(value_name = "NEW")]
    pub(crate) new: String,
    /// The directory that holds the run directories
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS)]
    pub(crate) run_dir: PathBuf,
    /// Exit with 0 if a comparison is inconclusive
    #[arg(long)]
    pub(crate) allow_inconclusive: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

const SERVERS_EXAMPLES: &str = "\
Examples:
  ciphertoll servers
      the installed servers, and how to select each with --server
  ciphertoll servers --json
      the same as JSON
  ciphertoll servers fetch postgres-18
      download a build into the cache; then run: ciphertoll run --server postgres-18";

#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Download a server build into the cache, with the client of its registry
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch {
        /// The build
        #[arg(value_parser = fetchable())]
        name: &'static Fetchable,
    },
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  ciphertoll doctor
      what works on this machine, what does not, and how to fix it
  ciphertoll doctor --json
      the same as JSON

Each check runs in a separate process and leaves nothing behind.
Exit code 0: at least one engine can be measured; 5: none can.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ciphertoll completions bash > ~/.local/share/bash-completion/completions/ciphertoll
  ciphertoll completions zsh > ~/.zfunc/_ciphertoll
      if ~/.zfunc is in fpath
  ciphertoll completions fish > ~/.config/fish/completions/ciphertoll.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  ciphertoll man | man -l -
  ciphertoll man run > ciphertoll-run.1";

const FETCH_EXAMPLES: &str = "\
Examples:
  ciphertoll servers fetch postgres-18
  ciphertoll servers fetch mysql-8.0
      These builds come through Maven (mvn), whose settings for mirrors and proxies apply. Each download is
      checked against a built-in SHA-256. An interrupted download is continued.
  ciphertoll servers fetch mariadb-11.8
  ciphertoll servers fetch debian-sid:postgres-18
      Debian's packages, by apt-get, which verifies their signature. They run on any Debian or Ubuntu;
      nothing is installed.";

fn fetchable() -> impl TypedValueParser<Value = &'static Fetchable> {
    let names = PossibleValuesParser::new(FETCHABLE.iter().map(|fetchable| fetchable.name));
    names.try_map(|name| Fetchable::named(&name).ok_or("cannot be fetched"))
}

/// A value of an option: its name, its help (or none), and what it stands for.
pub(crate) type Choice<T> = (&'static str, &'static str, T);

/// Parses the name of one of the choices.
pub(crate) fn choice<T: Clone + Send + Sync>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let value =
        |(name, help, _): &Choice<T>| PossibleValue::new(*name).help((!help.is_empty()).then_some(*help));
    let names = PossibleValuesParser::new(choices.iter().map(value));
    let find = |name: String| choices.iter().find(|(known, ..)| *known == name);
    names.try_map(move |name| find(name).map(|(.., value)| value.clone()).ok_or("unknown value"))
}

pub(crate) const SHELLS: [Choice<Shell>; 4] = [
    ("bash", "", Shell::Bash),
    ("zsh", "", Shell::Zsh),
    ("fish", "", Shell::Fish),
    ("elvish", "", Shell::Elvish),
];

const SIZES: [Choice<Size>; 5] = [
    ("smoke", "2 short blocks without verdicts, to check that everything runs", Size::Smoke),
    ("quick", "6 blocks of 0.75 s trials", Size::Quick),
    ("small", "6 blocks of 2 s trials", Size::Small),
    ("standard", "10 blocks of 2 s trials", Size::Standard),
    ("full", "10 blocks of 10 s trials", Size::Full),
];

const PINNINGS: [Choice<CpuPinning>; 2] = [
    ("auto", "Half of the processors for clients, half for servers", CpuPinning::Auto),
    ("off", "No pinning", CpuPinning::Off),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanFormat {
    /// A table
    Table,
    /// A specification in TOML that gives the same plan
    Toml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Text and tables
    Terminal,
    /// The 25 lines that end a run
    Summary,
    /// One self-contained page
    Html,
    /// For a pull request
    Markdown,
    /// The data of one plot
    Csv,
    /// The document that `ciphertoll schema` describes
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressFormat {
    /// A bar on a terminal, otherwise lines
    Auto,
    /// A line per block
    Plain,
    /// Every event as a JSON line
    Json,
    /// Nothing
    None,
}

impl OutputArguments {
    /// Whether to print the plan and the record's directory on stderr, next to progress.
    pub(crate) fn is_verbose(&self) -> bool {
        !self.quiet && matches!(self.progress, ProgressFormat::Auto | ProgressFormat::Plain)
    }
}
