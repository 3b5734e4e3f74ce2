"""Loads YCSB's records by pymongo's insert_many:

    insert_many.py URL USER PASSWORD_FILE DATABASE COLLECTION RECORDS BATCH

Prints the seconds from before it connects until the last answer. The records are made before that.
"""

import random
import sys
import time

import pymongo

FIELDS = 10
FIELD_BYTES = 100
PRINTABLE = bytes(ord(" ") + byte % 95 for byte in range(256))
# Odd, so that no two numbers have the same product.
SPREAD = 6_364_136_223_846_793_005


def record(number):
    fields = {f"field{field}": random.randbytes(FIELD_BYTES).translate(PRINTABLE).decode() for field in range(FIELDS)}
    return {"_id": f"user{number * SPREAD % (1 << 63)}", **fields}


def main():
    url, user, password_file, database, collection, records, batch = sys.argv[1:]
    records, batch = int(records), int(batch)
    with open(password_file, encoding="utf-8") as file:
        password = file.read()
    firsts = range(0, records, batch)
    batches = [[record(number) for number in range(first, min(first + batch, records))] for first in firsts]
    begun = time.monotonic()
    login = {"username": user, "password": password, "authSource": "admin", "authMechanism": "SCRAM-SHA-256"}
    client = pymongo.MongoClient(url, directConnection=True, retryWrites=False, **login)
    target = client[database][collection]
    inserted = sum(len(target.insert_many(documents, ordered=False).inserted_ids) for documents in batches)
    seconds = time.monotonic() - begun
    if inserted != records:
        sys.exit(f"{inserted} of {records} records were inserted")
    print("seconds:", seconds)


main()
