/*
 * The floor of `--workload select-only` and `point-select` on PostgreSQL; what a floor is, floor.h says.
 *
 *   cc -O2 -pthread floor_postgres.c -o floor_postgres -lssl -lcrypto $(pkg-config --cflags --libs libpq)
 *
 * The statement, by --sql, takes one number and returns one row. A request is Bind, Execute and Sync; the
 * number goes as text, zeros before it, so that all requests are equally long. libpq logs in and hands its
 * socket over, with the TLS session on it.
 */
#include "floor.h"
#include "postgres_login.h"

static const char HELP[] =
    "The floor of a prepared select of one row: a bare closed loop; prints one JSON line.\n"
    "\n"
    "usage: floor_postgres --port N --user U [options]\n"
    "\n"
    "  --host H            server address, an IP literal or a name (127.0.0.1)\n"
    "  --port N            server port, TCP\n"
    "  --user U            user\n"
    "  --password-file F   file that holds the password (default: no password)\n"
    "  --database D        database that holds the table (sbtest)\n"
    "  --sql S             the statement (SELECT abalance FROM pgbench_accounts WHERE aid = $1)\n"
    "  --rows N            $1 is uniform from 1 to N (100000)\n"
    "  --tls V             none, 1.2 or 1.3: verified (none)\n"
    "  --ca F              CA file, PEM\n"
    "  --clients N         connections (8)\n"
    "  --mode M            epoll: one thread for all; threads: one blocking thread each (epoll)\n"
    "  --trigger T         edge or level, for --mode epoll (edge)\n"
    "  --read-ahead S      on or off: OpenSSL reads header and body of a record at once (on)\n"
    "  --seconds S         measured time (5)\n"
    "  --warm-up W         time before it that does not count (1)\n"
    "  --help              this\n";

static const struct option OPTIONS[] = {
    {"host", required_argument, NULL, OPT_HOST},
    {"port", required_argument, NULL, OPT_PORT},
    {"user", required_argument, NULL, OPT_USER},
    {"password-file", required_argument, NULL, OPT_PASSWORD_FILE},
    {"database", required_argument, NULL, OPT_DATABASE},
    {"sql", required_argument, NULL, OPT_SQL},
    {"rows", required_argument, NULL, OPT_ROWS},
    {"tls", required_argument, NULL, OPT_TLS},
    {"ca", required_argument, NULL, OPT_CA},
    {"clients", required_argument, NULL, OPT_CLIENTS},
    {"mode", required_argument, NULL, OPT_MODE},
    {"trigger", required_argument, NULL, OPT_TRIGGER},
    {"read-ahead", required_argument, NULL, OPT_READ_AHEAD},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"warm-up", required_argument, NULL, OPT_WARM_UP},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static const char STATEMENT[] = "f";

/* Message types. */
#define BIND 'B'
#define EXECUTE 'E'
#define SYNC 'S'
#define BIND_COMPLETE '2'
#define DATA_ROW 'D'
#define COMMAND_COMPLETE 'C'
#define READY_FOR_QUERY 'Z'
#define ERROR_RESPONSE 'E'

/* A message's type and length; the length counts itself, not the type. */
#define TYPE_BYTES 1
#define HEADER_BYTES (TYPE_BYTES + 4)
/* As many digits as the largest --rows has. */
#define ID_DIGITS 10
/* header, unnamed portal, statement, no formats, one parameter, its length, its value, no result formats */
#define BIND_ID_OFFSET (HEADER_BYTES + 1 + sizeof STATEMENT + 2 + 2 + 4)
#define BIND_BYTES (BIND_ID_OFFSET + ID_DIGITS + 2)
/* header, unnamed portal, no limit of rows */
#define EXECUTE_BYTES (HEADER_BYTES + 1 + 4)
#define SYNC_BYTES HEADER_BYTES

_Static_assert(BIND_BYTES + EXECUTE_BYTES + SYNC_BYTES <= REQUEST_BYTES, "a request fits its buffer");

/* ---- Bytes ---- */

static uint32_t load_be(const uint8_t *bytes, unsigned count) {
    uint32_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

static uint8_t *store_be(uint8_t *at, uint32_t value, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        at[i] = (uint8_t)(value >> (8 * (count - 1 - i)));
    return at + count;
}

static uint8_t *store_header(uint8_t *at, char type, size_t message_bytes) {
    *at = (uint8_t)type;
    return store_be(at + TYPE_BYTES, (uint32_t)(message_bytes - TYPE_BYTES), 4);
}

static void store_id(uint8_t *at, uint32_t id) {
    for (int i = ID_DIGITS - 1; i >= 0; i--) {
        at[i] = (uint8_t)('0' + id % 10);
        id /= 10;
    }
}

static bool is_error(const uint8_t *reply, size_t have) {
    return have > 0 && reply[0] == ERROR_RESPONSE;
}

/* ---- The statement ---- */

static void prepare(PGconn *server, const char *sql) {
    PGresult *result = PQprepare(server, STATEMENT, sql, 0, NULL);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        die("prepare: %s", PQerrorMessage(server));
    PQclear(result);
}

static void encode_request(struct connection *connection) {
    uint8_t *at = store_header(connection->request, BIND, BIND_BYTES);
    *at++ = '\0'; /* the unnamed portal */
    memcpy(at, STATEMENT, sizeof STATEMENT);
    at = store_be(at + sizeof STATEMENT, 0, 2); /* all parameters are text */
    at = store_be(at, 1, 2);
    at = store_be(at, ID_DIGITS, 4);
    at += ID_DIGITS;           /* patched before each send */
    at = store_be(at, 0, 2);   /* all columns as text */
    at = store_header(at, EXECUTE, EXECUTE_BYTES);
    *at++ = '\0';
    at = store_be(at, 0, 4);
    at = store_header(at, SYNC, SYNC_BYTES);
    connection->request_bytes = (size_t)(at - connection->request);
    connection->id_offset = BIND_ID_OFFSET;
}

/* Receives one message of this type, behind `offset`. */
static void expect_message(struct connection *connection, size_t *offset, char type) {
    while (connection->have - *offset < HEADER_BYTES)
        receive_some(connection);
    const uint8_t *message = connection->buffer + *offset;
    if (message[0] != (uint8_t)type)
        die("the server answers '%c' where '%c' is expected; check --rows", message[0], type);
    uint32_t length = load_be(message + TYPE_BYTES, 4);
    if (length < 4 || length > BUFFER_BYTES)
        die("a message of %" PRIu32 " bytes is not what was expected", length);
    *offset += TYPE_BYTES + length;
    while (connection->have < *offset)
        receive_some(connection);
}

/* Executes for one number and reads the reply message by message. Its length. */
static size_t probe(struct connection *connection, uint32_t id) {
    store_id(connection->request + connection->id_offset, id);
    send_all(connection, connection->request, connection->request_bytes);
    connection->have = 0;
    size_t offset = 0;
    expect_message(connection, &offset, BIND_COMPLETE);
    expect_message(connection, &offset, DATA_ROW);
    expect_message(connection, &offset, COMMAND_COMPLETE);
    expect_message(connection, &offset, READY_FOR_QUERY);
    if (connection->have != offset)
        die("the reply to one request does not end where it should");
    return offset;
}

static void open_connection(struct connection *connection, const struct peer_args *args, uint64_t number) {
    PGconn *server = log_in(args);
    prepare(server, args->sql);
    take_over(connection, server, args);
    encode_request(connection);
    connection->reply_bytes = probe(connection, 1);
    if (probe(connection, args->rows) != connection->reply_bytes)
        die("the replies for 1 and %" PRIu32 " differ in length", args->rows);
    seed_keys(connection, args->rows, number);
}

int main(int argc, char **argv) {
    struct peer_args args = {.host = "127.0.0.1", .database = "sbtest", .seconds = 5, .warm_up = 1, .clients = 8,
                             .rows = 100000, .read_ahead = true,
                             .sql = "SELECT abalance FROM pgbench_accounts WHERE aid = $1"};
    parse_args(&args, argc, argv, OPTIONS, HELP);
    start_watchdog(&args);

    struct connection *connections = calloc((size_t)args.clients, sizeof *connections);
    if (connections == NULL)
        die("out of memory");
    for (int i = 0; i < args.clients; i++)
        open_connection(&connections[i], &args, (uint64_t)i);
    run_floor(connections, &args);
    return 0;
}
