/*
 * The driver `libmariadb`: MariaDB Connector/C, which most MySQL-protocol clients use. The library parses the CA file and
 * builds a TLS context for each connection.
 */
#define _GNU_SOURCE
#include "load.h"

#include <errmsg.h>
#include <mysql.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const DRIVER_ENGINES[] = {"mariadb", "mysql", NULL};
const char *const DRIVER_NAME = "libmariadb";

enum { CONNECT_TIMEOUT_S = 20, CODE_CHARS = 16, MAX_COUNTED_FIELDS = 16 };

struct connection {
    MYSQL *mysql;
    MYSQL_STMT *statements[MAX_STATEMENTS];
};

static void fail_as(struct failure *failure, unsigned number, const char *message) {
    char code[CODE_CHARS];
    snprintf(code, sizeof code, "%u", number);
    enum fault fault = FAULT_SERVER;
    if (number == CR_SSL_CONNECTION_ERROR) fault = FAULT_TLS;
    if (number == CR_OUT_OF_MEMORY || number == CR_SOCKET_CREATE_ERROR) fault = FAULT_HOST;
    fail(failure, fault, code, message);
}

/* The library verifies the name that it connects to, so the name must resolve to the server's address. */
static bool leads_to(const char *name, const char *address) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char numeric[NI_MAXHOST];
    bool leads = false;
    if (strcmp(name, address) == 0) return true;
    if (getaddrinfo(name, NULL, &hints, &found) != 0) return false;
    for (struct addrinfo *each = found; each; each = each->ai_next) {
        int bad = getnameinfo(each->ai_addr, each->ai_addrlen, numeric, sizeof numeric, NULL, 0, NI_NUMERICHOST);
        leads = leads || (bad == 0 && strcmp(numeric, address) == 0);
    }
    freeaddrinfo(found);
    return leads;
}

int driver_prepare_process(const struct trial *trial, struct failure *failure) {
    /* Ignores the port and the socket in the environment. */
    unsetenv("MYSQL_TCP_PORT");
    unsetenv("MYSQL_UNIX_PORT");
    if (mysql_library_init(0, NULL, NULL) != 0 || !mysql_thread_safe()) {
        fail(failure, FAULT_HOST, "", "this libmariadb is not built for threads");
        return -1;
    }
    if (trial->tls.direct) {
        fail(failure, FAULT_INTERNAL, "", "the MySQL protocol has no direct TLS");
        return -1;
    }
    if (trial->tls.wanted && !leads_to(trial->tls.server_name, trial->host)) {
        fail(failure, FAULT_HOST, "",
             "libmariadb verifies the name it dials, and the certificate's name is not the server's address");
        return -1;
    }
    return 0;
}

static void set_tls(MYSQL *mysql, const struct tls *tls) {
    my_bool wanted = tls->wanted;
    mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &wanted);
    mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &wanted);
    if (!wanted) return;
    mysql_options(mysql, MARIADB_OPT_TLS_VERSION, strcmp(tls->version, "tls1.3") == 0 ? "TLSv1.3" : "TLSv1.2");
    mysql_options(mysql, MYSQL_OPT_SSL_CA, tls->ca_file);
    if (!tls->certificate_file) return;
    mysql_options(mysql, MYSQL_OPT_SSL_CERT, tls->certificate_file);
    mysql_options(mysql, MYSQL_OPT_SSL_KEY, tls->key_file);
}

struct connection *driver_connect(const struct trial *trial, const char *source, struct failure *failure) {
    struct connection *connection = calloc(1, sizeof *connection);
    MYSQL *mysql = mysql_init(NULL);
    if (!connection || !mysql) {
        fail(failure, FAULT_HOST, "", "out of memory");
        free(connection);
        return NULL;
    }
    unsigned timeout = CONNECT_TIMEOUT_S;
    unsigned protocol = trial->socket ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &timeout);
    mysql_options(mysql, MYSQL_OPT_PROTOCOL, &protocol);
    if (source) mysql_options(mysql, MYSQL_OPT_BIND, source);
    set_tls(mysql, &trial->tls);
    const char *host = trial->tls.wanted ? trial->tls.server_name : trial->host;
    if (trial->socket) host = "localhost";
    if (!mysql_real_connect(mysql, host, trial->user, trial->password, trial->database, trial->port, trial->socket,
                            0)) {
        fail_as(failure, mysql_errno(mysql), mysql_error(mysql));
        mysql_close(mysql);
        free(connection);
        return NULL;
    }
    connection->mysql = mysql;
    return connection;
}

void driver_close(struct connection *connection) {
    for (unsigned i = 0; i < MAX_STATEMENTS; i++)
        if (connection->statements[i]) mysql_stmt_close(connection->statements[i]);
    mysql_close(connection->mysql);
    free(connection);
}

void driver_agreed(struct connection *connection, struct agreed *agreed) {
    const char *version = NULL, *library = NULL;
    const char *suite = mysql_get_ssl_cipher(connection->mysql);
    if (!suite) return;
    mariadb_get_infov(connection->mysql, MARIADB_CONNECTION_TLS_VERSION, &version);
    mariadb_get_infov(connection->mysql, MARIADB_TLS_LIBRARY, &library);
    snprintf(agreed->tls_version, sizeof agreed->tls_version, "%s", version ? version : "unknown");
    snprintf(agreed->suite, sizeof agreed->suite, "%s", suite);
    snprintf(agreed->library, sizeof agreed->library, "%s", library ? library : "");
}

static uint64_t bytes_of_rows(MYSQL_RES *rows) {
    uint64_t bytes = 0;
    while (rows && mysql_fetch_row(rows)) {
        const unsigned long *lengths = mysql_fetch_lengths(rows);
        for (unsigned field = 0; field < mysql_num_fields(rows); field++) bytes += lengths[field];
    }
    return bytes;
}

int driver_text(struct connection *connection, const char *sql, uint64_t *answer_bytes, struct failure *failure) {
    MYSQL *mysql = connection->mysql;
    int more = mysql_real_query(mysql, sql, strlen(sql));
    while (more == 0) {
        MYSQL_RES *rows = mysql_store_result(mysql);
        if (answer_bytes) *answer_bytes += bytes_of_rows(rows);
        mysql_free_result(rows);
        if (mysql_errno(mysql) != 0) break;
        more = mysql_next_result(mysql);
    }
    if (mysql_errno(mysql) == 0) return 0;
    fail_as(failure, mysql_errno(mysql), mysql_error(mysql));
    return -1;
}

static int fail_statement(MYSQL_STMT *statement, struct failure *failure) {
    fail_as(failure, mysql_stmt_errno(statement), mysql_stmt_error(statement));
    return -1;
}

int driver_prepare(struct connection *connection, unsigned number, const struct statement *statement,
                   struct failure *failure) {
    MYSQL_STMT *prepared = mysql_stmt_init(connection->mysql);
    if (!prepared) {
        fail(failure, FAULT_HOST, "", "out of memory");
        return -1;
    }
    connection->statements[number] = prepared;
    if (mysql_stmt_prepare(prepared, statement->sql, strlen(statement->sql)) != 0)
        return fail_statement(prepared, failure);
    if (mysql_stmt_param_count(prepared) == statement->parameters) return 0;
    fail(failure, FAULT_INTERNAL, "", "a step's parameters do not match its statement's placeholders");
    return -1;
}

/* Without a buffer, only the lengths of values are fetched. */
static int add_row_bytes(MYSQL_STMT *prepared, uint64_t *answer_bytes) {
    MYSQL_BIND binds[MAX_COUNTED_FIELDS];
    unsigned long lengths[MAX_COUNTED_FIELDS] = {0};
    memset(binds, 0, sizeof binds);
    for (unsigned i = 0; i < MAX_COUNTED_FIELDS; i++) {
        binds[i].buffer_type = MYSQL_TYPE_STRING;
        binds[i].length = &lengths[i];
    }
    if (mysql_stmt_field_count(prepared) > MAX_COUNTED_FIELDS) return 0;
    if (mysql_stmt_bind_result(prepared, binds) != 0) return -1;
    for (;;) {
        memset(lengths, 0, sizeof lengths);
        int fetched = mysql_stmt_fetch(prepared);
        if (fetched == MYSQL_NO_DATA) return 0;
        if (fetched != 0 && fetched != MYSQL_DATA_TRUNCATED) return -1;
        for (unsigned i = 0; i < MAX_COUNTED_FIELDS; i++) *answer_bytes += lengths[i];
    }
}

int driver_execute(struct connection *connection, unsigned number, const struct value *const *values,
                   unsigned count, uint64_t *answer_bytes, struct failure *failure) {
    MYSQL_STMT *prepared = connection->statements[number];
    MYSQL_BIND binds[MAX_PARAMETERS];
    memset(binds, 0, sizeof binds);
    for (unsigned i = 0; i < count; i++) {
        /* The library's parameter is not const, although it is only read. */
        struct value *value = (struct value *)(uintptr_t)values[i];
        binds[i].buffer_type = value->is_number ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_STRING;
        binds[i].buffer = value->is_number ? (void *)&value->number : (void *)value->text;
        binds[i].buffer_length = value->is_number ? sizeof value->number : value->text_bytes;
    }
    if (count > 0 && mysql_stmt_bind_param(prepared, binds) != 0) return fail_statement(prepared, failure);
    if (mysql_stmt_execute(prepared) != 0) return fail_statement(prepared, failure);
    if (mysql_stmt_field_count(prepared) == 0) return 0;
    if (mysql_stmt_store_result(prepared) != 0) return fail_statement(prepared, failure);
    const int counted = answer_bytes ? add_row_bytes(prepared, answer_bytes) : 0;
    if (counted != 0) fail_statement(prepared, failure);
    mysql_stmt_free_result(prepared);
    return counted;
}
