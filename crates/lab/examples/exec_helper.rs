//! The hidden command `__exec` alone, through which the lab's tests start processes, and `hold`, a run
//! that does nothing but own a child, to be killed by them.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use ciphertoll_lab::{Child, EXEC_COMMAND, Error, Launch, Provisions, RunAs, run_exec_helper};
use ciphertoll_record::Scratch;

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
        _ => eprintln!("usage: exec_helper {EXEC_COMMAND} REQUEST | hold SCRATCH_ROOT"),
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
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}
