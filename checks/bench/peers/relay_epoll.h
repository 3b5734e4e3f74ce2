/*
 * Moves the bytes of a relay floor by edge-triggered epoll. One receive per wake-up takes whole records, and one send
 * passes them on.
 */
#ifndef CIPHERTOLL_RELAY_EPOLL_H
#define CIPHERTOLL_RELAY_EPOLL_H

#include "relay_floor.h"

#include <sys/epoll.h>

#define EVENTS 64

static int epoll;

static void watch(struct source *source, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, source->fd, &event) != 0)
        die("epoll: %s", strerror(errno));
}

static void watch_client(struct client *client) {
    watch(&client->source, EPOLLIN | EPOLLET);
}

static inline void send_whole(int fd, const uint8_t *bytes, size_t count, const char *to) {
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
        die("send to %s: %s", to, strerror(errno));
    if ((size_t)sent != count)
        die("send to %s: its buffer is full", to);
}

static void send_to_client(struct client *client, const uint8_t *bytes, size_t count) {
    send_whole(client->source.fd, bytes, count, "a client");
}

static void send_to_server(struct server *server) {
    send_whole(server->source.fd, server->out, server->out_bytes, "the server");
    server->out_bytes = 0;
}

static void close_client(struct client *client) {
    close(client->source.fd);
    forget_client(client);
}

static uint8_t *plaintext_room(void) {
    static uint8_t plain[PLAIN_BYTES];
    return plain;
}

/* One per wake-up: the listener is level-triggered, so that no accept finds nothing. */
static void accept_client(const struct source *listener) {
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        client_arrived(fd);
    else if (errno != EAGAIN && errno != ECONNABORTED)
        die("accept: %s", strerror(errno));
}

/* A receive that does not fill the buffer has taken everything: what follows is another edge. */
static void receive(struct source *source) {
    static uint8_t chunk[CHUNK_BYTES];
    for (;;) {
        ssize_t count = recv(source->fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN)
            return;
        if (source->kind == SERVER) {
            if (count <= 0)
                die("the server closed a connection");
            server_received((struct server *)source, chunk, (size_t)count);
        } else if (count <= 0) {
            client_gone((struct client *)source);
            return;
        } else {
            client_received((struct client *)source, chunk, (size_t)count);
            if (((struct client *)source)->leaving)
                return;
        }
        if (count < (ssize_t)sizeof chunk)
            return;
    }
}

__attribute__((noreturn)) static void move_bytes(int listener_fd, struct server *servers, int count) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        die("epoll: %s", strerror(errno));
    struct source listener = {LISTENER, listener_fd};
    watch(&listener, EPOLLIN);
    for (int i = 0; i < count; i++)
        watch(&servers[i].source, EPOLLIN | EPOLLET);
    announce_ready();
    struct epoll_event events[EVENTS];
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        if (ready < 0 && errno != EINTR)
            die("epoll: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            struct source *source = events[i].data.ptr;
            if (source->kind == LISTENER)
                accept_client(source);
            else
                receive(source);
        }
    }
}

#endif
