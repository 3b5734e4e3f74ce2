/* The trial: settings of the library, the script, and the duration. */
#ifndef CIPHERTOLL_SPEC_H
#define CIPHERTOLL_SPEC_H

#include "draw.h"
#include "load.h"

enum {
    MAX_CLIENTS = 256,
    MAX_STEPS = 64,
    MAX_RETRY_CODES = 8,
    MAX_PIECES = MAX_PARAMETERS + 1,
    MAX_SQL_CHARS = 16 << 10,
};

enum work { CONNECT, CONNECT_QUERY, FIRST_QUERY, TRANSACTIONS };

struct script_statement {
    struct statement plain;
    bool prepared;
    /* Text between placeholders, and the parameter after each piece except the last. */
    struct {
        const char *text;
        size_t bytes;
        unsigned parameter;
    } pieces[MAX_PIECES];
    unsigned piece_count;
};

struct step {
    unsigned statement, count, parameters[MAX_PARAMETERS];
};

struct spec {
    struct trial trial;
    enum work work;
    struct script_statement statements[MAX_STATEMENTS];
    struct variable variables[MAX_VARIABLES];
    struct step steps[MAX_STEPS];
    const char *retry_on[MAX_RETRY_CODES];
    unsigned statement_count, variable_count, step_count, retry_count, clients;
    int64_t warm_up_ns, window_ns;
    uint64_t seed, min_row_bytes; /* 0: the length of responses is not checked */
};

/* Reads the specification from stdin and pins the process. Exits if the trial is not supported. */
const struct spec *read_spec(void);

#endif
