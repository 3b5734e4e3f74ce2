/*
 * The peer of `--workload connect` and `connect-query`: a bare loop on MariaDB Connector/C, the library most
 * MySQL-protocol clients stand on.
 *
 *   cc -O2 -pthread connect_libmariadb.c -o connect_libmariadb $(mariadb_config --cflags --libs)
 *
 * One operation = mysql_init, options, mysql_real_connect, with --query one `SELECT 1`, mysql_close. As in
 * every program that uses the library, each connection builds its own TLS context and loads the CA file
 * (`ctx=per-connect`).
 */
#include "peer.h"

#include <mysql.h>
#include <pthread.h>

static const char HELP[] =
    "Connects and closes in a loop through libmariadb; prints one JSON line.\n"
    "\n"
    "usage: connect_libmariadb (--port N | --socket PATH) --user U [options]\n"
    "\n"
    "  --host H            server address (127.0.0.1)\n"
    "  --port N            server port, TCP\n"
    "  --socket PATH       unix socket instead of TCP\n"
    "  --user U            user\n"
    "  --password-file F   file that holds the password (default: no password)\n"
    "  --database D        database to open (default: none)\n"
    "  --tls V             none, 1.2 or 1.3: enforced and verified (none)\n"
    "  --ca F              CA file, PEM\n"
    "  --query             run SELECT 1 on each connection\n"
    "  --clients N         threads (1)\n"
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
    {"tls", required_argument, NULL, OPT_TLS},
    {"ca", required_argument, NULL, OPT_CA},
    {"query", no_argument, NULL, OPT_QUERY},
    {"clients", required_argument, NULL, OPT_CLIENTS},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"warm-up", required_argument, NULL, OPT_WARM_UP},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

struct client {
    pthread_t thread;
    const struct peer_args *args;
    struct window window;
    struct latencies latencies;
    char suite[64]; /* of the last connection; empty: plain */
};

static const char *version_name(enum peer_tls tls) {
    return tls == TLS_1_2 ? "TLSv1.2" : "TLSv1.3";
}

static void must(MYSQL *mysql, const char *action, bool failed) {
    if (failed)
        die("%s: %s (%u)", action, mysql_error(mysql), mysql_errno(mysql));
}

static void set_options(MYSQL *mysql, const struct peer_args *args) {
    unsigned protocol = args->socket != NULL ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    must(mysql, "protocol", mysql_options(mysql, MYSQL_OPT_PROTOCOL, &protocol) != 0);
    if (args->tls == TLS_NONE)
        return;
    my_bool yes = 1;
    must(mysql, "CA", mysql_options(mysql, MYSQL_OPT_SSL_CA, args->ca) != 0);
    must(mysql, "verify", mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes) != 0);
    must(mysql, "enforce", mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &yes) != 0);
    must(mysql, "TLS version", mysql_options(mysql, MARIADB_OPT_TLS_VERSION, version_name(args->tls)) != 0);
}

/* A connection that is not what was asked for is not measured: it ends the run. Reads two pointers. */
static void check_negotiated(struct client *client, MYSQL *mysql) {
    enum peer_tls wanted = client->args->tls;
    const char *suite = mysql_get_ssl_cipher(mysql);
    if (wanted == TLS_NONE) {
        if (suite != NULL)
            die("TLS (%s) was negotiated; plain was asked for", suite);
        return;
    }
    const char *version = NULL;
    if (suite == NULL || mariadb_get_infov(mysql, MARIADB_CONNECTION_TLS_VERSION, &version) != 0 || version == NULL)
        die("no TLS was negotiated; %s was asked for", version_name(wanted));
    if (strcmp(version, version_name(wanted)) != 0)
        die("%s was negotiated; %s was asked for", version, version_name(wanted));
    if (client->suite[0] == '\0')
        snprintf(client->suite, sizeof client->suite, "%s", suite);
}

static void select_one(MYSQL *mysql) {
    must(mysql, "SELECT 1", mysql_real_query(mysql, "SELECT 1", 8) != 0);
    MYSQL_RES *result = mysql_store_result(mysql);
    must(mysql, "SELECT 1", result == NULL);
    if (mysql_num_rows(result) != 1)
        die("SELECT 1: not one row");
    mysql_free_result(result);
}

static void connect_once(struct client *client) {
    const struct peer_args *args = client->args;
    MYSQL *mysql = mysql_init(NULL);
    if (mysql == NULL)
        die("mysql_init: out of memory");
    set_options(mysql, args);
    const char *host = args->socket != NULL ? NULL : args->host;
    MYSQL *connected = mysql_real_connect(mysql, host, args->user, args->password, args->database,
                                          (unsigned)args->port, args->socket, 0);
    must(mysql, "connect", connected == NULL);
    check_negotiated(client, mysql);
    if (args->query)
        select_one(mysql);
    mysql_close(mysql);
}

static void *run_client(void *argument) {
    struct client *client = argument;
    mysql_thread_init();
    uint64_t started_ns = now_ns();
    while (started_ns < client->window.end_ns) {
        connect_once(client);
        uint64_t done_ns = now_ns();
        if (done_ns >= client->window.begin_ns && done_ns < client->window.end_ns)
            record_latency(&client->latencies, done_ns - started_ns);
        started_ns = done_ns;
    }
    mysql_thread_end();
    return NULL;
}

int main(int argc, char **argv) {
    struct peer_args args = {.host = "127.0.0.1", .seconds = 5, .warm_up = 1, .clients = 1};
    parse_args(&args, argc, argv, OPTIONS, HELP);
    start_watchdog(&args);
    /* Before any thread: it is not thread-safe. */
    if (mysql_library_init(0, NULL, NULL) != 0)
        die("mysql_library_init failed");
    struct client *clients = calloc((size_t)args.clients, sizeof *clients);
    if (clients == NULL)
        die("out of memory");

    struct outcome outcome = {.window = window_from_now(&args)};
    for (int i = 0; i < args.clients; i++) {
        clients[i].args = &args;
        clients[i].window = outcome.window;
        int error = pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
        if (error != 0)
            die("cannot start thread %d: %s", i + 1, strerror(error));
    }
    /* This thread only sleeps, so the process's CPU is the clients'. */
    sleep_until(outcome.window.begin_ns);
    outcome.before = cpu_now();
    sleep_until(outcome.window.end_ns);
    outcome.after = cpu_now();
    for (int i = 0; i < args.clients; i++)
        pthread_join(clients[i].thread, NULL);

    for (int i = 1; i < args.clients; i++)
        add_latencies(&clients[0].latencies, &clients[i].latencies);
    outcome.latencies = &clients[0].latencies;
    if (args.tls != TLS_NONE) {
        outcome.tls_version = version_name(args.tls);
        outcome.tls_suite = clients[0].suite;
    }
    print_outcome(&outcome);
    free(clients);
    return 0;
}
