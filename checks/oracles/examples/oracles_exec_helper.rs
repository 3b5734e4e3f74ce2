//! The hidden command `__exec`, with which the tests start servers.

use std::process::ExitCode;

use ciphertoll_host::exec::{EXEC_COMMAND, run_exec_helper};

#[expect(clippy::print_stderr, reason = "a binary's last words; they go to the server's log")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [command, request] if command == EXEC_COMMAND => eprintln!("{}", run_exec_helper(request)),
        _ => eprintln!("usage: oracles_exec_helper {EXEC_COMMAND} REQUEST"),
    }
    ExitCode::FAILURE
}
