//! What an application does with `tokio_postgres`, printed line by line: with a proxy in between the lines are the
//! same. The tests of `proxy` run it.

use std::env;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::join;
use futures_util::{SinkExt, TryStreamExt};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use postgres_openssl::MakeTlsConnector;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config};

type Done<T = ()> = Result<T, Box<dyn Error>>;

const LARGE: &str = "SELECT n, repeat('x', 100) FROM generate_series(1, 50000) n";

fn main() -> Done {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run())
}

#[expect(clippy::print_stdout, reason = "what is compared, line by line")]
fn say(line: &str) {
    println!("{line}");
}

fn connector() -> Done<MakeTlsConnector> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    // Only the reference run uses TLS here; the proxy verifies its own server connections.
    builder.set_verify(SslVerifyMode::NONE);
    Ok(MakeTlsConnector::new(builder.build()))
}

fn config() -> Done<Config> {
    let mut config = Config::new();
    config
        .host(env::var("PGHOST")?)
        .port(env::var("PGPORT")?.parse()?)
        .user(env::var("PGUSER")?)
        .password(env::var("PGPASSWORD")?)
        .dbname(env::var("PGDATABASE")?)
        .ssl_mode(if env::var("PGSSLMODE")? == "require" { SslMode::Require } else { SslMode::Disable });
    Ok(config)
}

async fn run() -> Done {
    let (mut client, connection) = config()?.connect(connector()?).await?;
    let talk = async {
        let done = talk(&mut client).await;
        // The connection task ends when the client is dropped.
        drop(client);
        done
    };
    let (talked, ended) = join(talk, connection).await;
    ended?;
    talked
}

async fn talk(client: &mut Client) -> Done {
    let values = "SELECT $1::int4 * 7, $2::text, $3::bytea, $4::text, $5::float8, $6::int8";
    for round in 0..2 {
        let row = client
            .query_one(values, &[&(6 + round), &"Grüße 🙂", &&b"\x00\xff"[..], &None::<&str>, &2.5, &-1_i64])
            .await?;
        let null: Option<String> = row.get(3);
        let (number, text, bytes): (i32, String, Vec<u8>) = (row.get(0), row.get(1), row.get(2));
        let (double, long): (f64, i64) = (row.get(4), row.get(5));
        say(&format!("values {number} {text} {bytes:?} {null:?} {double} {long}"));
    }
    client.batch_execute("DROP TABLE IF EXISTS of_tokio; CREATE TABLE of_tokio (n int, s text)").await?;
    let transaction = client.transaction().await?;
    transaction.execute("INSERT INTO of_tokio VALUES ($1, $2)", &[&1, &"a"]).await?;
    transaction.rollback().await?;
    say(&format!("rolled back {}", count(client).await?));
    copy(client).await?;
    let statement = client.prepare("SELECT n FROM of_tokio WHERE n = $1").await?;
    let mut total = 0;
    for n in 0..20_i32 {
        total += client.query_one(&statement, &[&n]).await?.get::<_, i32>(0);
    }
    drop(statement);
    say(&format!("prepared {total}"));
    for wrong in ["SELECT 1 / 0", "SELEC 1", "SELECT * FROM absent"] {
        let answer = client.batch_execute(wrong).await;
        say(&format!("error {}", state(answer)));
    }
    client.batch_execute("SET TIME ZONE 'Asia/Tokyo'").await?;
    say(&format!("setting {}", client.query_one("SHOW TimeZone", &[]).await?.get::<_, String>(0)));
    large(client).await?;
    cancelled(client).await?;
    Ok(client.batch_execute("DROP TABLE of_tokio").await?)
}

async fn count(client: &Client) -> Done<i64> {
    Ok(client.query_one("SELECT count(*) FROM of_tokio", &[]).await?.get(0))
}

async fn copy(client: &mut Client) -> Done {
    let transaction = client.transaction().await?;
    let rows: Vec<String> = (0..1000).map(|n| format!("{n}\tr{n}\n")).collect();
    let mut sink = pin!(transaction.copy_in("COPY of_tokio FROM STDIN").await?);
    sink.send(std::io::Cursor::new(rows.concat().into_bytes())).await?;
    say(&format!("copied in {}", sink.finish().await?));
    transaction.commit().await?;
    let parts = pin!(client.copy_out("COPY of_tokio TO STDOUT").await?);
    let bytes = parts.try_fold(0, |sum, part| async move { Ok(sum + part.len()) }).await?;
    say(&format!("copied out {bytes}"));
    Ok(())
}

async fn large(client: &mut Client) -> Done {
    let rows = client.query(LARGE, &[]).await?;
    let bytes: usize = rows.iter().map(|row| row.get::<_, &str>(1).len()).sum();
    say(&format!("large {bytes}"));
    // A few rows at a time, through a portal.
    let transaction = client.transaction().await?;
    let portal = transaction.bind(LARGE, &[]).await?;
    let mut bytes = 0;
    loop {
        let rows = transaction.query_portal(&portal, 1000).await?;
        bytes += rows.iter().map(|row| row.get::<_, &str>(1).len()).sum::<usize>();
        if rows.is_empty() {
            break;
        }
    }
    transaction.commit().await?;
    say(&format!("large, in parts {bytes}"));
    Ok(())
}

async fn cancelled(client: &Client) -> Done {
    let token = client.cancel_token();
    let mut statement = pin!(client.batch_execute("SELECT pg_sleep(30)"));
    let slept = loop {
        match tokio::time::timeout(Duration::from_millis(300), &mut statement).await {
            Ok(slept) => break slept,
            // Before the server has started the query, the cancel request has no effect; repeat it.
            Err(_) => token.cancel_query(connector()?).await?,
        }
    };
    say(&format!("cancelled {}", state(slept)));
    Ok(())
}

fn state(answer: Result<(), tokio_postgres::Error>) -> String {
    match answer {
        Ok(()) => "none".to_owned(),
        Err(error) => error.code().map_or_else(|| error.to_string(), |state| state.code().to_owned()),
    }
}
