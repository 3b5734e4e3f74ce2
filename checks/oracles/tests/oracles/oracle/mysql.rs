//! `mysql_async`.

use std::fs;

use ciphertoll_model::Identity;
use ciphertoll_net::Address;
use mysql_async::prelude::{Queryable, StatementLike};
use mysql_async::{Conn, Error, OptsBuilder, Params, Row, SslOpts, Value};
use openssl::pkcs12::Pkcs12;
use openssl::pkey::PKey;
use openssl::x509::X509;
use tokio::runtime::Runtime;

use super::runtime;
use crate::answer::{Answer, Refusal, Rows};
use crate::fixture::{TlsVisit, Visit};
use crate::samples::Sample;

/// Above every server's limit; the driver would apply the server's limit to rows, too.
const MAX_PACKET_BYTES: usize = 1 << 30;

/// A connection of `mysql_async`'s.
pub(crate) struct MySqlOracle {
    runtime: Runtime,
    /// None only when it is about to be dropped.
    conn: Option<Conn>,
}

impl MySqlOracle {
    pub(super) fn connect(visit: &Visit) -> Answer<Self> {
        let runtime = runtime();
        let conn = Some(refused(runtime.block_on(Conn::new(options(visit))))?);
        let mut oracle = Self { runtime, conn };
        if visit.tls.is_some() {
            let version = oracle.query("SHOW STATUS LIKE 'Ssl_version'")?;
            assert!(version[0][1].as_deref().is_some_and(|version| version.starts_with(b"TLSv1.")));
        }
        Ok(oracle)
    }

    pub(crate) fn query(&mut self, sql: &str) -> Answer {
        let (runtime, conn) = self.parts();
        let rows = refused(runtime.block_on(async {
            let mut result = conn.query_iter(sql).await?;
            let mut rows: Vec<Row> = Vec::new();
            while !result.is_empty() {
                rows.extend(result.collect::<Row>().await?);
            }
            // An error after the first result is kept until here.
            result.drop_result().await?;
            Ok(rows)
        }))?;
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }

    pub(super) fn affected(&mut self, sql: &str) -> Answer<u64> {
        let (runtime, conn) = self.parts();
        refused(runtime.block_on(async {
            conn.query_drop(sql).await?;
            Ok(conn.affected_rows())
        }))
    }

    pub(super) fn insert(&mut self, sql: &str, sample: &Sample) -> Answer<u64> {
        let Sample { id, number, word, bytes } = sample.clone();
        let (runtime, conn) = self.parts();
        refused(runtime.block_on(async {
            conn.exec_drop(sql, (id, number, word, bytes)).await?;
            Ok(conn.affected_rows())
        }))
    }

    /// The rows of a prepared statement's answer, whose columns are all of text or bytes.
    pub(crate) fn execute(&mut self, sql: &str, id: i64) -> Answer<Rows> {
        let (runtime, conn) = self.parts();
        let rows: Vec<Row> = refused(runtime.block_on(conn.exec(sql, (id,))))?;
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }

    /// Prepares a statement and runs it without parameters.
    pub(crate) fn prepare(&mut self, sql: impl StatementLike) -> Answer<()> {
        let (runtime, conn) = self.parts();
        refused(runtime.block_on(conn.exec_drop(sql, Params::Empty)))
    }

    fn parts(&mut self) -> (&Runtime, &mut Conn) {
        (&self.runtime, self.conn.as_mut().expect("it is there until the end"))
    }
}

impl Drop for MySqlOracle {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // A connection that the server has closed cannot be closed again.
            let _ = self.runtime.block_on(conn.disconnect());
        }
    }
}

fn options(visit: &Visit) -> OptsBuilder {
    let password = String::from_utf8(visit.password.clone()).expect("passwords are hexadecimal digits");
    let options = OptsBuilder::default()
        .user(Some(&visit.user))
        .pass(Some(password).filter(|password| !password.is_empty()))
        .db_name(Some(&visit.database))
        .max_allowed_packet(Some(MAX_PACKET_BYTES))
        // By default the driver switches to the unix socket.
        .prefer_socket(false)
        .ssl_opts(visit.tls.as_ref().map(tls));
    match &visit.address {
        Address::Tcp(address) => options.ip_or_hostname(address.ip().to_string()).tcp_port(address.port()),
        Address::Host { name, port, .. } => options.ip_or_hostname(name.as_str()).tcp_port(*port),
        Address::Unix(path) => options.socket(Some(path.display().to_string())),
    }
}

/// The driver has no setting for the TLS version and uses the highest.
fn tls(visit: &TlsVisit) -> SslOpts {
    SslOpts::default()
        .with_root_certs(vec![visit.ca_file.clone().into()])
        .with_disable_built_in_roots(true)
        .with_danger_tls_hostname_override(Some(visit.peer))
        .with_client_identity(visit.identity.as_ref().map(identity))
}

/// The driver wants certificate and key in one archive; it stays in memory.
fn identity(identity: &Identity) -> mysql_async::ClientIdentity {
    let read = |path| fs::read(path).expect("ours to read");
    let certificate = X509::from_pem(&read(&identity.certificate_file)).expect("a certificate");
    let key = PKey::private_key_from_pem(&read(&identity.key_file)).expect("its key");
    let archive = Pkcs12::builder().cert(&certificate).pkey(&key).build2("").expect("an archive");
    mysql_async::ClientIdentity::new(archive.to_der().expect("DER").into())
}

fn text(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(bytes),
        other => panic!("a value that did not come as text: {other:?}"),
    }
}

fn refused<T>(result: mysql_async::Result<T>) -> Answer<T> {
    result.map_err(|error| match error {
        Error::Server(error) => {
            Refusal { code: error.code.to_string(), state: error.state, message: error.message }
        }
        other => panic!("mysql_async failed by itself: {other}"),
    })
}
