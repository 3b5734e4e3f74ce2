/*
 * The client of `make bench-pools`: a closed loop on libpq or libmariadb, one thread per client.
 *
 *   cc -O2 -pthread pool_client.c -o pool_client $(mariadb_config --cflags --libs) $(pkg-config --cflags --libs libpq)
 *
 * One operation is a connect and a disconnect, the same with one `SELECT 1`, or one select of a row by key on a
 * connection that stays open, as text or prepared. Connections that stay open are opened before the window.
 */
#include "peer.h"

#include <libpq-fe.h>
#include <mysql.h>
#include <pthread.h>

static const char HELP[] =
    "A closed loop through libpq or libmariadb; prints one JSON line.\n"
    "\n"
    "usage: pool_client --protocol P --operation O (--port N | --socket PATH) --user U [options]\n"
    "\n"
    "  --protocol P        postgres or mariadb\n"
    "  --operation O       connect; connect-query: with SELECT 1; text, prepared: select by key on an open connection\n"
    "  --host H            server address (127.0.0.1)\n"
    "  --port N            server port, TCP\n"
    "  --socket PATH       unix socket instead of TCP; for PostgreSQL its name ends in a dot and the port\n"
    "  --user U            user\n"
    "  --password-file F   file that holds the password (default: no password)\n"
    "  --database D        database to open\n"
    "  --rows N            keys are uniform from 1 to N (10000)\n"
    "  --tls V             none, 1.2 or 1.3: enforced and verified (none)\n"
    "  --ca F              CA file, PEM\n"
    "  --clients N         threads (1)\n"
    "  --seconds S         measured time (5)\n"
    "  --warm-up W         time before it that does not count (1)\n"
    "  --announce          print the line \"opened\" at the start of the measured time, and \"closed\" at its end\n"
    "  --help              this\n";

static const struct option OPTIONS[] = {
    {"protocol", required_argument, NULL, OPT_PROTOCOL},
    {"operation", required_argument, NULL, OPT_OPERATION},
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
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"warm-up", required_argument, NULL, OPT_WARM_UP},
    {"announce", no_argument, NULL, OPT_ANNOUNCE},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

#define STACK_BYTES (256 << 10)
#define POSTGRES_SELECT "SELECT abalance FROM pgbench_accounts WHERE aid = "
#define MARIADB_SELECT "SELECT c FROM sbtest1 WHERE id="
#define POSTGRES_STATEMENT "s"
/* More than a value of `c`, which has 119 characters. */
#define VALUE_BYTES 256
#define SQL_BYTES 128

struct client {
    pthread_t thread;
    uint64_t random;
    struct latencies latencies;
    /* One of the two connections is open, according to the protocol. */
    PGconn *postgres;
    MYSQL *mariadb;
    MYSQL_STMT *statement;
    int id;
    char value[VALUE_BYTES];
    unsigned long value_bytes;
    char tls_version[16]; /* of the last connection; empty: plain */
    char tls_suite[64];
};

/* One library. Every function ends the process if it fails. */
struct driver {
    void (*open)(struct client *);
    void (*close)(struct client *);
    void (*prepare)(struct client *);
    void (*query)(struct client *, const char *sql);
    void (*execute)(struct client *);
    const char *select;
};

static struct peer_args args = {.host = "127.0.0.1", .seconds = 5, .warm_up = 1, .clients = 1, .rows = 10000};
static const struct driver *driver;
static struct window window;
/* All clients are connected; the window is known. */
static pthread_barrier_t connected, begun;

static const char *wanted_version(void) {
    return args.tls == TLS_1_2 ? "TLSv1.2" : "TLSv1.3";
}

/* A connection that is not as requested is not measured. */
static void check_negotiated(struct client *client, const char *version, const char *suite) {
    if (args.tls == TLS_NONE) {
        if (version != NULL)
            die("%s was negotiated; plain was asked for", version);
        return;
    }
    if (version == NULL || suite == NULL || strcmp(version, wanted_version()) != 0)
        die("%s was negotiated; %s was asked for", version == NULL ? "plain" : version, wanted_version());
    snprintf(client->tls_version, sizeof client->tls_version, "%s", version);
    snprintf(client->tls_suite, sizeof client->tls_suite, "%s", suite);
}

/* ---- libpq ---- */

/* Directory and port of the socket: `DIRECTORY/.s.PGSQL.PORT`. */
static char socket_directory[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
static char port_text[16];

static void split_address(void) {
    snprintf(port_text, sizeof port_text, "%d", args.port);
    if (args.socket == NULL)
        return;
    const char *slash = strrchr(args.socket, '/'), *dot = strrchr(args.socket, '.');
    if (slash == NULL || dot == NULL || dot < slash)
        usage_error("--socket: a path that ends in .s.PGSQL.PORT is wanted");
    snprintf(socket_directory, sizeof socket_directory, "%.*s", (int)(slash - args.socket), args.socket);
    snprintf(port_text, sizeof port_text, "%s", dot + 1);
}

static void postgres_open(struct client *client) {
    const char *const names[] = {"host", "port", "user", "password", "dbname", "gssencmode", "sslmode",
                                 /* from here on for TLS only */
                                 "sslrootcert", "ssl_min_protocol_version", "ssl_max_protocol_version", NULL};
    const char *const values[] = {args.socket != NULL ? socket_directory : args.host, port_text, args.user,
                                  args.password, args.database, "disable",
                                  args.tls == TLS_NONE ? "disable" : "verify-full", args.ca, wanted_version(),
                                  wanted_version(), NULL};
    client->postgres = PQconnectdbParams(names, values, 0);
    if (PQstatus(client->postgres) != CONNECTION_OK)
        die("connect: %s", PQerrorMessage(client->postgres));
    bool encrypted = PQsslInUse(client->postgres) != 0;
    check_negotiated(client, encrypted ? PQsslAttribute(client->postgres, "protocol") : NULL,
                     encrypted ? PQsslAttribute(client->postgres, "cipher") : NULL);
}

static void postgres_close(struct client *client) {
    PQfinish(client->postgres);
}

static void postgres_expect(struct client *client, PGresult *result, ExecStatusType status, int rows) {
    if (PQresultStatus(result) != status)
        die("query: %s", PQerrorMessage(client->postgres));
    if (PQntuples(result) != rows)
        die("query: %d rows; check --rows", PQntuples(result));
    PQclear(result);
}

static void postgres_prepare(struct client *client) {
    PGresult *result = PQprepare(client->postgres, POSTGRES_STATEMENT, POSTGRES_SELECT "$1", 0, NULL);
    postgres_expect(client, result, PGRES_COMMAND_OK, 0);
}

static void postgres_query(struct client *client, const char *sql) {
    postgres_expect(client, PQexec(client->postgres, sql), PGRES_TUPLES_OK, 1);
}

static void postgres_execute(struct client *client) {
    char id[16];
    snprintf(id, sizeof id, "%d", client->id);
    const char *const values[] = {id};
    PGresult *result = PQexecPrepared(client->postgres, POSTGRES_STATEMENT, 1, values, NULL, NULL, 0);
    postgres_expect(client, result, PGRES_TUPLES_OK, 1);
}

static const struct driver POSTGRES = {postgres_open,  postgres_close,   postgres_prepare,
                                       postgres_query, postgres_execute, POSTGRES_SELECT};

/* ---- libmariadb ---- */

static void must(struct client *client, const char *action, bool failed) {
    if (failed)
        die("%s: %s (%u)", action, mysql_error(client->mariadb), mysql_errno(client->mariadb));
}

static void set_options(struct client *client) {
    MYSQL *mysql = client->mariadb;
    unsigned protocol = args.socket != NULL ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    must(client, "protocol", mysql_options(mysql, MYSQL_OPT_PROTOCOL, &protocol) != 0);
    if (args.tls == TLS_NONE)
        return;
    my_bool yes = 1;
    must(client, "CA", mysql_options(mysql, MYSQL_OPT_SSL_CA, args.ca) != 0);
    must(client, "verify", mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes) != 0);
    must(client, "enforce", mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &yes) != 0);
    must(client, "TLS version", mysql_options(mysql, MARIADB_OPT_TLS_VERSION, wanted_version()) != 0);
}

static void mariadb_open(struct client *client) {
    client->mariadb = mysql_init(NULL);
    if (client->mariadb == NULL)
        die("mysql_init: out of memory");
    set_options(client);
    const char *host = args.socket != NULL ? NULL : args.host;
    MYSQL *opened = mysql_real_connect(client->mariadb, host, args.user, args.password, args.database,
                                       (unsigned)args.port, args.socket, 0);
    must(client, "connect", opened == NULL);
    const char *suite = mysql_get_ssl_cipher(client->mariadb), *version = NULL;
    if (suite != NULL)
        must(client, "TLS version",
             mariadb_get_infov(client->mariadb, MARIADB_CONNECTION_TLS_VERSION, &version) != 0);
    check_negotiated(client, version, suite);
}

static void mariadb_close(struct client *client) {
    if (client->statement != NULL)
        mysql_stmt_close(client->statement);
    client->statement = NULL;
    mysql_close(client->mariadb);
}

static void must_statement(struct client *client, const char *action, bool failed) {
    if (failed)
        die("%s: %s; check --rows", action, mysql_stmt_error(client->statement));
}

static void mariadb_prepare(struct client *client) {
    static const char sql[] = MARIADB_SELECT "?";
    client->statement = mysql_stmt_init(client->mariadb);
    must(client, "statement", client->statement == NULL);
    must_statement(client, "prepare", mysql_stmt_prepare(client->statement, sql, sizeof sql - 1) != 0);
    MYSQL_BIND id = {.buffer_type = MYSQL_TYPE_LONG, .buffer = &client->id};
    MYSQL_BIND value = {.buffer_type = MYSQL_TYPE_STRING,
                        .buffer = client->value,
                        .buffer_length = VALUE_BYTES,
                        .length = &client->value_bytes};
    must_statement(client, "bind", mysql_stmt_bind_param(client->statement, &id) != 0);
    must_statement(client, "bind", mysql_stmt_bind_result(client->statement, &value) != 0);
}

static void mariadb_query(struct client *client, const char *sql) {
    must(client, "query", mysql_real_query(client->mariadb, sql, strlen(sql)) != 0);
    MYSQL_RES *result = mysql_store_result(client->mariadb);
    must(client, "query", result == NULL);
    if (mysql_num_rows(result) != 1)
        die("query: not one row; check --rows");
    mysql_free_result(result);
}

static void mariadb_execute(struct client *client) {
    MYSQL_STMT *statement = client->statement;
    must_statement(client, "execute", mysql_stmt_execute(statement) != 0);
    must_statement(client, "result", mysql_stmt_store_result(statement) != 0);
    must_statement(client, "row", mysql_stmt_fetch(statement) != 0);
    must_statement(client, "free", mysql_stmt_free_result(statement) != 0);
}

static const struct driver MARIADB = {mariadb_open,  mariadb_close,   mariadb_prepare,
                                      mariadb_query, mariadb_execute, MARIADB_SELECT};

/* ---- The loop ---- */

/* xorshift64 and a multiply-shift, which is uniform enough for keys. */
static int next_id(struct client *client) {
    uint64_t random = client->random;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    client->random = random;
    return 1 + (int)(((random >> 32) * args.rows) >> 32);
}

static void operate(struct client *client) {
    switch (args.operation) {
    case OPERATION_CONNECT:
        driver->open(client);
        driver->close(client);
        break;
    case OPERATION_CONNECT_QUERY:
        driver->open(client);
        driver->query(client, "SELECT 1");
        driver->close(client);
        break;
    case OPERATION_TEXT: {
        char sql[SQL_BYTES];
        snprintf(sql, sizeof sql, "%s%d", driver->select, next_id(client));
        driver->query(client, sql);
        break;
    }
    case OPERATION_PREPARED:
        client->id = next_id(client);
        driver->execute(client);
        break;
    }
}

static void *run_client(void *argument) {
    struct client *client = argument;
    bool keeps = args.operation == OPERATION_TEXT || args.operation == OPERATION_PREPARED;
    mysql_thread_init();
    if (keeps)
        driver->open(client);
    if (args.operation == OPERATION_PREPARED)
        driver->prepare(client);
    pthread_barrier_wait(&connected);
    pthread_barrier_wait(&begun);
    uint64_t started_ns = now_ns();
    while (started_ns < window.end_ns) {
        operate(client);
        uint64_t done_ns = now_ns();
        if (done_ns >= window.begin_ns && done_ns < window.end_ns)
            record_latency(&client->latencies, done_ns - started_ns);
        started_ns = done_ns;
    }
    if (keeps)
        driver->close(client);
    mysql_thread_end();
    return NULL;
}

static void announce(const char *line) {
    if (args.announce && (puts(line) < 0 || fflush(stdout) != 0))
        die("cannot write to stdout: %s", strerror(errno));
}

static void start_clients(struct client *clients) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&connected, NULL, (unsigned)args.clients + 1);
    pthread_barrier_init(&begun, NULL, (unsigned)args.clients + 1);
    for (int i = 0; i < args.clients; i++) {
        /* Any odd multiplier spreads the seeds; xorshift only forbids zero. */
        clients[i].random = (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        int error = pthread_create(&clients[i].thread, &attributes, run_client, &clients[i]);
        if (error != 0)
            die("cannot start thread %d: %s", i + 1, strerror(error));
    }
    pthread_attr_destroy(&attributes);
}

int main(int argc, char **argv) {
    parse_args(&args, argc, argv, OPTIONS, HELP);
    driver = args.protocol == PROTOCOL_POSTGRES ? &POSTGRES : &MARIADB;
    if (args.protocol == PROTOCOL_POSTGRES)
        split_address();
    start_watchdog(&args);
    /* Before any thread: it is not thread-safe. */
    if (mysql_library_init(0, NULL, NULL) != 0)
        die("mysql_library_init failed");
    struct client *clients = calloc((size_t)args.clients, sizeof *clients);
    if (clients == NULL)
        die("out of memory");
    start_clients(clients);
    pthread_barrier_wait(&connected);
    window = window_from_now(&args);
    pthread_barrier_wait(&begun);

    /* This thread only sleeps, so the CPU time of the process is that of the clients. */
    struct outcome outcome = {.window = window};
    sleep_until(window.begin_ns);
    outcome.before = cpu_now();
    announce("opened");
    sleep_until(window.end_ns);
    outcome.after = cpu_now();
    announce("closed");
    for (int i = 0; i < args.clients; i++)
        pthread_join(clients[i].thread, NULL);
    for (int i = 1; i < args.clients; i++)
        add_latencies(&clients[0].latencies, &clients[i].latencies);
    outcome.latencies = &clients[0].latencies;
    if (args.tls != TLS_NONE) {
        outcome.tls_version = clients[0].tls_version;
        outcome.tls_suite = clients[0].tls_suite;
    }
    print_outcome(&outcome);
    free(clients);
    return 0;
}
