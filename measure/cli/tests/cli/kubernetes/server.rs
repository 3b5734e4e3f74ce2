//! A PostgreSQL that pods can reach.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ciphertoll_model::{Engine, ServerLevel};
use tempfile::TempDir;

use crate::support::{MOMENT, system, text, until_within};

/// The server listens in the network of the pods only, and nothing else does.
pub(crate) const PASSWORD: &str = "not-in-any-object";
/// For the server that URLs call `there`.
pub(crate) const PASSWORD_VARIABLE: &str = "CIPHERTOLL_PASSWORD_THERE";
const PORT: u16 = 5432;

/// Ended when dropped.
pub(crate) struct PodServer {
    postgres: Child,
    address: String,
    place: TempDir,
}

impl PodServer {
    /// Listens on `address`; accounts need a password, and TLS is possible.
    pub(crate) fn start(address: &str) -> Self {
        let place =
            tempfile::Builder::new().prefix("ciphertoll-pods").tempdir_in("/tmp").expect("a directory");
        let path = place.path();
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("others may look");
        let data = path.join("data");
        fs::create_dir(&data).expect("a directory");
        fs::write(path.join("password"), PASSWORD).expect("a file");
        certificate(path, address);
        let owned = ["password", "data", "server.key", "server.crt"].map(|name| path.join(name));
        for owned in &owned {
            system("chown", &["postgres", text(owned)]).expect("chown");
        }
        let initdb = as_postgres(&program("initdb"))
            .args(["--username=app", "--auth=md5", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"])
            .arg(format!("--pwfile={}", text(&path.join("password"))))
            .arg(&data)
            .output()
            .expect("initdb starts");
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        let access = data.join("pg_hba.conf");
        let everyone = fs::read_to_string(&access).expect("pg_hba.conf") + "\nhost all all all md5\n";
        fs::write(access, everyone).expect("pg_hba.conf");
        let mut postgres = as_postgres(&program("postgres"));
        postgres.arg("-D").arg(&data);
        let files = [
            ("ssl_cert_file", "server.crt"),
            ("ssl_key_file", "server.key"),
            ("unix_socket_directories", "data"),
        ];
        let files = files.map(|(setting, name)| format!("{setting}={}", text(&path.join(name))));
        let settings = [
            format!("listen_addresses={address}"),
            format!("port={PORT}"),
            "ssl=on".into(),
            "fsync=off".into(),
        ];
        for setting in files.iter().chain(&settings) {
            postgres.args(["-c", setting]);
        }
        let log = fs::File::create(path.join("log")).expect("a log");
        let postgres = postgres.stdin(Stdio::null()).stderr(log).spawn().expect("postgres starts");
        let server = Self { postgres, address: address.to_owned(), place };
        until_within(MOMENT, "a server that accepts connections", || {
            let mut probe = Command::new(program("pg_isready"));
            probe.args(["--host", address, "--port", &PORT.to_string(), "--quiet"]);
            probe.status().expect("pg_isready starts").success().then_some(())
        });
        server
    }

    /// Its password is in an environment variable, see [`PASSWORD_VARIABLE`].
    pub(crate) fn url(&self) -> String {
        self.url_of("app")
    }

    pub(crate) fn url_with_password(&self) -> String {
        self.url_of(&format!("app:{PASSWORD}"))
    }

    fn url_of(&self, user: &str) -> String {
        let authority = self.place.path().join("server.crt");
        let options = format!("sslmode=compare&sslrootcert={}", text(&authority));
        format!("there=postgres://{user}@{}:{PORT}/postgres?{options}", self.address)
    }
}

impl Drop for PodServer {
    fn drop(&mut self) {
        let _ = self.postgres.kill();
        let _ = self.postgres.wait();
    }
}

/// A certificate that signs itself, for `address`.
fn certificate(directory: &Path, address: &str) {
    let (key, certificate) = (directory.join("server.key"), directory.join("server.crt"));
    let name = format!("subjectAltName=IP:{address}");
    let files = ["-keyout", text(&key), "-out", text(&certificate), "-addext", &name];
    let kind =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"];
    system("openssl", &[&kind[..], &["-subj", "/CN=postgres"], &files].concat()).expect("openssl");
}

/// PostgreSQL refuses to run as root.
fn as_postgres(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL", "--"])
        .arg(program);
    command.current_dir("/");
    command
}

/// A program of the newest installed PostgreSQL.
fn program(name: &str) -> PathBuf {
    let found = ciphertoll_lab::find(&ServerLevel::of(Engine::Postgres)).expect("an installed PostgreSQL");
    found.server_program.with_file_name(name)
}
