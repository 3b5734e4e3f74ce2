//! The program that the tests start: the link process, and clients and servers at its ends.

use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_link::{LINK_COMMAND, join, run_link_process};
use ciphertoll_model::Namespace;

const TIME_LIMIT: Duration = Duration::from_mins(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("an argument is missing");
    let role = next()?;
    if role == LINK_COMMAND {
        return Ok(run_link_process()?);
    }
    let namespace: Option<Namespace> = serde_json::from_str(&next()?)?;
    namespace.as_ref().map_or(Ok(()), join)?;
    let address: SocketAddr = next()?.parse()?;
    match role.as_str() {
        "serve" => serve(address)?,
        "visit" => times(next()?.parse()?, || connect(address))?,
        "talk" => times(next()?.parse()?, || talk(address))?,
        _ => return Err("an unknown role".into()),
    }
    Ok(())
}

/// Listens, prints the address, echoes the first byte of each connection, exits at the end of stdin.
fn serve(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that only connects sends nothing.
            let _ = answer(stream);
        }
    });
    io::stdin().lock().read_line(&mut String::new()).map(drop)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut word = [0];
    stream.read_exact(&mut word)?;
    stream.write_all(&word)
}

/// Prints how long each of `count` exchanges takes, ns.
fn times(count: usize, mut exchange: impl FnMut() -> io::Result<TcpStream>) -> io::Result<()> {
    for _ in 0..count {
        let began = Instant::now();
        let stream = exchange()?;
        writeln!(io::stdout(), "{}", began.elapsed().as_nanos())?;
        drop(stream);
    }
    Ok(())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, TIME_LIMIT)
}

fn talk(address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}
