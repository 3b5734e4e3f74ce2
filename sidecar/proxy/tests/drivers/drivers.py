"""What an application does with its driver, told line by line: the same with a proxy in between as without.

usage: drivers.py psycopg2|psycopg|asyncpg, with PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE and PGSSLMODE
"""

import io
import sys
import threading

ROWS = 50_000
LARGE = f"SELECT n, repeat('x', 100) FROM generate_series(1, {ROWS}) n"
SLEEP = "SELECT pg_sleep(30)"


def say(what, *values):
    print(what, *values, flush=True)


class Cancelling:
    """Cancels what is done inside, again and again: before the server has begun with it there is nothing to cancel."""

    def __init__(self, cancel):
        self.cancel = cancel
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.wait(0.3):
            self.cancel()

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def of_psycopg2():
    import psycopg2

    connection = psycopg2.connect("")
    cursor = connection.cursor()
    cursor.execute("SELECT %s * 7, %s, %s::bytea", (6, "Grüße", b"\x00\xff"))
    number, text, data = cursor.fetchone()
    say("values", number, text, bytes(data))
    cursor.execute("DROP TABLE IF EXISTS of_psycopg2; CREATE TABLE of_psycopg2 (n int, s text)")
    connection.commit()
    cursor.execute("INSERT INTO of_psycopg2 VALUES (1, 'a')")
    connection.rollback()
    cursor.execute("SELECT count(*) FROM of_psycopg2")
    say("rolled back", cursor.fetchone())
    cursor.copy_expert("COPY of_psycopg2 FROM STDIN", io.StringIO("".join(f"{n}\tr{n}\n" for n in range(1000))))
    connection.commit()
    out = io.StringIO()
    cursor.copy_expert("COPY of_psycopg2 TO STDOUT", out)
    say("copied", len(out.getvalue()))
    connection.commit()
    try:
        cursor.execute("SELECT 1 / 0")
    except psycopg2.Error as error:
        say("error", error.pgcode)
    connection.rollback()
    cursor.execute("SET TIME ZONE 'Asia/Tokyo'")
    connection.commit()
    cursor.execute("SHOW TimeZone")
    say("setting", cursor.fetchone())
    connection.commit()
    large = connection.cursor(name="large")
    large.execute(LARGE)
    say("large", sum(len(text) for _, text in large))
    connection.commit()
    try:
        with Cancelling(connection.cancel):
            cursor.execute(SLEEP)
    except psycopg2.Error as error:
        say("cancelled", error.pgcode)
    connection.rollback()
    cursor.execute("DROP TABLE of_psycopg2")
    connection.commit()
    connection.close()


def of_psycopg():
    import psycopg

    connection = psycopg.connect("")
    connection.prepare_threshold = 1
    say("values", connection.execute("SELECT %s * 7, %s, %b", (6, "Grüße", b"\x00\xff")).fetchone())
    connection.execute("DROP TABLE IF EXISTS of_psycopg")
    connection.execute("CREATE TABLE of_psycopg (n int, s text)")
    connection.commit()
    connection.execute("INSERT INTO of_psycopg VALUES (1, 'a')")
    connection.rollback()
    say("rolled back", connection.execute("SELECT count(*) FROM of_psycopg").fetchone())
    with connection.cursor().copy("COPY of_psycopg FROM STDIN") as copy:
        for number in range(1000):
            copy.write_row((number, f"r{number}"))
    connection.commit()
    # Prepared from the second time on, and used in transactions of their own.
    total = 0
    for number in range(20):
        total += connection.execute("SELECT n FROM of_psycopg WHERE n = %s", (number,)).fetchone()[0]
        connection.commit()
    say("prepared", total)
    with connection.pipeline():
        cursors = [connection.execute("SELECT %s::int", (number,)) for number in range(50)]
        say("pipelined", sum(cursor.fetchone()[0] for cursor in cursors))
    connection.commit()
    try:
        connection.execute("SELECT 1 / 0")
    except psycopg.Error as error:
        say("error", error.sqlstate)
    connection.rollback()
    connection.execute("SET TIME ZONE 'Asia/Tokyo'")
    connection.commit()
    say("setting", connection.execute("SHOW TimeZone").fetchone(), connection.info.timezone)
    connection.commit()
    with connection.cursor(name="large") as large:
        say("large", sum(len(text) for _, text in large.execute(LARGE)))
    connection.commit()
    try:
        with Cancelling(connection.cancel):
            connection.execute(SLEEP)
    except psycopg.Error as error:
        say("cancelled", error.sqlstate)
    connection.rollback()
    connection.execute("DROP TABLE of_psycopg")
    connection.commit()
    connection.close()


def of_asyncpg():
    import asyncio
    import os
    import ssl

    import asyncpg

    async def run():
        encryption = False
        if os.environ["PGSSLMODE"] == "require":
            # The reference only: what is verified is the proxy's business.
            encryption = ssl.create_default_context()
            encryption.check_hostname = False
            encryption.verify_mode = ssl.CERT_NONE
        connection = await asyncpg.connect(ssl=encryption)
        say("values", *await connection.fetchrow("SELECT $1 * 7, $2::text, $3::bytea", 6, "Grüße", b"\x00\xff"))
        await connection.execute("DROP TABLE IF EXISTS of_asyncpg; CREATE TABLE of_asyncpg (n int, s text)")
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO of_asyncpg VALUES (1, 'a')")
        await transaction.rollback()
        say("rolled back", await connection.fetchval("SELECT count(*) FROM of_asyncpg"))
        await connection.copy_records_to_table("of_asyncpg", records=[(n, f"r{n}") for n in range(1000)])
        statement = await connection.prepare("SELECT n FROM of_asyncpg WHERE n = $1")
        say("prepared", sum([await statement.fetchval(number) for number in range(20)]))
        try:
            await connection.execute("SELECT 1 / 0")
        except asyncpg.PostgresError as error:
            say("error", error.sqlstate)
        await connection.execute("SET TIME ZONE 'Asia/Tokyo'")
        say("setting", await connection.fetchval("SHOW TimeZone"))
        say("large", sum(len(row[1]) for row in await connection.fetch(LARGE)))
        try:
            await connection.execute(SLEEP, timeout=0.3)
        except asyncio.TimeoutError:
            say("cancelled", await connection.fetchval("SELECT 'and usable'"))
        await connection.execute("DROP TABLE of_asyncpg")
        await connection.close()

    asyncio.run(run())


{"psycopg2": of_psycopg2, "psycopg": of_psycopg, "asyncpg": of_asyncpg}[sys.argv[1]]()
