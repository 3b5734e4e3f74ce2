//! Child processes: their user, their end, and that none outlives us.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ciphertoll_host::exec::{EXEC_COMMAND, ExecRequest, Provisions};
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_host::user::RunAs;
use ciphertoll_record::{ProcessEnd, ProcessIdentity, Scratch, sweep};

use crate::common;

const LONG: Duration = Duration::from_mins(1);

fn shell(place: &Path, script: &str) -> Launch {
    Launch {
        what: "a script".to_owned(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
        environment: BTreeMap::new(),
        directory: "/".into(),
        run_as: RunAs::choose().unwrap(),
        processors: None,
        namespace: None,
        provisions: Provisions::default(),
        log: place.join("log"),
    }
}

fn spawn(place: &Path, script: &str) -> (Scratch, Child) {
    let scratch = Scratch::create(&place.join("scratch")).unwrap();
    let child = Child::spawn(&scratch, &common::helper(), &shell(place, script)).unwrap();
    (scratch, child)
}

#[test]
fn a_child_is_not_root_and_has_its_own_group_and_a_clean_environment() {
    let place = common::place();
    let (_scratch, mut child) =
        spawn(place.path(), "id -u; id -G; umask; ps -o pgid= -p $$ | tr -d ' '; env | sort");
    assert!(child.wait(LONG).unwrap().unwrap().success());
    let log = fs::read_to_string(place.path().join("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    if let Some(user) = RunAs::choose().unwrap().other() {
        assert_ne!(user.uid, 0);
        assert_eq!(lines[..2], [user.uid.to_string(), user.gid.to_string()]);
    }
    assert_eq!(lines[2], "0077");
    assert_eq!(lines[3], child.pid().to_string());
    let names: Vec<&str> = lines[4..].iter().filter_map(|line| line.split('=').next()).collect();
    assert!(
        names.iter().all(|name| ["LC_ALL", "PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(name)),
        "{names:?}"
    );
}

#[test]
fn a_child_ends_by_sigterm_with_all_its_group() {
    let place = common::place();
    let (_scratch, mut child) = spawn(place.path(), "sleep 600 & echo $!; wait");
    let grandchild = loop {
        let log = fs::read_to_string(place.path().join("log")).unwrap();
        if let Some(pid) = log.strip_suffix('\n') {
            break ProcessIdentity::of(pid.parse().unwrap()).unwrap();
        }
        assert!(child.ended().is_none());
        std::thread::yield_now();
    };
    assert_eq!(child.stop(LONG).unwrap(), ProcessEnd::Terminated);
    assert!(grandchild.wait(LONG).unwrap());
}

#[test]
fn a_child_that_ignores_sigterm_is_killed() {
    let place = common::place();
    let (_scratch, mut child) = spawn(place.path(), "trap '' TERM; echo deaf; while :; do sleep 1; done");
    while fs::read_to_string(place.path().join("log")).unwrap() != "deaf\n" {
        assert!(child.ended().is_none());
        std::thread::yield_now();
    }
    assert_eq!(child.stop(Duration::from_millis(50)).unwrap(), ProcessEnd::Killed);
    assert_eq!(child.ended().unwrap().signal(), Some(9));
}

#[test]
fn a_dropped_child_is_killed() {
    let place = common::place();
    let (_scratch, child) = spawn(place.path(), "sleep 600");
    let identity = child.identity();
    assert!(identity.is_alive());
    drop(child);
    assert!(!identity.is_alive());
}

#[test]
fn a_missing_program_is_reported_in_the_log() {
    let place = common::place();
    let scratch = Scratch::create(&place.path().join("scratch")).unwrap();
    let launch = Launch { program: "/nonexistent/mariadbd".into(), ..shell(place.path(), "") };
    let mut child = Child::spawn(&scratch, &common::helper(), &launch).unwrap();
    let status = child.wait(LONG).unwrap().unwrap();
    let error = child.died(status).to_string();
    assert!(error.contains("cannot start /nonexistent/mariadbd"), "{error}");
}

#[test]
fn an_error_quotes_only_lines_of_this_child() {
    let place = common::place();
    fs::write(place.path().join("log"), "[ERROR] of an earlier one\n").unwrap();
    let (_scratch, mut child) = spawn(place.path(), "echo '[ERROR] of this one'; exit 3");
    let status = child.wait(LONG).unwrap().unwrap();
    let error = child.died(status).to_string();
    assert!(
        error.contains("exit status: 3") && error.ends_with("its log ends: [ERROR] of this one"),
        "{error}"
    );
}

#[test]
fn a_child_without_its_parent_does_not_start() {
    let place = common::place();
    let request = ExecRequest {
        program: "/bin/touch".into(),
        arguments: vec![place.path().join("ran").display().to_string()],
        environment: BTreeMap::new(),
        directory: "/".into(),
        user: None,
        processors: None,
        namespace: None,
        provisions: Provisions::default(),
        expected_parent: i32::MAX,
    };
    let argument = serde_json::to_string(&request).unwrap();
    let output = Command::new(common::helper()).args([EXEC_COMMAND, &argument]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("parent"));
    assert!(!place.path().join("ran").exists());
}

#[test]
fn a_child_has_its_affinity_or_does_not_start() {
    let place = common::place();
    let scratch = Scratch::create(&place.path().join("scratch")).unwrap();
    let run = |processors: Option<Vec<u16>>| {
        let launch = Launch { processors, ..shell(place.path(), "grep Cpus_allowed_list /proc/self/status") };
        let mut child = Child::spawn(&scratch, &common::helper(), &launch).unwrap();
        let success = child.wait(LONG).unwrap().unwrap().success();
        let log = fs::read_to_string(place.path().join("log")).unwrap();
        (success, log.lines().last().unwrap_or_default().to_owned())
    };
    let Some(first) = ciphertoll_host::processors::split_processors().map(|apart| apart.client[0]) else {
        return;
    };
    assert_eq!(run(Some(vec![first])), (true, format!("Cpus_allowed_list:\t{first}")));
    let (success, said) = run(Some(vec![u16::MAX]));
    assert!(!success && said.contains("set the CPU affinity to [65535]"), "{said}");
}

#[test]
fn a_child_dies_with_the_thread_that_started_it() {
    let place = common::place();
    let path = place.path().to_owned();
    let (scratch, child) = std::thread::spawn(move || {
        let (scratch, child) = spawn(&path, "echo up; exec sleep 600");
        while fs::read_to_string(path.join("log")).unwrap() != "up\n" {
            std::thread::yield_now();
        }
        (scratch, child)
    })
    .join()
    .unwrap();
    assert!(child.identity().wait(LONG).unwrap(), "the parent-death signal is armed");
    drop((child, scratch));
}

#[test]
fn children_of_a_killed_run_end_and_the_sweep_removes_its_files() {
    let place = common::place();
    let root = place.path().join("scratch");
    let mut run = Command::new(common::helper())
        .arg("hold")
        .arg(&root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (pid, scratch) = line.trim().split_once(' ').unwrap();
    let child = ProcessIdentity::of(pid.parse().unwrap()).unwrap();
    assert!(sweep(&root).unwrap().directories_removed == 0 && child.is_alive());
    run.kill().unwrap();
    run.wait().unwrap();
    let report = sweep(&root).unwrap();
    assert_eq!((report.directories_removed, report.left.len()), (1, 0));
    assert!(!child.is_alive() && !Path::new(scratch).exists());
}

#[test]
fn a_secret_is_in_the_environment_and_not_among_arguments() {
    let place = common::place();
    let secret = place.path().join("secret");
    fs::write(&secret, "hunter2").unwrap();
    let mut launch = shell(place.path(), "test \"$WORD\" = hunter2 && echo it is there");
    launch.provisions.secrets.insert("WORD".to_owned(), secret.clone());
    let scratch = Scratch::create(&place.path().join("scratch")).unwrap();
    let mut child = Child::spawn(&scratch, &common::helper(), &launch).unwrap();
    assert!(child.wait(LONG).unwrap().unwrap().success(), "{}", child.output());
    assert_eq!(child.output(), "it is there\n");
    fs::remove_file(&secret).unwrap();
    let mut child = Child::spawn(&scratch, &common::helper(), &launch).unwrap();
    assert!(!child.wait(LONG).unwrap().unwrap().success());
    assert!(child.output().contains("read a secret"), "{}", child.output());
}
