/*
 * The floor of `--workload point-select` on MariaDB; what a floor is, floor.h says.
 *
 *   cc -O2 -pthread floor_mariadb.c -o floor_mariadb -lssl -lcrypto
 *
 * The statement is sysbench's (`oltp_point_select`): SELECT c FROM sbtest1 WHERE id=?, ids 1 to --rows. `c` is
 * a CHAR(120) that sysbench fills with 119 characters, so that every row's reply is as long as the first.
 * Login is mysql_native_password by hand, because a client library does not hand over its socket.
 */
#include "floor.h"
#include "mariadb_login.h"

static const char HELP[] =
    "The floor of a prepared point select: a bare closed loop; prints one JSON line.\n"
    "\n"
    "usage: floor_mariadb (--port N | --socket PATH) --user U [options]\n"
    "\n"
    "  --host H            server address, an IP literal or a name (127.0.0.1)\n"
    "  --port N            server port, TCP\n"
    "  --socket PATH       unix socket instead of TCP\n"
    "  --user U            user (mysql_native_password)\n"
    "  --password-file F   file that holds the password (default: no password)\n"
    "  --database D        database that holds sbtest1 (sbtest)\n"
    "  --rows N            rows of sbtest1; ids are uniform from 1 to N (10000)\n"
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
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"user", required_argument, NULL, OPT_USER},
    {"password-file", required_argument, NULL, OPT_PASSWORD_FILE},
    {"database", required_argument, NULL, OPT_DATABASE},
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

static const char STATEMENT[] = "SELECT c FROM sbtest1 WHERE id=?";

#define COM_STMT_PREPARE 0x16
#define COM_STMT_EXECUTE 0x17
#define TYPE_LONG 0x03

/* header, command, statement id, flags, iterations, NULL bitmap, types follow, one type, one 4-byte value */
#define EXECUTE_BYTES (HEADER_BYTES + 1 + 4 + 1 + 4 + 1 + 1 + 2 + 4)
#define EXECUTE_ID_OFFSET (EXECUTE_BYTES - 4)

static void store_id(uint8_t *at, uint32_t id) {
    store_le(at, id, 4);
}

static bool is_error(const uint8_t *reply, size_t have) {
    return have > HEADER_BYTES && reply[HEADER_BYTES] == PACKET_ERR;
}

/* ---- The statement ---- */

static uint32_t prepare(struct connection *connection) {
    uint8_t payload[sizeof STATEMENT];
    payload[0] = COM_STMT_PREPARE;
    memcpy(payload + 1, STATEMENT, sizeof STATEMENT - 1);
    send_packet(connection, payload, sizeof payload, 0);
    connection->have = 0;
    size_t offset = 0;
    struct packet head = receive_packet(connection, &offset);
    if (head.payload[0] != PACKET_OK || head.length < 12)
        die("prepare: not the reply that was expected");
    uint32_t statement = load_le(head.payload + 1, 4);
    uint32_t columns = load_le(head.payload + 5, 2);
    uint32_t parameters = load_le(head.payload + 7, 2);
    if (columns != 1 || parameters != 1)
        die("prepare: one column and one parameter are expected");
    receive_packet(connection, &offset); /* the parameter; no EOF follows: CLIENT_DEPRECATE_EOF */
    receive_packet(connection, &offset); /* the column */
    return statement;
}

static void encode_execute(struct connection *connection, uint32_t statement) {
    connection->request_bytes = EXECUTE_BYTES;
    connection->id_offset = EXECUTE_ID_OFFSET;
    uint8_t *at = store_le(connection->request, EXECUTE_BYTES - HEADER_BYTES, 3);
    *at++ = 0; /* sequence */
    *at++ = COM_STMT_EXECUTE;
    at = store_le(at, statement, 4);
    *at++ = 0; /* no cursor */
    at = store_le(at, 1, 4);
    *at++ = 0; /* no parameter is NULL */
    *at++ = 1; /* types follow: stateless, so every execute is alike */
    at = store_le(at, TYPE_LONG, 2);
    store_le(at, 0, 4); /* the id, patched before each send */
}

/* Executes for one id and reads the reply packet by packet: count, column, row, end. Its length. */
static size_t probe(struct connection *connection, uint32_t id) {
    store_le(connection->request + EXECUTE_ID_OFFSET, id, 4);
    send_all(connection, connection->request, EXECUTE_BYTES);
    connection->have = 0;
    size_t offset = 0;
    receive_packet(connection, &offset);
    receive_packet(connection, &offset);
    struct packet row = receive_packet(connection, &offset);
    if (row.payload[0] != 0)
        die("sbtest1 has no row %" PRIu32 "; check --rows", id);
    struct packet end = receive_packet(connection, &offset);
    if (end.payload[0] != PACKET_EOF || connection->have != offset)
        die("the reply to one execute does not end after one row");
    return offset;
}

static void open_connection(struct connection *connection, const struct peer_args *args, SSL_CTX *context,
                            uint64_t number) {
    connection->fd = args->socket != NULL ? open_unix(args->socket) : open_tcp(args);
    log_in(connection, args, context, CAPABILITIES | CLIENT_DEPRECATE_EOF);
    encode_execute(connection, prepare(connection));
    connection->reply_bytes = probe(connection, 1);
    if (probe(connection, args->rows) != connection->reply_bytes)
        die("the replies for rows 1 and %" PRIu32 " differ in length: not a table made by sysbench", args->rows);
    seed_keys(connection, args->rows, number);
}

int main(int argc, char **argv) {
    struct peer_args args = {.host = "127.0.0.1", .database = "sbtest", .seconds = 5, .warm_up = 1, .clients = 8,
                             .rows = 10000, .read_ahead = true};
    parse_args(&args, argc, argv, OPTIONS, HELP);
    check_lengths(&args);
    start_watchdog(&args);

    SSL_CTX *context = make_context(&args);
    struct connection *connections = calloc((size_t)args.clients, sizeof *connections);
    if (connections == NULL)
        die("out of memory");
    for (int i = 0; i < args.clients; i++)
        open_connection(&connections[i], &args, context, (uint64_t)i);
    run_floor(connections, &args);
    return 0;
}
