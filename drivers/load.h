/*
 * What a driver's library must do, and what the files that all drivers share do with it: spec.c reads the trial,
 * draw.c draws variables, load.c runs a thread for each client and keeps the window, message.c writes messages. The
 * file named after a driver knows one library.
 */
#ifndef CIPHERTOLL_LOAD_H
#define CIPHERTOLL_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_STATEMENTS = 64, MAX_PARAMETERS = 8, MAX_VARIABLES = 64, VALUE_CHARS = 256, MESSAGE_CHARS = 256 };

/* Whose fault a failure is; the protocol's words are in message.c. */
enum fault { FAULT_SERVER, FAULT_TLS, FAULT_HOST, FAULT_INTERNAL };

/* Why something failed. */
struct failure {
    enum fault fault;
    char code[16];               /* SQLSTATE or MySQL's number; empty: none */
    char message[MESSAGE_CHARS]; /* one line, no secret */
};

struct tls {
    bool wanted;
    const char *version; /* "tls1.2" or "tls1.3" */
    const char *ca_file;
    const char *server_name;
    bool direct;
    const char *certificate_file; /* NULL: none is shown */
    const char *key_file;
};

/* The trial as far as a library needs to know it. */
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

/* What a connection agreed on. Empty: the library does not tell. */
struct agreed {
    char tls_version[16];
    char suite[64];
    char library[32];
};

struct value {
    bool is_number;
    int64_t number;
    char text[VALUE_CHARS]; /* of a number, too */
    size_t text_bytes;
};

struct statement {
    const char *sql;
    unsigned parameters;
};

struct connection;

/* Fills in a failure; a line's end becomes a space. */
void fail(struct failure *failure, enum fault fault, const char *code, const char *message);

/* ---- what a library's file provides; every int is 0, or -1 with the failure filled in ---- */

/* Up to NULL. */
extern const char *const DRIVER_ENGINES[];
extern const char *const DRIVER_NAME;

/* Checks once, before any thread, what this build of the library can do. */
int driver_prepare_process(const struct trial *trial, struct failure *failure);
/* From the address `source`, if that is not NULL and the library can. */
struct connection *driver_connect(const struct trial *trial, const char *source, struct failure *failure);
void driver_close(struct connection *connection);
void driver_agreed(struct connection *connection, struct agreed *agreed);
/* Sends text, reads the whole answer; adds up the bytes of its values where `answer_bytes` is not NULL. */
int driver_text(struct connection *connection, const char *sql, uint64_t *answer_bytes, struct failure *failure);
/* Prepares a statement as number `number`, less than MAX_STATEMENTS. */
int driver_prepare(struct connection *connection, unsigned number, const struct statement *statement,
                   struct failure *failure);
/* Executes it, the same. */
int driver_execute(struct connection *connection, unsigned number, const struct value *const *values,
                   unsigned count, uint64_t *answer_bytes, struct failure *failure);

#endif
