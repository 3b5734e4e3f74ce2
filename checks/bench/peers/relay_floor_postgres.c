/*
 * The relay floor for PostgreSQL; relay_floor.h says what it is.
 *
 *   cc -O2 relay_floor_postgres.c -o relay_floor_postgres -lssl -lcrypto $(pkg-config --cflags --libs libpq)
 *
 * A client keeps its connection until its transaction
 * ends, or until it leaves with `--reset always` or after it has named a prepared statement.
 */
#include "relay_floor.h"

#include "postgres_login.h"

static const char HELP[] =
    "The cheapest possible relay to PostgreSQL, a measuring instrument; ends with its parent.\n"
    "\n"
    "usage: relay_floor_postgres --listen PATH --reset P --port N --user U --tls V --ca F [options]\n"
    "\n" RELAY_HELP;

/* Message types of clients. */
#define QUERY 'Q'
#define PARSE 'P'
#define BIND 'B'
#define EXECUTE 'E'
#define CLOSE 'C'
#define SYNC 'S'
#define FUNCTION_CALL 'F'
#define TERMINATE 'X'
/* Message types of servers. */
#define AUTHENTICATION 'R'
#define PARAMETER_STATUS 'S'
#define BACKEND_KEY_DATA 'K'
#define CLOSE_COMPLETE '3'
#define ERROR_RESPONSE 'E'
#define READY_FOR_QUERY 'Z'

#define HEADER_BYTES 5U
#define STARTUP_HEADER_BYTES 8
#define PROTOCOL_3_0 196608
#define SSL_REQUEST 80877103
#define GSS_REQUEST 80877104
#define IDLE 'I'

enum { BEFORE_STARTUP, LOGGED_IN };

static uint32_t load_be(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint32_t payload_bytes(const uint8_t *header) {
    uint32_t length = load_be(header + 1);
    if (length < 4)
        die("a message of type '%c' has the length %" PRIu32, header[0], length);
    return length - 4;
}

/* ---- Messages, encoded once ---- */

struct encoded {
    size_t count;
    uint8_t bytes[GREETING_BYTES];
};

static void add_message(struct encoded *encoded, char type, const void *payload, size_t count) {
    if (encoded->count + HEADER_BYTES + count > sizeof encoded->bytes)
        die("the messages are longer than %zu bytes", sizeof encoded->bytes);
    uint8_t *at = encoded->bytes + encoded->count;
    uint32_t length = (uint32_t)count + 4;
    at[0] = (uint8_t)type;
    for (int i = 0; i < 4; i++)
        at[1 + i] = (uint8_t)(length >> (8 * (3 - i)));
    if (count > 0)
        memcpy(at + HEADER_BYTES, payload, count);
    encoded->count += HEADER_BYTES + count;
}

/* Parse, Bind and Execute on the unnamed statement, without a Sync. */
static void add_command(struct encoded *encoded, const char *sql) {
    uint8_t parse[64] = {0};
    size_t length = strlen(sql);
    memcpy(parse + 1, sql, length);                           /* after the empty name */
    add_message(encoded, PARSE, parse, 1 + length + 1 + 2);   /* no parameter types */
    add_message(encoded, BIND, "\0\0\0\0\0\0\0\0", 2 + 2 + 2 + 2);
    add_message(encoded, EXECUTE, "\0\0\0\0\0", 1 + 4);
}

static struct bytes reset_command(void) {
    static struct encoded encoded;
    if (encoded.count == 0)
        add_message(&encoded, QUERY, "DISCARD ALL", sizeof "DISCARD ALL");
    return (struct bytes){encoded.bytes, encoded.count};
}

/*
 * What ciphertoll-proxy sends: without a Sync, so that the server answers the reset and the command at once; the Close
 * marks the end of the answer.
 */
static struct bytes reset_prefix(void) {
    static struct encoded encoded;
    if (encoded.count == 0) {
        add_command(&encoded, "DISCARD ALL");
        add_message(&encoded, CLOSE, "S", sizeof "S");
        if (encoded.count > RESET_BYTES)
            die("the reset is longer than %d bytes", RESET_BYTES);
    }
    return (struct bytes){encoded.bytes, encoded.count};
}

/* ---- Login ---- */

static struct encoded greeting;

static void add_parameter(PGconn *connection, const char *name) {
    const char *value = PQparameterStatus(connection, name);
    char text[256];
    if (value == NULL)
        return;
    int length = snprintf(text, sizeof text, "%s%c%s", name, '\0', value);
    if (length < 0 || (size_t)length >= sizeof text)
        die("the parameter %s is too long", name);
    add_message(&greeting, PARAMETER_STATUS, text, (size_t)length + 1);
}

static void encode_greeting(PGconn *connection) {
    static const char *const names[] = {"server_version", "server_encoding", "client_encoding", "application_name",
                                        "is_superuser", "session_authorization", "DateStyle", "IntervalStyle",
                                        "TimeZone", "integer_datetimes", "standard_conforming_strings",
                                        "default_transaction_read_only", "in_hot_standby"};
    add_message(&greeting, AUTHENTICATION, "\0\0\0\0", 4);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        add_parameter(connection, names[i]);
    add_message(&greeting, BACKEND_KEY_DATA, "\0\0\0\1\0\0\0\1", 8);
    add_message(&greeting, READY_FOR_QUERY, "I", 1);
}

static void open_server(struct server *server, const struct peer_args *args) {
    PGconn *login = log_in(args);
    if (greeting.count == 0)
        encode_greeting(login);
    struct connection connection = {0};
    take_over(&connection, login, args);
    server->source.fd = connection.fd;
    server->ssl = connection.ssl;
}

static void greet_client(struct client *client) {
    (void)client; /* the client speaks first */
}

static bool is_logged_in(const struct client *client) {
    return client->login == LOGGED_IN;
}

static void log_client_in(struct client *client, const uint8_t *bytes, size_t count) {
    if (count < STARTUP_HEADER_BYTES || load_be(bytes) != count)
        die("a startup message came in pieces");
    switch (load_be(bytes + 4)) {
    case SSL_REQUEST:
    case GSS_REQUEST: send_to_client(client, (const uint8_t *)"N", 1); break;
    case PROTOCOL_3_0:
        client->login = LOGGED_IN;
        send_to_client(client, greeting.bytes, greeting.count);
        break;
    default: die("a client asks for another protocol");
    }
}

/* ---- Commands and answers ---- */

static size_t read_commands(struct client *client, const uint8_t *bytes, size_t count) {
    struct framer *framer = &client->framer;
    size_t read = 0;
    while (read < count) {
        size_t begin = read;
        read += next_message(framer, HEADER_BYTES, payload_bytes, bytes + read, count - read);
        if (!is_whole(framer, HEADER_BYTES))
            break;
        switch (framer->header[0]) {
        case TERMINATE: client->leaving = true; return begin;
        case PARSE: client->pinned |= framer->head[0] != '\0'; break;
        case QUERY:
        case SYNC:
        case FUNCTION_CALL: client->owed++; break;
        default: break;
        }
        begin_message(framer);
    }
    return count;
}

static struct answers read_answers(struct server *server, const uint8_t *bytes, size_t count) {
    struct framer *framer = &server->framer;
    struct answers answers = {0, server->dropping ? count : 0};
    size_t read = 0;
    while (read < count) {
        read += next_message(framer, HEADER_BYTES, payload_bytes, bytes + read, count - read);
        if (!is_whole(framer, HEADER_BYTES))
            break;
        uint8_t type = framer->header[0];
        if (type == READY_FOR_QUERY) {
            answers.complete++;
            server->in_transaction = framer->head[0] != IDLE;
        } else if (server->dropping && type == CLOSE_COMPLETE) {
            server->dropping = false;
            answers.drop = read;
        } else if (type == ERROR_RESPONSE && (server->dropping || server->resetting)) {
            die("the server refuses a reset");
        }
        begin_message(framer);
    }
    return answers;
}

int main(int argc, char **argv) {
    run_relay(argc, argv, HELP);
}
