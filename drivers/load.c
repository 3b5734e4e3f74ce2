/*
 * Generates the load: one thread per client, because the libraries block; a common measurement window; and the messages
 * with the results. The protocol is described in docs/measure/drivers.md.
 */
#define _GNU_SOURCE
#include "load.h"

#include "draw.h"
#include "message.h"
#include "spec.h"

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    MAX_MESSAGES = 16,
    MAX_LEGS = 8,
    SAMPLES_PER_CHUNK = 8 << 10,
    SAMPLES_PER_MESSAGE = 100000,
    MAX_SAMPLES = 20 * 1000 * 1000,
    SET_UP_SECONDS = 20,
    START_DELAY_NS = 1000000,
    SOURCES_PER_CLIENT = 16,
    ADDRESS_CHARS = 16,
};
static const int64_t NS_PER_S = 1000000000;

static const struct spec *spec; /* written before any thread */

struct chunk {
    struct chunk *next;
    size_t count;
    uint64_t latency_ns[SAMPLES_PER_CHUNK];
};

struct counted_message {
    char text[MESSAGE_CHARS];
    uint64_t count;
};

struct counted_leg {
    struct agreed agreed;
    uint64_t connections;
};

struct client {
    pthread_t thread;
    unsigned number, connects;
    uint64_t random;
    struct connection *connection;
    struct value values[MAX_VARIABLES];
    struct chunk *first_chunk, *last_chunk;
    uint64_t samples, by_half[2], statements, retries;
    /* Of the current operation. */
    uint64_t pending_statements, pending_retries;
    struct counted_message messages[MAX_MESSAGES];
    struct counted_leg legs[MAX_LEGS];
    unsigned message_count, leg_count;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned ready, ended;
    bool has_failed, is_open;
    struct failure failure;
    int64_t opens, middle, closes; /* written before `is_open` */
} line = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- time ---- */

static int64_t now_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * NS_PER_S + time.tv_nsec;
}

static int64_t now(void) { return now_ns(CLOCK_MONOTONIC); }

/* ---- results of a client ---- */

static void note_error(struct client *client, const struct failure *failure) {
    unsigned i = 0;
    while (i < client->message_count && strcmp(client->messages[i].text, failure->message) != 0) i++;
    if (i == MAX_MESSAGES) return;
    if (i == client->message_count) {
        client->message_count++;
        snprintf(client->messages[i].text, sizeof client->messages[i].text, "%s", failure->message);
    }
    client->messages[i].count++;
}

/* Translates names of the libraries to names of the record. */
static void settle(struct agreed *agreed) {
    if (strcmp(agreed->tls_version, "TLSv1.3") == 0) strcpy(agreed->tls_version, "tls1.3");
    if (strcmp(agreed->tls_version, "TLSv1.2") == 0) strcpy(agreed->tls_version, "tls1.2");
    agreed->library[strcspn(agreed->library, " ")] = '\0';
    for (char *at = agreed->library; *at; at++)
        if (*at >= 'A' && *at <= 'Z') *at = (char)(*at - 'A' + 'a');
}

static void note_leg(struct client *client) {
    struct agreed agreed = {0};
    driver_agreed(client->connection, &agreed);
    settle(&agreed);
    unsigned i = 0;
    while (i < client->leg_count && memcmp(&client->legs[i].agreed, &agreed, sizeof agreed) != 0) i++;
    if (i == MAX_LEGS) return;
    if (i == client->leg_count) client->legs[client->leg_count++].agreed = agreed;
    client->legs[i].connections++;
}

/* Counts an operation, if it ended in the window. */
static int note_operation(struct client *client, int64_t ended, int64_t took_ns, struct failure *failure) {
    const uint64_t statements = client->pending_statements, retries = client->pending_retries;
    client->pending_statements = client->pending_retries = 0;
    if (ended < line.opens || ended >= line.closes) return 0;
    if (client->samples >= MAX_SAMPLES / spec->clients) {
        fail(failure, FAULT_INTERNAL, "", "more than 20 million operations in the window: choose a shorter window");
        return -1;
    }
    struct chunk *chunk = client->last_chunk;
    if (!chunk || chunk->count == SAMPLES_PER_CHUNK) {
        struct chunk *fresh = malloc(sizeof *fresh);
        if (!fresh) {
            fail(failure, FAULT_HOST, "", "out of memory");
            return -1;
        }
        fresh->next = NULL;
        fresh->count = 0;
        if (chunk) chunk->next = fresh;
        else client->first_chunk = fresh;
        client->last_chunk = chunk = fresh;
    }
    chunk->latency_ns[chunk->count++] = (uint64_t)took_ns;
    client->samples++;
    client->by_half[ended >= line.middle]++;
    client->statements += statements;
    client->retries += retries;
    return 0;
}

/* ---- operations ---- */

/* Inserts numbers at the placeholders. */
static int do_text(struct client *client, const struct step *step, uint64_t *bytes, struct failure *failure) {
    const struct script_statement *statement = &spec->statements[step->statement];
    char sql[MAX_SQL_CHARS];
    size_t length = 0;
    if (step->count == 0) return driver_text(client->connection, statement->plain.sql, bytes, failure);
    for (unsigned i = 0; i < statement->piece_count; i++) {
        memcpy(sql + length, statement->pieces[i].text, statement->pieces[i].bytes);
        length += statement->pieces[i].bytes;
        if (i + 1 == statement->piece_count) break;
        const struct value *value = &client->values[step->parameters[statement->pieces[i].parameter]];
        memcpy(sql + length, value->text, value->text_bytes);
        length += value->text_bytes;
    }
    sql[length] = '\0';
    return driver_text(client->connection, sql, bytes, failure);
}

static int do_step(struct client *client, const struct step *step, struct failure *failure) {
    const struct value *values[MAX_PARAMETERS];
    uint64_t counted = 0, *bytes = spec->min_row_bytes > 0 ? &counted : NULL;
    int status;
    if (!spec->statements[step->statement].prepared) {
        status = do_text(client, step, bytes, failure);
    } else {
        for (unsigned i = 0; i < step->count; i++) values[i] = &client->values[step->parameters[i]];
        status = driver_execute(client->connection, step->statement, values, step->count, bytes, failure);
    }
    if (status != 0 || counted >= spec->min_row_bytes) return status;
    fail(failure, FAULT_SERVER, "", "a response is too short: a value is truncated or NULL");
    return -1;
}

static bool is_worth_a_retry(const struct failure *failure) {
    for (unsigned i = 0; i < spec->retry_count; i++)
        if (strcmp(spec->retry_on[i], failure->code) == 0) return true;
    return false;
}

/* Runs the steps; starts again with the same variables after the errors that the script lists. */
static int transact(struct client *client, struct failure *failure) {
    for (unsigned i = 0; i < spec->step_count; i++) {
        if (do_step(client, &spec->steps[i], failure) == 0) {
            client->pending_statements++;
            continue;
        }
        if (!is_worth_a_retry(failure) || now() >= line.closes) return -1;
        if (driver_text(client->connection, "ROLLBACK", NULL, failure) != 0) return -1;
        client->pending_retries++;
        i = UINT32_MAX; /* the next step is the first */
    }
    return 0;
}

static int transaction(struct client *client, struct failure *failure) {
    draw_variables(spec->variables, spec->variable_count, &client->random, client->values);
    const int64_t began = now();
    if (transact(client, failure) != 0) {
        /* An operation that would restart after the window is not counted. */
        return is_worth_a_retry(failure) && now() >= line.closes ? 0 : -1;
    }
    const int64_t ended = now();
    return note_operation(client, ended, ended - began, failure);
}

/* On loopback each client cycles through its own source addresses, so that connects do not run out of ports. */
static struct connection *connect_client(struct client *client, struct failure *failure) {
    const struct trial *trial = &spec->trial;
    char source[ADDRESS_CHARS];
    if (!trial->host || strncmp(trial->host, "127.", 4) != 0) return driver_connect(trial, NULL, failure);
    const unsigned address = client->number * SOURCES_PER_CLIENT + client->connects++ % SOURCES_PER_CLIENT;
    snprintf(source, sizeof source, "127.2.%u.%u", (address / 250) % 256, address % 250 + 1);
    return driver_connect(trial, source, failure);
}

static int churn(struct client *client, struct failure *failure) {
    draw_variables(spec->variables, spec->variable_count, &client->random, client->values);
    int64_t began = now();
    client->connection = connect_client(client, failure);
    if (!client->connection) return -1;
    note_leg(client);
    int64_t ended = 0;
    int status = 0;
    if (spec->work == FIRST_QUERY) began = now();
    if (spec->work != CONNECT) status = do_step(client, &spec->steps[0], failure);
    if (spec->work == FIRST_QUERY) ended = now();
    driver_close(client->connection);
    client->connection = NULL;
    if (status != 0) return -1;
    if (spec->work != FIRST_QUERY) ended = now();
    return note_operation(client, ended, ended - began, failure);
}

static int set_up(struct client *client, struct failure *failure) {
    client->connection = connect_client(client, failure);
    if (!client->connection) return -1;
    note_leg(client);
    for (unsigned i = 0; i < spec->statement_count; i++) {
        const struct script_statement *statement = &spec->statements[i];
        if (statement->prepared && driver_prepare(client->connection, i, &statement->plain, failure) != 0) return -1;
    }
    return 0;
}

/* ---- threads and the window ---- */

/* Reports that a client is ready or has failed; waits for the window. */
static bool line_up(int status, const struct failure *failure) {
    pthread_mutex_lock(&line.mutex);
    line.ready++;
    if (status != 0 && !line.has_failed) {
        line.has_failed = true;
        line.failure = *failure;
    }
    pthread_cond_broadcast(&line.changed);
    while (!line.is_open) pthread_cond_wait(&line.changed, &line.mutex);
    pthread_mutex_unlock(&line.mutex);
    return status == 0;
}

static void *run_client(void *argument) {
    struct client *client = argument;
    struct failure failure = {0};
    const bool pooled = spec->work == TRANSACTIONS;
    int status = pooled ? set_up(client, &failure) : 0;
    if (line_up(status, &failure)) {
        while (status == 0 && now() < line.closes)
            status = pooled ? transaction(client, &failure) : churn(client, &failure);
        if (status != 0) note_error(client, &failure);
    }
    pthread_mutex_lock(&line.mutex);
    line.ended++;
    pthread_cond_broadcast(&line.changed);
    pthread_mutex_unlock(&line.mutex);
    if (client->connection) driver_close(client->connection);
    return NULL;
}

static void wait_until(int64_t moment, const unsigned *count, unsigned enough) {
    struct timespec until = {.tv_sec = moment / NS_PER_S, .tv_nsec = moment % NS_PER_S};
    pthread_mutex_lock(&line.mutex);
    while (*count < enough && now() < moment) pthread_cond_timedwait(&line.changed, &line.mutex, &until);
    pthread_mutex_unlock(&line.mutex);
}

static void start_clients(struct client *clients) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&line.changed, &monotonic);
    for (unsigned i = 0; i < spec->clients; i++) {
        uint64_t seed = spec->seed + i;
        clients[i].number = i;
        clients[i].random = next_random(&seed);
        int error = pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
        if (error != 0) die(FAULT_HOST, "cannot start a thread: %s", strerror(error));
    }
    wait_until(now() + SET_UP_SECONDS * NS_PER_S, &line.ready, spec->clients);
    pthread_mutex_lock(&line.mutex);
    if (line.has_failed) send_failed(&line.failure);
    if (line.ready < spec->clients)
        die(FAULT_SERVER, "%u of %u clients were not connected after %d s", spec->clients - line.ready, spec->clients,
            SET_UP_SECONDS);
    line.opens = now() + START_DELAY_NS + spec->warm_up_ns;
    line.middle = line.opens + spec->window_ns / 2;
    line.closes = line.opens + spec->window_ns;
    line.is_open = true;
    pthread_cond_broadcast(&line.changed);
    pthread_mutex_unlock(&line.mutex);
}

/* CPU time of the process in the window. The readings may be slightly late on a busy machine. */
static uint64_t measure(void) {
    wait_until(line.opens, &line.ended, spec->clients);
    const int64_t opened = now(), cpu_at_open = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    send_json(json_pack("{s:s}", "message", "window_opened"));
    wait_until(line.closes, &line.ended, spec->clients);
    const int64_t closed = now(), cpu_at_close = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    send_json(json_pack("{s:s}", "message", "window_closed"));
    const double stretch = (double)spec->window_ns / (double)(closed - opened > 0 ? closed - opened : 1);
    return (uint64_t)((double)(cpu_at_close - cpu_at_open) * (stretch < 1 ? stretch : 1));
}

/* ---- the result ---- */

/* Peak resident memory. The maximum of getrusage includes the process that forked this one. */
static uint64_t rss_peak_bytes(void) {
    char text[256];
    unsigned long long kibibytes = 0;
    FILE *status = fopen("/proc/self/status", "re");
    if (!status) return 0;
    while (fgets(text, sizeof text, status))
        if (sscanf(text, "VmHWM: %llu", &kibibytes) == 1) break;
    fclose(status);
    return kibibytes << 10;
}

/* Written by hand: a JSON library would allocate each number. */
static void send_samples(const struct client *clients) {
    unsigned in_message = 0;
    for (unsigned i = 0; i < spec->clients; i++) {
        for (const struct chunk *chunk = clients[i].first_chunk; chunk; chunk = chunk->next) {
            for (size_t at = 0; at < chunk->count; at++) {
                fputs(in_message == 0 ? "{\"message\":\"samples\",\"body\":{\"latency_ns\":[" : ",", stdout);
                printf("%llu", (unsigned long long)chunk->latency_ns[at]);
                if (++in_message == SAMPLES_PER_MESSAGE) {
                    fputs("]}}\n", stdout);
                    in_message = 0;
                }
            }
        }
    }
    if (in_message > 0) fputs("]}}\n", stdout);
}

/* Adds `count` to the entry of `list` that equals `entry` except for its count. */
static void add_counted(json_t *list, const char *counter, json_t *entry, uint64_t count) {
    size_t index;
    json_t *known;
    json_array_foreach(list, index, known) {
        json_t *before = json_incref(json_object_get(known, counter));
        json_object_set(entry, counter, before);
        bool same = json_equal(known, entry);
        if (same) json_object_set_new(known, counter, json_integer(json_integer_value(before) + (json_int_t)count));
        json_decref(before);
        if (same) {
            json_decref(entry);
            return;
        }
    }
    json_object_set_new(entry, counter, json_integer((json_int_t)count));
    json_array_append_new(list, entry);
}

static json_t *json_leg(const struct agreed *agreed) {
    json_t *leg = json_pack("{s:s, s:s}", "from", "client", "to", "server");
    if (*agreed->tls_version) json_object_set_new(leg, "tls_version", json_text(agreed->tls_version));
    if (*agreed->suite) json_object_set_new(leg, "suite", json_text(agreed->suite));
    if (*agreed->library) json_object_set_new(leg, "library", json_text(agreed->library));
    return json_pack("{s:o}", "leg", leg);
}

static void send_finished(const struct client *clients, uint64_t cpu_ns) {
    json_t *errors = json_array(), *legs = json_array();
    uint64_t by_half[2] = {0, 0}, statements = 0, retries = 0;
    for (const struct client *client = clients; client < clients + spec->clients; client++) {
        for (int half = 0; half < 2; half++) by_half[half] += client->by_half[half];
        statements += client->statements;
        retries += client->retries;
        for (unsigned i = 0; i < client->leg_count; i++)
            add_counted(legs, "connections", json_leg(&client->legs[i].agreed), client->legs[i].connections);
        for (unsigned i = 0; i < client->message_count && json_array_size(errors) < MAX_MESSAGES; i++) {
            json_t *error = json_pack("{s:o}", "message", json_text(client->messages[i].text));
            add_counted(errors, "count", error, client->messages[i].count);
        }
    }
    json_t *body = json_pack("{s:I, s:[I,I], s:I, s:I, s:o, s:o, s:I, s:I}", "operations",
                             (json_int_t)(by_half[0] + by_half[1]), "operations_by_half", (json_int_t)by_half[0],
                             (json_int_t)by_half[1], "retries", (json_int_t)retries, "window_ns",
                             (json_int_t)spec->window_ns, "errors", errors, "legs", legs, "client_cpu_ns",
                             (json_int_t)cpu_ns, "client_rss_peak_bytes", (json_int_t)rss_peak_bytes());
    if (spec->work == TRANSACTIONS && spec->step_count > 1)
        json_object_set_new(body, "statements", json_integer((json_int_t)statements));
    send_json(json_pack("{s:s, s:o}", "message", "finished", "body", body));
}

int main(void) {
    static struct client clients[MAX_CLIENTS];
    struct failure failure = {0};
    /* A load process exits when its coordinator does. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    spec = read_spec();
    if (driver_prepare_process(&spec->trial, &failure) != 0) send_failed(&failure);
    start_clients(clients);
    const uint64_t cpu_ns = measure();
    for (unsigned i = 0; i < spec->clients; i++) pthread_join(clients[i].thread, NULL);
    send_samples(clients);
    send_finished(clients, cpu_ns);
    return EXIT_SUCCESS;
}
