// What an application does with mysql2, told line by line: the same with a proxy in between as without.
// NODE_PATH says where the module is.
const mysql = require('mysql2/promise');

const say = (...what) => console.log(...what);
const LARGE = "SELECT a.n, REPEAT('x', 100) AS x FROM of_node a JOIN of_node b WHERE b.n < 50";
const SLEEPING = "SELECT COUNT(*) AS n FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(30)%' AND state = 'User sleep'";

const connect = () =>
    mysql.createConnection({
        ...(process.env.MYSQL_SOCKET
            ? { socketPath: process.env.MYSQL_SOCKET }
            : { host: process.env.MYSQL_HOST, port: Number(process.env.MYSQL_PORT) }),
        user: process.env.MYSQL_USER,
        password: process.env.MYSQL_PASSWORD,
        database: process.env.MYSQL_DATABASE,
        multipleStatements: true,
        dateStrings: true,
        // The reference only: what is verified is the proxy's business.
        ssl: process.env.MYSQL_TLS === 'require' ? { rejectUnauthorized: false } : undefined,
    });

async function refused(client, sql) {
    const error = await client.query(sql).catch((error) => error);
    say('error', error.errno, error.sqlState);
}

async function results(client) {
    const [several] = await client.query("SELECT 1 AS a; DO 0; SELECT 'two' AS b, 2 AS c");
    say('several', JSON.stringify([several[0], several[1].affectedRows, several[2]]));
    await client.query('DROP PROCEDURE IF EXISTS of_node_twice');
    await client.query('CREATE PROCEDURE of_node_twice(IN n INT) BEGIN SELECT n AS n; SELECT n * 2 AS n; END');
    const [called] = await client.execute('CALL of_node_twice(?)', [21]);
    say('procedure', JSON.stringify([called[0], called[1]]));
    await client.query('DROP PROCEDURE of_node_twice');
}

async function large(client) {
    const [rows] = await client.query(LARGE);
    say('large', rows.reduce((sum, row) => sum + row.x.length, 0));
    const [binary] = await client.execute(LARGE);
    say('large, prepared', binary.reduce((sum, row) => sum + row.x.length, 0));
    let bytes = 0;
    for await (const row of client.connection.query(LARGE).stream({ highWaterMark: 16 })) bytes += row.x.length;
    say('streamed', bytes);
}

async function cancelled(client) {
    // A server reports a killed SLEEP as error 1317 or as the value 1. Which of them may depend on the moment of the kill.
    const sleeping = client.query("SELECT SLEEP(30) AS s, 'cancel me' AS m").then(
        ([rows]) => say('cancelled', Number(rows[0].s) === 1),
        (error) => say('cancelled', error.errno === 1317),
    );
    const other = await connect();
    for (let running = 0; running === 0; ) running = (await other.query(SLEEPING))[0][0].n;
    await other.query(`KILL QUERY ${client.threadId}`);
    await other.end();
    await sleeping;
    say((await client.query("SELECT 'goes on' AS t"))[0][0].t);
}

async function run() {
    const client = await connect();
    const [[values]] = await client.execute(
        'SELECT CAST(? AS SIGNED) * 7 AS n, ? AS t, HEX(?) AS b, ? IS NULL AS z, CAST(? AS DECIMAL(10, 3)) AS d, CAST(? AS DATETIME) AS at',
        [6, 'Grüße 🙂', Buffer.from([0, 255, 39]), null, '1.250', '2024-02-29 12:34:56'],
    );
    say('values', JSON.stringify(values));
    await client.query('DROP TABLE IF EXISTS of_node');
    await client.query('CREATE TABLE of_node (n INT PRIMARY KEY, s VARCHAR(30)) ENGINE=InnoDB');
    await client.beginTransaction();
    await client.query("INSERT INTO of_node VALUES (1, 'a')");
    await client.rollback();
    say('rolled back', (await client.query('SELECT COUNT(*) AS n FROM of_node'))[0][0].n);
    await client.beginTransaction();
    const rows = Array.from({ length: 1000 }, (_, n) => [n, `r${n}`]);
    const [inserted] = await client.query('INSERT INTO of_node VALUES ?', [rows]);
    say('inserted', inserted.affectedRows);
    await client.commit();
    let total = 0;
    for (let n = 0; n < 20; n++) total += (await client.execute('SELECT n FROM of_node WHERE n = ?', [n]))[0][0].n;
    say('prepared', total);
    await results(client);
    await refused(client, 'SELECT nonsense');
    await refused(client, "INSERT INTO of_node VALUES (1, 'again')");
    await refused(client, 'SELEC 1');
    await refused(client, 'SELECT * FROM absent');
    await client.query("SET time_zone = '+09:00'");
    say('setting', (await client.query('SELECT @@time_zone AS z'))[0][0].z);
    await client.query('SET @mine = 1');
    await client.changeUser({ user: process.env.MYSQL_USER, password: process.env.MYSQL_PASSWORD, database: process.env.MYSQL_DATABASE });
    const [[anew]] = await client.query('SELECT @mine AS mine, DATABASE() AS d');
    say('logged in anew', JSON.stringify(anew));
    await large(client);
    await cancelled(client);
    await client.query('DROP TABLE of_node');
    await client.end();
}

run().catch((error) => {
    console.error(error);
    process.exit(1);
});
