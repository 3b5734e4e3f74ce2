/*
 * The driver `libpq`: connects and queries like an application in C, or with a binding to C. libpq parses the CA file and
 * builds a TLS context for each connection.
 */
#define _GNU_SOURCE
#include "load.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const DRIVER_ENGINES[] = {"postgres", NULL};
const char *const DRIVER_NAME = "libpq";

enum { MAX_OPTIONS = 24, NAME_CHARS = 16, PORT_CHARS = 8 };

struct connection {
    PGconn *pg;
};

extern char **environ;

static bool has_option(const char *keyword) {
    PQconninfoOption *defaults = PQconndefaults();
    bool found = false;
    for (PQconninfoOption *option = defaults; option && option->keyword; option++)
        found = found || strcmp(option->keyword, keyword) == 0;
    PQconninfoFree(defaults);
    return found;
}

static bool knows_direct_tls, knows_required_auth;

int driver_prepare_process(const struct trial *trial, struct failure *failure) {
    /* Ignores the user's settings, certificates and revocation lists. */
    for (char **entry = environ; *entry;) {
        if (strncmp(*entry, "PG", 2) != 0) {
            entry++;
            continue;
        }
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
        if (unsetenv(name) != 0) entry++;
        else entry = environ;
    }
    setenv("HOME", "/nonexistent", 1);
    if (PQisthreadsafe() != 1) {
        fail(failure, FAULT_HOST, "", "this libpq is not built for threads");
        return -1;
    }
    knows_direct_tls = has_option("sslnegotiation");
    knows_required_auth = has_option("require_auth");
    if (trial->tls.direct && !knows_direct_tls) {
        fail(failure, FAULT_HOST, "", "this libpq does not support direct TLS, which requires version 17");
        return -1;
    }
    return 0;
}

/* The value of libpq's option; NULL if it has none. */
static const char *required_auth(const char *auth) {
    if (strcmp(auth, "trust") == 0 || strcmp(auth, "cert") == 0) return "none";
    if (strcmp(auth, "md5") == 0) return "md5";
    if (strncmp(auth, "scram-", 6) == 0) return "scram-sha-256";
    return NULL;
}

struct options {
    const char *keywords[MAX_OPTIONS];
    const char *values[MAX_OPTIONS];
    unsigned count;
};

static void add(struct options *options, const char *keyword, const char *value) {
    if (!value) return;
    options->keywords[options->count] = keyword;
    options->values[options->count++] = value;
}

static void add_tls(struct options *options, const struct trial *trial) {
    const struct tls *tls = &trial->tls;
    if (!tls->wanted) {
        add(options, "sslmode", "disable");
        return;
    }
    const char *version = strcmp(tls->version, "tls1.3") == 0 ? "TLSv1.3" : "TLSv1.2";
    add(options, "sslmode", "verify-full");
    add(options, "sslrootcert", tls->ca_file);
    add(options, "ssl_min_protocol_version", version);
    add(options, "ssl_max_protocol_version", version);
    add(options, "sslcert", tls->certificate_file);
    add(options, "sslkey", tls->key_file);
    if (knows_direct_tls) add(options, "sslnegotiation", tls->direct ? "direct" : "postgres");
}

/* Only the text shows the source of a failure. */
static enum fault fault_of(const char *message) {
    if (strstr(message, "SSL") || strstr(message, "certificate")) return FAULT_TLS;
    if (strstr(message, "Too many open files") || strstr(message, "Cannot assign requested address") ||
        strstr(message, "out of memory"))
        return FAULT_HOST;
    return FAULT_SERVER;
}

struct connection *driver_connect(const struct trial *trial, const char *source, struct failure *failure) {
    (void)source; /* libpq has no option for it */
    struct options options = {0};
    char port[PORT_CHARS], directory[512];
    snprintf(port, sizeof port, "%u", trial->port);
    if (trial->socket) {
        /* libpq takes the directory and the number at the end of `.s.PGSQL.5432`. */
        const char *name = strrchr(trial->socket, '/');
        const char *dot = strrchr(trial->socket, '.');
        if (!name || !dot || dot < name) {
            fail(failure, FAULT_INTERNAL, "", "libpq does not support this socket name");
            return NULL;
        }
        snprintf(directory, sizeof directory, "%.*s", (int)(name - trial->socket), trial->socket);
        snprintf(port, sizeof port, "%.7s", dot + 1);
        add(&options, "host", directory);
    } else {
        /* `host` is verified against the certificate; `hostaddr` is the address. */
        add(&options, "host", trial->tls.wanted ? trial->tls.server_name : trial->host);
        add(&options, "hostaddr", trial->host);
    }
    add(&options, "port", port);
    add(&options, "user", trial->user);
    add(&options, "password", trial->password);
    add(&options, "dbname", trial->database ? trial->database : trial->user);
    add(&options, "gssencmode", "disable");
    bool bound = strncmp(trial->auth, "scram-", 6) == 0 && strstr(trial->auth, "+plus");
    add(&options, "channel_binding", bound ? "require" : "disable");
    if (knows_required_auth) add(&options, "require_auth", required_auth(trial->auth));
    add_tls(&options, trial);

    PGconn *pg = PQconnectdbParams(options.keywords, options.values, 0);
    if (PQstatus(pg) != CONNECTION_OK) {
        const char *message = PQerrorMessage(pg);
        fail(failure, fault_of(message), "", message);
        PQfinish(pg);
        return NULL;
    }
    struct connection *connection = malloc(sizeof *connection);
    if (!connection) {
        fail(failure, FAULT_HOST, "", "out of memory");
        PQfinish(pg);
        return NULL;
    }
    connection->pg = pg;
    return connection;
}

void driver_close(struct connection *connection) {
    PQfinish(connection->pg);
    free(connection);
}

void driver_agreed(struct connection *connection, struct agreed *agreed) {
    PGconn *pg = connection->pg;
    if (!PQsslInUse(pg)) return;
    const char *version = PQsslAttribute(pg, "protocol");
    const char *suite = PQsslAttribute(pg, "cipher");
    const char *library = PQsslAttribute(pg, "library");
    snprintf(agreed->tls_version, sizeof agreed->tls_version, "%s", version ? version : "unknown");
    snprintf(agreed->suite, sizeof agreed->suite, "%s", suite ? suite : "");
    snprintf(agreed->library, sizeof agreed->library, "%s", library ? library : "");
}

static int check(struct connection *connection, PGresult *result, uint64_t *answer_bytes, struct failure *failure) {
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        for (int row = 0; answer_bytes && row < PQntuples(result); row++)
            for (int field = 0; field < PQnfields(result); field++)
                *answer_bytes += (uint64_t)PQgetlength(result, row, field);
        PQclear(result);
        return 0;
    }
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    fail(failure, FAULT_SERVER, code ? code : "", message ? message : PQerrorMessage(connection->pg));
    PQclear(result);
    return -1;
}

int driver_text(struct connection *connection, const char *sql, uint64_t *answer_bytes, struct failure *failure) {
    return check(connection, PQexec(connection->pg, sql), answer_bytes, failure);
}

int driver_prepare(struct connection *connection, unsigned number, const struct statement *statement,
                   struct failure *failure) {
    char name[NAME_CHARS];
    snprintf(name, sizeof name, "s%u", number);
    return check(connection, PQprepare(connection->pg, name, statement->sql, 0, NULL), NULL, failure);
}

int driver_execute(struct connection *connection, unsigned number, const struct value *const *values,
                   unsigned count, uint64_t *answer_bytes, struct failure *failure) {
    char name[NAME_CHARS];
    const char *texts[MAX_PARAMETERS];
    snprintf(name, sizeof name, "s%u", number);
    for (unsigned i = 0; i < count; i++) texts[i] = values[i]->text;
    PGresult *result = PQexecPrepared(connection->pg, name, (int)count, texts, NULL, NULL, 0);
    return check(connection, result, answer_bytes, failure);
}
