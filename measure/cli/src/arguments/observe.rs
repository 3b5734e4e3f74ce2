//! The arguments of `observe`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ciphertoll_model::duration::Span;
use ciphertoll_observe::is_host_name;
use ciphertoll_record::DEFAULT_RUNS;
use ciphertoll_wire::passive::{AccountNames, DatabaseProtocol};
use clap::{Args, ValueEnum};

const OBSERVE_EXAMPLES: &str = "\
Examples:
  sudo ciphertoll observe --for 60s
      who connects to what, how often, with which encryption; how long a connect takes, and how many
      queries follow; then what to change, the worst first
  sudo tcpdump -i any -s 0 -w trace.pcap 'tcp port 5432 or tcp port 3306 or tcp port 27017'
  ciphertoll observe --pcap trace.pcap
      the same from a capture, which may have been made elsewhere and needs no privileges to be read
  sudo ciphertoll observe --for 10m --names
      who still connects without encryption: users and databases
  sudo tcpdump -i any -s 0 -w - tcp port 6432 | ciphertoll observe --pcap - --port 6432=postgres
      a server on another port, without a file
  ciphertoll observe --pcap trace.pcap --format html -o observed.html
      everything as one self-contained page; csv and json for programs, markdown for a ticket
  sudo ciphertoll observe --resolve --probe
      with the host names of clients and servers; then each server is asked for its certificates, and for the
      TLS versions and key exchange groups that it accepts
  sudo ciphertoll observe --for 10m --format cyclonedx -o cbom.json
      the inventory that auditors ask for: servers, protocols, certificates and algorithms, as CycloneDX 1.7

Once the interfaces are open, all privileges are given up. Another process, which sees no packet, keeps the right to see
which process has which socket: clients on this machine are named by their processes and containers. No text of a
statement and no password is kept or printed, and names of users and databases only with --names.";

#[derive(Args, Debug)]
#[command(after_help = OBSERVE_EXAMPLES)]
pub(crate) struct ObserveArguments {
    /// Compute what connections cost by the cost model of this run: a directory, a name, or `latest`; default: the newest
    /// that has one
    #[arg(long, value_name = "RUN")]
    pub(crate) model: Option<String>,
    /// The directory that holds the run directories, and where the observation is recorded
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS)]
    pub(crate) run_dir: PathBuf,
    /// Read a capture that tcpdump or Wireshark wrote, as pcap or pcapng; `-` reads stdin. Default: observe this
    /// machine's interfaces, which needs the right to capture packets
    #[arg(long, value_name = "FILE", conflicts_with_all = ["for", "interface"])]
    pub(crate) pcap: Option<PathBuf>,
    /// How long to observe: 10s, 5m; Ctrl-C ends it early
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(crate) r#for: Span,
    /// The interface to observe; default: all
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// The ports of servers, each with its protocol: postgres, mysql (also MariaDB) or mongodb; without one,
    /// the first bytes tell
    #[arg(
        long,
        value_name = "PORT[=PROTOCOL]",
        value_delimiter = ',',
        default_value = "5432=postgres,3306=mysql,27017=mongodb"
    )]
    pub(crate) port: Vec<ServerPort>,
    /// Look up the host names of clients and servers
    #[arg(long)]
    pub(crate) resolve: bool,
    /// Ask each server that was seen for what TLS hides: its certificates, and which versions, groups and weak suites it accepts.
    /// It takes up to 25 connections without a login to each, which a server logs
    #[arg(long)]
    pub(crate) probe: bool,
    /// Send this server name (SNI) to a server when it is probed: 10.0.0.5:5432=db.example.com. Default: no name is sent
    #[arg(long, value_name = "ADDRESS:PORT=NAME", value_delimiter = ',', requires = "probe")]
    pub(crate) server_name: Vec<ServerName>,
    /// Keep and print names of users and databases, of logins that are not encrypted; also in the record. Default: no name
    /// is kept
    #[arg(long)]
    pub(crate) names: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = ObserveFormat::Terminal)]
    pub(crate) format: ObserveFormat,
    /// Write to this file, and the first screen to stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

impl ObserveArguments {
    pub(crate) fn names(&self) -> AccountNames {
        if self.names { AccountNames::Read } else { AccountNames::Ignored }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObserveFormat {
    /// The first screen: at most 25 lines
    Terminal,
    /// One self-contained page
    Html,
    /// For a ticket
    Markdown,
    /// A row for each pair of client and server and kind of encryption
    Csv,
    /// A cryptography bill of materials (CycloneDX 1.7, JSON)
    Cyclonedx,
    /// The document that `ciphertoll schema observation` describes
    Json,
}

/// The name of the server that is meant at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerName {
    pub(crate) server: SocketAddr,
    pub(crate) name: String,
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, name) = text
            .split_once('=')
            .ok_or_else(|| format!("\"{text}\" has no name: write 10.0.0.5:5432=db.example.com"))?;
        let server = address
            .parse()
            .map_err(|_| format!("\"{address}\" is not an address with a port, such as 10.0.0.5:5432"))?;
        if !is_host_name(name) {
            return Err(format!("\"{name}\" is not the name of a host"));
        }
        Ok(Self { server, name: name.to_owned() })
    }
}

/// A port on which servers listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerPort {
    pub(crate) port: u16,
    pub(crate) protocol: Option<DatabaseProtocol>,
}

impl FromStr for ServerPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, protocol) = match text.split_once('=') {
            None => (text, None),
            Some((port, name)) => {
                let known = DatabaseProtocol::ALL.into_iter().find(|protocol| protocol.label() == name);
                let known = known.ok_or_else(|| format!("\"{name}\" is not postgres, mysql or mongodb"))?;
                (port, Some(known))
            }
        };
        let number = port.parse().ok().filter(|port| *port > 0);
        let port = number.ok_or_else(|| format!("\"{port}\" is not a port: write 5432=postgres"))?;
        Ok(Self { port, protocol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_names_belong_to_an_address() {
        let named = ServerName { server: "[fd00::5]:5432".parse().unwrap(), name: "db.example".to_owned() };
        assert_eq!("[fd00::5]:5432=db.example".parse(), Ok(named));
        for wrong in
            ["", "db.example", "10.0.0.5=db", "10.0.0.5:5432=", "10.0.0.5:5432=a b", "10.0.0.5:5432=10.0.0.5"]
        {
            assert!(wrong.parse::<ServerName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_may_name_a_protocol() {
        let protocol = Some(DatabaseProtocol::MySql);
        assert_eq!("3307=mysql".parse(), Ok(ServerPort { port: 3307, protocol }));
        assert_eq!("6432".parse(), Ok(ServerPort { port: 6432, protocol: None }));
        for wrong in ["", "0", "65536", "x=mysql", "5432=", "5432=oracle", "=mysql"] {
            assert!(wrong.parse::<ServerPort>().is_err(), "{wrong}");
        }
    }
}
