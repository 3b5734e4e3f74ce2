//! The command line as clap sees it. Nothing beyond [`crate::request`] reads these types.

#![expect(rustdoc::broken_intra_doc_links, reason = "the comments are what --help says, brackets and all")]

use std::ffi::OsString;
use std::path::PathBuf;

use ciphertoll_lab::{FETCHABLE, Fetchable};
use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    AtRest, Auth, Clients, CpuPinning, Ctx, Driver, LatenessLimit, Link, Pace, Path, ScaleLevel, ServerLevel,
    Setting, Size, StealLimit, Storage, Workload,
};
use ciphertoll_record::DEFAULT_RUNS;
use ciphertoll_report::Plot;
use clap::builder::styling::Styles;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::tde::TdeArguments;

/// What does encryption cost your database, and how do you make it cost nothing?
#[derive(Debug, Parser)]
#[command(name = "ciphertoll", version, arg_required_else_help = true, styles = Styles::plain(),
          max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, no regression · 1 internal · 2 usage · 3 regression · 4 inconclusive (compare) · 5 nothing could run · 6 done in part ·
7 server refused · 8 record unusable · 9 host resource · 130/143 interrupted";

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure: starts private servers, compares paths in random paired blocks, gives verdicts
    Run(Box<RunArguments>),
    /// List the published studies that can be repeated here
    #[command(after_help = PRESETS_EXAMPLES)]
    Presets {
        /// Print JSON instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Run a client of your own in the lab: server, path and link are there while it runs
    Lab(Box<LabArguments>),
    /// Go on with a run that ended early
    Resume(ResumeArguments),
    /// Show what a recorded run says
    Report(ReportArguments),
    /// Has a toll changed from one run to another?
    Compare(CompareArguments),
    /// List the servers that are here; fetch one that is not
    Servers(ServersArguments),
    /// Find out what this machine can do, and how to make it do the rest
    Doctor(DoctorArguments),
    /// Encrypt a PostgreSQL's pages: keys, and programs that get them
    Tde(TdeArguments),
    /// Print the JSON Schema of `--json`
    Schema,
    /// Print a shell's completions
    #[command(after_help = COMPLETIONS_EXAMPLES, override_usage = "ciphertoll completions <SHELL>")]
    Completions {
        /// Which shell's
        shell: Option<ShellArgument>,
    },
    /// Print a man page
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Of which command; of ciphertoll itself if absent
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
}

/// Where a machine's own share of steal is said once for all its runs.
const MAX_STEAL: &str = "CIPHERTOLL_MAX_STEAL";
const MAX_LATENESS: &str = "CIPHERTOLL_MAX_LATENESS";

const RUN_EXAMPLES: &str = "\
Examples:
  ciphertoll run
      plain against TLS 1.3 and the sidecar, and TLS 1.2 if all of it fits in 165 s, on at most two
      of the servers found here: connects, connects without a password, and point selects
  ciphertoll run --path plain,unix,tls1.3-p256 --workload connect --clients 1,8 --blocks 10
      every combination of the levels listed, ten paired blocks
  ciphertoll run --path plain,tls1.3-p256,tls1.3-rsa4096,tls1.2-rsa2048+suite=AES256-SHA
      what keys, versions and suites cost
  ciphertoll run --server mariadb=/opt/mariadb-11.4 --ctx per-connect,shared --json > toll.json
      another build; who builds the TLS context as a factor; JSON on stdout
  ciphertoll run --server postgres --auth trust,scram-4096,md5 --path plain --baseline auth=trust
      what authentication costs
  ciphertoll run --server mariadb --workload oltp-read-write --clients 8 --pace 50%,70% --pin auto
      transactions by a schedule, at shares of what plain can do: times from the intended start
  ciphertoll run --server postgres --driver native,libpq,pgbench --workload select-only
      the same through other people's code
  ciphertoll run --server postgres --set postgres.shared_buffers=1GB --set postgres.jit=off
      a server with settings: each is verified, recorded, and shown in the report
  ciphertoll run --url staging=postgres://app@db.example/shop --query 'SELECT count(*) FROM orders'
      a server that is there already; its password from PGPASSWORD, ~/.pgpass or a prompt
  ciphertoll run mysql-tls-2013 --size small
      a published study again: its ratios beside those measured here
  ciphertoll run --size full --dry-run --format toml > nightly.toml
      write down what would be asked; `ciphertoll run nightly.toml` asks it";

/// The arguments of `run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArguments {
    /// A published study, see `ciphertoll presets`; or a specification in TOML. Without either and without
    /// factors: the quick run
    #[arg(value_name = "PRESET|FILE.toml")]
    pub(crate) what: Option<String>,

    #[command(flatten)]
    pub(crate) factors: FactorArguments,

    /// How much trust is worth how much time
    #[arg(long, value_enum, help_heading = "Method")]
    pub(crate) size: Option<SizeArgument>,
    /// Most paired blocks, 1 to 30; verdicts need 6
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Method")]
    pub(crate) blocks: Option<u32>,
    /// Length of each trial's window: 500ms, 2s, 1m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Method")]
    pub(crate) trial_time: Option<Span>,
    /// Begin no further block that would end after this long
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Method")]
    pub(crate) budget: Option<Span>,
    /// Seed of every random order; the same seed gives the same plan
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Method")]
    pub(crate) seed: Option<u64>,
    /// Most of its CPU time that a trial may lose to the hypervisor and still count [default: 3%]
    #[arg(long, value_name = "PERCENT", env = MAX_STEAL, hide_env_values = true, help_heading = "Method")]
    pub(crate) max_steal: Option<StealLimit>,
    /// Most of its round trip that a link's packets may be late by and still count, on average [default: 1%]
    #[arg(long, value_name = "PERCENT", env = MAX_LATENESS, hide_env_values = true, help_heading = "Method")]
    pub(crate) max_lateness: Option<LatenessLimit>,
    /// Keep clients and servers on processors of their own: each side gets its half
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Method")]
    pub(crate) pin: Option<PinArgument>,
    /// What private servers' files lie on: disk, tmpfs (memory, so that the disk is told from the cipher)
    #[arg(long, value_name = "WHERE", help_heading = "Method")]
    pub(crate) storage: Option<Storage>,
    /// A setting of all private servers of an engine, beside what they need; may be repeated
    #[arg(long, value_name = "ENGINE.NAME=VALUE", help_heading = "Method")]
    pub(crate) set: Vec<Setting>,
    /// A file with settings, [postgres], [mariadb] and [mysql]; the run says them by the file's name
    #[arg(long, value_name = "FILE.toml", help_heading = "Method")]
    pub(crate) config: Option<PathBuf>,
    /// What everything is compared with [default: path=plain]
    #[arg(long, value_name = "FACTOR=LEVEL", help_heading = "Method")]
    pub(crate) baseline: Option<String>,

    #[command(flatten)]
    pub(crate) url: UrlArguments,

    /// Where run directories are made
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS, help_heading = "Output")]
    pub(crate) run_dir: PathBuf,
    /// Show the plan and measure nothing
    #[arg(long, help_heading = "Output")]
    pub(crate) dry_run: bool,
    /// With --dry-run: a table, or the TOML that asks for the same
    #[arg(long, value_enum, requires = "dry_run", default_value = "table", help_heading = "Output")]
    pub(crate) format: PlanFormat,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// A server that is there already, and what may be done to it.
#[derive(Args, Debug)]
#[command(
    next_help_heading = "Your own server: at most 4 clients and 20 connects a second unless more are asked for"
)]
pub(crate) struct UrlArguments {
    /// A server that is there already, as libpq, MySQL's or MongoDB's clients are told of it; may be repeated. Without
    /// sslmode, ssl-mode or tls, and without a file for TLS, plaintext and TLS are measured. Options and passwords:
    /// docs/url.md
    #[arg(long, value_name = "NAME=URL")]
    pub(crate) url: Vec<String>,
    /// Make the workloads' tables (or documents) there, in a database called ciphertoll; else nothing is written
    #[arg(long, requires = "url")]
    pub(crate) prepare: bool,
    /// Most operations a second that clients begin [default: 20 connects]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_rate: Option<u32>,
    /// The statement of the workload query: SQL, or a command in JSON for documents
    #[arg(long, value_name = "TEXT")]
    pub(crate) query: Option<String>,
}

/// What a run shows while it is on its way, and in the end.
#[derive(Args, Debug)]
pub(crate) struct OutputArguments {
    /// Print the JSON document instead of the table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Say nothing on stderr but warnings and errors
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// How progress is shown on stderr
    #[arg(long, value_enum, default_value = "auto", help_heading = "Output")]
    pub(crate) progress: ProgressFormat,
}

const PRESETS_EXAMPLES: &str = "\
Examples:
  ciphertoll presets
      what there is, who published it, and what is different here
  ciphertoll run mysql-tls-2013 --size small
      one of them: published ratios beside those measured here";

const RESUME_EXAMPLES: &str = "\
Examples:
  ciphertoll resume
      goes on with the newest run, be it that Ctrl-C, SIGKILL or a power cut ended it
  ciphertoll resume 20261121T011500Z-quick-a3f1
      goes on with that one: the same plan, in the same order, from the block that was cut short";

/// The arguments of `resume`.
#[derive(Args, Debug)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct ResumeArguments {
    /// A run's directory, its name, or `latest`
    #[arg(value_name = "RUN", default_value = "latest")]
    pub(crate) run: String,
    /// Where run directories are looked for
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS)]
    pub(crate) run_dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// Levels of factors; each takes a comma list.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Factors (each takes a comma list of levels)")]
pub(crate) struct FactorArguments {
    /// [LABEL:]ENGINE[-VERSION][=DIR]: mariadb, mysql-8.0, postgres-15, lts:mariadb=/opt/mariadb
    #[arg(long, value_name = "SERVER", value_delimiter = ',')]
    pub(crate) server: Option<Vec<ServerLevel>>,
    /// plain, unix; tls1.3-KEY, tls1.2-KEY (tls1.1, tls1.0) with KEY p256, p384, ed25519, rsa1024,
    /// rsa2048, rsa3072 or rsa4096; without KEY where the server has its own certificate; +resume,
    /// +resume=id, +mtls, +eager, +direct (PostgreSQL 17 and later), +suite=NAME, +group=NAME,
    /// +chain=N, +client=rustls, with plain, too, +compress=zlib (MongoDB); tunnels: ssh-CIPHER (aes128-gcm,
    /// aes256-gcm, chacha20-poly1305, aes256-ctr, aes256-cbc; +N without a session), openvpn-CIPHER
    /// (aes256-gcm, aes256-cbc, none), wireguard, stunnel; pooling proxies, in the clear in front and TLS behind: proxy (ciphertoll-proxy),
    /// pgbouncer (PostgreSQL), proxysql, mysqlrouter (MariaDB, MySQL), +front=tcp, +tls=1.3-KEY,
    /// +mode=transaction (proxy, pgbouncer)
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub(crate) path: Option<Vec<Path>>,
    /// trust, cert; native (MariaDB, MySQL); caching-sha2 (MySQL); ed25519, parsec (MariaDB); scram-N,
    /// scram-N+plus, md5 (PostgreSQL); each engine's own default if absent
    #[arg(long, value_name = "AUTH", value_delimiter = ',')]
    pub(crate) auth: Option<Vec<Auth>>,
    /// Who builds the client's TLS context: per-connect, shared, per-connect-systemca
    #[arg(long, value_name = "CTX", value_delimiter = ',')]
    pub(crate) ctx: Option<Vec<Ctx>>,
    /// native, libpq, libmariadb, pymongo, pgbench, sysbench, mysqlslap, or one of your own: docs/drivers.md
    #[arg(long, value_name = "DRIVER", value_delimiter = ',')]
    pub(crate) driver: Option<Vec<Driver>>,
    /// local; or a long link made on this machine, by its round trip: 45ms, 0.2ms, 0ms (networks apart and
    /// nothing in between: what is measured where a path is a VPN), +jitter=2ms, +loss=1%, +rate=100mbit
    #[arg(long, value_name = "LINK", value_delimiter = ',')]
    pub(crate) link: Option<Vec<Link>>,
    /// What encrypts a private server's files: none, native (MariaDB, MySQL: tables, logs and temporary files by the
    /// server itself), gocryptfs, fscrypt (any server: an encrypting file system, or an encrypted directory of ext4, under
    /// all of them), tde (PostgreSQL: pages by a library under the server; +cipher=aes128, +cipher=null: not encrypted,
    /// +target=portable, aesni or vaes)
    #[arg(long, value_name = "LAYER", value_delimiter = ',')]
    pub(crate) at_rest: Option<Vec<AtRest>>,
    /// connect, connect-query, first-query, point-select, select-only, tpcb-like, oltp-read-only,
    /// oltp-read-write, bulk-read+bytes=16k; query: that of --query
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',')]
    pub(crate) workload: Option<Vec<Workload>>,
    /// 1 to 256
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) clients: Option<Vec<Clients>>,
    /// Rows in the workload's largest table (pgbench's come in hundred thousands), or tables of so many times the server's
    /// buffers (0.5cache, 2cache; 128 MB unless --set says otherwise) or the memory of the machine or its cgroup (1.2mem)
    #[arg(long, value_name = "ROWS", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) scale: Option<Vec<ScaleLevel>>,
    /// closed: each client waits for its answer; 500/s, or 50% of the baseline's capacity: by a schedule
    #[arg(long, value_name = "PACE", value_delimiter = ',')]
    pub(crate) pace: Option<Vec<Pace>>,
}

const LAB_EXAMPLES: &str = "\
Examples:
  ciphertoll lab --server mariadb --path tls1.3-p256 --link 45ms -- mariadb -e 'SELECT 1'
      MariaDB's own client, 45 ms from a server that it encrypts to
  ciphertoll lab --server postgres --path ssh-aes256-gcm --link 20ms -- psql -c 'SELECT 1'
      psql through an SSH tunnel that spans 20 ms
  ciphertoll lab --server postgres --path proxy -- psql -c 'SELECT 1'
      psql through the sidecar, which keeps encrypted connections
  ciphertoll lab --server postgres --workload tpcb-like --scale 100000 -- pgbench --client=4 --time=5
      a tool, on tables of its own kind
  ciphertoll lab --server mariadb --link 100ms -- bash -c 'time mariadb -e \"SELECT 1\"'
      what a shell says of it; a script of yours reads the variables below in the same way

The command finds the server by PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSFILE, PGSSLMODE, PGSSLROOTCERT (PostgreSQL), by
MYSQL_HOME/my.cnf, MYSQL_HOST, MYSQL_TCP_PORT (MariaDB, MySQL), and by CIPHERTOLL_URL, CIPHERTOLL_PASSWORD and
CIPHERTOLL_CA. Its exit code is passed on. docs/lab.md has the rest.";

/// The arguments of `lab`.
#[derive(Args, Debug)]
#[command(after_help = LAB_EXAMPLES)]
pub(crate) struct LabArguments {
    /// What is started: mariadb, mysql, postgres, or a build as `run` takes it; what is found here if absent
    #[arg(long, value_name = "SERVER")]
    pub(crate) server: Option<ServerLevel>,
    /// How the command gets to the server, as `run` takes it
    #[arg(long, value_name = "PATH", default_value = "plain")]
    pub(crate) path: Path,
    /// How it logs in; the engine's own default if absent
    #[arg(long, value_name = "AUTH")]
    pub(crate) auth: Option<Auth>,
    /// What lies between, as `run` takes it
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<Link>,
    /// The workload whose tables are there; none if absent
    #[arg(long, value_name = "WORKLOAD")]
    pub(crate) workload: Option<Workload>,
    /// Rows in its largest table, or its size, as `run` takes it
    #[arg(long, value_name = "ROWS", allow_negative_numbers = true, requires = "workload")]
    pub(crate) scale: Option<ScaleLevel>,
    /// A setting of the server; may be repeated
    #[arg(long, value_name = "ENGINE.NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Say nothing but what goes wrong
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  ciphertoll report
      the newest run, on the terminal
  ciphertoll report quick --format html -o report.html
      the newest run called quick as one page that needs no network
  ciphertoll report --format markdown >> \"$GITHUB_STEP_SUMMARY\"
      for a pull request
  ciphertoll report --format csv --plot phases
      the numbers behind one of the plots";

/// The arguments of `report`.
#[derive(Args, Debug)]
#[command(after_help = REPORT_EXAMPLES)]
pub(crate) struct ReportArguments {
    /// A run's directory, its name, or `latest`
    #[arg(value_name = "RUN", default_value = "latest")]
    pub(crate) run: String,
    /// Where run directories are looked for
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS)]
    pub(crate) run_dir: PathBuf,
    /// How to show it
    #[arg(long, value_enum, default_value = "terminal")]
    pub(crate) format: ReportFormat,
    /// With csv: the numbers behind which plot
    #[arg(long, value_parser = plot(), default_value = "tolls")]
    pub(crate) plot: Plot,
    /// Write to this file and not to stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

fn plot() -> impl TypedValueParser<Value = Plot> {
    let names = PossibleValuesParser::new(Plot::ALL.iter().map(|plot| plot.label()));
    let find = |name: String| Plot::ALL.iter().copied().find(|plot| plot.label() == name);
    names.try_map(move |name| find(name).ok_or("is no plot"))
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  ciphertoll compare before after
      has a toll become worse? Exit code 3 says yes, 4 that the runs cannot tell
  ciphertoll compare baseline.run latest --allow-inconclusive --json
      in CI, where only a proven regression is to fail

Each cell is held against its own run's baseline first: a machine that was slower on one of the days
takes no part in it. What has become slower with and without encryption alike is not seen.";

/// The arguments of `compare`.
#[derive(Args, Debug)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArguments {
    /// The run that is compared with: its directory, its name, or `latest`
    #[arg(value_name = "BASE")]
    pub(crate) base: String,
    /// The run that is compared
    #[arg(value_name = "NEW")]
    pub(crate) new: String,
    /// Where run directories are looked for
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS)]
    pub(crate) run_dir: PathBuf,
    /// Exit with 0 where nothing is proven, too
    #[arg(long)]
    pub(crate) allow_inconclusive: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

const SERVERS_EXAMPLES: &str = "\
Examples:
  ciphertoll servers
      what is here, and how to write it as a level of --server
  ciphertoll servers --json
      the same for a program
  ciphertoll servers fetch postgres-18
      fetch a build into the cache; then: ciphertoll run --server postgres-18";

/// The arguments of `servers`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = SERVERS_EXAMPLES)]
pub(crate) struct ServersArguments {
    #[command(subcommand)]
    pub(crate) command: Option<ServersCommand>,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be done about servers beside listing them.
#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Fetch a build that is not here, with the client of its registry, into the cache
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch {
        /// What to fetch
        #[arg(value_parser = fetchable())]
        name: &'static Fetchable,
    },
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  ciphertoll doctor
      what works here, what does not, and the command that would change it
  ciphertoll doctor --json
      the same for a program

Each check is done by a process of its own and leaves nothing behind.
Exit code 0: at least one engine can be measured; 5: none can.";

/// The arguments of `doctor`.
#[derive(Args, Debug)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArguments {
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ciphertoll completions bash > ~/.local/share/bash-completion/completions/ciphertoll
  ciphertoll completions zsh > ~/.zfunc/_ciphertoll
      where ~/.zfunc is in fpath
  ciphertoll completions fish > ~/.config/fish/completions/ciphertoll.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  ciphertoll man | man -l -
  ciphertoll man run > ciphertoll-run.1";

/// A shell that completions can be made for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShellArgument {
    /// GNU bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
    /// Elvish.
    Elvish,
}

const FETCH_EXAMPLES: &str = "\
Examples:
  ciphertoll servers fetch postgres-18
  ciphertoll servers fetch mysql-8.0
      by Maven's mvn, whose settings (mirrors, proxies) hold; what comes is checked against a
      SHA-256 that is known beforehand; an interrupted fetch is taken up where it was";

fn fetchable() -> impl TypedValueParser<Value = &'static Fetchable> {
    let names = PossibleValuesParser::new(FETCHABLE.iter().map(|fetchable| fetchable.name));
    names.try_map(|name| Fetchable::named(&name).ok_or("cannot be fetched"))
}

/// `--size`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SizeArgument {
    /// 2 short blocks, no verdicts: does it run at all?
    Smoke,
    /// 6 blocks of 0.75 s trials
    Quick,
    /// 6 blocks of 2 s trials
    Small,
    /// 10 blocks of 2 s trials
    Standard,
    /// 10 blocks of 10 s trials
    Full,
}

/// `--pin`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PinArgument {
    /// Each side gets its half of the processors
    Auto,
    /// They share all of them
    Off,
}

impl From<PinArgument> for CpuPinning {
    fn from(pin: PinArgument) -> Self {
        match pin {
            PinArgument::Auto => Self::Auto,
            PinArgument::Off => Self::Off,
        }
    }
}

/// `--format` of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanFormat {
    /// For a person.
    Table,
    /// For a file.
    Toml,
}

/// `--format` of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Words and tables.
    Terminal,
    /// One page without a network.
    Html,
    /// For a pull request.
    Markdown,
    /// The numbers behind a plot.
    Csv,
    /// The document of `ciphertoll schema`.
    Json,
}

/// `--progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressFormat {
    /// A bar on a terminal, lines elsewhere.
    Auto,
    /// A line per block.
    Plain,
    /// Every event as a JSON line.
    Json,
    /// Nothing.
    None,
}

impl OutputArguments {
    /// Whether stderr is for a person, who wants to read the plan and where the record is.
    pub(crate) fn tells_in_words(&self) -> bool {
        !self.quiet && matches!(self.progress, ProgressFormat::Auto | ProgressFormat::Plain)
    }
}

impl From<SizeArgument> for Size {
    fn from(size: SizeArgument) -> Self {
        match size {
            SizeArgument::Smoke => Self::Smoke,
            SizeArgument::Quick => Self::Quick,
            SizeArgument::Small => Self::Small,
            SizeArgument::Standard => Self::Standard,
            SizeArgument::Full => Self::Full,
        }
    }
}
