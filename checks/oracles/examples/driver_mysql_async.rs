//! What an application does with `mysql_async`, printed line by line: with a proxy in between the lines are the
//! same. The tests of `proxy` run it.

use std::env;
use std::error::Error;

use futures_util::future::join;
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, Opts, OptsBuilder, Row, SslOpts, TxOpts, Value, params::Params};

type Done<T = ()> = Result<T, Box<dyn Error>>;

const LARGE: &str = "SELECT a.n, REPEAT('x', 100) FROM of_async a JOIN of_async b WHERE b.n < 50";
const SLEEPING: &str = "SELECT COUNT(*) FROM information_schema.processlist \
                        WHERE info LIKE 'SELECT SLEEP(30)%' AND state = 'User sleep'";

fn main() -> Done {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run())
}

#[expect(clippy::print_stdout, reason = "what is compared, line by line")]
fn say(line: &str) {
    println!("{line}");
}

fn options() -> Done<Opts> {
    let tls = (env::var("MYSQL_TLS")? == "require")
        // Only the reference run uses TLS here; the proxy verifies its own server connections.
        .then(|| SslOpts::default().with_danger_accept_invalid_certs(true));
    let builder = OptsBuilder::default()
        .ip_or_hostname(env::var("MYSQL_HOST")?)
        .tcp_port(env::var("MYSQL_PORT")?.parse()?)
        .socket(env::var("MYSQL_SOCKET").ok())
        .prefer_socket(false)
        .user(Some(env::var("MYSQL_USER")?))
        .pass(Some(env::var("MYSQL_PASSWORD")?))
        .db_name(Some(env::var("MYSQL_DATABASE")?))
        .ssl_opts(tls);
    Ok(builder.into())
}

async fn run() -> Done {
    let mut conn = Conn::new(options()?).await?;
    values(&mut conn).await?;
    conn.query_drop("DROP TABLE IF EXISTS of_async").await?;
    conn.query_drop("CREATE TABLE of_async (n INT PRIMARY KEY, s VARCHAR(30)) ENGINE=InnoDB").await?;
    let mut transaction = conn.start_transaction(TxOpts::default()).await?;
    transaction.query_drop("INSERT INTO of_async VALUES (1, 'a')").await?;
    transaction.rollback().await?;
    let count: Option<u32> = conn.query_first("SELECT COUNT(*) FROM of_async").await?;
    say(&format!("rolled back {count:?}"));
    load(&mut conn).await?;
    let statement = conn.prep("SELECT n FROM of_async WHERE n = ?").await?;
    let mut total = 0;
    for n in 0..20_u32 {
        total += conn.exec_first::<u32, _, _>(&statement, (n,)).await?.unwrap_or_default();
    }
    conn.close(statement).await?;
    say(&format!("prepared {total}"));
    results(&mut conn).await?;
    for wrong in
        ["SELECT nonsense", "INSERT INTO of_async VALUES (1, 'a')", "SELEC 1", "SELECT * FROM absent"]
    {
        let answer = conn.query_drop(wrong).await;
        say(&format!("error {}", state(answer)));
    }
    conn.query_drop("SET time_zone = '+09:00'").await?;
    let zone: Option<String> = conn.query_first("SELECT @@time_zone").await?;
    say(&format!("setting {zone:?}"));
    large(&mut conn).await?;
    cancelled(&mut conn).await?;
    conn.query_drop("SET @mine = 1").await?;
    conn.change_user(ChangeUserOpts::default()).await?;
    let anew: Option<Row> = conn.query_first("SELECT @mine, DATABASE()").await?;
    say(&format!("logged in anew {:?}", anew.map(Row::unwrap)));
    // The driver's own reset of a pooled connection.
    conn.reset().await?;
    let zone: Option<String> = conn.query_first("SELECT @@time_zone = @@global.time_zone").await?;
    say(&format!("reset {zone:?}"));
    conn.query_drop("DROP TABLE of_async").await?;
    Ok(conn.disconnect().await?)
}

async fn values(conn: &mut Conn) -> Done {
    let sql = "SELECT CAST(? AS SIGNED) * 7, ?, HEX(?), ?, CAST(? AS DECIMAL(10, 3)), ? + 0e0, \
               CAST(? AS DATETIME)";
    let params = Params::Positional(vec![
        6.into(),
        "Grüße 🙂".into(),
        b"\x00\xff'".to_vec().into(),
        Value::NULL,
        "1.250".into(),
        2.5.into(),
        "2024-02-29 12:34:56".into(),
    ]);
    for _ in 0..2 {
        let row: Option<Row> = conn.exec_first(sql, params.clone()).await?;
        say(&format!("values {:?}", row.map(Row::unwrap)));
    }
    Ok(())
}

async fn load(conn: &mut Conn) -> Done {
    let mut transaction = conn.start_transaction(TxOpts::default()).await?;
    let rows = (0..1000).map(|n| (n, format!("r{n}")));
    transaction.exec_batch("INSERT INTO of_async VALUES (?, ?)", rows).await?;
    let count: Option<u32> = transaction.query_first("SELECT COUNT(*) FROM of_async").await?;
    say(&format!("inserted {count:?}"));
    Ok(transaction.commit().await?)
}

async fn results(conn: &mut Conn) -> Done {
    conn.query_drop("DROP PROCEDURE IF EXISTS of_async_twice").await?;
    let create = "CREATE PROCEDURE of_async_twice(IN n INT) BEGIN SELECT n; SELECT n * 2; END";
    conn.query_drop(create).await?;
    for sql in ["SELECT 1; DO 0; SELECT 'two'", "CALL of_async_twice(21)"] {
        let mut result = conn.query_iter(sql).await?;
        while !result.is_empty() {
            let rows: Vec<Row> = result.collect().await?;
            let rows: Vec<Vec<Value>> = rows.into_iter().map(Row::unwrap).collect();
            say(&format!("result {rows:?}"));
        }
        result.drop_result().await?;
    }
    Ok(conn.query_drop("DROP PROCEDURE of_async_twice").await?)
}

async fn large(conn: &mut Conn) -> Done {
    let add = |sum, row: (u32, String)| sum + row.1.len();
    let bytes = conn.query_fold(LARGE, 0, add).await?;
    say(&format!("large {bytes}"));
    let bytes = conn.exec_fold(format!("{LARGE} AND a.n >= ?"), (0,), 0, add).await?;
    say(&format!("large, prepared {bytes}"));
    Ok(())
}

async fn cancelled(conn: &mut Conn) -> Done {
    let kill = format!("KILL QUERY {}", conn.id());
    let mut other = Conn::new(options()?).await?;
    let cancel = async {
        while other.query_first::<u32, _>(SLEEPING).await? == Some(0) {}
        other.query_drop(kill).await?;
        other.disconnect().await
    };
    let sleep = conn.query_drop("SELECT SLEEP(30), 'cancel me'");
    let (slept, cancelled) = join(sleep, cancel).await;
    cancelled?;
    say(&format!("cancelled {}", state(slept)));
    let text: Option<String> = conn.query_first("SELECT 'goes on'").await?;
    say(&format!("{text:?}"));
    Ok(())
}

fn state(answer: mysql_async::Result<()>) -> String {
    match answer {
        Ok(()) => "none".to_owned(),
        Err(mysql_async::Error::Server(error)) => format!("{} {}", error.code, error.state),
        Err(error) => error.to_string(),
    }
}
