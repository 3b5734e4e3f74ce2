/*
 * A blocking connection to a server, plain or with TLS: what the floors measure with, and what the relays log in with.
 */
#ifndef CIPHERTOLL_CONNECTION_H
#define CIPHERTOLL_CONNECTION_H

#include "peer.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#define REQUEST_BYTES 64
#define BUFFER_BYTES 4096

struct connection {
    int fd;
    SSL *ssl; /* NULL: plain */
    size_t have;
    size_t reply_bytes;
    uint64_t sent_ns;
    uint64_t random;
    uint32_t rows;
    size_t request_bytes;
    size_t id_offset; /* of the key in the request */
    uint8_t request[REQUEST_BYTES];
    uint8_t buffer[BUFFER_BYTES];
};

__attribute__((noreturn)) static void die_tls(const char *action) {
    unsigned long error = ERR_get_error();
    if (error == 0)
        die("%s: the server closed the connection", action);
    die("%s: %s", action, ERR_error_string(error, NULL));
}

static inline void send_all(struct connection *connection, const uint8_t *bytes, size_t count) {
    if (connection->ssl != NULL) {
        /* Without partial writes a blocking SSL_write sends all or fails. */
        if (SSL_write(connection->ssl, bytes, (int)count) != (int)count)
            die_tls("send");
        return;
    }
    while (count > 0) {
        ssize_t sent = send(connection->fd, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            die("send: %s", strerror(errno));
        if (sent > 0) {
            bytes += sent;
            count -= (size_t)sent;
        }
    }
}

/* One receive, blocking, behind what is already there. */
static inline void receive_some(struct connection *connection) {
    uint8_t *at = connection->buffer + connection->have;
    size_t room = BUFFER_BYTES - connection->have;
    if (room == 0)
        die("the reply is longer than %d bytes", BUFFER_BYTES);
    ssize_t got;
    if (connection->ssl != NULL) {
        got = SSL_read(connection->ssl, at, (int)room);
        if (got <= 0)
            die_tls("receive");
    } else {
        got = recv(connection->fd, at, room, 0);
        if (got < 0)
            die("receive: %s", strerror(errno));
        if (got == 0)
            die("receive: the server closed the connection");
    }
    connection->have += (size_t)got;
}

#endif
