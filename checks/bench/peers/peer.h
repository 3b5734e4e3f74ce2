/*
 * What the C peers of `make bench` share: arguments, clocks, a latency histogram, CPU accounting and the
 * one JSON line each prints. Header only, so that `cc -O2 checks/bench/peers/NAME.c` is the whole build.
 *
 * Include it first: it selects the feature macros.
 */
#ifndef CIPHERTOLL_PEER_H
#define CIPHERTOLL_PEER_H

#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
#define MAX_CLIENTS 16384
#define MAX_PASSWORD 256
/* A run may outlast its planned time by this much before it is called hung. */
#define GRACE_SECONDS 30

/* ---- Errors: one line on stderr, exit 1 (2 for the command line). ---- */

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    /* Other threads may be inside a library; its exit handlers must not run under them. */
    fflush(stderr);
    _exit(1);
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void usage_error(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, values);
    fputs(" (see --help)\n", stderr);
    va_end(values);
    exit(2);
}

/* ---- Arguments ---- */

enum peer_tls { TLS_NONE, TLS_1_2, TLS_1_3 };
enum peer_mode { MODE_EPOLL, MODE_THREADS };
enum peer_trigger { TRIGGER_EDGE, TRIGGER_LEVEL };
enum peer_protocol { PROTOCOL_POSTGRES, PROTOCOL_MARIADB };
enum peer_operation { OPERATION_CONNECT, OPERATION_CONNECT_QUERY, OPERATION_TEXT, OPERATION_PREPARED };
/* When a relay resets a pooled connection. */
enum reset_policy {
    RESET_NONE,
    RESET_ALWAYS, /* after its client has left */
    RESET_FIRST,  /* in front of the first command of the next client */
};

struct peer_args {
    const char *host;
    int port;
    const char *socket; /* NULL: TCP */
    const char *user;
    const char *database;
    const char *ca;
    const char *sql;
    enum peer_tls tls;
    double seconds;
    double warm_up;
    int clients;
    uint32_t rows;
    bool query;
    bool announce;
    const char *listen;
    int connections;
    enum peer_mode mode;
    enum peer_trigger trigger;
    enum peer_protocol protocol;
    enum peer_operation operation;
    enum reset_policy reset;
    bool read_ahead;
    char password[MAX_PASSWORD + 1];
};

/* The value getopt_long returns for each option; all programs share the names. */
enum peer_option {
    OPT_HOST = 256,
    OPT_PORT,
    OPT_SOCKET,
    OPT_USER,
    OPT_PASSWORD_FILE,
    OPT_CA,
    OPT_TLS,
    OPT_SECONDS,
    OPT_WARM_UP,
    OPT_CLIENTS,
    OPT_ROWS,
    OPT_DATABASE,
    OPT_QUERY,
    OPT_SQL,
    OPT_MODE,
    OPT_TRIGGER,
    OPT_READ_AHEAD,
    OPT_PROTOCOL,
    OPT_OPERATION,
    OPT_ANNOUNCE,
    OPT_LISTEN,
    OPT_CONNECTIONS,
    OPT_RESET,
    OPT_HELP,
};

static inline long long parse_whole(const char *name, const char *text, long long low, long long high) {
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high)
        usage_error("--%s %s: a whole number from %lld to %lld is wanted", name, text, low, high);
    return value;
}

static inline double parse_seconds(const char *name, const char *text, double low, double high) {
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    /* Written so that NaN fails too. */
    if (errno != 0 || end == text || *end != '\0' || !(value >= low && value <= high))
        usage_error("--%s %s: seconds from %g to %g are wanted", name, text, low, high);
    return value;
}

/* The position of `text` among `names`, which ends in NULL. */
static inline int parse_name(const char *name, const char *text, const char *const *names, const char *wanted) {
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    usage_error("--%s %s: one of %s is wanted", name, text, wanted);
}

/* From a file, never an argument: arguments are world-readable. One trailing newline is dropped. */
static inline void read_password(struct peer_args *args, const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        usage_error("--password-file %s: %s", path, strerror(errno));
    /* One byte more than a password may have, for its newline. */
    char bytes[MAX_PASSWORD + 2];
    size_t length = fread(bytes, 1, sizeof bytes, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        usage_error("--password-file %s: cannot be read", path);
    if (length > 0 && bytes[length - 1] == '\n')
        length--;
    if (length > MAX_PASSWORD || memchr(bytes, '\0', length) != NULL)
        usage_error("--password-file %s: at most %d bytes, none of them zero, are wanted", path, MAX_PASSWORD);
    memcpy(args->password, bytes, length);
    args->password[length] = '\0';
}

static inline void take_option(struct peer_args *args, int option, const char *value, const char *help) {
    static const char *const tls[] = {"none", "1.2", "1.3", NULL};
    static const char *const modes[] = {"epoll", "threads", NULL};
    static const char *const triggers[] = {"edge", "level", NULL};
    static const char *const switches[] = {"off", "on", NULL};
    static const char *const protocols[] = {"postgres", "mariadb", NULL};
    static const char *const operations[] = {"connect", "connect-query", "text", "prepared", NULL};
    static const char *const resets[] = {"none", "always", "first", NULL};
    switch (option) {
    case OPT_HOST: args->host = value; break;
    case OPT_PORT: args->port = (int)parse_whole("port", value, 1, 65535); break;
    case OPT_SOCKET: args->socket = value; break;
    case OPT_USER: args->user = value; break;
    case OPT_PASSWORD_FILE: read_password(args, value); break;
    case OPT_CA: args->ca = value; break;
    case OPT_TLS: args->tls = (enum peer_tls)parse_name("tls", value, tls, "none, 1.2, 1.3"); break;
    case OPT_SECONDS: args->seconds = parse_seconds("seconds", value, 0.1, 3600); break;
    case OPT_WARM_UP: args->warm_up = parse_seconds("warm-up", value, 0, 600); break;
    case OPT_CLIENTS: args->clients = (int)parse_whole("clients", value, 1, MAX_CLIENTS); break;
    case OPT_ROWS: args->rows = (uint32_t)parse_whole("rows", value, 1, INT32_MAX); break;
    case OPT_DATABASE: args->database = value; break;
    case OPT_QUERY: args->query = true; break;
    case OPT_SQL: args->sql = value; break;
    case OPT_MODE: args->mode = (enum peer_mode)parse_name("mode", value, modes, "epoll, threads"); break;
    case OPT_TRIGGER: args->trigger = (enum peer_trigger)parse_name("trigger", value, triggers, "edge, level"); break;
    case OPT_READ_AHEAD: args->read_ahead = parse_name("read-ahead", value, switches, "on, off") == 1; break;
    case OPT_PROTOCOL:
        args->protocol = (enum peer_protocol)parse_name("protocol", value, protocols, "postgres, mariadb");
        break;
    case OPT_OPERATION:
        args->operation = (enum peer_operation)parse_name("operation", value, operations,
                                                          "connect, connect-query, text, prepared");
        break;
    case OPT_ANNOUNCE: args->announce = true; break;
    case OPT_LISTEN: args->listen = value; break;
    case OPT_CONNECTIONS: args->connections = (int)parse_whole("connections", value, 1, 1024); break;
    case OPT_RESET: args->reset = (enum reset_policy)parse_name("reset", value, resets, "none, always, first"); break;
    case OPT_HELP:
        fputs(help, stdout);
        exit(0);
    default: usage_error("wrong arguments"); /* getopt_long has named the option */
    }
}

static inline void check_socket_path(const char *name, const char *path) {
    if (path != NULL && strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        usage_error("--%s: the path is longer than a unix socket's may be", name);
}

/* Parses into `args`, which holds the program's defaults; `options` lists what the program takes. */
static inline void parse_args(struct peer_args *args, int argc, char **argv, const struct option *options,
                              const char *help) {
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        take_option(args, option, optarg, help);
    if (optind < argc)
        usage_error("%s: no such argument", argv[optind]);
    if ((args->port == 0) == (args->socket == NULL))
        usage_error("exactly one of --port and --socket is wanted");
    check_socket_path("socket", args->socket);
    check_socket_path("listen", args->listen);
    if (args->socket != NULL && args->tls != TLS_NONE)
        usage_error("--tls is for TCP; a unix socket is measured plain");
    if (args->tls != TLS_NONE && args->ca == NULL)
        usage_error("--tls %s: --ca is wanted; the server's certificate is always verified",
                    args->tls == TLS_1_2 ? "1.2" : "1.3");
    if (args->user == NULL)
        usage_error("--user is wanted");
}

/* ---- Time ---- */

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline void sleep_until(uint64_t deadline_ns) {
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_S), .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR) {
    }
}

static inline void on_watchdog(int signal_number) {
    (void)signal_number;
    static const char message[] = "no end in sight: the server has stopped answering\n";
    ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(1);
}

/*
 * Bounds the whole run with one alarm. Time-outs on the sockets would change what is measured: libmariadb
 * takes its non-blocking path as soon as one is set.
 */
static inline void start_watchdog(const struct peer_args *args) {
    signal(SIGALRM, on_watchdog);
    signal(SIGPIPE, SIG_IGN);
    alarm((unsigned)(args->warm_up + args->seconds) + GRACE_SECONDS);
}

/* The measured window [begin, end): operations that complete inside it count. */
struct window {
    uint64_t begin_ns;
    uint64_t end_ns;
};

static inline struct window window_from_now(const struct peer_args *args) {
    uint64_t begin_ns = now_ns() + (uint64_t)(args->warm_up * (double)NS_PER_S);
    return (struct window){begin_ns, begin_ns + (uint64_t)(args->seconds * (double)NS_PER_S)};
}

/* ---- CPU of this process ---- */

struct cpu {
    double user_us;
    double system_us;
};

static inline struct cpu cpu_now(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct cpu){(double)usage.ru_utime.tv_sec * 1e6 + (double)usage.ru_utime.tv_usec,
                        (double)usage.ru_stime.tv_sec * 1e6 + (double)usage.ru_stime.tv_usec};
}

/* ---- Latencies: a log-linear histogram, within 0.8 % of the true value ---- */

#define SUB_BITS 6
#define SUB_BUCKETS (1U << SUB_BITS)
/* Values are clamped to 2^40 ns (18 minutes), far beyond the watchdog's patience for one operation. */
#define MAX_BITS 40
#define BUCKETS ((MAX_BITS - SUB_BITS + 1) * SUB_BUCKETS)

struct latencies {
    uint64_t count;
    uint64_t sum_ns; /* the mean is exact */
    uint64_t buckets[BUCKETS];
};

static inline void record_latency(struct latencies *latencies, uint64_t ns) {
    if (ns >= UINT64_C(1) << MAX_BITS)
        ns = (UINT64_C(1) << MAX_BITS) - 1;
    /* Below SUB_BUCKETS the value is its own bucket; above, SUB_BUCKETS equal steps per power of two. */
    unsigned shift = ns < SUB_BUCKETS ? 0 : (unsigned)(63 - __builtin_clzll(ns)) - SUB_BITS;
    uint64_t bucket = ns < SUB_BUCKETS ? ns : (uint64_t)shift * SUB_BUCKETS + (ns >> shift);
    latencies->buckets[bucket]++;
    latencies->count++;
    latencies->sum_ns += ns;
}

static inline void add_latencies(struct latencies *total, const struct latencies *more) {
    total->count += more->count;
    total->sum_ns += more->sum_ns;
    for (unsigned i = 0; i < BUCKETS; i++)
        total->buckets[i] += more->buckets[i];
}

/* The middle of the bucket that holds the quantile. */
static inline uint64_t quantile_ns(const struct latencies *latencies, double quantile) {
    uint64_t wanted = (uint64_t)(quantile * (double)latencies->count);
    uint64_t seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += latencies->buckets[i];
        if (seen <= wanted)
            continue;
        if (i < 2 * SUB_BUCKETS)
            return i;
        unsigned shift = i / SUB_BUCKETS - 1;
        uint64_t low = (uint64_t)(i - shift * SUB_BUCKETS) << shift;
        return low + (UINT64_C(1) << shift) / 2;
    }
    return 0;
}

/* ---- The one line on stdout ---- */

struct outcome {
    struct window window;
    struct cpu before;
    struct cpu after;
    const struct latencies *latencies;
    const char *tls_version; /* as negotiated; NULL: plain */
    const char *tls_suite;
};

static inline void print_outcome(const struct outcome *outcome) {
    const struct latencies *latencies = outcome->latencies;
    if (latencies->count == 0)
        die("no operation completed inside the window");
    double operations = (double)latencies->count;
    double seconds = (double)(outcome->window.end_ns - outcome->window.begin_ns) / (double)NS_PER_S;
    double user_us = outcome->after.user_us - outcome->before.user_us;
    double system_us = outcome->after.system_us - outcome->before.system_us;
    printf("{\"operations\":%" PRIu64 ",\"seconds\":%.6f,\"rate_per_s\":%.3f", latencies->count, seconds,
           operations / seconds);
    printf(",\"cpu_us_per_op\":%.4f,\"cpu_user_us_per_op\":%.4f,\"cpu_system_us_per_op\":%.4f",
           (user_us + system_us) / operations, user_us / operations, system_us / operations);
    printf(",\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64 ",\"mean_ns\":%.1f", quantile_ns(latencies, 0.50),
           quantile_ns(latencies, 0.99), (double)latencies->sum_ns / operations);
    if (outcome->tls_version != NULL)
        printf(",\"tls_version\":\"%s\",\"tls_suite\":\"%s\"", outcome->tls_version, outcome->tls_suite);
    puts("}");
    if (fflush(stdout) != 0)
        die("cannot write the result: %s", strerror(errno));
}

#endif
