"""pymongo as an oracle: a request on each line of stdin, its answer on the next line of stdout, both JSON.

Documents travel as BSON in base64. What comes back was decoded into Python's own objects and encoded again, and is there
a second time as canonical extended JSON.
"""

import base64
import importlib
import json
import sys

MAX_REQUEST_BYTES = 64 << 20


def main():
    # This file may have the name of the library.
    oracle = Oracle(importlib.import_module("pymongo"), importlib.import_module("bson"))
    for line in iter(lambda: sys.stdin.readline(MAX_REQUEST_BYTES), ""):
        sys.stdout.write(json.dumps(oracle.answer(json.loads(line))) + "\n")
        sys.stdout.flush()


class Oracle:
    def __init__(self, library, bson):
        self.library, self.bson = library, bson
        self.errors = importlib.import_module("pymongo.errors")
        self.json_util = importlib.import_module("bson.json_util")
        # Times that Python has no date for stay numbers.
        options = importlib.import_module("bson.codec_options")
        self.options = options.CodecOptions(datetime_conversion=options.DatetimeConversion.DATETIME_AUTO)
        self.database = None

    def answer(self, request):
        do = getattr(self, "do_" + request.pop("do"))
        try:
            return {"documents": [self.told(document) for document in do(**request)]}
        except self.errors.OperationFailure as error:
            details = error.details or {}
            message = details.get("errmsg") or str(error)
            return {"refused": {"code": error.code, "name": details.get("codeName") or "", "message": message}}
        except (self.errors.PyMongoError, OSError) as error:
            return {"failed": f"{type(error).__name__}: {error}"}

    def told(self, document):
        canonical = self.json_util.CANONICAL_JSON_OPTIONS
        return {
            "bson": base64.b64encode(self.bson.encode(document, codec_options=self.options)).decode(),
            "json": json.loads(self.json_util.dumps(document, json_options=canonical)),
        }

    def document(self, text):
        return self.bson.decode(base64.b64decode(text), codec_options=self.options)

    def do_connect(self, host, port, database, patience_ms, login, tls):
        client = self.library.MongoClient(
            host,
            port,
            directConnection=True,
            serverSelectionTimeoutMS=patience_ms,
            datetime_conversion="DATETIME_AUTO",
            **login,
            **tls,
        )
        # Nobody has connected yet.
        client.admin.command("ping")
        self.database = client[database]
        return []

    def do_command(self, command):
        return [self.database.command(self.document(command), codec_options=self.options)]

    def do_insert(self, collection, documents):
        documents = [self.document(document) for document in documents]
        if len(documents) == 1:
            self.database[collection].insert_one(documents[0])
        else:
            self.database[collection].insert_many(documents)
        return []

    def do_find(self, collection, filter, projection, sort, batch_documents):
        sort = list(self.document(sort).items())
        projection = self.document(projection) or None
        return self.database[collection].find(
            self.document(filter), projection, sort=sort, batch_size=batch_documents
        )


if __name__ == "__main__":
    main()
