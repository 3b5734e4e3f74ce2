//! Running servers, and the connection options for them.

use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{self, PathBuf};
use std::time::Duration;

use ciphertoll_lab::{Build, Credentials, Lab, Server, ServerStart, Tables};
use ciphertoll_model::{
    Auth, ChannelBinding, ClientCertificate, Endpoint, Engine, Identity, Path, QueryLanguage, Scale,
    SecurityLevel, ServerKey, TlsVersion,
};
use ciphertoll_net::{Address, tls};
use tempfile::TempDir;

use crate::answer::Answer;
use crate::oracle::{self, Oracle};

/// The lab's own accounts, accepted on the unix socket only. They can create others.
const MYSQL_FAMILY_CONTROL: &str = "ciphertoll_control";
const POSTGRES_CONTROL: &str = "ciphertoll";
/// The value of the lab's own tests, so that they share a template.
const ROWS: u32 = 1_500;
/// Longer than a busy machine takes for anything.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// A server and what the cases know of it.
pub(crate) struct Fixture {
    // Dropped in this order: the server's files are in the scratch directory, which is inside the other.
    pub(crate) server: Server,
    _lab: Lab,
    _place: TempDir,
    /// The download cache, kept between runs.
    pub(crate) cache: PathBuf,
}

/// A login, by our client or an oracle.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) engine: Engine,
    pub(crate) address: Address,
    pub(crate) user: String,
    pub(crate) password: Vec<u8>,
    pub(crate) database: String,
    /// Relevant if a protocol has several methods for the same account.
    pub(crate) auth: Auth,
    pub(crate) binding: ChannelBinding,
    pub(crate) tls: Option<TlsVisit>,
    /// How long drivers with retries try again.
    pub(crate) patience: Duration,
}

/// How a visit is encrypted.
#[derive(Clone, Debug)]
pub(crate) struct TlsVisit {
    /// Ours alone; an oracle has its own.
    pub(crate) library: tls::TlsLibrary,
    pub(crate) version: TlsVersion,
    pub(crate) ca_file: PathBuf,
    pub(crate) peer: &'static str,
    /// What the client shows of itself.
    pub(crate) identity: Option<Identity>,
}

impl Fixture {
    pub(crate) fn open(build: &Build) -> Self {
        let place = place();
        // All tests share the templates, which are kept between runs.
        let cache = format!("{}/ciphertoll-cache-{}", env!("CARGO_TARGET_TMPDIR"), nix::unistd::geteuid());
        let cache = PathBuf::from(cache);
        let lab = Lab::open_in(helper(), &place.path().join("scratch"), cache.clone()).expect("a lab");
        let scale: Scale = ROWS.to_string().parse().expect("a scale");
        let tables = match build.engine.query_language() {
            QueryLanguage::Sql => Tables { sysbench: Some(scale), ..Tables::default() },
            // Each case inserts its own documents.
            QueryLanguage::Documents => Tables::default(),
        };
        let template = lab.template(build, &tables, &mut |_| {}, &|| false).expect("a template is made");
        let start = ServerStart {
            build,
            template: &template,
            name: "o1",
            key: ServerKey::P256,
            log: place.path().join("server.log"),
            preferred_port: None,
            processors: None,
            strength: SecurityLevel::Default,
        };
        let server = lab.start(&start).expect("the server starts");
        Self { server, _lab: lab, _place: place, cache }
    }

    /// The default account's, unencrypted over TCP.
    pub(crate) fn plain(&self) -> Visit {
        self.visit(Path::Plain, Auth::default_of(self.server.engine()))
    }

    pub(crate) fn visit(&self, path: Path, auth: Auth) -> Visit {
        let account = self.server.account(credentials(path, auth));
        let endpoint = match path {
            Path::Unix => self.server.unix_endpoint(),
            Path::Tls(_) => self.server.tls_endpoint(),
            Path::Plain | Path::Compressed(_) | Path::Tunnel(_) | Path::Proxy(_) => {
                self.server.tcp_endpoint()
            }
        };
        let tls = path.as_tls().map(|path| TlsVisit {
            library: tls::TlsLibrary::OpenSsl,
            version: path.parameters.version,
            ca_file: self.server.ca_file(),
            peer: self.server.server_name(),
            identity: account.identity.clone(),
        });
        Visit {
            engine: self.server.engine(),
            address: match endpoint {
                Endpoint::Host { .. } => panic!("a private server has an address"),
                Endpoint::Tcp(address) => Address::Tcp(address),
                Endpoint::Unix(path) => Address::Unix(path),
            },
            user: account.user,
            password: fs::read(&account.password_file).expect("the password is ours to read"),
            database: self.server.database().to_owned(),
            auth,
            binding: match auth {
                Auth::Scram { binding, .. } => binding,
                _ => ChannelBinding::Unbound,
            },
            tls,
            patience: TIME_LIMIT,
        }
    }

    /// As the account that can create others.
    pub(crate) fn control(&self) -> Visit {
        let user = match self.server.engine() {
            Engine::MariaDb | Engine::MySql => MYSQL_FAMILY_CONTROL,
            Engine::Postgres => POSTGRES_CONTROL,
            engine @ (Engine::MongoDb | Engine::FerretDb) => panic!("{engine} is not asked in SQL"),
        };
        Visit { user: user.to_owned(), ..self.visit(Path::Unix, Auth::default_of(self.server.engine())) }
    }

    /// Makes the server ready for visits by `path`.
    pub(crate) fn prepare_path(&mut self, path: Path, auth: Auth) {
        self.server.prepare_auth(credentials(path, auth)).expect("the server has that authentication");
        if let Some(tls) = path.as_tls() {
            self.server.prepare_tls(tls).expect("the server has such TLS");
            self.server.install_certificate(tls).expect("a certificate");
        }
    }

    /// An oracle on [`Self::plain`].
    pub(crate) fn oracle(&self) -> Oracle {
        oracle::connect(&self.plain()).expect("the oracle logs in")
    }

    /// Runs statements that need to succeed, as preparation.
    pub(crate) fn prepare(&self, statements: &[&str]) {
        let mut oracle = self.oracle();
        for sql in statements {
            let answer: Answer = oracle.query(sql);
            answer.unwrap_or_else(|refusal| panic!("{sql}: {refusal:?}"));
        }
    }
}

fn credentials(path: Path, auth: Auth) -> Credentials {
    let client_certificate = path.as_tls().map_or(ClientCertificate::None, |tls| tls.client_certificate);
    Credentials { auth, client_certificate }
}

/// The helper program that Cargo builds with the tests.
fn helper() -> PathBuf {
    let test = std::env::current_exe().expect("our own path");
    let profile = test.parent().and_then(path::Path::parent).expect("tests lie two below the profile");
    let helper = profile.join("examples/oracles_exec_helper");
    assert!(
        helper.is_file(),
        "{} is missing: cargo build -p ciphertoll-oracles --examples",
        helper.display()
    );
    helper
}

/// A directory that servers of another user can traverse; short because of the limit of socket paths.
fn place() -> TempDir {
    let place = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a directory");
    set_permissions(place.path(), Permissions::from_mode(0o711)).expect("ours to change");
    place
}
