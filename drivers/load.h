/*
 * The interface between a driver's library and the shared files: spec.c reads the trial, draw.c draws variables, load.c
 * runs one thread per client and the measurement window, message.c writes messages. The file named after a driver wraps
 * its library.
 */
#ifndef CIPHERTOLL_LOAD_H
#define CIPHERTOLL_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_STATEMENTS = 64, MAX_PARAMETERS = 8, MAX_VARIABLES = 64, VALUE_CHARS = 256, MESSAGE_CHARS = 256 };

/* The source of a failure; the names in the protocol are in message.c. */
enum fault { FAULT_SERVER, FAULT_TLS, FAULT_HOST, FAULT_INTERNAL };

struct failure {
    enum fault fault;
    char code[16];               /* SQLSTATE or MySQL's number; empty: none */
    char message[MESSAGE_CHARS]; /* one line, without secrets */
};

struct tls {
    bool wanted;
    const char *version; /* "tls1.2" or "tls1.3" */
    const char *ca_file;
    const char *server_name;
    bool direct;
    const char *certificate_file; /* NULL: no client certificate */
    const char *key_file;
};

/* The parts of the trial that a library needs. */
struct trial {
    const char *engine;
    const char *auth;
    const char *user;
    const char *password;
    const char *database; /* NULL: none */
    const char *host;     /* NULL: unix */
    uint16_t port;
    const char *socket; /* NULL: TCP */
    struct tls tls;
};

/* Negotiated properties of a connection. Empty if the library does not report them. */
struct agreed {
    char tls_version[16];
    char suite[64];
    char library[32];
};

struct value {
    bool is_number;
    int64_t number;
    char text[VALUE_CHARS]; /* also for numbers */
    size_t text_bytes;
};

struct statement {
    const char *sql;
    unsigned parameters;
};

struct connection;

/* Fills in a failure; newlines become spaces. */
void fail(struct failure *failure, enum fault fault, const char *code, const char *message);

/* ---- provided by the file of a library; int functions return 0, or -1 and fill in the failure ---- */

/* Ends with NULL. */
extern const char *const DRIVER_ENGINES[];
extern const char *const DRIVER_NAME;

/* Checks the features of the library once, before threads start. */
int driver_prepare_process(const struct trial *trial, struct failure *failure);
/* Uses the source address `source`, if not NULL and supported. */
struct connection *driver_connect(const struct trial *trial, const char *source, struct failure *failure);
void driver_close(struct connection *connection);
void driver_agreed(struct connection *connection, struct agreed *agreed);
/* Sends a query and reads the whole response; adds the size of its values to `answer_bytes`, if not NULL. */
int driver_text(struct connection *connection, const char *sql, uint64_t *answer_bytes, struct failure *failure);
/* Prepares a statement as number `number`, less than MAX_STATEMENTS. */
int driver_prepare(struct connection *connection, unsigned number, const struct statement *statement,
                   struct failure *failure);
/* Executes a prepared statement, like `query`. */
int driver_execute(struct connection *connection, unsigned number, const struct value *const *values,
                   unsigned count, uint64_t *answer_bytes, struct failure *failure);

#endif
