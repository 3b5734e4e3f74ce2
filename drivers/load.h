/*
 * The interface of a driver's library to the files that all drivers share: spec.c reads the trial, draw.c draws
 * variables, load.c runs one thread per client and keeps the window, message.c writes messages. The file named after a
 * driver implements the interface for one library.
 */
#ifndef CIPHERTOLL_LOAD_H
#define CIPHERTOLL_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_STATEMENTS = 64, MAX_PARAMETERS = 8, MAX_VARIABLES = 64, VALUE_CHARS = 256, MESSAGE_CHARS = 256 };

/* The cause of a failure; the protocol's names are in message.c. */
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
    const char *certificate_file; /* NULL: none is presented */
    const char *key_file;
};

/* The part of the trial that a library needs. */
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

/* What a connection negotiated. Empty: the library does not report it. */
struct agreed {
    char tls_version[16];
    char suite[64];
    char library[32];
};

struct value {
    bool is_number;
    int64_t number;
    char text[VALUE_CHARS]; /* also of a number */
    size_t text_bytes;
};

struct statement {
    const char *sql;
    unsigned parameters;
};

struct connection;

/* Fills in a failure; a line end becomes a space. */
void fail(struct failure *failure, enum fault fault, const char *code, const char *message);

/* ---- implemented by the library's file; every int is 0, or -1 with the failure filled in ---- */

/* Up to NULL. */
extern const char *const DRIVER_ENGINES[];
extern const char *const DRIVER_NAME;

/* Checks once, before any thread starts, what this build of the library supports. */
int driver_prepare_process(const struct trial *trial, struct failure *failure);
/* Connects from the address `source`, if it is not NULL and the library supports that. */
struct connection *driver_connect(const struct trial *trial, const char *source, struct failure *failure);
void driver_close(struct connection *connection);
void driver_agreed(struct connection *connection, struct agreed *agreed);
/* Sends text and reads the whole answer; adds the bytes of its values to `answer_bytes` unless that is NULL. */
int driver_text(struct connection *connection, const char *sql, uint64_t *answer_bytes, struct failure *failure);
/* Prepares a statement as number `number`, less than MAX_STATEMENTS. */
int driver_prepare(struct connection *connection, unsigned number, const struct statement *statement,
                   struct failure *failure);
/* Executes it; otherwise as above. */
int driver_execute(struct connection *connection, unsigned number, const struct value *const *values,
                   unsigned count, uint64_t *answer_bytes, struct failure *failure);

#endif
