"""Clients that write numbered rows until standard input ends: bench_failover.py CONNINFO CLIENTS

Prints JSON: each acknowledged row with its time in nanoseconds since 1970, and the number of errors.
"""
import json
import sys
import threading
import time

import psycopg2

conninfo, clients = sys.argv[1], int(sys.argv[2])
stop = threading.Event()
rows, errors = [], []


def write(writer):
    connection, number = None, 0
    while not stop.is_set():
        number += 1
        try:
            if connection is None:
                connection = psycopg2.connect(conninfo)
                connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO numbered VALUES (%s, %s)", (writer, number))
            rows.append((time.time_ns(), f"{writer} {number}"))
        except psycopg2.Error as error:
            # It is not known whether the row was written: it is not written again.
            errors.append(str(error))
            connection = None
            time.sleep(0.01)


threads = [threading.Thread(target=write, args=(writer,)) for writer in range(clients)]
for thread in threads:
    thread.start()
while len(rows) < clients:
    time.sleep(0.01)
print("writing", flush=True)
sys.stdin.read()
stop.set()
for thread in threads:
    thread.join()
json.dump({"rows": rows, "errors": len(errors)}, sys.stdout)
