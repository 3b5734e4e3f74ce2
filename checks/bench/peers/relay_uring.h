/*
 * Moves the bytes of a relay floor by io_uring: multishot accept and receive with provided buffers, and one
 * io_uring_enter per turn, which submits all sends.
 *
 * Accepted sockets are direct descriptors, from 0; the connections to the server and the listener come after them.
 */
#ifndef CIPHERTOLL_RELAY_URING_H
#define CIPHERTOLL_RELAY_URING_H

#include "relay_floor.h"

#include <liburing.h>

#define MAX_SOCKETS 4096
#define ENTRIES 512
#define COMPLETIONS 4096
#define BUFFERS 256
#define PROVIDED_BYTES 4096
#define BUFFER_GROUP 0
/* Plaintext of one turn: it must stay until the sends are submitted. */
#define ARENA_BYTES (32 * PLAIN_BYTES)

static struct io_uring ring;
static struct io_uring_buf_ring *buffer_ring;
static uint8_t *buffers;
static uint8_t *arena;
static size_t arena_used;
/* Connections with records to be sent at the end of the turn. */
static struct server **unsent;
static int unsent_count;

__attribute__((noreturn)) static void die_uring(const char *action, int error) {
    die("io_uring: %s: %s", action, strerror(-error));
}

static void submit(void) {
    int error = io_uring_submit(&ring);
    if (error < 0)
        die_uring("submit", error);
}

static inline struct io_uring_sqe *next_entry(void) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    if (entry == NULL) {
        submit();
        entry = io_uring_get_sqe(&ring);
    }
    if (entry == NULL)
        die("io_uring: no entry is free");
    return entry;
}

static void watch(struct source *source) {
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_recv_multishot(entry, source->fd, NULL, 0, 0);
    io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE | IOSQE_BUFFER_SELECT);
    entry->buf_group = BUFFER_GROUP;
    io_uring_sqe_set_data(entry, source);
}

static void watch_client(struct client *client) {
    watch(&client->source);
}

static void accept_clients(struct source *listener) {
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_multishot_accept_direct(entry, listener->fd, NULL, NULL, 0);
    io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(entry, listener);
}

/*
 * A send that succeeds has no completion. With MSG_WAITALL one that is cut short fails, and its completion has no
 * source.
 */
static inline void send_from(struct source *source, const uint8_t *bytes, size_t count) {
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_send(entry, source->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_WAITALL);
    io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE | IOSQE_CQE_SKIP_SUCCESS);
    io_uring_sqe_set_data(entry, NULL);
}

/* Bytes are constant, or in the arena. */
static void send_to_client(struct client *client, const uint8_t *bytes, size_t count) {
    if (bytes >= arena && bytes < arena + ARENA_BYTES)
        arena_used = (size_t)(bytes - arena) + count;
    send_from(&client->source, bytes, count);
}

/* At the end of the turn, with what else there is by then. */
static void send_to_server(struct server *server) {
    for (int i = 0; i < unsent_count; i++)
        if (unsent[i] == server)
            return;
    unsent[unsent_count++] = server;
}

static void send_unsent(void) {
    for (int i = 0; i < unsent_count; i++)
        send_from(&unsent[i]->source, unsent[i]->out, unsent[i]->out_bytes);
}

/* After the client's own end of the stream; its descriptor and its receive last until then. */
static void close_client(struct client *client) {
    if (!client->at_end)
        return;
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_close_direct(entry, (unsigned)client->source.fd);
    io_uring_sqe_set_data(entry, NULL);
    entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
    forget_client(client);
}

static uint8_t *plaintext_room(void) {
    if (arena_used + PLAIN_BYTES > ARENA_BYTES) {
        submit();
        arena_used = 0;
    }
    return arena + arena_used;
}

/* ---- Completions ---- */

static void client_completed(struct client *client, const uint8_t *bytes, int count) {
    if (count > 0) {
        if (client->leaving)
            die("a client says something after its leave");
        client_received(client, bytes, (size_t)count);
        return;
    }
    client->at_end = true;
    if (client->leaving)
        close_client(client);
    else
        client_gone(client);
}

static void completed(struct io_uring_cqe *completion, const uint8_t *bytes) {
    struct source *source = io_uring_cqe_get_data(completion);
    int result = completion->res;
    bool is_armed = (completion->flags & IORING_CQE_F_MORE) != 0;
    if (source == NULL) {
        die_uring("send or close", result < 0 ? result : -ENOBUFS);
    } else if (source->kind == LISTENER) {
        if (result < 0)
            die_uring("accept", result);
        client_arrived(result);
        if (!is_armed)
            accept_clients(source);
    } else {
        bool is_over = result <= 0 && result != -ENOBUFS;
        if (source->kind == SERVER && is_over)
            die("the server closed a connection");
        if (!is_armed && !is_over)
            watch(source);
        if (result == -ENOBUFS)
            return;
        if (source->kind == SERVER)
            server_received((struct server *)source, bytes, (size_t)result);
        else
            client_completed((struct client *)source, bytes, result);
    }
}

/* Handles all completions, and returns their buffers to the kernel. */
static void complete_all(void) {
    int mask = io_uring_buf_ring_mask(BUFFERS), returned = 0;
    unsigned head, seen = 0;
    struct io_uring_cqe *completion;
    io_uring_for_each_cqe(&ring, head, completion) {
        seen++;
        uint8_t *bytes = NULL;
        unsigned id = completion->flags >> IORING_CQE_BUFFER_SHIFT;
        bool has_buffer = (completion->flags & IORING_CQE_F_BUFFER) != 0;
        if (has_buffer)
            bytes = buffers + (size_t)id * PROVIDED_BYTES;
        completed(completion, bytes);
        if (has_buffer)
            io_uring_buf_ring_add(buffer_ring, bytes, PROVIDED_BYTES, (unsigned short)id, mask, returned++);
    }
    io_uring_cq_advance(&ring, seen);
    io_uring_buf_ring_advance(buffer_ring, returned);
}

/* ---- Start ---- */

static void provide_buffers(void) {
    void *place;
    if (posix_memalign(&place, 4096, BUFFERS * sizeof(struct io_uring_buf)) != 0)
        die("out of memory");
    buffer_ring = place;
    buffers = malloc((size_t)BUFFERS * PROVIDED_BYTES);
    arena = malloc(ARENA_BYTES);
    if (buffers == NULL || arena == NULL)
        die("out of memory");
    io_uring_buf_ring_init(buffer_ring);
    struct io_uring_buf_reg registration = {
        .ring_addr = (uint64_t)(uintptr_t)buffer_ring, .ring_entries = BUFFERS, .bgid = BUFFER_GROUP};
    int error = io_uring_register_buf_ring(&ring, &registration, 0);
    if (error != 0)
        die_uring("buffers", error);
    for (unsigned short i = 0; i < BUFFERS; i++)
        io_uring_buf_ring_add(buffer_ring, buffers + (size_t)i * PROVIDED_BYTES, PROVIDED_BYTES, i,
                              io_uring_buf_ring_mask(BUFFERS), i);
    io_uring_buf_ring_advance(buffer_ring, BUFFERS);
}

/* From here on the number of the source is that of its direct descriptor. */
static void register_source(struct source *source, int slot) {
    int error = io_uring_register_files_update(&ring, (unsigned)slot, &source->fd, 1);
    if (error != 1)
        die_uring("descriptors", error);
    source->fd = slot;
}

static void open_ring(int count) {
    struct io_uring_params parameters = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
        .cq_entries = COMPLETIONS};
    int error = io_uring_queue_init_params(ENTRIES, &ring, &parameters);
    if (error != 0)
        die_uring("start", error);
    error = io_uring_register_files_sparse(&ring, (unsigned)(MAX_SOCKETS + count + 1));
    if (error == 0)
        error = io_uring_register_file_alloc_range(&ring, 0, MAX_SOCKETS);
    if (error != 0)
        die_uring("descriptors", error);
    error = io_uring_register_ring_fd(&ring);
    if (error < 0)
        die_uring("ring", error);
}

__attribute__((noreturn)) static void move_bytes(int listener_fd, struct server *servers, int count) {
    unsent = calloc((size_t)count, sizeof *unsent);
    if (unsent == NULL)
        die("out of memory");
    open_ring(count);
    provide_buffers();
    struct source listener = {LISTENER, listener_fd};
    register_source(&listener, MAX_SOCKETS + count);
    accept_clients(&listener);
    for (int i = 0; i < count; i++) {
        register_source(&servers[i].source, MAX_SOCKETS + i);
        watch(&servers[i].source);
    }
    announce_ready();
    for (;;) {
        int error = io_uring_submit_and_wait(&ring, 1);
        if (error < 0 && error != -EINTR)
            die_uring("wait", error);
        /* All sends have been submitted, and have copied their bytes. */
        for (int i = 0; i < unsent_count; i++)
            unsent[i]->out_bytes = 0;
        unsent_count = 0;
        arena_used = 0;
        complete_all();
        send_unsent();
    }
}

#endif
