//! What the tests start: the link's process, and who stands at its ends.

use std::io::{self, BufRead, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ciphertoll_link::{LINK_COMMAND, join, run_link_process};

const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("an argument is missing");
    let role = next()?;
    if role == LINK_COMMAND {
        return Ok(run_link_process()?);
    }
    join(&serde_json::from_str(&next()?)?)?;
    let address: SocketAddr = next()?.parse()?;
    match role.as_str() {
        "serve" => serve(address)?,
        "visit" => visit(address, next()?.parse()?)?,
        _ => return Err("an unknown role".into()),
    }
    Ok(())
}

/// Listens, says where, and ends with its stdin. The backlog takes whoever comes.
fn serve(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    io::stdin().lock().read_line(&mut String::new()).map(drop)
}

/// Says how long connects take, ns.
fn visit(address: SocketAddr, count: usize) -> io::Result<()> {
    for _ in 0..count {
        let began = Instant::now();
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        writeln!(io::stdout(), "{}", began.elapsed().as_nanos())?;
        drop(stream);
    }
    Ok(())
}
