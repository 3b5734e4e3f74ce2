/*
 * The login to MariaDB by mysql_native_password, plain or with TLS, and the packets of its protocol. For set-up only:
 * it reads with care and not fast.
 */
#ifndef CIPHERTOLL_MARIADB_LOGIN_H
#define CIPHERTOLL_MARIADB_LOGIN_H

#include "connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/sha.h>

/* Capabilities, as in the protocol's documentation; with CLIENT_DEPRECATE_EOF the set of ciphertoll's own client. */
#define CLIENT_LONG_PASSWORD 0x00000001U
#define CLIENT_CONNECT_WITH_DB 0x00000008U
#define CLIENT_PROTOCOL_41 0x00000200U
#define CLIENT_SSL 0x00000800U
#define CLIENT_TRANSACTIONS 0x00002000U
#define CLIENT_SECURE_CONNECTION 0x00008000U
#define CLIENT_PLUGIN_AUTH 0x00080000U
#define CLIENT_DEPRECATE_EOF 0x01000000U
#define CAPABILITIES                                                                                              \
    (CLIENT_LONG_PASSWORD | CLIENT_CONNECT_WITH_DB | CLIENT_PROTOCOL_41 | CLIENT_TRANSACTIONS |                   \
     CLIENT_SECURE_CONNECTION | CLIENT_PLUGIN_AUTH)

#define NATIVE_PASSWORD "mysql_native_password"
#define UTF8MB4_GENERAL_CI 45
#define PACKET_OK 0x00
#define PACKET_EOF 0xfe
#define PACKET_ERR 0xff

#define HEADER_BYTES 4
#define SCRAMBLE_BYTES 20

/* ---- Bytes ---- */

static uint32_t load_le(const uint8_t *bytes, unsigned count) {
    uint32_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

static uint8_t *store_le(uint8_t *at, uint32_t value, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        *at++ = (uint8_t)(value >> (8 * i));
    return at;
}

static uint8_t *store_bytes(uint8_t *at, const void *bytes, size_t count) {
    memcpy(at, bytes, count);
    return at + count;
}

/* ---- Packets ---- */

struct packet {
    const uint8_t *payload;
    size_t length;
    uint8_t sequence;
};

/* The packet that begins at `offset` of what is to be received. Its pointer holds until the next receive. */
static struct packet receive_packet(struct connection *connection, size_t *offset) {
    while (connection->have - *offset < HEADER_BYTES)
        receive_some(connection);
    struct packet packet = {.length = load_le(connection->buffer + *offset, 3)};
    while (connection->have - *offset - HEADER_BYTES < packet.length)
        receive_some(connection);
    packet.sequence = connection->buffer[*offset + 3];
    packet.payload = connection->buffer + *offset + HEADER_BYTES;
    *offset += HEADER_BYTES + packet.length;
    if (packet.length == 0)
        die("the server sent an empty packet");
    if (packet.payload[0] == PACKET_ERR && packet.length > 9)
        die("the server says: %.*s", (int)packet.length - 9, (const char *)packet.payload + 9);
    return packet;
}

static struct packet receive_one(struct connection *connection) {
    connection->have = 0;
    size_t offset = 0;
    return receive_packet(connection, &offset);
}

static void send_packet(struct connection *connection, const uint8_t *payload, size_t length, uint8_t sequence) {
    uint8_t bytes[BUFFER_BYTES];
    uint8_t *at = store_le(bytes, (uint32_t)length, 3);
    *at++ = sequence;
    at = store_bytes(at, payload, length);
    send_all(connection, bytes, (size_t)(at - bytes));
}

/* ---- Login ---- */

static int open_tcp(const struct peer_args *args) {
    char port[8];
    snprintf(port, sizeof port, "%d", args->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses;
    int error = getaddrinfo(args->host, port, &hints, &addresses);
    if (error != 0)
        die("%s: %s", args->host, gai_strerror(error));
    int fd = socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, addresses->ai_addr, addresses->ai_addrlen) != 0)
        die("connect to %s port %s: %s", args->host, port, strerror(errno));
    freeaddrinfo(addresses);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static inline int open_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path)); /* its length was checked with the arguments */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect to %s: %s", path, strerror(errno));
    return fd;
}

/* Copies the two parts of the scramble out of the greeting. */
static void take_scramble(struct packet greeting, uint8_t scramble[SCRAMBLE_BYTES]) {
    if (greeting.payload[0] != 10)
        die("the server speaks protocol %u; 10 is wanted", greeting.payload[0]);
    const uint8_t *version_end = memchr(greeting.payload, '\0', greeting.length);
    /* thread id 4, scramble 8, filler 1, capabilities 2, charset 1, status 2, capabilities 2, length 1, filler 10 */
    size_t rest = version_end == NULL ? 0 : greeting.length - (size_t)(version_end + 1 - greeting.payload);
    if (rest < 4 + 8 + 1 + 2 + 1 + 2 + 2 + 1 + 10 + 12)
        die("the server's greeting is too short");
    memcpy(scramble, version_end + 1 + 4, 8);
    memcpy(scramble + 8, version_end + 1 + 31, 12);
}

/* SHA1(password) XOR SHA1(scramble, SHA1(SHA1(password))); an empty password sends nothing. */
static size_t native_password(const char *password, const uint8_t scramble[SCRAMBLE_BYTES],
                              uint8_t answer[SHA_DIGEST_LENGTH]) {
    if (password[0] == '\0')
        return 0;
    uint8_t once[SHA_DIGEST_LENGTH];
    uint8_t salted[SCRAMBLE_BYTES + SHA_DIGEST_LENGTH];
    SHA1((const uint8_t *)password, strlen(password), once);
    memcpy(salted, scramble, SCRAMBLE_BYTES);
    SHA1(once, sizeof once, salted + SCRAMBLE_BYTES);
    SHA1(salted, sizeof salted, answer);
    for (unsigned i = 0; i < SHA_DIGEST_LENGTH; i++)
        answer[i] ^= once[i];
    return SHA_DIGEST_LENGTH;
}

static uint8_t *store_login_head(uint8_t *at, uint32_t capabilities) {
    at = store_le(at, capabilities, 4);
    at = store_le(at, 1U << 24, 4); /* largest packet */
    *at++ = UTF8MB4_GENERAL_CI;
    memset(at, 0, 23);
    return at + 23;
}

static void start_tls(struct connection *connection, SSL_CTX *context, const char *host) {
    connection->ssl = SSL_new(context);
    if (connection->ssl == NULL || SSL_set_fd(connection->ssl, connection->fd) != 1)
        die_tls("TLS");
    struct in6_addr address;
    bool literal = inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
    X509_VERIFY_PARAM *verify = SSL_get0_param(connection->ssl);
    int named = literal ? X509_VERIFY_PARAM_set1_ip_asc(verify, host) : SSL_set1_host(connection->ssl, host);
    if (named != 1 || SSL_connect(connection->ssl) != 1)
        die_tls("TLS handshake");
}

/* Answers what the server asks after the login packet until it says OK. */
static void finish_login(struct connection *connection, const char *password) {
    struct packet packet = receive_one(connection);
    if (packet.payload[0] == PACKET_EOF) { /* switch to another plugin, with another scramble */
        size_t name_bytes = sizeof NATIVE_PASSWORD;
        if (packet.length < 1 + name_bytes + SCRAMBLE_BYTES ||
            memcmp(packet.payload + 1, NATIVE_PASSWORD, name_bytes) != 0)
            die("the account does not log in by " NATIVE_PASSWORD ", all that this program speaks");
        uint8_t answer[SHA_DIGEST_LENGTH];
        size_t length = native_password(password, packet.payload + 1 + name_bytes, answer);
        send_packet(connection, answer, length, (uint8_t)(packet.sequence + 1));
        packet = receive_one(connection);
    }
    if (packet.payload[0] != PACKET_OK)
        die("login: the server answers 0x%02x, which this program does not know", packet.payload[0]);
}

static void log_in(struct connection *connection, const struct peer_args *args, SSL_CTX *context,
                   uint32_t capabilities) {
    uint8_t scramble[SCRAMBLE_BYTES];
    take_scramble(receive_one(connection), scramble);
    uint8_t payload[BUFFER_BYTES];
    uint8_t sequence = 1;
    if (context != NULL) {
        capabilities |= CLIENT_SSL;
        uint8_t *end = store_login_head(payload, capabilities);
        send_packet(connection, payload, (size_t)(end - payload), sequence++);
        start_tls(connection, context, args->host);
    }
    uint8_t answer[SHA_DIGEST_LENGTH];
    size_t answer_bytes = native_password(args->password, scramble, answer);
    uint8_t *at = store_login_head(payload, capabilities);
    at = store_bytes(at, args->user, strlen(args->user) + 1);
    *at++ = (uint8_t)answer_bytes;
    at = store_bytes(at, answer, answer_bytes);
    at = store_bytes(at, args->database, strlen(args->database) + 1);
    at = store_bytes(at, NATIVE_PASSWORD, sizeof NATIVE_PASSWORD);
    send_packet(connection, payload, (size_t)(at - payload), sequence);
    finish_login(connection, args->password);
}

static SSL_CTX *make_context(const struct peer_args *args) {
    if (args->tls == TLS_NONE)
        return NULL;
    int version = args->tls == TLS_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL || SSL_CTX_set_min_proto_version(context, version) != 1 ||
        SSL_CTX_set_max_proto_version(context, version) != 1)
        die_tls("TLS context");
    if (SSL_CTX_load_verify_locations(context, args->ca, NULL) != 1)
        die_tls(args->ca);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_read_ahead(context, args->read_ahead);
    return context;
}

static void check_lengths(const struct peer_args *args) {
    /* Keeps the login packet far inside its buffer. */
    if (strlen(args->user) > 128 || strlen(args->database) > 128)
        usage_error("--user and --database are at most 128 bytes");
}

#endif
