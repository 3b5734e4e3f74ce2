/*
 * The relay floor for MariaDB; relay_floor.h says what it is.
 *
 *   cc -O2 relay_floor_mariadb.c -o relay_floor_mariadb -lssl -lcrypto
 *
 * A client keeps its connection until the answer to its query is complete and no transaction is open, or until it
 * leaves with `--reset always` or after a command other than COM_QUERY and COM_PING.
 */
#include "relay_floor.h"

#include "mariadb_login.h"

static const char HELP[] =
    "The cheapest possible relay to MariaDB, a measuring instrument; ends with its parent.\n"
    "\n"
    "usage: relay_floor_mariadb --listen PATH --reset P --port N --user U --tls V --ca F [options]\n"
    "\n" RELAY_HELP;

#define COM_QUIT 0x01
#define COM_QUERY 0x03
#define COM_PING 0x0e
#define COM_RESET_CONNECTION 0x1f
#define LOCAL_INFILE 0xfb
#define LARGEST_PACKET 0xffffffU
/* An EOF packet: the marker, the number of warnings, the status. */
#define EOF_BYTES 5
#define STATUS_IN_TRANSACTION 0x0001U
#define STATUS_AUTOCOMMIT 0x0002U
#define STATUS_MORE_RESULTS 0x0008U
#define SEQUENCE 3

enum { BEFORE_LOGIN, LOGGED_IN };
/* What the next packet of an answer is: the first, a column or the EOF after them, a row or the EOF after them. */
enum { FIRST, COLUMN, ROW };

static uint32_t payload_bytes(const uint8_t *header) {
    uint32_t length = load_le(header, 3);
    if (length == LARGEST_PACKET)
        die("a packet of 16 MB is too long for this program");
    return length;
}

/* ---- Resets: the same command, alone or in front of another ---- */

static const uint8_t RESET[] = {1, 0, 0, 0, COM_RESET_CONNECTION};

static struct bytes reset_command(void) {
    return (struct bytes){RESET, sizeof RESET};
}

static struct bytes reset_prefix(void) {
    return (struct bytes){RESET, sizeof RESET};
}

/* ---- Login ---- */

static uint8_t greeting[GREETING_BYTES];
static size_t greeting_bytes;

/* Protocol 10, with the capabilities that the connections to the server have: results must have the same form. */
static void encode_greeting(const char *version) {
    static const char scramble[SCRAMBLE_BYTES + 1] = "abcdefghijklmnopqrst";
    uint8_t payload[512];
    uint8_t *at = payload;
    *at++ = 10;
    at = store_bytes(at, version, strlen(version) + 1);
    at = store_le(at, 1, 4); /* thread */
    at = store_bytes(at, scramble, 8);
    *at++ = 0;
    at = store_le(at, CAPABILITIES & 0xffff, 2);
    *at++ = UTF8MB4_GENERAL_CI;
    at = store_le(at, STATUS_AUTOCOMMIT, 2);
    at = store_le(at, CAPABILITIES >> 16, 2);
    *at++ = sizeof scramble;
    memset(at, 0, 10);
    at += 10;
    at = store_bytes(at, scramble + 8, sizeof scramble - 8);
    at = store_bytes(at, NATIVE_PASSWORD, sizeof NATIVE_PASSWORD);
    size_t count = (size_t)(at - payload);
    store_le(greeting, (uint32_t)count, 4); /* the sequence number is 0 */
    memcpy(greeting + HEADER_BYTES, payload, count);
    greeting_bytes = HEADER_BYTES + count;
}

static void open_server(struct server *server, const struct peer_args *args) {
    static SSL_CTX *context;
    if (context == NULL) {
        check_lengths(args);
        context = make_context(args);
        encode_greeting("5.5.5-10.11.0-MariaDB");
    }
    struct connection connection = {.fd = open_tcp(args)};
    log_in(&connection, args, context, CAPABILITIES);
    server->source.fd = connection.fd;
    server->ssl = connection.ssl;
}

static void greet_client(struct client *client) {
    send_to_client(client, greeting, greeting_bytes);
}

static bool is_logged_in(const struct client *client) {
    return client->login == LOGGED_IN;
}

/* Any login packet is accepted. */
static void log_client_in(struct client *client, const uint8_t *bytes, size_t count) {
    if (count < HEADER_BYTES || payload_bytes(bytes) + HEADER_BYTES != count)
        die("a login packet came in pieces");
    uint8_t ok[] = {7, 0, 0, (uint8_t)(bytes[SEQUENCE] + 1), PACKET_OK, 0, 0, STATUS_AUTOCOMMIT, 0, 0, 0};
    client->login = LOGGED_IN;
    send_to_client(client, ok, sizeof ok);
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
        uint8_t command = framer->length > 0 ? framer->head[0] : 0;
        if (framer->header[SEQUENCE] == 0 && command == COM_QUIT) {
            client->leaving = true;
            return begin;
        }
        if (command == COM_QUERY || command == COM_PING)
            client->owed += client->pinned ? 0 : 1;
        else
            client->pinned = true;
        begin_message(framer);
    }
    /* Answers to other commands are not read: their client keeps its connection. */
    if (client->pinned)
        client->owed = 0;
    return count;
}

static void read_status(struct server *server, uint32_t status) {
    if (status & STATUS_MORE_RESULTS)
        die("a query has several results, which this program does not read");
    server->in_transaction = (status & STATUS_IN_TRANSACTION) != 0;
}

/* The bytes of a length-encoded number; those in an OK packet are short enough for `head`. */
static unsigned number_bytes(uint8_t first) {
    return first < 0xfb ? 1 : first == 0xfc ? 3 : first == 0xfd ? 4 : 9;
}

/* The status is behind the numbers of changed rows and of the last inserted row. */
static void read_ok(struct server *server) {
    const uint8_t *head = server->framer.head;
    unsigned at = 1 + number_bytes(head[1]);
    at += at < HEAD_BYTES ? number_bytes(head[at]) : HEAD_BYTES;
    if (at + 2 > HEAD_BYTES)
        die("an OK packet has numbers that this program does not read");
    read_status(server, load_le(head + at, 2));
}

/* Whether the packet completes the answer to a COM_QUERY or COM_PING. */
static bool completes(struct server *server) {
    const struct framer *framer = &server->framer;
    uint8_t first = framer->length > 0 ? framer->head[0] : 0;
    bool is_eof = first == PACKET_EOF && framer->length == EOF_BYTES;
    switch (server->answer) {
    case FIRST:
        if (first == LOCAL_INFILE)
            die("a client loads a local file, which this program does not support");
        if (first == PACKET_OK)
            read_ok(server);
        if (first == PACKET_OK || first == PACKET_ERR)
            return true;
        server->answer = COLUMN;
        return false;
    case COLUMN:
        if (is_eof)
            server->answer = ROW;
        return false;
    default:
        if (!is_eof && first != PACKET_ERR)
            return false;
        if (is_eof)
            read_status(server, load_le(framer->head + 3, 2));
        server->answer = FIRST;
        return true;
    }
}

/* Answers are only read where the pool must know their ends. Otherwise each receive counts as all that is owed. */
static bool reads_answers(const struct server *server) {
    if (server->dropping || server->resetting)
        return true;
    return policy != RESET_ALWAYS && server->client != NULL && !server->client->pinned;
}

static void read_reset(struct server *server) {
    if (server->framer.length == 0 || server->framer.head[0] != PACKET_OK)
        die("the server refuses a reset");
    server->in_transaction = false;
    server->dropping = false;
}

static struct answers read_answers(struct server *server, const uint8_t *bytes, size_t count) {
    struct framer *framer = &server->framer;
    struct answers answers = {0, server->dropping ? count : 0};
    size_t read = 0;
    while (read < count && reads_answers(server)) {
        read += next_message(framer, HEADER_BYTES, payload_bytes, bytes + read, count - read);
        if (!is_whole(framer, HEADER_BYTES))
            break;
        if (server->dropping) {
            read_reset(server);
            answers.drop = read;
        } else if (server->resetting) {
            read_reset(server);
            answers.complete++;
        } else {
            answers.complete += completes(server) ? 1 : 0;
        }
        begin_message(framer);
    }
    if (!reads_answers(server) && server->client != NULL)
        answers.complete = server->client->owed;
    return answers;
}

int main(int argc, char **argv) {
    run_relay(argc, argv, HELP);
}
