//! Repeats a recorded connection over the loopback interface, at a rate.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use socket2::{Domain, Socket, Type};

use crate::observe::conversation::{Conversation, SentBy};

/// Client threads; each connection has a server thread's whole attention.
pub const THREADS: u8 = 4;
/// Each has ports of its own, so that closed connections keep none from being used.
const CLIENT_ADDRESSES: u8 = 200;

pub struct Traffic {
    conversation: Arc<Conversation>,
    address: SocketAddr,
    /// What all threads aim at; they achieve less if the machine is too slow.
    connects_per_s: f64,
}

impl Traffic {
    /// `turns_per_s` limits how many turns of the server pass in all connections together.
    pub fn new(conversation: Conversation, connects_per_s: f64, turns_per_s: Option<f64>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let address = listener.local_addr()?;
        for _ in 0..THREADS {
            let (listener, conversation) = (listener.try_clone()?, conversation.clone());
            let turns_per_s = turns_per_s.map(|rate| rate / f64::from(THREADS));
            // They end with the process.
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    // A client that has gone away is no reason to end.
                    let _ = take_part(&stream, SentBy::Server, &conversation, turns_per_s);
                }
            });
        }
        Ok(Self { conversation: Arc::new(conversation), address, connects_per_s })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections there were in this time.
    pub fn run(&self, window: Duration) -> Result<u64> {
        let (made, deadline) = (AtomicU64::new(0), Instant::now() + window);
        let interval = Duration::from_secs_f64(f64::from(THREADS) / self.connects_per_s);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..THREADS)
                .map(|number| {
                    scope.spawn({
                        let made = &made;
                        move || self.connect_until(deadline, interval, number, made)
                    })
                })
                .collect();
            clients
                .into_iter()
                .try_for_each(|client| client.join().map_err(|_| anyhow!("a client panicked"))?)
        })?;
        Ok(made.into_inner())
    }

    fn connect_until(
        &self,
        deadline: Instant,
        interval: Duration,
        number: u8,
        made: &AtomicU64,
    ) -> Result<()> {
        let mut due = Instant::now();
        for turn in 0_u32.. {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if Instant::now() >= deadline {
                break;
            }
            // After a pause, what was missed is not made up for.
            due = (due + interval).max(Instant::now());
            let last = (turn % u32::from(CLIENT_ADDRESSES)) as u8 + 1;
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 1, number, last), 0)).into())?;
            socket.connect(&self.address.into())?;
            let stream = TcpStream::from(socket);
            take_part(&stream, SentBy::Client, &self.conversation, None)?;
            made.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Sends what this side sent, and reads as much as the other one did.
fn take_part(
    mut stream: &TcpStream,
    own: SentBy,
    conversation: &Conversation,
    turns_per_s: Option<f64>,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let (began, mut buffer) = (Instant::now(), vec![0; 1 << 14]);
    for (turn, (side, bytes)) in conversation.0.iter().enumerate() {
        if *side == own {
            let due = turns_per_s.map(|rate| began + Duration::from_secs_f64(turn as f64 / rate));
            thread::sleep(due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now())));
            stream.write_all(bytes)?;
            continue;
        }
        let mut left = bytes.len();
        while left > 0 {
            let most = left.min(buffer.len());
            let read = stream.read(&mut buffer[..most])?;
            anyhow::ensure!(read > 0, "the other side closed the connection");
            left -= read;
        }
    }
    if own == SentBy::Server {
        // The client closes first, as databases' clients do.
        stream.read_to_end(&mut Vec::new())?;
    }
    Ok(())
}
