/*
 * What the floors of `make bench` share: a connection, and the bare closed loop that sends a request encoded
 * beforehand, its key patched in place, and receives the reply without parsing it. The least client CPU that a
 * prepared select of one row can cost on this machine; a load generator is judged by how near it comes.
 *
 * The end of a reply is known by its length: every row's reply must be as long as the first. The includer
 * probes that before the clock starts, logs in, and defines store_id and is_error.
 */
#ifndef CIPHERTOLL_FLOOR_H
#define CIPHERTOLL_FLOOR_H

#include "connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Writes a key as the protocol has it. */
static void store_id(uint8_t *at, uint32_t id);
/* Whether what has come of a reply is the server's error. */
static bool is_error(const uint8_t *reply, size_t have);

/* Keys are uniform from 1 to `rows`; each connection, by its number, has keys of its own. */
static void seed_keys(struct connection *connection, uint32_t rows, uint64_t number) {
    connection->rows = rows;
    /* Any odd multiplier spreads the seeds; xorshift only forbids zero. */
    connection->random = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

/* ---- The loop: from here on every nanosecond counts ---- */

static void send_request(struct connection *connection, uint64_t now) {
    /* xorshift64 and a multiply-shift: uniform enough for ids, and two nanoseconds. */
    uint64_t random = connection->random;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    connection->random = random;
    uint32_t id = 1 + (uint32_t)(((random >> 32) * connection->rows) >> 32);
    store_id(connection->request + connection->id_offset, id);
    connection->have = 0;
    connection->sent_ns = now;
    send_all(connection, connection->request, connection->request_bytes);
}

/*
 * Receives what has come; whether the reply is whole now. An error packet, being shorter, ends the run here.
 * What OpenSSL holds already makes no event, so it is taken before anybody waits.
 */
static bool receive_reply(struct connection *connection) {
    do
        receive_some(connection);
    while (connection->ssl != NULL && connection->have < connection->reply_bytes && SSL_has_pending(connection->ssl));
    if (is_error(connection->buffer, connection->have))
        die("the server answered a query with an error");
    if (connection->have > connection->reply_bytes)
        die("a reply is longer than the first was");
    return connection->have == connection->reply_bytes;
}

/*
 * One clock reading per reply: the moment it is whole is also when the next request starts. False: the window
 * is over.
 */
static bool next_request(struct connection *connection, struct latencies *latencies, const struct window *window) {
    uint64_t now = now_ns();
    if (now >= window->end_ns)
        return false;
    if (now >= window->begin_ns)
        record_latency(latencies, now - connection->sent_ns);
    send_request(connection, now);
    return true;
}

struct worker {
    pthread_t thread;
    struct connection *connections;
    int count;
    bool edge;
    struct window window;
    struct latencies latencies;
};

/* Every connection in one thread. */
static void *run_epoll(void *argument) {
    struct worker *worker = argument;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        die("epoll: %s", strerror(errno));
    for (int i = 0; i < worker->count; i++) {
        /*
         * Edge-triggered the kernel need not put the socket back on the ready list and look again. The one
         * receive per event takes all there is, since the buffer is longer than any reply; should more follow,
         * that is a new edge.
         */
        struct epoll_event event = {.events = EPOLLIN | (worker->edge ? EPOLLET : 0),
                                    .data.ptr = &worker->connections[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, worker->connections[i].fd, &event) != 0)
            die("epoll: %s", strerror(errno));
        send_request(&worker->connections[i], now_ns());
    }
    struct epoll_event events[64];
    bool running = true;
    while (running) {
        int ready = epoll_wait(epoll, events, 64, -1);
        if (ready < 0 && errno != EINTR)
            die("epoll: %s", strerror(errno));
        for (int i = 0; i < ready && running; i++) {
            struct connection *connection = events[i].data.ptr;
            if (receive_reply(connection))
                running = next_request(connection, &worker->latencies, &worker->window);
        }
    }
    close(epoll);
    return NULL;
}

/* One connection in its own thread. */
static void *run_blocking(void *argument) {
    struct worker *worker = argument;
    struct connection *connection = worker->connections;
    send_request(connection, now_ns());
    do {
        while (!receive_reply(connection)) {
        }
    } while (next_request(connection, &worker->latencies, &worker->window));
    return NULL;
}

/* Runs the workers; this thread only sleeps and reads the process's CPU at both ends of the window. */
static void measure(struct worker *workers, int count, void *(*run)(void *), struct outcome *outcome) {
    for (int i = 0; i < count; i++) {
        workers[i].window = outcome->window;
        int error = pthread_create(&workers[i].thread, NULL, run, &workers[i]);
        if (error != 0)
            die("cannot start thread %d: %s", i + 1, strerror(error));
    }
    sleep_until(outcome->window.begin_ns);
    outcome->before = cpu_now();
    sleep_until(outcome->window.end_ns);
    outcome->after = cpu_now();
    for (int i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 1; i < count; i++)
        add_latencies(&workers[0].latencies, &workers[i].latencies);
    outcome->latencies = &workers[0].latencies;
}

/* Runs all connections, open and probed by now, and prints what came out. */
static void run_floor(struct connection *connections, const struct peer_args *args) {
    int worker_count = args->mode == MODE_EPOLL ? 1 : args->clients;
    struct worker *workers = calloc((size_t)worker_count, sizeof *workers);
    if (workers == NULL)
        die("out of memory");
    for (int i = 0; i < worker_count; i++) {
        workers[i].connections = &connections[i];
        workers[i].count = args->mode == MODE_EPOLL ? args->clients : 1;
        workers[i].edge = args->trigger == TRIGGER_EDGE;
    }
    struct outcome outcome = {.window = window_from_now(args)};
    measure(workers, worker_count, args->mode == MODE_EPOLL ? run_epoll : run_blocking, &outcome);
    if (connections[0].ssl != NULL) {
        outcome.tls_version = SSL_get_version(connections[0].ssl);
        outcome.tls_suite = SSL_get_cipher_name(connections[0].ssl);
    }
    print_outcome(&outcome);
    /* Replies may still be under way; the process's end closes the sockets. */
}

#endif
