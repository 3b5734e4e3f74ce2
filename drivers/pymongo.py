"""A driver on pymongo, MongoDB's client library for Python: one process per client, because threads would share an
interpreter. The protocol, on stdin and stdout, is described in docs/measure/drivers.md.

What one operation is:
    connect        create a client, which reads the CA file but does not connect, and close it
    connect_query  create a client, find its first document, for which it connects, and close it
    first_query    the same, but only the find is timed
    transactions   find documents with a connected client
"""

import array
import collections
import ctypes
import importlib
import ipaddress
import json
import os
import random
import select
import signal
import sys
import time

NS_PER_S = 1_000_000_000
MAX_SPEC_BYTES = 1 << 20
MAX_PASSWORD_BYTES = 4 << 10
# Each is a process of about 40 MB.
MAX_CLIENTS = 64
MAX_MESSAGES = 16
MESSAGE_CHARS = 256
MAX_SAMPLES = 20_000_000
SAMPLES_PER_MESSAGE = 100_000
SET_UP_S = 20
# Timeout for an unreachable server; pymongo's default is 30 s.
SELECTION_S = 10
START_DELAY_NS = 1_000_000
PR_SET_PDEATHSIG = 1
ENGINES = ("mongodb", "ferretdb")
KEY_PREFIX = "user"
MASK = (1 << 64) - 1


class Failed(Exception):
    """Why the trial failed, and the source of the fault."""

    def __init__(self, fault, message):
        super().__init__(message)
        self.fault = fault
        self.message = message


def send(message, body=None):
    line = {"message": message} if body is None else {"message": message, "body": body}
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


# ---- variables ----


def key_hash(number):
    """The absolute value of FNV-1a over the eight bytes of the number, little-endian, as a signed integer, as in YCSB."""
    mixed = 0xCBF29CE484222325
    for byte in (number & MASK).to_bytes(8, "little"):
        mixed = ((mixed ^ byte) * 1_099_511_628_211) & MASK
    return min(mixed, (1 << 64) - mixed)


def compiled_draw(draw, number):
    """A function of the generator and the variables drawn before."""
    kind = draw.get("draw")
    if kind == "uniform":
        first, last = draw["first"], draw["last"]
        return lambda generator, _: generator.randint(first, last)
    of = draw.get("of")
    if kind in ("offset", "ycsb_key") and not (isinstance(of, int) and 0 <= of < number):
        raise Failed("internal", f"variable {number} depends on one that is not drawn before it")
    if kind == "offset":
        by = draw["by"]
        return lambda _, values: values[of] + by
    if kind == "ycsb_key":
        return lambda _, values: f"{KEY_PREFIX}{key_hash(values[of])}"
    raise Failed("internal", f"this driver does not support the draw `{kind}`")


def compiled_filter(node, parameters):
    """A function that inserts the values of variables into the filter."""
    if isinstance(node, dict) and list(node) == ["$param"]:
        index = node["$param"]
        if not (isinstance(index, int) and 0 <= index < len(parameters)):
            raise Failed("internal", "a statement has a parameter that its step does not set")
        variable = parameters[index]
        return lambda values: values[variable]
    if isinstance(node, dict):
        parts = [(name, compiled_filter(part, parameters)) for name, part in node.items()]
        return lambda values: {name: part(values) for name, part in parts}
    if isinstance(node, list):
        items = [compiled_filter(part, parameters) for part in node]
        return lambda values: [part(values) for part in items]
    return lambda _: node


class Step:
    """Finds one document."""

    def __init__(self, step, statements):
        command = json.loads(statements[step["statement"]]["sql"])
        rest = {name: value for name, value in command.items() if name not in ("find", "filter", "$db")}
        if "find" not in command or rest not in ({"limit": 1}, {"limit": 1, "singleBatch": True}):
            raise Failed("internal", "this driver only supports `find` commands for one document")
        self.collection = command["find"]
        self.filter = compiled_filter(command.get("filter", {}), step.get("parameters", []))


class Script:
    """One transaction."""

    def __init__(self, script):
        if script.get("branches"):
            raise Failed("internal", "this driver does not support a mix of operations")
        self.draws = [compiled_draw(draw, number) for number, draw in enumerate(script["variables"])]
        self.steps = [Step(step, script["statements"]) for step in script["steps"]]
        self.least_bytes = script.get("min_row_bytes", 0)
        if not self.steps:
            raise Failed("internal", "the script has no step")

    def drawn(self, generator):
        values = []
        for draw in self.draws:
            values.append(draw(generator, values))
        return values


# ---- the trial ----


class Spec:
    """The parts of the trial's specification that this driver needs."""

    def __init__(self, text):
        try:
            trial = json.loads(text)
        except ValueError as error:
            raise Failed("internal", f"the trial's specification does not parse: {error}") from None
        if trial["engine"] not in ENGINES:
            raise Failed("internal", f"pymongo does not support {trial['engine']}")
        if trial["pace"] != "closed":
            raise Failed("internal", "pymongo does not support a schedule, only pace closed")
        if trial.get("max_per_s") is not None:
            raise Failed("internal", "pymongo does not support a limit of operations per second")
        if not 1 <= trial["clients"] <= MAX_CLIENTS:
            raise Failed("internal", f"clients must be 1 to {MAX_CLIENTS}: each is a process")
        work = trial["work"]
        self.work, script = (work, None) if isinstance(work, str) else next(iter(work.items()))
        if self.work not in ("connect", "connect_query", "first_query", "transactions"):
            raise Failed("internal", f"this driver does not support the work `{self.work}`")
        self.script = None if script is None else Script(script)
        self.auth, self.user, self.database = trial["auth"], trial["user"], trial["database"] or "test"
        self.password = read_password(trial["password_file"])
        self.clients, self.seed = trial["clients"], trial["seed"]
        self.warm_up_ns, self.window_ns = trial["warm_up_ns"], trial["window_ns"]
        self.processors = trial.get("processors")
        self.tls = trial["tls"]
        if self.tls is not None:
            check_tls(self.tls)
        self.address, self.port = endpoint(trial["endpoint"], self.tls)


def check_tls(tls):
    """Refuses TLS settings that pymongo does not support."""
    asked = {
        "ctx": ("per-connect", "pymongo builds its TLS context with each client"),
        "verification": ("full", "this driver verifies the server's name, too"),
        "start": ("requested", "pymongo begins with TLS, as MongoDB's protocol has it"),
        "suite": (None, "pymongo has no setting for the suite"),
        "group": (None, "pymongo has no setting for the group"),
        "resumption": ("never", "pymongo takes up no session"),
        "strength": ("default", "pymongo has no setting for weak keys"),
        "library": ("openssl", "pymongo has Python's TLS library"),
    }
    for name, (expected, why) in asked.items():
        if tls.get(name) not in (None, expected):
            raise Failed("internal", why)
    if tls["version"] not in ("tls1.2", "tls1.3"):
        raise Failed("internal", "Python offers TLS 1.2 and 1.3 only")


def endpoint(told, tls):
    """Address and port. pymongo verifies the name that it connects to, so the address must be the server name."""
    kind, value = next(iter(told.items()))
    if kind != "tcp":
        raise Failed("internal", f"this driver only connects to TCP addresses, not to a {kind} endpoint")
    host, _, port = value.rpartition(":")
    host = host.strip("[]")
    if tls is None or tls["server_name"] == host:
        return host, int(port)
    try:
        ipaddress.ip_address(tls["server_name"])
    except ValueError:
        why = "pymongo looks up the name in the certificate; this driver needs an address"
        raise Failed("internal", why) from None
    raise Failed("internal", f"pymongo verifies the address it connects to, which is not {tls['server_name']}")


def read_password(path):
    try:
        with open(path, "rb") as file:
            password = file.read(MAX_PASSWORD_BYTES + 1)
    except OSError as error:
        raise Failed("host", f"cannot read the password file: {error.strerror}") from None
    if len(password) > MAX_PASSWORD_BYTES:
        raise Failed("host", f"the password is longer than {MAX_PASSWORD_BYTES} bytes")
    try:
        return password.decode()
    except UnicodeDecodeError:
        raise Failed("host", "the password is not UTF-8") from None


def identity_file(identity):
    """pymongo needs certificate and key in one file. This file is only in memory."""
    descriptor = os.memfd_create("identity")
    try:
        for name in ("certificate_file", "key_file"):
            with open(identity[name], "rb") as file:
                os.write(descriptor, file.read() + b"\n")
    except OSError as error:
        raise Failed("host", f"cannot read the client's certificate: {error.strerror}") from None
    return f"/proc/self/fd/{descriptor}"


# ---- pymongo ----


class Library:
    """pymongo, and the options of the trial's clients."""

    # The class of its TLS contexts, if any.
    context = None

    def __init__(self, spec):
        # This file has the same name; with -I, Python does not search its directory.
        try:
            self.pymongo = importlib.import_module("pymongo")
            self.errors = importlib.import_module("pymongo.errors")
        except ImportError as error:
            raise Failed("host", f"Python cannot load pymongo: {error}") from None
        self.database, self.script = spec.database, spec.script
        host = f"[{spec.address}]" if ":" in spec.address else spec.address
        self.hosts = f"{host}:{spec.port}"
        # No background connections before the first command, so that creating and connecting are separate.
        self.options = {
            "connect": False,
            "directConnection": True,
            "retryReads": False,
            "retryWrites": False,
            "maxPoolSize": 1,
            "serverSelectionTimeoutMS": SELECTION_S * 1000,
        }
        if spec.tls is not None:
            self.add_tls(spec.tls)
        self.add_login(spec)

    def add_tls(self, tls):
        self.options["tls"] = True
        if tls.get("ca_file") is not None:
            self.options["tlsCAFile"] = tls["ca_file"]
        if tls.get("identity") is not None:
            self.options["tlsCertificateKeyFile"] = identity_file(tls["identity"])
        offer_one_version(tls["version"])

    def add_login(self, spec):
        if spec.auth == "trust":
            return
        if spec.auth == "cert":
            self.options["authMechanism"] = "MONGODB-X509"
            return
        if not spec.auth.startswith("scram-"):
            raise Failed("internal", f"MongoDB has no authentication {spec.auth}")
        mechanism = "SCRAM-SHA-1" if spec.auth == "scram-sha1" else "SCRAM-SHA-256"
        login = {"username": spec.user, "password": spec.password, "authSource": "admin", "authMechanism": mechanism}
        self.options.update(login)

    def client(self):
        return self.pymongo.MongoClient(self.hosts, **self.options)

    def finders(self, client):
        """`find_one` of each step's collection, and the step."""
        return [(client[self.database][step.collection].find_one, step) for step in self.script.steps]

    def fault(self, error):
        """The source of an error."""
        words = str(error)
        if "SSL" in words or "CERTIFICATE" in words.upper():
            return "tls"
        # pymongo wraps errors of connections in its own classes.
        if isinstance(error, OSError):
            return "host"
        is_ours = isinstance(error, (self.errors.ConfigurationError, self.errors.InvalidOperation))
        return "internal" if is_ours else "server"


def offer_one_version(version):
    """pymongo has no setting for this: replaces the class of its TLS contexts."""
    contexts, ssl = importlib.import_module("pymongo.ssl_context"), importlib.import_module("ssl")
    only = {"tls1.2": ssl.TLSVersion.TLSv1_2, "tls1.3": ssl.TLSVersion.TLSv1_3}[version]
    if importlib.import_module("pymongo.ssl_support").HAVE_PYSSL:
        raise Failed("host", "pymongo uses pyOpenSSL, for which this driver cannot set the TLS version")

    class OneVersion(contexts.SSLContext):
        def __new__(cls, *arguments, **options):
            context = super().__new__(cls, *arguments, **options)
            context.minimum_version = context.maximum_version = only
            OneVersion.is_used = True
            return context

    OneVersion.is_used = False
    contexts.SSLContext = OneVersion
    Library.context = OneVersion


# ---- a client ----


class Client:
    """One client of the trial, in a separate process."""

    def __init__(self, spec, library, number):
        self.spec, self.library = spec, library
        self.generator = random.Random(f"{spec.seed} {number}")
        self.latency_ns = array.array("Q")
        self.by_half = [0, 0]
        self.client = self.finders = None

    def prove(self):
        """Connects once before the measurement, to check that the requested TLS works."""
        client = self.library.client()
        client.admin.command("ping")
        if self.library.script is not None:
            values = self.library.script.drawn(self.generator)
            for find_one, step in self.library.finders(client):
                check(find_one(step.filter(values)), self.library.script)
        if self.spec.tls is not None and not self.library.context.is_used:
            raise Failed("internal", "pymongo did not use the requested TLS version")
        if self.spec.work == "transactions":
            self.client, self.finders = client, self.library.finders(client)
        else:
            client.close()

    def work(self, opens, closes):
        """Runs operations until the window closes. Returns the message of a failed one."""
        middle = (opens + closes) // 2
        operation = {
            "connect": self.connect,
            "connect_query": self.connect_query,
            "first_query": self.first_query,
            "transactions": self.transaction,
        }[self.spec.work]
        now = time.monotonic_ns
        try:
            while now() < closes:
                began, ended = operation()
                if opens <= ended < closes:
                    if len(self.latency_ns) >= MAX_SAMPLES // self.spec.clients:
                        return "more than 20 million operations in a window: choose a shorter one"
                    self.latency_ns.append(ended - began)
                    self.by_half[ended >= middle] += 1
        except Exception as error:
            return one_line(error, self.spec.password)
        return None

    def connect(self):
        began = time.monotonic_ns()
        self.library.client().close()
        return began, time.monotonic_ns()

    def connect_query(self):
        values = self.library.script.drawn(self.generator)
        began = time.monotonic_ns()
        client = self.library.client()
        found = self.find_first(client, values)
        client.close()
        ended = time.monotonic_ns()
        check(found, self.library.script)
        return began, ended

    def first_query(self):
        values = self.library.script.drawn(self.generator)
        client = self.library.client()
        began = time.monotonic_ns()
        found = self.find_first(client, values)
        ended = time.monotonic_ns()
        client.close()
        check(found, self.library.script)
        return began, ended

    def find_first(self, client, values):
        step = self.library.script.steps[0]
        return client[self.spec.database][step.collection].find_one(step.filter(values))

    def transaction(self):
        values = self.library.script.drawn(self.generator)
        began = time.monotonic_ns()
        found = [find_one(step.filter(values)) for find_one, step in self.finders]
        ended = time.monotonic_ns()
        for document in found:
            check(document, self.library.script)
        return began, ended


def check(document, script):
    """Fails for a missing or truncated document."""
    if document is None:
        raise Failed("server", "no document has the requested key")
    length = sum(len(value) for value in document.values() if isinstance(value, (str, bytes)))
    if length < script.least_bytes:
        raise Failed("server", "a response is too short: a value is truncated or NULL")


def one_line(error, password):
    """The message of an error, without repetitions and secrets."""
    words = " ".join(str(error).split()) or type(error).__name__
    # After the reason, pymongo lists its settings and the servers' states.
    for end in (" (configured timeouts:", ", Timeout: ", ", full error: "):
        words = words.split(end, 1)[0]
    if words.startswith("No servers found yet"):
        words = f"nobody answered the driver's discovery within {SELECTION_S} s"
    if password:
        words = words.replace(password, "\u2026")
    return words[:MESSAGE_CHARS]


def run_client(spec, library, number, told, tell):
    """Runs a client's process: reports that it is ready, receives the window, reports its results."""
    end_with_parent()
    client = Client(spec, library, number)
    try:
        client.prove()
        failed = None
    except Failed as error:
        failed = [error.fault, error.message]
    except Exception as error:
        failed = [library.fault(error), one_line(error, spec.password)]
    write_line(tell, {"failed": failed})
    window = told.readline()
    if failed is not None or not window:
        return
    message = client.work(*json.loads(window))
    seen = {"message": message, "by_half": client.by_half, "samples": len(client.latency_ns)}
    write_line(tell, {**seen, "rss_peak_bytes": rss_peak_bytes()})
    client.latency_ns.tofile(tell)
    tell.flush()


def write_line(file, value):
    file.write(json.dumps(value).encode() + b"\n")
    file.flush()


def end_with_parent():
    """A client exits when its coordinator does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def rss_peak_bytes():
    """Peak resident memory. The maximum of getrusage includes the process that forked this one."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        lines = [line.split() for line in status if line.startswith("VmHWM:")]
    return int(lines[0][1]) << 10 if lines else 0


# ---- clients and the window ----


class Process:
    """The parent's handle of a client's process."""

    def __init__(self, spec, library, number):
        (told, tell), (heard, say) = os.pipe(), os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(tell)
            os.close(heard)
            try:
                with os.fdopen(told, "rb") as told, os.fdopen(say, "wb") as say:
                    run_client(spec, library, number, told, say)
            finally:
                # Does not wait for threads of pymongo, and does not flush the parent's output.
                os._exit(0 if os.getppid() == parent else 1)
        os.close(told)
        os.close(say)
        self.tell, self.heard = os.fdopen(tell, "wb"), os.fdopen(heard, "rb")

    def line(self):
        """Its next message; None if it has exited."""
        line = self.heard.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def cpu_ns(self):
        """The CPU time of the process."""
        try:
            return time.clock_gettime_ns((~self.pid << 3) | 2)
        except OSError:
            return 0


def wait_all(processes, until_ns):
    """Waits until the given time, or until all clients have sent a message."""
    waited = {process.heard.fileno(): process for process in processes}
    while waited and (left := until_ns - time.monotonic_ns()) > 0:
        for ready in select.select(list(waited), [], [], left / NS_PER_S)[0]:
            del waited[ready]
    return not waited


def line_up(processes, spec):
    """Waits until all clients are ready, and sends them the window."""
    if not wait_all(processes, time.monotonic_ns() + SET_UP_S * NS_PER_S):
        raise Failed("server", f"not all of {spec.clients} clients were connected after {SET_UP_S} s")
    for process in processes:
        said = process.line()
        if said is None:
            raise Failed("host", "a client exited before it was connected")
        if said["failed"] is not None:
            raise Failed(*said["failed"])
    opens = time.monotonic_ns() + START_DELAY_NS + spec.warm_up_ns
    closes = opens + spec.window_ns
    for process in processes:
        write_line(process.tell, [opens, closes])
    return opens, closes


def measure(processes, opens, closes):
    """CPU time of all processes in the window. The readings may be slightly late on a busy machine."""

    def cpu_ns():
        return time.process_time_ns() + sum(process.cpu_ns() for process in processes)

    wait_all(processes, opens)
    opened, cpu_at_open = time.monotonic_ns(), cpu_ns()
    send("window_opened")
    wait_all(processes, closes)
    closed, cpu_at_close = time.monotonic_ns(), cpu_ns()
    send("window_closed")
    stretch = (closes - opens) / max(closed - opened, 1)
    return max(int((cpu_at_close - cpu_at_open) * min(stretch, 1)), 0)


def finish(processes, spec, cpu_ns):
    """Collects and sends the results of all clients."""
    messages, by_half, memory = collections.Counter(), [0, 0], rss_peak_bytes()
    for process in processes:
        seen = process.line()
        if seen is None:
            raise Failed("host", "a client exited before it sent its results")
        samples = array.array("Q")
        samples.frombytes(process.heard.read(seen["samples"] * samples.itemsize))
        for start in range(0, len(samples), SAMPLES_PER_MESSAGE):
            send("samples", {"latency_ns": samples[start : start + SAMPLES_PER_MESSAGE].tolist()})
        by_half = [of_all + own for of_all, own in zip(by_half, seen["by_half"])]
        memory += seen["rss_peak_bytes"]
        if seen["message"] is not None:
            messages[seen["message"]] += 1
    body = {
        "operations": sum(by_half),
        "operations_by_half": by_half,
        "window_ns": spec.window_ns,
        "errors": [{"message": text, "count": count} for text, count in messages.most_common(MAX_MESSAGES)],
        "client_cpu_ns": cpu_ns,
        "client_rss_peak_bytes": memory,
    }
    if spec.work == "transactions" and len(spec.script.steps) > 1:
        body["statements"] = sum(by_half) * len(spec.script.steps)
    send("finished", body)


def drive():
    end_with_parent()
    text = sys.stdin.readline(MAX_SPEC_BYTES)
    if not text:
        raise Failed("internal", "no specification on stdin")
    spec = Spec(text)
    if spec.processors is not None:
        try:
            os.sched_setaffinity(0, spec.processors)
        except OSError as error:
            message = f"cannot pin to the processors of the specification: {error.strerror}"
            raise Failed("host", message) from None
    library = Library(spec)
    processes = [Process(spec, library, number) for number in range(spec.clients)]
    opens, closes = line_up(processes, spec)
    finish(processes, spec, measure(processes, opens, closes))


def test_self(numbers):
    """Needs no pymongo. Prints the keys of the records with these numbers."""
    generator = random.Random(1)
    script = Script(
        {
            "statements": [{"sql": '{"find":"c","filter":{"_id":{"$param":0},"n":[1,{"$param":1}]},"limit":1}'}],
            "variables": [
                {"draw": "uniform", "first": 3, "last": 5},
                {"draw": "ycsb_key", "of": 0},
                {"draw": "offset", "of": 0, "by": -3},
            ],
            "steps": [{"statement": 0, "parameters": [1, 2]}],
        }
    )
    seen = set()
    for _ in range(100):
        values = script.drawn(generator)
        seen.add(values[0])
        expected = {"_id": f"user{key_hash(values[0])}", "n": [1, values[0] - 3]}
        assert script.steps[0].filter(values) == expected, values
    assert seen == {3, 4, 5}, seen
    for draw in ({"draw": "latest", "loaded": 3}, {"draw": "ycsb_key", "of": 0}):
        try:
            compiled_draw(draw, 0)
        except Failed:
            continue
        raise AssertionError(f"{draw} should have been refused")
    assert one_line(Exception("a secret,\nof mine"), "secret") == "a \u2026, of mine"
    for number in numbers:
        print(f"{KEY_PREFIX}{key_hash(int(number))}")


def main():
    if sys.argv[1:2] == ["--self-test"]:
        test_self(sys.argv[2:])
        return 0
    try:
        drive()
        status = 0
    except Failed as error:
        send("failed", {"fault": error.fault, "message": one_line(error, "")})
        status = 1
    except (KeyError, TypeError, IndexError, ValueError) as error:
        what = f"the trial's specification is not as expected: {type(error).__name__} {error}"
        send("failed", {"fault": "internal", "message": one_line(what, "")})
        status = 1
    # Clients that are still waiting exit with this process.
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
