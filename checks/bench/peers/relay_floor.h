/*
 * What the relay floors share: the least work that a pooling relay on one thread can do. Clients connect by a unix
 * socket and get a canned login; their commands go to pooled TLS 1.3 connections of a real server.
 *
 * A measuring instrument, not a proxy: it checks no password, all clients share one session state, it reads of the
 * protocol only what pooling needs, and it ends with a message at anything it does not expect.
 *
 * Three layers, each in a file of its own: relay_epoll.h moves bytes, this file pools, and
 * relay_floor_postgres.c or relay_floor_mariadb.c knows the protocol.
 */
#ifndef CIPHERTOLL_RELAY_FLOOR_H
#define CIPHERTOLL_RELAY_FLOOR_H

#include "connection.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/stat.h>

/* One receive. */
#define CHUNK_BYTES (32 << 10)
/* Plaintext of one receive, and of a record that began in the one before. */
#define PLAIN_BYTES (64 << 10)
/* Commands of one client, with a reset in front of them. */
#define COMMANDS_BYTES (48 << 10)
/* Records of one send. */
#define RECORDS_BYTES (64 << 10)
#define RESET_BYTES 512
/* The first bytes of a message, enough for whatever is read of one. */
#define HEAD_BYTES 16
#define GREETING_BYTES 4096

/* ---- Messages, which may come in pieces ---- */

struct framer {
    uint8_t header[8];
    uint8_t head[HEAD_BYTES];
    unsigned header_have;
    uint32_t length; /* of the payload */
    uint32_t have;   /* of the payload */
};

/* What a peer of the relay is, and its descriptor; first member of both. */
struct source {
    enum { LISTENER, CLIENT, SERVER } kind;
    int fd;
};

struct client {
    struct source source;
    struct framer framer;
    unsigned login; /* the protocol's state */
    unsigned owed;  /* answers that the server has not completed */
    bool leaving;
    bool pinned; /* its session has state: it keeps its connection */
    bool waiting;
    struct server *server; /* assigned now */
    struct server *last;
    size_t held_bytes; /* commands, while it waits for a connection */
    uint8_t *held;
    STAILQ_ENTRY(client) next; /* among those that wait, or those that are free */
};

struct server {
    struct source source;
    struct framer framer;
    SSL *ssl;
    struct client *client;
    struct client *owner; /* the last client, if it has not left */
    bool is_clean;        /* no client has used it since its reset */
    bool resetting;       /* no client is assigned: the answer to a reset is under way */
    bool dropping;        /* the answer to a reset comes before that to a command */
    bool in_transaction;
    unsigned answer; /* the protocol's state */
    const uint8_t *in; /* records that OpenSSL has not read yet */
    size_t in_bytes;
    uint8_t *out; /* records to be sent */
    size_t out_bytes;
    LIST_ENTRY(server) idle;
};

/* ---- What the protocol provides ---- */

/* Opens and logs in one connection, and leaves its descriptor and TLS session in `server`. */
static void open_server(struct server *server, const struct peer_args *args);
/* The server's first words to a client, if it speaks first. */
static void greet_client(struct client *client);
/* Answers what a client says before its first command. */
static void log_client_in(struct client *client, const uint8_t *bytes, size_t count);
static bool is_logged_in(const struct client *client);
/* Reads commands; updates owed, pinned and leaving. How many bytes to send on. */
static size_t read_commands(struct client *client, const uint8_t *bytes, size_t count);
/* Reads answers; updates in_transaction and dropping. How many answers are complete, and how many bytes to drop. */
struct answers {
    unsigned complete;
    size_t drop;
};
static struct answers read_answers(struct server *server, const uint8_t *bytes, size_t count);

struct bytes {
    const uint8_t *at;
    size_t count;
};
/* A reset with an answer of its own, and one in front of other commands. */
static struct bytes reset_command(void);
static struct bytes reset_prefix(void);

/* ---- What the mover of bytes provides ---- */

static void watch_client(struct client *client);
static void send_to_client(struct client *client, const uint8_t *bytes, size_t count);
/* Sends the records in `out`. */
static void send_to_server(struct server *server);
/* Closes its socket; calls forget_client when nothing more can come from it. */
static void close_client(struct client *client);
/* Room for PLAIN_BYTES; what `send_to_client` gets of it stays until it is sent. */
static uint8_t *plaintext_room(void);

/* ---- Framing ---- */

/*
 * Reads up to the end of a message. Returns the bytes that it took; the message is whole if `have` equals `length`
 * and the header is. `payload_bytes` reads the length from a header.
 */
static inline size_t next_message(struct framer *framer, unsigned header_bytes,
                                  uint32_t (*payload_bytes)(const uint8_t *header), const uint8_t *bytes,
                                  size_t count) {
    size_t taken = 0;
    while (framer->header_have < header_bytes && taken < count)
        framer->header[framer->header_have++] = bytes[taken++];
    if (framer->header_have < header_bytes)
        return taken;
    if (framer->have == 0)
        framer->length = payload_bytes(framer->header);
    uint32_t rest = framer->length - framer->have;
    uint32_t now = rest < count - taken ? rest : (uint32_t)(count - taken);
    if (framer->have < HEAD_BYTES) {
        uint32_t room = HEAD_BYTES - framer->have;
        memcpy(framer->head + framer->have, bytes + taken, now < room ? now : room);
    }
    framer->have += now;
    return taken + now;
}

static inline bool is_whole(const struct framer *framer, unsigned header_bytes) {
    return framer->header_have == header_bytes && framer->have == framer->length;
}

static inline void begin_message(struct framer *framer) {
    framer->header_have = 0;
    framer->have = 0;
}

/* ---- TLS: OpenSSL reads from `in` and writes to `out` of a server ---- */

static int bio_read(BIO *bio, char *to, int room) {
    struct server *server = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (server->in_bytes == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t count = server->in_bytes < (size_t)room ? server->in_bytes : (size_t)room;
    memcpy(to, server->in, count);
    server->in += count;
    server->in_bytes -= count;
    return (int)count;
}

static int bio_write(BIO *bio, const char *from, int count) {
    struct server *server = BIO_get_data(bio);
    if (server->out_bytes + (size_t)count > RECORDS_BYTES)
        die("more than %d bytes for the server at once", RECORDS_BYTES);
    memcpy(server->out + server->out_bytes, from, (size_t)count);
    server->out_bytes += (size_t)count;
    return count;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static void use_memory_for_tls(struct server *server) {
    static BIO_METHOD *method;
    if (method == NULL) {
        method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "relay");
        if (method == NULL || BIO_meth_set_read(method, bio_read) != 1 ||
            BIO_meth_set_write(method, bio_write) != 1 || BIO_meth_set_ctrl(method, bio_control) != 1)
            die_tls("TLS");
    }
    BIO *bio = BIO_new(method);
    server->out = malloc(RECORDS_BYTES);
    if (bio == NULL || server->out == NULL)
        die("out of memory");
    BIO_set_data(bio, server);
    BIO_set_init(bio, 1);
    SSL_set_read_ahead(server->ssl, 0);
    SSL_set_bio(server->ssl, bio, bio);
}

/* All these bytes in one record, if it can hold them. */
static inline void encrypt(struct server *server, const uint8_t *bytes, size_t count) {
    size_t written;
    if (SSL_write_ex(server->ssl, bytes, count, &written) != 1 || written != count)
        die_tls("send to the server");
}

/* Decrypts every whole record; OpenSSL keeps the start of another one. */
static inline size_t decrypt(struct server *server, const uint8_t *records, size_t count, uint8_t *plain) {
    server->in = records;
    server->in_bytes = count;
    size_t have = 0;
    while (server->in_bytes > 0) {
        size_t got = 0;
        if (SSL_read_ex(server->ssl, plain + have, PLAIN_BYTES - have, &got) != 1) {
            int error = SSL_get_error(server->ssl, 0);
            if (error != SSL_ERROR_WANT_READ)
                die_tls("receive from the server");
        }
        have += got;
        if (have == PLAIN_BYTES)
            die("more than %d bytes from the server at once", PLAIN_BYTES);
    }
    return have;
}

/* ---- The pool ---- */

static enum reset_policy policy;
static STAILQ_HEAD(, client) waiting = STAILQ_HEAD_INITIALIZER(waiting);
static STAILQ_HEAD(, client) free_clients = STAILQ_HEAD_INITIALIZER(free_clients);
/* Idle connections whose last client has left, and others; the last one used comes first. */
static LIST_HEAD(, server) unowned = LIST_HEAD_INITIALIZER(unowned);
static LIST_HEAD(, server) parked = LIST_HEAD_INITIALIZER(parked);

/* The client's last connection, or else one without an owner, or else that of another client. NULL: none is idle. */
static inline struct server *acquire(struct client *client) {
    struct server *server = client->last;
    if (server == NULL || server->owner != client)
        server = LIST_FIRST(&unowned);
    if (server == NULL)
        server = LIST_FIRST(&parked);
    if (server != NULL)
        LIST_REMOVE(server, idle);
    return server;
}

/* Assigns the connection and sends the client's commands, with a reset in front of them if the policy has one. */
static inline void assign(struct server *server, struct client *client, const uint8_t *bytes, size_t count) {
    static uint8_t commands[COMMANDS_BYTES];
    bool reset = policy == RESET_FIRST && server->owner != client && !server->is_clean;
    server->client = server->owner = client;
    server->is_clean = false;
    client->server = client->last = server;
    if (reset) {
        struct bytes prefix = reset_prefix();
        if (prefix.count + count > COMMANDS_BYTES)
            die("more than %d bytes of commands at once", COMMANDS_BYTES);
        memcpy(commands, prefix.at, prefix.count);
        memcpy(commands + prefix.count, bytes, count);
        bytes = commands;
        count += prefix.count;
        server->dropping = true;
    }
    encrypt(server, bytes, count);
    send_to_server(server);
}

/* The connection serves a client that waits, or becomes idle. */
static inline void give_back(struct server *server) {
    server->client = NULL;
    struct client *client = STAILQ_FIRST(&waiting);
    if (client != NULL) {
        STAILQ_REMOVE_HEAD(&waiting, next);
        client->waiting = false;
        assign(server, client, client->held, client->held_bytes);
        client->held_bytes = 0;
    } else if (server->owner != NULL) {
        LIST_INSERT_HEAD(&parked, server, idle);
    } else {
        LIST_INSERT_HEAD(&unowned, server, idle);
    }
}

static void hold(struct client *client, const uint8_t *bytes, size_t count) {
    if (client->held == NULL)
        client->held = malloc(COMMANDS_BYTES);
    if (client->held == NULL)
        die("out of memory");
    if (client->held_bytes + count > COMMANDS_BYTES - RESET_BYTES)
        die("a client that waits has sent more than %d bytes", COMMANDS_BYTES - RESET_BYTES);
    memcpy(client->held + client->held_bytes, bytes, count);
    client->held_bytes += count;
    if (!client->waiting)
        STAILQ_INSERT_TAIL(&waiting, client, next);
    client->waiting = true;
}

/* ---- Events ---- */

static inline void client_arrived(int fd) {
    struct client *client = STAILQ_FIRST(&free_clients);
    if (client != NULL)
        STAILQ_REMOVE_HEAD(&free_clients, next);
    else
        client = calloc(1, sizeof *client);
    if (client == NULL)
        die("out of memory");
    uint8_t *held = client->held;
    memset(client, 0, sizeof *client);
    client->held = held;
    client->source = (struct source){CLIENT, fd};
    greet_client(client);
    watch_client(client);
}

static void forget_client(struct client *client) {
    STAILQ_INSERT_HEAD(&free_clients, client, next);
}

/* The client of this connection has left. */
static inline void release(struct server *server, bool resets) {
    if (server->in_transaction)
        die("a client left within a transaction");
    server->client = server->owner = NULL;
    if (!resets) {
        give_back(server);
        return;
    }
    struct bytes command = reset_command();
    server->resetting = true;
    encrypt(server, command.at, command.count);
    send_to_server(server);
}

static inline void client_gone(struct client *client) {
    if (client->waiting)
        die("a client left while it waited for a connection");
    struct server *last = client->last;
    if (client->server == NULL && last != NULL && last->owner == client) {
        last->owner = NULL;
        LIST_REMOVE(last, idle);
        LIST_INSERT_HEAD(&unowned, last, idle);
    }
    /* The client first: it may wait for the end of its connection. */
    struct server *server = client->server;
    bool resets = policy == RESET_ALWAYS || client->pinned;
    if (client->owed > 0)
        die("a client left before the answer to its command");
    close_client(client);
    if (server != NULL)
        release(server, resets);
}

static inline void client_received(struct client *client, const uint8_t *bytes, size_t count) {
    if (!is_logged_in(client)) {
        log_client_in(client, bytes, count);
        return;
    }
    count = read_commands(client, bytes, count);
    struct server *server = client->server;
    if (count == 0) {
        /* It only takes its leave. */
    } else if (server != NULL) {
        encrypt(server, bytes, count);
        send_to_server(server);
    } else if (!client->waiting && (server = acquire(client)) != NULL) {
        assign(server, client, bytes, count);
    } else {
        hold(client, bytes, count);
    }
    if (client->leaving)
        client_gone(client);
}

static inline void server_received(struct server *server, const uint8_t *records, size_t record_bytes) {
    uint8_t *plain = plaintext_room();
    size_t count = decrypt(server, records, record_bytes, plain);
    if (count == 0)
        return;
    struct answers answers = read_answers(server, plain, count);
    if (server->resetting) {
        if (answers.complete == 0)
            return;
        server->resetting = false;
        server->is_clean = true;
        give_back(server);
        return;
    }
    struct client *client = server->client;
    if (client == NULL)
        die("the server says something to no client");
    if (count > answers.drop)
        send_to_client(client, plain + answers.drop, count - answers.drop);
    if (answers.complete > client->owed)
        die("the server answers more than it was asked");
    client->owed -= answers.complete;
    if (policy != RESET_ALWAYS && !client->pinned && client->owed == 0 && !server->in_transaction) {
        client->server = NULL;
        give_back(server);
    }
}

/* ---- Start ---- */

static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path)); /* its length was checked with the arguments */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, SOMAXCONN) != 0)
        die("listen at %s: %s", path, strerror(errno));
    return fd;
}

static const struct option RELAY_OPTIONS[] = {
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"reset", required_argument, NULL, OPT_RESET},
    {"connections", required_argument, NULL, OPT_CONNECTIONS},
    {"host", required_argument, NULL, OPT_HOST},
    {"port", required_argument, NULL, OPT_PORT},
    {"user", required_argument, NULL, OPT_USER},
    {"password-file", required_argument, NULL, OPT_PASSWORD_FILE},
    {"database", required_argument, NULL, OPT_DATABASE},
    {"tls", required_argument, NULL, OPT_TLS},
    {"ca", required_argument, NULL, OPT_CA},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

#define RELAY_HELP                                                                                         \
    "  --listen PATH       unix socket for clients\n"                                                      \
    "  --reset P           none; always: after each client; first: in front of the next client's commands\n" \
    "  --connections N     connections to the server (16)\n"                                               \
    "  --host H            server address (127.0.0.1)\n"                                                   \
    "  --port N            server port\n"                                                                  \
    "  --user U            user\n"                                                                         \
    "  --password-file F   file that holds the password (default: no password)\n"                          \
    "  --database D        database to open\n"                                                             \
    "  --tls V             1.2 or 1.3: verified\n"                                                         \
    "  --ca F              CA file, PEM\n"                                                                 \
    "  --help              this\n"

static void parse_relay_args(struct peer_args *args, int argc, char **argv, const char *help) {
    *args = (struct peer_args){.host = "127.0.0.1", .connections = 16, .clients = 1, .database = ""};
    parse_args(args, argc, argv, RELAY_OPTIONS, help);
    if (args->listen == NULL)
        usage_error("--listen is wanted");
    if (args->tls == TLS_NONE)
        usage_error("--tls is wanted: connections to the server are encrypted");
    policy = args->reset;
    signal(SIGPIPE, SIG_IGN);
    /* A benchmark that is killed leaves nothing behind. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static struct server *open_servers(const struct peer_args *args) {
    struct server *servers = calloc((size_t)args->connections, sizeof *servers);
    if (servers == NULL)
        die("out of memory");
    for (int i = 0; i < args->connections; i++) {
        open_server(&servers[i], args);
        int flags = fcntl(servers[i].source.fd, F_GETFL);
        if (flags < 0 || fcntl(servers[i].source.fd, F_SETFL, flags | O_NONBLOCK) != 0)
            die("cannot make the socket non-blocking: %s", strerror(errno));
        servers[i].source.kind = SERVER;
        servers[i].is_clean = true;
        use_memory_for_tls(&servers[i]);
        LIST_INSERT_HEAD(&unowned, &servers[i], idle);
    }
    return servers;
}

/* Tells the benchmark that clients may connect. */
static void announce_ready(void) {
    if (puts("ready") < 0 || fflush(stdout) != 0)
        die("cannot write to stdout: %s", strerror(errno));
}

#include "relay_epoll.h"

static void run_relay(int argc, char **argv, const char *help) {
    struct peer_args args;
    parse_relay_args(&args, argc, argv, help);
    struct server *servers = open_servers(&args);
    int listener = listen_at(args.listen);
    move_bytes(listener, servers, args.connections);
}

#endif
