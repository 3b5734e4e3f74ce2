"""What an application does with a driver of MySQL's, told line by line: the same with a proxy in between as without.

Usage: mysql.py pymysql|MySQLdb [files]; where to, and as whom, is in MYSQL_HOST and the like; a MYSQL_SOCKET goes
before. With "files" all that is done is to send files, to a server that does nothing else."""

import os
import sys
import threading

ROWS = 1000
LARGE = "SELECT a.n, REPEAT('x', 100) FROM of_python a JOIN of_python b WHERE b.n < 50"
SLEEPING = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(30)%' AND state = 'User sleep'"


def say(what, *values):
    print(what, *values, flush=True)


def is_encrypted():
    return os.environ["MYSQL_TLS"] == "require"


def options():
    place = {"host": os.environ["MYSQL_HOST"], "port": int(os.environ["MYSQL_PORT"])}
    if "MYSQL_SOCKET" in os.environ:
        place = {"unix_socket": os.environ["MYSQL_SOCKET"]}
    return {"user": os.environ["MYSQL_USER"], "charset": "utf8mb4", "local_infile": True, **place}


def with_pymysql():
    import pymysql
    from pymysql.constants import CLIENT

    def connect():
        # The reference only: what is verified is the proxy's business.
        tls = {"ssl": {"ca": os.environ["MYSQL_CA"], "check_hostname": False}} if is_encrypted() else {}
        return pymysql.connect(
            password=os.environ["MYSQL_PASSWORD"],
            database=os.environ["MYSQL_DATABASE"],
            client_flag=CLIENT.MULTI_STATEMENTS,
            **tls,
            **options(),
        )

    run(connect, pymysql, pymysql.cursors.SSCursor)


def with_mysqldb():
    import MySQLdb
    import MySQLdb.cursors
    from MySQLdb.constants import CLIENT

    def connect():
        tls = {"ssl": {"ca": os.environ["MYSQL_CA"]}} if is_encrypted() else {}
        return MySQLdb.connect(
            passwd=os.environ["MYSQL_PASSWORD"],
            db=os.environ["MYSQL_DATABASE"],
            client_flag=CLIENT.MULTI_STATEMENTS,
            **tls,
            **options(),
        )

    run(connect, MySQLdb, MySQLdb.cursors.SSCursor)


def refusal(error):
    return error.args[0]


def run(connect, driver, unbuffered):
    if sys.argv[2:] == ["files"]:
        return files(connect)
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("SELECT %s * 7, %s, %s, CAST(%s AS DECIMAL(10, 3)), %s", (6, "Grüße 🙂", None, "1.250", 2.5))
    say("values", *cursor.fetchone())
    cursor.execute("SELECT CAST('2024-02-29 12:34:56' AS DATETIME), HEX(%s)", (b"\x00\xff'",))
    say("more values", *cursor.fetchone())
    cursor.execute("DROP TABLE IF EXISTS of_python")
    cursor.execute("CREATE TABLE of_python (n INT PRIMARY KEY, s VARCHAR(30)) ENGINE=InnoDB")
    cursor.execute("INSERT INTO of_python VALUES (1, 'a')")
    connection.rollback()
    cursor.execute("SELECT COUNT(*) FROM of_python")
    say("rolled back", cursor.fetchone())
    cursor.executemany("INSERT INTO of_python VALUES (%s, %s)", [(n, f"r{n}") for n in range(ROWS)])
    say("inserted", cursor.rowcount)
    connection.commit()
    cursor.execute("SELECT COUNT(*), MAX(s) FROM of_python")
    say("committed", cursor.fetchone())
    cursor.execute("SELECT 1; DO 0; SELECT 'two', 2")
    say("first", cursor.fetchall())
    while cursor.nextset():
        say("next", cursor.fetchall(), cursor.rowcount)
    cursor.execute("DROP PROCEDURE IF EXISTS of_python_twice")
    cursor.execute("CREATE PROCEDURE of_python_twice(IN n INT) BEGIN SELECT n; SELECT n * 2; END")
    cursor.callproc("of_python_twice", (21,))
    say("procedure", cursor.fetchall())
    while cursor.nextset():
        say("procedure goes on", cursor.fetchall())
    for wrong in [
        "SELECT nonsense",
        "INSERT INTO of_python VALUES (1, 'again')",
        "SELEC 1",
        "SELECT * FROM absent",
        # This server takes no files.
        "LOAD DATA LOCAL INFILE 'rows.csv' INTO TABLE of_python",
    ]:
        try:
            cursor.execute(wrong)
        except driver.Error as error:
            say("error", type(error).__name__, refusal(error))
    connection.rollback()
    cursor.execute("SET time_zone = '+09:00'")
    cursor.execute("SELECT @@time_zone, @@autocommit")
    say("settings", cursor.fetchone())
    if hasattr(connection, "change_user"):
        cursor.execute("SET @mine = 1")
        connection.change_user(os.environ["MYSQL_USER"], os.environ["MYSQL_PASSWORD"], os.environ["MYSQL_DATABASE"])
        cursor.execute("SELECT @mine, USER() LIKE CONCAT(%s, '@%%'), DATABASE()", (os.environ["MYSQL_USER"],))
        say("logged in anew", cursor.fetchone())
    cursor.execute(LARGE)
    say("large", cursor.rowcount, sum(len(text) for _, text in cursor.fetchall()))
    stream = connection.cursor(unbuffered)
    stream.execute(LARGE)
    say("streamed", sum(len(text) for _, text in stream))
    stream.close()
    cancelled(connect, driver, connection)
    cursor.execute("DROP PROCEDURE of_python_twice")
    cursor.execute("DROP TABLE of_python")
    connection.close()


def files(connect):
    connection = connect()
    cursor = connection.cursor()
    for bytes in [0, 1000, 5_000_000]:
        with open("file", "w") as file:
            file.write("x" * bytes)
        cursor.execute("LOAD DATA LOCAL INFILE 'file' INTO TABLE t")
        say("sent", cursor.rowcount)
    connection.close()


def cancelled(connect, driver, connection):
    number = connection.thread_id()

    def cancel():
        other = connect()
        cursor = other.cursor()
        count = 0
        while count == 0:
            cursor.execute(SLEEPING)
            (count,) = cursor.fetchone()
        cursor.execute(f"KILL QUERY {number}")
        other.close()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    cursor = connection.cursor()
    # A server reports a killed SLEEP as error 1317 or as the value 1. Which of them may depend on the moment of the kill.
    try:
        cursor.execute("SELECT SLEEP(30), 'cancel me'")
        interrupted = cursor.fetchone()[0] == 1
    except driver.Error as error:
        interrupted = error.args[0] == 1317
    say("cancelled", interrupted)
    canceller.join()
    cursor.execute("SELECT 'goes on'")
    say(*cursor.fetchone())


{"pymysql": with_pymysql, "MySQLdb": with_mysqldb}[sys.argv[1]]()
