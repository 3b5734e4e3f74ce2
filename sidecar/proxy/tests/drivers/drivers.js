// What an application does with node-postgres, told line by line: the same with a proxy in between as without.
// NODE_PATH says where the module `pg` is.
const { Client } = require('pg');

const say = (...what) => console.log(...what);

async function run() {
    const ssl = process.env.PGSSLMODE === 'require' ? { rejectUnauthorized: false } : false;
    const client = new Client({ ssl });
    await client.connect();
    const values = await client.query('SELECT $1::int * 7 AS n, $2::text AS t, $3::bytea AS b', [6, 'Grüße', Buffer.from([0, 255])]);
    say('values', values.rows[0].n, values.rows[0].t, values.rows[0].b.toString('hex'));
    await client.query('DROP TABLE IF EXISTS of_node; CREATE TABLE of_node (n int, s text)');
    await client.query('BEGIN');
    await client.query("INSERT INTO of_node VALUES (1, 'a')");
    await client.query('ROLLBACK');
    say('rolled back', (await client.query('SELECT count(*) FROM of_node')).rows[0].count);
    await client.query('INSERT INTO of_node SELECT n, $1 FROM generate_series(0, 999) n', ['x']);
    let total = 0;
    for (let n = 0; n < 20; n++) {
        // A name has it prepared on the server.
        const query = { name: 'by-number', text: 'SELECT n FROM of_node WHERE n = $1', values: [n] };
        total += (await client.query(query)).rows[0].n;
    }
    say('prepared', total);
    const error = await client.query('SELECT 1 / 0').catch((error) => error);
    say('error', error.code);
    await client.query("SET TIME ZONE 'Asia/Tokyo'");
    say('setting', (await client.query('SHOW TimeZone')).rows[0].TimeZone);
    const large = await client.query("SELECT repeat('x', 100) AS x FROM generate_series(1, 50000)");
    say('large', large.rows.reduce((sum, row) => sum + row.x.length, 0));
    await client.query('DROP TABLE of_node');
    await client.end();
}

run().catch((error) => {
    console.error(error);
    process.exit(1);
});
