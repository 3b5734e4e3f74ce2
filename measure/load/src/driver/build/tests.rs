use ciphertoll_model::ycsb;

use super::*;

fn program(build: &str) -> Driver {
    let text = format!(
        "kind = \"program\"\nabout = \"a test\"\ncommand = [\"{{build}}\"]\n[build]\nsources = []\n\
         needs = \"a miracle\"\ncommand = '''{build}'''\n[can]\nengines = [\"mariadb\"]\npaths = [\"plain\"]\n"
    );
    Driver::parse("mine", Origin::BuiltIn, &text).unwrap()
}

#[test]
fn a_build_is_cached() {
    let cache = tempfile::tempdir().unwrap();
    let log = cache.path().join("log");
    let driver = program(&format!("echo built >>{}; echo >\"$OUTPUT\"", log.display()));
    let task = Task::parse("point-select", "100").unwrap();
    for _ in 0..2 {
        let command = driver.prepare(cache.path()).unwrap().command(Path::new("exe"), &task);
        assert!(Path::new(command.get_program()).is_file());
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), "built\n");
    assert_eq!(fs::read_dir(cache.path().join("drivers")).unwrap().count(), 1);
}

#[test]
fn a_failed_build_is_explained_in_a_line() {
    let cache = tempfile::tempdir().unwrap();
    let driver = program("echo 'In file x:' >&2; echo 'x.c:1: fatal error: libpq-fe.h: gone' >&2; false");
    assert_eq!(
        driver.prepare(cache.path()).unwrap_err().to_string(),
        "driver mine needs a miracle: x.c:1: fatal error: libpq-fe.h: gone"
    );
}

/// A fake Python that logs its arguments.
fn fake_python(directory: &Path, pip: &str) -> Python {
    let program = directory.join("python3");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>{0}/log\ncase \"$*\" in\n*sys.version_info*) echo fake 3 ;;\n\
         *venv*) mkdir -p \"$4/bin\" && cp \"$0\" \"$4/bin/python3\" ;;\n*pip*) {pip} ;;\nesac\n",
        directory.display()
    );
    // Written by another process: a file that this process has open for writing could not be executed.
    let mut write = Command::new("sh");
    write.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 700 \"$0\""]).arg(&program).arg(script);
    assert!(write.status().unwrap().success());
    Python::at(program).unwrap()
}

fn in_python() -> Driver {
    let text = "kind = \"program\"\nabout = \"a test\"\ncommand = [\"{build}/bin/python3\"]\n[build]\n\
                sources = [\"pymongo.py\"]\npython = \"pymongo.requirements.txt\"\nneeds = \"Python\"\n\
                [can]\nengines = [\"ferretdb\"]\npaths = [\"plain\"]\n";
    Driver::parse("mine", Origin::BuiltIn, text).unwrap()
}

fn build_with(driver: &Driver, cache: &Path, python: Python) -> Result<PathBuf, Error> {
    let DriverFile::Program(program) = driver.file() else { panic!("a program") };
    let recipe = program.build.as_ref().unwrap();
    let BuildMethod::Python { requirements } = &recipe.how else { panic!("of Python's") };
    driver.build(recipe, cache, &Builder::Python(python, requirements))
}

#[test]
fn an_environment_is_made_once_with_pinned_packages() {
    let cache = tempfile::tempdir().unwrap();
    let driver = in_python();
    let built = [(); 2].map(|()| {
        let python = fake_python(cache.path(), "true");
        build_with(&driver, cache.path(), python).unwrap()
    });
    assert_eq!(built[0], built[1]);
    assert!(built[0].join("bin/python3").is_file() && built[0].join("pymongo.py").is_file());
    assert_eq!(fs::read_dir(cache.path().join("drivers")).unwrap().count(), 1);
    let log = fs::read_to_string(cache.path().join("log")).unwrap();
    let installs: Vec<&str> = log.lines().filter(|line| line.contains("pip")).collect();
    let [install] = installs[..] else { panic!("{log}") };
    assert!(install.contains("--require-hashes --only-binary :all:"), "{install}");
    assert!(install.ends_with("pymongo.requirements.txt"), "{install}");
}

#[test]
fn an_incomplete_environment_is_not_cached() {
    let cache = tempfile::tempdir().unwrap();
    let python = fake_python(cache.path(), "echo 'ERROR: No space left on device' >&2; exit 1");
    let error = build_with(&in_python(), cache.path(), python).unwrap_err().to_string();
    assert_eq!(error, "driver mine needs Python: No space left on device");
    assert_eq!(fs::read_dir(cache.path().join("drivers")).unwrap().count(), 0);
}

#[test]
fn pending_installations_are_reported() {
    let cache = tempfile::tempdir().unwrap();
    let driver = super::super::find("pymongo").unwrap();
    if in_path(PYTHON).is_none() {
        return;
    }
    let told = driver.installs(cache.path()).unwrap();
    assert!(told.starts_with("pymongo 4.20.0, dnspython 2.9.2 into "), "{told}");
    let (_, place) = told.split_once(" into ").unwrap();
    fs::create_dir_all(place).unwrap();
    assert_eq!(driver.installs(cache.path()), None);
    assert_eq!(program("true").installs(cache.path()), None);
}

/// The driver draws the keys that were loaded.
#[test]
fn pymongos_driver_draws_the_same_values() {
    let Some(python) = in_path(PYTHON) else { return };
    let numbers = [0, 1, 999_999, u64::from(u32::MAX), u64::MAX];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../drivers/pymongo.py");
    let mut command = Command::new(python);
    command.args([script, "--self-test"]).args(numbers.map(|number| number.to_string()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let keys = numbers.map(|number| {
        let (prefix, hash) = (ycsb::KEY_PREFIX, ycsb::key_hash(number));
        format!("{prefix}{hash}\n")
    });
    assert_eq!(String::from_utf8_lossy(&output.stdout), keys.concat());
}

#[test]
fn a_cache_writable_by_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let cache = tempfile::tempdir().unwrap();
    let directory = cache.path().join("drivers");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let error = program("echo >\"$OUTPUT\"").prepare(cache.path()).unwrap_err().to_string();
    assert!(error.contains("other users can write to it"), "{error}");
}
