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

#include <openssl/sha.h>

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

/* Capabilities, as in the protocol's documentation; the same set as ciphertoll's own client asks for. */
#define CLIENT_LONG_PASSWORD 0x00000001U
#define CLIENT_CONNECT_WITH_DB 0x00000008U
#define CLIENT_PROTOCOL_41 0x00000200U
#define CLIENT_SSL 0x00000800U
#define CLIENT_TRANSACTIONS 0x00002000U
#define CLIENT_SECURE_CONNECTION 0x00008000U
#define CLIENT_PLUGIN_AUTH 0x00080000U
#define CLIENT_DEPRECATE_EOF 0x01000000U
#define CAPABILITIES                                                                                              \
    (CLIENT_LONG_PASSWORD | CLIENT_CONNECT_WITH_DB | CLIENT_PROTOCOL_41 | CLIENT_TRANSACTIONS |                   \
     CLIENT_SECURE_CONNECTION | CLIENT_PLUGIN_AUTH | CLIENT_DEPRECATE_EOF)

#define NATIVE_PASSWORD "mysql_native_password"
#define UTF8MB4_GENERAL_CI 45
#define COM_STMT_PREPARE 0x16
#define COM_STMT_EXECUTE 0x17
#define TYPE_LONG 0x03
#define PACKET_OK 0x00
#define PACKET_EOF 0xfe
#define PACKET_ERR 0xff

#define HEADER_BYTES 4
#define SCRAMBLE_BYTES 20
/* header, command, statement id, flags, iterations, NULL bitmap, types follow, one type, one 4-byte value */
#define EXECUTE_BYTES (HEADER_BYTES + 1 + 4 + 1 + 4 + 1 + 1 + 2 + 4)
#define EXECUTE_ID_OFFSET (EXECUTE_BYTES - 4)

/* ---- Bytes ---- */

static uint32_t load_le(const uint8_t *bytes, unsigned count) {
    uint32_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

static uint8_t *store_le(uint8_t *at, uint32_t value, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        *at++ = (uint8_t)(value >> (8 * i));
    return at;
}

static uint8_t *store_bytes(uint8_t *at, const void *bytes, size_t count) {
    memcpy(at, bytes, count);
    return at + count;
}

static void store_id(uint8_t *at, uint32_t id) {
    store_le(at, id, 4);
}

static bool is_error(const uint8_t *reply, size_t have) {
    return have > HEADER_BYTES && reply[HEADER_BYTES] == PACKET_ERR;
}

/* ---- Before the clock starts: packets, read with care and not fast ---- */

struct packet {
    const uint8_t *payload;
    size_t length;
    uint8_t sequence;
};

/* The packet that begins at `offset` of what is to be received. Its pointer holds until the next receive. */
static struct packet receive_packet(struct connection *connection, size_t *offset) {
    while (connection->have - *offset < HEADER_BYTES)
        receive_some(connection);
    struct packet packet = {.length = load_le(connection->buffer + *offset, 3)};
    while (connection->have - *offset - HEADER_BYTES < packet.length)
        receive_some(connection);
    packet.sequence = connection->buffer[*offset + 3];
    packet.payload = connection->buffer + *offset + HEADER_BYTES;
    *offset += HEADER_BYTES + packet.length;
    if (packet.length == 0)
        die("the server sent an empty packet");
    if (packet.payload[0] == PACKET_ERR && packet.length > 9)
        die("the server says: %.*s", (int)packet.length - 9, (const char *)packet.payload + 9);
    return packet;
}

static struct packet receive_one(struct connection *connection) {
    connection->have = 0;
    size_t offset = 0;
    return receive_packet(connection, &offset);
}

static void send_packet(struct connection *connection, const uint8_t *payload, size_t length, uint8_t sequence) {
    uint8_t bytes[BUFFER_BYTES];
    uint8_t *at = store_le(bytes, (uint32_t)length, 3);
    *at++ = sequence;
    at = store_bytes(at, payload, length);
    send_all(connection, bytes, (size_t)(at - bytes));
}

/* ---- Login ---- */

static int open_tcp(const struct peer_args *args) {
    char port[8];
    snprintf(port, sizeof port, "%d", args->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses;
    int error = getaddrinfo(args->host, port, &hints, &addresses);
    if (error != 0)
        die("%s: %s", args->host, gai_strerror(error));
    int fd = socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, addresses->ai_addr, addresses->ai_addrlen) != 0)
        die("connect to %s port %s: %s", args->host, port, strerror(errno));
    freeaddrinfo(addresses);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static int open_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path)); /* its length was checked with the arguments */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect to %s: %s", path, strerror(errno));
    return fd;
}

/* Copies the two parts of the scramble out of the greeting. */
static void take_scramble(struct packet greeting, uint8_t scramble[SCRAMBLE_BYTES]) {
    if (greeting.payload[0] != 10)
        die("the server speaks protocol %u; 10 is wanted", greeting.payload[0]);
    const uint8_t *version_end = memchr(greeting.payload, '\0', greeting.length);
    /* thread id 4, scramble 8, filler 1, capabilities 2, charset 1, status 2, capabilities 2, length 1, filler 10 */
    size_t rest = version_end == NULL ? 0 : greeting.length - (size_t)(version_end + 1 - greeting.payload);
    if (rest < 4 + 8 + 1 + 2 + 1 + 2 + 2 + 1 + 10 + 12)
        die("the server's greeting is too short");
    memcpy(scramble, version_end + 1 + 4, 8);
    memcpy(scramble + 8, version_end + 1 + 31, 12);
}

/* SHA1(password) XOR SHA1(scramble, SHA1(SHA1(password))); an empty password sends nothing. */
static size_t native_password(const char *password, const uint8_t scramble[SCRAMBLE_BYTES],
                              uint8_t answer[SHA_DIGEST_LENGTH]) {
    if (password[0] == '\0')
        return 0;
    uint8_t once[SHA_DIGEST_LENGTH];
    uint8_t salted[SCRAMBLE_BYTES + SHA_DIGEST_LENGTH];
    SHA1((const uint8_t *)password, strlen(password), once);
    memcpy(salted, scramble, SCRAMBLE_BYTES);
    SHA1(once, sizeof once, salted + SCRAMBLE_BYTES);
    SHA1(salted, sizeof salted, answer);
    for (unsigned i = 0; i < SHA_DIGEST_LENGTH; i++)
        answer[i] ^= once[i];
    return SHA_DIGEST_LENGTH;
}

static uint8_t *store_login_head(uint8_t *at, uint32_t capabilities) {
    at = store_le(at, capabilities, 4);
    at = store_le(at, 1U << 24, 4); /* largest packet */
    *at++ = UTF8MB4_GENERAL_CI;
    memset(at, 0, 23);
    return at + 23;
}

static void start_tls(struct connection *connection, SSL_CTX *context, const char *host) {
    connection->ssl = SSL_new(context);
    if (connection->ssl == NULL || SSL_set_fd(connection->ssl, connection->fd) != 1)
        die_tls("TLS");
    struct in6_addr address;
    bool literal = inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
    X509_VERIFY_PARAM *verify = SSL_get0_param(connection->ssl);
    int named = literal ? X509_VERIFY_PARAM_set1_ip_asc(verify, host) : SSL_set1_host(connection->ssl, host);
    if (named != 1 || SSL_connect(connection->ssl) != 1)
        die_tls("TLS handshake");
}

/* Answers what the server asks after the login packet until it says OK. */
static void finish_login(struct connection *connection, const char *password) {
    struct packet packet = receive_one(connection);
    if (packet.payload[0] == PACKET_EOF) { /* switch to another plugin, with another scramble */
        size_t name_bytes = sizeof NATIVE_PASSWORD;
        if (packet.length < 1 + name_bytes + SCRAMBLE_BYTES ||
            memcmp(packet.payload + 1, NATIVE_PASSWORD, name_bytes) != 0)
            die("the account does not log in by " NATIVE_PASSWORD ", all that this program speaks");
        uint8_t answer[SHA_DIGEST_LENGTH];
        size_t length = native_password(password, packet.payload + 1 + name_bytes, answer);
        send_packet(connection, answer, length, (uint8_t)(packet.sequence + 1));
        packet = receive_one(connection);
    }
    if (packet.payload[0] != PACKET_OK)
        die("login: the server answers 0x%02x, which this program does not know", packet.payload[0]);
}

static void log_in(struct connection *connection, const struct peer_args *args, SSL_CTX *context) {
    uint8_t scramble[SCRAMBLE_BYTES];
    take_scramble(receive_one(connection), scramble);
    uint8_t payload[BUFFER_BYTES];
    uint8_t sequence = 1;
    uint32_t capabilities = CAPABILITIES;
    if (context != NULL) {
        capabilities |= CLIENT_SSL;
        uint8_t *end = store_login_head(payload, capabilities);
        send_packet(connection, payload, (size_t)(end - payload), sequence++);
        start_tls(connection, context, args->host);
    }
    uint8_t answer[SHA_DIGEST_LENGTH];
    size_t answer_bytes = native_password(args->password, scramble, answer);
    uint8_t *at = store_login_head(payload, capabilities);
    at = store_bytes(at, args->user, strlen(args->user) + 1);
    *at++ = (uint8_t)answer_bytes;
    at = store_bytes(at, answer, answer_bytes);
    at = store_bytes(at, args->database, strlen(args->database) + 1);
    at = store_bytes(at, NATIVE_PASSWORD, sizeof NATIVE_PASSWORD);
    send_packet(connection, payload, (size_t)(at - payload), sequence);
    finish_login(connection, args->password);
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
    log_in(connection, args, context);
    encode_execute(connection, prepare(connection));
    connection->reply_bytes = probe(connection, 1);
    if (probe(connection, args->rows) != connection->reply_bytes)
        die("the replies for rows 1 and %" PRIu32 " differ in length: not a table made by sysbench", args->rows);
    seed_keys(connection, args->rows, number);
}

static SSL_CTX *make_context(const struct peer_args *args) {
    if (args->tls == TLS_NONE)
        return NULL;
    int version = args->tls == TLS_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL || SSL_CTX_set_min_proto_version(context, version) != 1 ||
        SSL_CTX_set_max_proto_version(context, version) != 1)
        die_tls("TLS context");
    if (SSL_CTX_load_verify_locations(context, args->ca, NULL) != 1)
        die_tls(args->ca);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_read_ahead(context, args->read_ahead);
    return context;
}

static void check_lengths(const struct peer_args *args) {
    /* Keeps the login packet far inside its buffer. */
    if (strlen(args->user) > 128 || strlen(args->database) > 128)
        usage_error("--user and --database are at most 128 bytes");
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
