//! Every way by which a byte can reach a file of the cluster, tried by a program (`ways/main.c`) that the library takes for a
//! server. Each is either covered, and the file then holds ciphertext that reads back, or refused with an error.
//!
//! The table on the page about page encryption names these tests, and a rule of `tidy` compares it with the kernel's
//! system calls.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_tde::{CipherKind, Kek, KeyFile, Replace};
use ciphertoll_testing::missing;

use crate::MARKER;
use crate::files::holding;
use crate::fixture::{built_library, succeeds};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The page is written as ciphertext, and reads back.
    Covered,
    /// The call fails with one of these errors, and nothing is written.
    Refused(&'static [i32]),
}

use Outcome::{Covered, Refused};

const WAYS: &[(&str, Outcome)] = &[
    ("vfork_close", Covered),
    ("vfork_close_range", Covered),
    ("vfork_closefrom", Covered),
    ("vfork_dup2", Covered),
    ("vfork_dup2_back", Covered),
    ("vfork_open", Covered),
    ("clone_vm", Covered),
    ("spawn_close", Covered),
    ("fork_write", Covered),
    ("raw_fork_write", Covered),
    ("thread_reopens", Covered),
    ("thread_unshares", Covered),
    ("raw_open", Covered),
    ("raw_openat2", Covered),
    ("raw_dup3", Covered),
    ("duplicates", Covered),
    ("large_descriptor", Covered),
    ("received", Covered),
    ("proc_self_fd", Covered),
    ("by_handle", Covered),
    ("by_pidfd", Covered),
    ("by_alias", Covered),
    ("renamed", Covered),
    ("by_tablespace", Covered),
    ("by_linked_database", Covered),
    ("by_tablespace_inside", Covered),
    ("by_wal_inside", Covered),
    ("by_nested_tablespaces", Covered),
    ("by_linked_database_renamed", Covered),
    ("deleted", Covered),
    ("closed_stream", Covered),
    ("as_stdout", Refused(&[libc::EPERM])),
    ("opened_as_stdout", Covered),
    ("by_write", Covered),
    ("by_writev", Covered),
    ("by_pwritev", Covered),
    ("by_pwritev2", Covered),
    ("by_pwritev2_append", Refused(&[libc::EOPNOTSUPP])),
    ("by_aliases", Covered),
    ("write_aliases", Covered),
    ("read_aliases", Covered),
    ("size_aliases", Covered),
    ("refused_aliases", Refused(&[libc::EPERM])),
    ("close_aliases", Covered),
    ("flag_aliases", Covered),
    ("open_aliases", Covered),
    ("raw_write", Covered),
    ("raw_pwrite", Covered),
    ("raw_pwritev", Covered),
    ("raw_pwritev2", Covered),
    ("raw_writev", Covered),
    ("by_dprintf", Covered),
    ("by_stream", Covered),
    ("by_fdopen", Covered),
    ("by_alias_fdopen", Covered),
    ("by_freopen", Refused(&[libc::EPERM])),
    ("by_alias_stream", Covered),
    ("by_linked", Covered),
    ("by_linked_stream", Refused(&[libc::EPERM])),
    ("by_sendfile", Refused(&[libc::EINVAL])),
    ("raw_sendfile", Refused(&[libc::EINVAL])),
    ("by_splice", Refused(&[libc::EINVAL])),
    ("raw_splice", Refused(&[libc::EINVAL])),
    ("by_vmsplice", Refused(&[libc::EINVAL])),
    ("by_copy_file_range", Covered),
    ("raw_copy_file_range", Covered),
    ("by_clone_range", Refused(&[libc::EOPNOTSUPP])),
    ("by_clone", Refused(&[libc::EOPNOTSUPP])),
    ("by_mmap", Refused(&[libc::ENODEV])),
    ("raw_mmap", Refused(&[libc::ENODEV])),
    ("by_process_vm", Refused(&[libc::EFAULT])),
    ("by_aio", Refused(&[libc::ENOSYS])),
    ("by_lio", Refused(&[libc::ENOSYS])),
    ("raw_io_setup", Refused(&[libc::ENOSYS])),
    ("raw_io_uring", Refused(&[libc::ENOSYS])),
    ("by_append", Covered),
    ("by_forgotten_append", Covered),
    ("by_link", Refused(&[libc::EXDEV])),
    ("raw_rename", Refused(&[libc::EXDEV])),
    ("plain_segment_restored", Refused(&[libc::EPERM])),
    ("by_symlink", Refused(&[libc::ELOOP])),
    ("unknown_name", Refused(&[libc::EPERM])),
    ("by_memfd", Covered),
    ("backup_to_client", Covered),
    ("backup_to_shell", Refused(&[libc::EPERM])),
    ("backup_to_other", Refused(&[libc::EPERM])),
    ("backup_of_wal_inside", Refused(&[libc::EPERM])),
];

const SEQUENCES: usize = 200;
const SEQUENCES_PER_PROCESS: usize = 10;

struct Ways {
    program: PathBuf,
    library: PathBuf,
    place: tempfile::TempDir,
}

/// How a way ended: its output, and the files with the marker in plaintext.
struct Tried {
    said: String,
    complained: String,
    plain: Vec<PathBuf>,
}

impl Ways {
    fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    fn within(directory: &Path) -> Self {
        let place = tempfile::tempdir_in(directory).expect("a directory");
        // The name makes the library take it for a server.
        let program = place.path().join("postgres");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proof/ways");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Werror", "-pthread", "-rdynamic", "-o"]).arg(&program);
        compiler.args(
            ["main.c", "descriptors.c", "transfers.c", "files.c", "machine.c", "aliases.c", "random.c"]
                .map(|file| sources.join(file)),
        );
        succeeds(&mut compiler);
        Self { program, library: built_library(), place }
    }

    /// The command of a program in a new data directory with keys, `place/data`.
    fn command(&self, program: &Path, place: &Path) -> Command {
        let data = place.join("data");
        fs::create_dir_all(data.join("base/5")).expect("a directory");
        let kek = Kek::generate().expect("a key");
        let kek_file = place.join("kek");
        fs::write(&kek_file, kek.text().as_bytes()).expect("written");
        fs::set_permissions(&kek_file, fs::Permissions::from_mode(0o600)).expect("a mode");
        let keys = KeyFile::create(CipherKind::Aes256, &kek).expect("keys");
        keys.store(&KeyFile::path_beside(&data), Replace::Never).expect("stored");
        let mut command = Command::new(program);
        command.current_dir(&data).env("LD_PRELOAD", &self.library);
        command.env("CIPHERTOLL_TDE_DATA", &data).env("CIPHERTOLL_TDE_KEK_FILE", &kek_file);
        command
    }

    /// Runs a way in a new data directory.
    fn try_way(&self, way: &str, environment: &[(&str, &str)]) -> Tried {
        let place = self.place.path().join(way);
        let mut command = self.command(&self.program, &place);
        command.arg(way);
        command.envs(environment.iter().copied());
        let output = command.output().expect("it runs");
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            said = format!("{said} ended with {}", output.status);
        }
        let plain = holding(&place, MARKER);
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        fs::remove_dir_all(&place).expect("removed");
        Tried { said, complained, plain }
    }
}

fn errors(ways: &Ways, environment: &[(&str, &str)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (way, outcome) in WAYS {
        let tried = ways.try_way(way, environment);
        let is_right = match outcome {
            Covered => tried.said == "wrote" || tried.said.starts_with("absent"),
            Refused(numbers) => numbers.iter().any(|number| tried.said == format!("refused {number}")),
        };
        if !is_right || !tried.plain.is_empty() {
            wrong.push(format!(
                "{way}: {outcome:?}, and it said {:?}; plaintext in {:?}; {}",
                tried.said, tried.plain, tried.complained
            ));
        }
    }
    wrong
}

#[test]
fn every_way_to_a_file_is_covered_or_refused() {
    let wrong = errors(&Ways::new(), &[]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// With a table that forgets every descriptor at once, everything is the same: the table is only a cache.
#[test]
fn a_table_that_forgets_everything_costs_only_time() {
    let wrong = errors(&Ways::new(), &[("CIPHERTOLL_TDE_FORGET", "1")]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn io_uring_is_refused_by_the_setting_and_the_reason_is_not_the_kernel() {
    let tried = Ways::new().try_way("server_with_io_uring", &[]);
    assert!(tried.complained.contains("io_method=io_uring"), "{} {}", tried.said, tried.complained);
    assert!(tried.complained.contains("io_method=worker"), "{}", tried.complained);
    assert!(tried.said.contains("exit status: 1"), "{}", tried.said);
}

/// Files that a base backup must not store in plaintext, because they may hold rows, and why not. It stores the others as
/// ciphertext.
const FILES_OF_BACKUPS: &[(&str, Option<&str>)] = &[
    ("unknown_name", Some("a file of an unknown kind among the encrypted ones")),
    ("mapped_unknown_name", Some("a file of an unknown kind among the encrypted ones")),
    ("mapped_inside_without_number", Some("the tablespace's OID as its name")),
    ("mapped_to_memory", Some("the tablespace's OID as its name")),
    ("wal_elsewhere", Some("WAL in another directory than pg_wal")),
    ("mapped_inside", None),
];

#[test]
fn a_base_backup_refuses_an_unknown_file_among_the_encrypted_ones() {
    let ways = Ways::new();
    let program = ways.place.path().join("pg_basebackup");
    fs::copy(&ways.program, &program).expect("copied");
    for (way, why) in FILES_OF_BACKUPS {
        let place = ways.place.path().join(way);
        let mut command = ways.command(&program, &place);
        let output = command.arg("-D").arg(place.join("data")).arg(way).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        match why {
            Some(why) => assert!(said.contains(why) && output.status.code() == Some(1), "{way}: {output:?}"),
            None => assert_eq!(output.stdout, b"wrote", "{way}: {output:?}"),
        }
        assert_eq!(holding(&place, MARKER), Vec::<PathBuf>::new(), "{way}");
    }
    assert!(!Path::new("/dev/shm/ciphertoll-proof-1").exists(), "a file in memory");
}

#[test]
fn a_file_of_somebody_else_in_the_data_directory_is_plaintext_with_a_warning() {
    let tried = Ways::new().try_way("foreign_file", &[]);
    assert_eq!(tried.said, "wrote", "{}", tried.complained);
    let warnings =
        tried.complained.lines().filter(|line| line.contains("warning: dump.sql in the data directory"));
    assert_eq!(warnings.count(), 1, "{}", tried.complained);
}

/// Whatever a process, its threads and its children do to descriptors, it reads and writes the same as without the library.
#[test]
fn random_sequences_of_descriptors_are_the_same_as_without_the_library() {
    let ways = Ways::new();
    for first in (1..=SEQUENCES).step_by(SEQUENCES_PER_PROCESS) {
        let seed = first.to_string();
        let count = SEQUENCES_PER_PROCESS.to_string();
        let environment = [("RANDOM_SEED", seed.as_str()), ("RANDOM_SEQUENCES", &count)];
        let sealed = ways.try_way("random_descriptors", &environment);
        let plain = ways.try_way("random_descriptors", &[&environment[..], &[("LD_PRELOAD", "")]].concat());
        assert!(plain.said.ends_with("wrote"), "{}", plain.said);
        let differing = sealed.said.lines().zip(plain.said.lines()).find(|(sealed, plain)| sealed != plain);
        assert_eq!(differing, None, "seeds from {first}: {}", sealed.complained);
        assert_eq!(sealed.said, plain.said, "seeds from {first}: {}", sealed.complained);
        assert!(!plain.plain.is_empty() && sealed.plain.is_empty(), "{:?}", sealed.plain);
    }
}

/// Machine code that makes system calls itself cannot be seen. What it wrote is found when something else is written.
#[test]
fn plaintext_that_was_written_past_the_library_ends_the_server() {
    let ways = Ways::new();
    for way in ["machine_write", "machine_dup"] {
        for (interval, is_found) in [("1", true), ("10", true), ("0", false)] {
            let tried = ways.try_way(way, &[("CIPHERTOLL_TDE_SAMPLE", interval)]);
            let is_stopped = tried.said.contains("exit status: 99")
                && tried.complained.contains("PANIC: plaintext was written to ")
                && tried.complained.contains("base/5/16384 at or before offset ");
            assert_eq!(is_stopped, is_found, "{way}, {interval}: {} {}", tried.said, tried.complained);
            assert_eq!(tried.complained.lines().count(), usize::from(is_found), "{}", tried.complained);
            assert!(!tried.plain.is_empty(), "{way}");
        }
    }
    let tried = ways.try_way("by_write", &[("CIPHERTOLL_TDE_SAMPLE", "sometimes")]);
    assert!(
        tried.complained.contains("CIPHERTOLL_TDE_SAMPLE is not a number of writes"),
        "{}",
        tried.complained
    );
}

/// Everything that the server may do is still possible if each write is read back.
#[test]
fn a_sampler_that_reads_everything_back_finds_nothing_wrong() {
    let wrong = errors(&Ways::new(), &[("CIPHERTOLL_TDE_SAMPLE", "1")]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// On a file system in memory, because allocating more than a disk has can fill the disk first.
#[test]
fn a_failed_allocation_leaves_a_file_as_it_was() {
    let memory = Path::new("/dev/shm");
    let is_memory = nix::sys::statfs::statfs(memory)
        .is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC);
    if !is_memory {
        return missing("no file system in memory at /dev/shm");
    }
    let tried = Ways::within(memory).try_way("allocates_too_much", &[]);
    assert_eq!(tried.said, "wrote", "{}", tried.complained);
    assert!(tried.plain.is_empty(), "{:?}", tried.plain);
}

/// Arguments of `pg_basebackup`, with `DATA` for the directory that has keys, and whether they may run.
const BACKUPS: &[(&[&str], bool)] = &[
    (&["-D", "DATA", "-Fp"], true),
    (&["-DDATA"], true),
    (&["--pgdata=DATA", "-X", "none"], true),
    (&["--pgdata", "DATA", "--no-sync"], true),
    (&["--pg", "DATA/"], true),
    (&["-PvDDATA", "-cfast"], true),
    (&["-l", "-D", "-D", "DATA"], true),
    (&["--label", "-D-", "-D", "DATA"], true),
    (&["-D", "DATA", "-D", "DATA"], true),
    (&["-c", "fast", "-d", "host=a dbname=b", "-D", "DATA", "--waldir=DATA/../wal"], true),
    (&[], false),
    (&["DATA"], false),
    (&["-D", "-", "-Ft"], false),
    (&["-D", "DATA", "-Ft", "-X", "none", "-D", "-"], false),
    (&["-D", "DATA", "-D-"], false),
    (&["-D", "DATA", "-PD", "-"], false),
    (&["-D", "DATA", "--pgdata=-"], false),
    (&["-D", "DATA", "--pgda", "-"], false),
    (&["-D", "elsewhere", "-l", "DATA"], false),
    (&["-l", "DATA", "-D", "elsewhere"], false),
    (&["-D", "DATA", "--", "-D", "elsewhere"], true),
    (&["-D", "DATA", "-t", "shell"], false),
    (&["-D", "DATA", "--target=client"], false),
    (&["-D", "DATA", "--tar", "server:/srv"], false),
    (&["-D", ""], false),
];

#[test]
fn a_base_backup_runs_only_if_every_target_is_the_directory_with_keys() {
    let ways = Ways::new();
    let program = ways.place.path().join("pg_basebackup");
    fs::copy(&ways.program, &program).expect("copied");
    // Longer than any buffer for the command line.
    let long = [&["-l", "name"].repeat(20_000)[..], &["-D", "DATA"]].concat();
    let long_elsewhere = [&["-D", "DATA"], &long[..], &["-D", "-"]].concat();
    let long = [(long.as_slice(), true), (long_elsewhere.as_slice(), false)];
    for (arguments, may_run) in BACKUPS.iter().chain(&long) {
        let place = ways.place.path().join("backup");
        let data = place.join("data");
        let mut command = ways.command(&program, &place);
        let data = data.to_str().expect("a path");
        command.args(arguments.iter().map(|argument| argument.replace("DATA", data)));
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_refused = said.contains("refused: the base backup must be written to");
        assert_eq!(
            is_refused,
            !may_run,
            "{} arguments: {:?}: {said}",
            arguments.len(),
            &arguments[..arguments.len().min(8)]
        );
        fs::remove_dir_all(&place).expect("removed");
    }
}
