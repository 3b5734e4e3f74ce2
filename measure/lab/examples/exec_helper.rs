//! The hidden commands `__exec` and `__link`, through which the lab's tests start processes and networks; `hold`, a run
//! that does nothing but own a child, to be killed by them; and `capture`, which looks on at one of the networks.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ciphertoll_host::exec::{EXEC_COMMAND, Provisions, run_exec_helper};
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_host::user::RunAs;
use ciphertoll_lab::Error;
use ciphertoll_link::{LINK_COMMAND, join, run_link_process};
use ciphertoll_record::Scratch;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

#[expect(clippy::print_stderr, reason = "a binary's last words; they go to the child's log")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [EXEC_COMMAND, request] => eprintln!("{}", run_exec_helper(request)),
        ["hold", root] => match hold(Path::new(root)) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("{error}"),
        },
        [LINK_COMMAND, ..] => match run_link_process() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("{error}"),
        },
        ["capture", namespace, interface, marker] => match capture(namespace, interface, marker) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("{error}"),
        },
        _ => eprintln!(
            "usage: exec_helper {EXEC_COMMAND} REQUEST | {LINK_COMMAND} | hold ROOT | capture NETWORK"
        ),
    }
    ExitCode::FAILURE
}

/// Starts a child, says who it is and where its scratch directory is, and waits for its own stdin's end.
#[expect(clippy::print_stdout, reason = "what the test reads")]
fn hold(root: &Path) -> Result<(), Error> {
    let scratch = Scratch::create(root)?;
    let launch = Launch {
        what: "a child to be left".to_owned(),
        program: "/bin/sleep".into(),
        arguments: vec!["60".to_owned()],
        environment: [].into(),
        directory: "/".into(),
        run_as: RunAs::choose()?,
        processors: None,
        namespace: None,
        provisions: Provisions::default(),
        log: scratch.path().join("log"),
    };
    let child = Child::spawn(&scratch, Path::new("/proc/self/exe"), &launch)?;
    println!("{} {}", child.pid(), scratch.path().display());
    // Only its end matters.
    let _ = io::stdin().read(&mut [0]);
    Ok(())
}

/// Looks at all frames of an interface in the network that `namespace` (JSON) leads into, from when it says `ready` until
/// its stdin ends. Then it says how many bytes there were, and whether `marker` was among them in the clear.
#[expect(clippy::print_stdout, reason = "what the test reads")]
fn capture(namespace: &str, interface: &str, marker: &str) -> io::Result<()> {
    const LOOK_UP_AFTER_MS: i64 = 50;
    const LONGEST_FRAME: usize = 1 << 17;
    join(&serde_json::from_str(namespace)?)?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, LOOK_UP_AFTER_MS * 1_000))?;
    let wanted = if_nametoindex(interface)? as usize;
    let is_over = AtomicBool::new(false);
    println!("ready");
    let (bytes, seen) = thread::scope(|scope| {
        scope.spawn(|| {
            // Only its end matters.
            let _ = io::stdin().read(&mut [0]);
            is_over.store(true, Ordering::Release);
        });
        let (mut frame, mut bytes, mut seen) = (vec![0; LONGEST_FRAME], 0, false);
        loop {
            match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut frame) {
                Ok((length, from)) if from.is_some_and(|from| from.ifindex() == wanted) => {
                    bytes += length;
                    seen |= frame[..length].windows(marker.len()).any(|part| part == marker.as_bytes());
                }
                // What is there already is looked at even after the end.
                Err(Errno::EAGAIN) if is_over.load(Ordering::Acquire) => return Ok((bytes, seen)),
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(io::Error::from(errno)),
            }
        }
    })?;
    println!("{bytes} {seen}");
    Ok(())
}
