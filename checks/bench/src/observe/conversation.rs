//! A recorded connection: what each side sent, in turn.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::{env, thread};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::{ciphertoll_program, print_line};

/// The hidden command, which runs in a lab.
pub const RECORD_COMMAND: &str = "__record";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SentBy {
    Client,
    Server,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation(pub Vec<(SentBy, Vec<u8>)>);

impl Conversation {
    /// A connection of `psql` with three queries over TLS 1.3.
    pub fn record() -> Result<Self> {
        let own = env::current_exe().context("cannot find this executable")?;
        let mut lab = Command::new(ciphertoll_program()?);
        lab.args(["lab", "--server", "postgres", "--path", "tls1.3-p256", "-q", "--"])
            .arg(own)
            .arg(RECORD_COMMAND);
        let output = lab.stderr(Stdio::inherit()).output().context("cannot start the lab")?;
        ensure!(output.status.success(), "no connection was recorded: {:?}", output.status.into_raw());
        serde_json::from_slice(&output.stdout).context("no conversation")
    }

    /// Only records of encrypted data, each in a packet of its own, after the beginning of this conversation.
    #[must_use]
    pub fn with_bulk(&self, records: usize) -> Self {
        /// A record that fills a packet of Ethernet.
        const BODY_BYTES: u16 = 1_400;
        let mut record = vec![0x17, 3, 3];
        record.extend(BODY_BYTES.to_be_bytes());
        record.resize(5 + usize::from(BODY_BYTES), 0xaa);
        let mut turns = self.0.clone();
        let last = turns.pop();
        turns.extend(std::iter::repeat_n((SentBy::Server, record), records));
        turns.extend(last);
        Self(turns)
    }
}

/// Relays a connection of `psql` to the lab's server and prints what passed.
pub fn run_record_process() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near_port = listener.local_addr()?.port().to_string();
    let server = (env::var("PGHOST").context("no lab")?, env::var("PGPORT").context("no lab")?.parse()?);
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-A", "-t", "-c", "SELECT 1", "-c", "SELECT 2", "-c", "SELECT 3"]);
    let mut psql =
        psql.env("PGPORT", near_port).stdout(Stdio::null()).spawn().context("cannot start psql")?;
    let client = listener.accept()?.0;
    let server = TcpStream::connect((server.0.as_str(), server.1))?;
    let (sender, receiver) = mpsc::channel();
    let relays =
        [(SentBy::Client, client.try_clone()?, server.try_clone()?), (SentBy::Server, server, client)];
    for (side, from, to) in relays {
        let sender = sender.clone();
        thread::spawn(move || relay(side, from, to, &sender));
    }
    drop(sender);
    let mut turns: Vec<(SentBy, Vec<u8>)> = Vec::new();
    for (side, bytes) in receiver {
        match turns.last_mut() {
            Some((last, sent)) if *last == side => sent.extend(bytes),
            _ => turns.push((side, bytes)),
        }
    }
    ensure!(psql.wait()?.success(), "psql failed");
    print_line(&serde_json::to_string(&Conversation(turns))?)
}

/// Passes everything on until the end of `from`.
fn relay(side: SentBy, mut from: TcpStream, mut to: TcpStream, sender: &mpsc::Sender<(SentBy, Vec<u8>)>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(bytes) = from.read(&mut buffer)
        && bytes > 0
    {
        let sent = buffer[..bytes].to_vec();
        if sender.send((side, sent)).is_err() || to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    // The other side may have closed it.
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_comes_before_the_goodbye() {
        let recorded = Conversation(vec![
            (SentBy::Client, vec![1]),
            (SentBy::Server, vec![2]),
            (SentBy::Client, vec![3]),
        ]);
        let bulk = recorded.with_bulk(2);
        let sides: Vec<_> = bulk.0.iter().map(|(side, bytes)| (*side, bytes.len())).collect();
        let record = (SentBy::Server, 1_405);
        assert_eq!(sides, [(SentBy::Client, 1), (SentBy::Server, 1), record, record, (SentBy::Client, 1)]);
    }
}
