/*
 * The login to PostgreSQL by libpq, which then hands its socket over, with the TLS session on it.
 */
#ifndef CIPHERTOLL_POSTGRES_LOGIN_H
#define CIPHERTOLL_POSTGRES_LOGIN_H

#include "connection.h"

#include <fcntl.h>
#include <libpq-fe.h>

static PGconn *log_in(const struct peer_args *args) {
    char port[8];
    snprintf(port, sizeof port, "%d", args->port);
    const char *version = args->tls == TLS_1_2 ? "TLSv1.2" : "TLSv1.3";
    const char *const names[] = {"host", "port", "user", "password", "dbname", "gssencmode", "sslmode",
                                 /* from here on for TLS only */
                                 "sslrootcert", "ssl_min_protocol_version", "ssl_max_protocol_version", NULL};
    const char *const values[] = {args->host, port, args->user, args->password, args->database, "disable",
                                  args->tls == TLS_NONE ? "disable" : "verify-full",
                                  args->ca, version, version, NULL};
    PGconn *server = PQconnectdbParams(names, values, 0);
    if (server == NULL)
        die("connect: out of memory");
    if (PQstatus(server) != CONNECTION_OK)
        die("connect: %s", PQerrorMessage(server));
    return server;
}

/* From here on libpq knows nothing of what happens on its socket. */
static void take_over(struct connection *connection, PGconn *server, const struct peer_args *args) {
    connection->fd = PQsocket(server);
    int flags = fcntl(connection->fd, F_GETFL);
    if (flags < 0 || fcntl(connection->fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
        die("cannot make the socket blocking: %s", strerror(errno));
    if (args->tls == TLS_NONE)
        return;
    connection->ssl = PQsslStruct(server, "OpenSSL");
    /* In place of libpq's own reading and writing, which keeps count of errors. */
    if (connection->ssl == NULL || SSL_set_fd(connection->ssl, connection->fd) != 1)
        die_tls("TLS");
    SSL_set_read_ahead(connection->ssl, args->read_ahead);
}

#endif
