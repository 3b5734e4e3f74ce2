//! `tokio-postgres`, with TLS by `postgres-openssl`.

use std::io::Cursor;
use std::pin::pin;

use ciphertoll_model::ChannelBinding;
use ciphertoll_net::{Address, tls};
use futures_util::{SinkExt, TryStreamExt};
use openssl::ssl::{SslConnector, SslFiletype, SslMethod, SslVersion};
use postgres_openssl::MakeTlsConnector;
use tokio::runtime::Runtime;
use tokio_postgres::config::{self, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage, SimpleQueryRow, Socket};

use super::runtime;
use crate::answer::{Answer, Refusal};
use crate::fixture::{TlsVisit, Visit};
use crate::samples::Sample;

/// A connection of `tokio-postgres`'.
pub(crate) struct PostgresOracle {
    runtime: Runtime,
    client: Client,
}

impl PostgresOracle {
    pub(super) fn connect(visit: &Visit) -> Answer<Self> {
        let runtime = runtime();
        let client = match &visit.tls {
            None => log_in(&runtime, visit, NoTls),
            Some(tls) => log_in(&runtime, visit, connector(tls)),
        }?;
        Ok(Self { runtime, client })
    }

    pub(crate) fn query(&mut self, sql: &str) -> Answer {
        let messages = refused(self.runtime.block_on(self.client.simple_query(sql)))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(text(row)),
            _ => None,
        });
        Ok(rows.collect())
    }

    pub(super) fn affected(&mut self, sql: &str) -> Answer<u64> {
        let messages = refused(self.runtime.block_on(self.client.simple_query(sql)))?;
        let counts = messages.iter().map(|message| match message {
            SimpleQueryMessage::CommandComplete(count) => *count,
            _ => 0,
        });
        Ok(counts.sum())
    }

    pub(super) fn insert(&mut self, sql: &str, sample: &Sample) -> Answer<u64> {
        let Sample { id, number, word, bytes } = sample;
        refused(self.runtime.block_on(self.client.execute(sql, &[id, number, word, bytes])))
    }

    /// Prepares a statement and runs it without parameters.
    pub(crate) fn prepare(&mut self, sql: &str) -> Answer<u64> {
        refused(self.runtime.block_on(async {
            let statement = self.client.prepare(sql).await?;
            self.client.execute(&statement, &[]).await
        }))
    }

    /// `COPY … FROM STDIN`; the rows copied.
    pub(crate) fn copy_in(&mut self, sql: &str, data: Vec<u8>) -> Answer<u64> {
        refused(self.runtime.block_on(async {
            let mut sink = pin!(self.client.copy_in(sql).await?);
            sink.send(Cursor::new(data)).await?;
            sink.finish().await
        }))
    }

    /// `COPY … TO STDOUT`; its data.
    pub(crate) fn copy_out(&mut self, sql: &str) -> Answer<Vec<u8>> {
        refused(self.runtime.block_on(async {
            let stream = self.client.copy_out(sql).await?;
            let pieces = stream.try_fold(Vec::new(), async |mut data, piece| {
                data.extend_from_slice(&piece);
                Ok(data)
            });
            pieces.await
        }))
    }
}

fn log_in<T>(runtime: &Runtime, visit: &Visit, tls: T) -> Answer<Client>
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static>,
{
    let (client, connection) = refused(runtime.block_on(config(visit).connect(tls)))?;
    // Runs on the runtime. If the server closes the connection, the next statement fails.
    runtime.spawn(async { connection.await.ok() });
    Ok(client)
}

fn config(visit: &Visit) -> Config {
    let mut config = Config::new();
    match &visit.address {
        Address::Tcp(address) => config.host(address.ip().to_string()).port(address.port()),
        Address::Host { name, port, .. } => config.host(name).port(*port),
        Address::Unix(path) => {
            let directory = path.parent().expect("a socket lies in a directory");
            let port = path.extension().and_then(|port| port.to_str()?.parse().ok());
            config.host_path(directory).port(port.expect("a socket is named after its port"))
        }
    };
    config
        .user(&visit.user)
        .password(&visit.password)
        .dbname(&visit.database)
        .ssl_mode(if visit.tls.is_some() { SslMode::Require } else { SslMode::Disable })
        .channel_binding(match visit.binding {
            ChannelBinding::Unbound => config::ChannelBinding::Disable,
            ChannelBinding::ServerEndPoint => config::ChannelBinding::Require,
        });
    config
}

fn connector(visit: &TlsVisit) -> MakeTlsConnector {
    let version = match visit.version {
        tls::TlsVersion::Tls10 => SslVersion::TLS1,
        tls::TlsVersion::Tls11 => SslVersion::TLS1_1,
        tls::TlsVersion::Tls12 => SslVersion::TLS1_2,
        tls::TlsVersion::Tls13 => SslVersion::TLS1_3,
    };
    let mut builder = SslConnector::builder(SslMethod::tls_client()).expect("a connector");
    builder.set_ca_file(&visit.ca_file).expect("the lab's authority");
    builder.set_min_proto_version(Some(version)).expect("a version");
    builder.set_max_proto_version(Some(version)).expect("a version");
    if let Some(identity) = &visit.identity {
        builder.set_certificate_chain_file(&identity.certificate_file).expect("the client's certificate");
        builder.set_private_key_file(&identity.key_file, SslFiletype::PEM).expect("its key");
    }
    MakeTlsConnector::new(builder.build())
}

fn text(row: &SimpleQueryRow) -> Vec<Option<Vec<u8>>> {
    (0..row.len()).map(|column| row.get(column).map(|value| value.as_bytes().to_vec())).collect()
}

fn refused<T>(result: Result<T, Error>) -> Answer<T> {
    result.map_err(|error| match error.as_db_error() {
        Some(refusal) => Refusal {
            code: refusal.severity().to_owned(),
            state: refusal.code().code().to_owned(),
            message: refusal.message().to_owned(),
        },
        None => panic!("tokio-postgres failed by itself: {error}"),
    })
}
