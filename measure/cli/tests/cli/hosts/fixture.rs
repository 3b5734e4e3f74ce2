//! Three load hosts and a server: network namespaces with an sshd each, and a link to the network of the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ciphertoll_link::LinkProcess;
use ciphertoll_model::Engine;
use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{SSHD, Ssh, is_root, system, text, until};
use crate::url::Elsewhere;

pub(super) const HOSTS: [&str; 3] = ["load1", "load2", "load3"];
/// By how much the monotonic clock of the last host is ahead.
pub(super) const AHEAD_S: u64 = 3_600;

/// Dropped in this order: sshds, the server, the network.
pub(super) struct Fixture {
    pub(super) hosts: Vec<Host>,
    pub(super) there: Elsewhere,
    link: LinkProcess,
    pub(super) place: PathBuf,
    _place: tempfile::TempDir,
}

pub(super) struct Host {
    sshd: Child,
    config: PathBuf,
    /// The inode of its network namespace.
    network: PathBuf,
    pub(super) scratch: PathBuf,
    pub(super) cache: PathBuf,
    is_ahead: bool,
    /// Keeps its network while its sshd is down.
    keeper: Child,
}

impl Fixture {
    /// `None` if it cannot be made here, which is told.
    pub(super) fn start() -> Option<Self> {
        if !is_root() {
            ciphertoll_testing::not_for_all("network namespaces with an sshd each need root");
            return None;
        }
        for program in ["ip", "nsenter", "unshare", "ssh", "ssh-keygen", SSHD] {
            if let Err(error) = system("sh", &["-c", "command -v \"$0\"", program]) {
                ciphertoll_testing::missing(&format!("{program} for load hosts by ssh ({error})"));
                return None;
            }
        }
        if ciphertoll_lab::find(&ciphertoll_model::ServerLevel::of(Engine::Postgres)).is_err() {
            ciphertoll_testing::no_server(Engine::Postgres, "no PostgreSQL");
            return None;
        }
        let mut link = match LinkProcess::start(env!("CARGO_BIN_EXE_ciphertoll").as_ref(), None) {
            Ok(link) if link.clients().is_some() => link,
            Ok(_) | Err(_) => {
                ciphertoll_testing::missing("private networks");
                return None;
            }
        };
        link.set("2ms".parse().expect("a link")).expect("a link of 2 ms");
        let there = Elsewhere::start_in(Engine::Postgres, link.servers().cloned());
        there.execute(&format!("ALTER ROLE {} CREATEDB", there.server.user()));
        allow_new_databases(&there);
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().to_owned();
        let ssh = Ssh::new(&place);
        let mut fixture = Self { hosts: Vec::new(), there, link, place, _place: directory };
        for number in 1..=HOSTS.len() {
            let host = Host::start(&fixture, &ssh, number);
            fixture.hosts.push(host);
        }
        let named =
            |(number, name): (usize, &str)| (name.to_owned(), format!(" HostName {}", address(number)));
        ssh.client(&(1..).zip(HOSTS).map(named).collect::<Vec<_>>());
        Some(fixture)
    }

    /// Enters the network of clients.
    fn enter(&self) -> String {
        let network = &self.link.clients().expect("a network").network;
        format!("--net={}", network.display())
    }

    fn in_clients_network(&self, command: &str) {
        system("nsenter", &[&self.enter(), "sh", "-ec", command]).expect("a network");
    }

    pub(super) fn url(&mut self) -> String {
        let address = self.link.find_address(self.there.port()).expect("an address");
        let options = format!("sslmode=verify-full&sslrootcert={}", self.there.ca_file());
        self.there.url(&address.ip().to_string(), &options)
    }

    /// `ciphertoll ARGUMENTS` in the network of clients, with the password of the server.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let own = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nsenter");
        command.arg(self.enter()).arg(env!("CARGO_BIN_EXE_ciphertoll")).args(arguments);
        command.env("PATH", format!("{}:{own}", self.place.join("bin").display()));
        command.env("CIPHERTOLL_PASSWORD_THERE", self.there.password());
        command.env("CIPHERTOLL_MAX_STEAL", "100%").env_remove("CIPHERTOLL_SCRATCH_DIR");
        command
    }
}

impl Host {
    fn start(fixture: &Fixture, ssh: &Ssh, number: usize) -> Self {
        let place = fixture.place.join(format!("host{number}"));
        let (scratch, cache) = (place.join("scratch"), place.join("cache"));
        let config = ssh.sshd_config(&place, &format!("Port 22\nListenAddress {}\n", address(number)));
        let keeper = Command::new("unshare").args(["-n", "sleep", "100000"]).spawn().expect("a namespace");
        let network = until("a network namespace", || {
            let own = fs::read_link("/proc/self/ns/net").ok()?;
            fs::read_link(format!("/proc/{}/ns/net", keeper.id())).ok().filter(|network| *network != own)
        });
        let (pid, address) = (keeper.id(), address(number));
        fixture.in_clients_network(&format!(
            "ip link add host{number} type veth peer name eth0 netns {pid}; ip link set host{number} up; \
             ip route add {address}/32 dev host{number}; echo 1 >/proc/sys/net/ipv4/conf/host{number}/proxy_arp; \
             echo 1 >/proc/sys/net/ipv4/ip_forward"
        ));
        let inside = format!(
            "ip link set lo up; ip addr add {address}/32 dev eth0; ip link set eth0 up; ip route add 10.77.0.0/24 dev eth0"
        );
        system("nsenter", &[&format!("--net=/proc/{pid}/ns/net"), "sh", "-ec", &inside])
            .expect("an interface");
        let is_ahead = number == HOSTS.len();
        let sshd = start_sshd(&keeper, &config, is_ahead);
        Self { sshd, config, network, scratch, cache, is_ahead, keeper }
    }

    /// The processes on this host of ciphertoll's hidden command `command`.
    pub(super) fn processes(&self, command: &str) -> Vec<ProcessIdentity> {
        self.all(|arguments| arguments.split('\0').nth(1) == Some(command))
    }

    /// The processes of sshd that serve a session.
    pub(super) fn sessions(&self) -> Vec<ProcessIdentity> {
        let daemon = self.sshd.id().cast_signed();
        let all = self.all(|arguments| arguments.starts_with("sshd: ") || arguments.contains("sshd-session"));
        all.into_iter().filter(|session| session.pid != daemon).collect()
    }

    fn all(&self, is_meant: impl Fn(&str) -> bool) -> Vec<ProcessIdentity> {
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|network| network == self.network)
        })
        .filter(|pid| is_meant(&fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()))
        .filter_map(|pid| ProcessIdentity::of(pid).ok())
        .collect()
    }

    /// Ends its sshd with all sessions.
    pub(super) fn stop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        for session in self.sessions() {
            let _ = kill(Pid::from_raw(session.pid), Signal::SIGKILL);
        }
    }

    pub(super) fn start_again(&mut self) {
        self.sshd = start_sshd(&self.keeper, &self.config, self.is_ahead);
    }

    /// Fails unless nothing of a run is left: no process, no file but the copy of the program.
    #[track_caller]
    pub(super) fn assert_clean(&self) {
        until("the agent and its load process to be gone", || {
            let left = [self.processes("__host"), self.processes("__load")].concat();
            left.is_empty().then_some(())
        });
        until("the scratch directory to be empty", || {
            let runs = fs::read_dir(&self.scratch).ok()?.flatten().flat_map(|root| fs::read_dir(root.path()));
            let left = runs.flatten().flatten().filter(|entry| entry.path().is_dir()).count();
            (left == 0).then_some(())
        });
    }

    /// The copies of the program.
    pub(super) fn copies(&self) -> Vec<String> {
        let copies = fs::read_dir(self.cache.join("ciphertoll/hosts")).into_iter().flatten().flatten();
        copies.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// The server's own rules are for its own database.
fn allow_new_databases(there: &Elsewhere) {
    let rules = format!("hostssl ciphertoll {} 10.77.0.0/24 scram-sha-256\n", there.server.user());
    let append = "find \"$0\" -name pg_hba.conf | while read -r file; do printf %s \"$1\" >>\"$file\"; done";
    system("sh", &["-ec", append, text(there.scratch()), &rules]).expect("a rule");
    there.execute("SELECT pg_reload_conf()");
}

/// Addresses in the network of the link, which the server's rules for clients include.
fn address(number: usize) -> String {
    format!("10.77.0.{}", 100 + number)
}

fn start_sshd(keeper: &Child, config: &Path, is_ahead: bool) -> Child {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", keeper.id()));
    if is_ahead {
        command.args(["unshare", "-T", "--monotonic", &AHEAD_S.to_string()]);
    }
    let log = config.with_file_name("log");
    let log = fs::File::options().create(true).append(true).open(log).expect("a log");
    command.arg(SSHD).args(["-D", "-e", "-f", text(config)]).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log);
    let sshd = command.spawn().expect("sshd starts");
    let network = format!("/proc/{}/net/tcp", keeper.id());
    until("sshd to listen", || {
        let table = fs::read_to_string(&network).ok()?;
        table.lines().any(|line| line.contains(":0016 00000000:0000 0A")).then_some(())
    });
    sshd
}
