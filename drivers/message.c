/* The messages of the driver protocol. A failure is the last message. */
#define _GNU_SOURCE
#include "message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const FAULTS[] = {"server", "tls", "host", "internal"};

void fail(struct failure *failure, enum fault fault, const char *code, const char *message) {
    failure->fault = fault;
    snprintf(failure->code, sizeof failure->code, "%s", code);
    size_t written = 0;
    const char *at = message;
    for (; *at && written + 1 < sizeof failure->message; at++) {
        bool is_control = (unsigned char)*at < ' ';
        if (is_control && (written == 0 || failure->message[written - 1] == ' ')) continue;
        failure->message[written++] = is_control ? ' ' : *at;
    }
    if (*at) {
        /* Truncation may split a UTF-8 character. */
        while (written > 0 && (failure->message[written - 1] & 0xc0) == 0x80) written--;
        if (written > 0 && (failure->message[written - 1] & 0x80)) written--;
    }
    while (written > 0 && failure->message[written - 1] == ' ') written--;
    failure->message[written] = '\0';
}

void send_json(json_t *message) {
    json_dumpf(message, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
    putchar('\n');
    fflush(stdout);
    json_decref(message);
}

json_t *json_text(const char *text) {
    json_t *string = json_string(text);
    return string ? string : json_string("(a message that is not UTF-8)");
}

void send_failed(const struct failure *failure) {
    send_json(json_pack("{s:s, s:{s:s, s:o}}", "message", "failed", "body", "fault", FAULTS[failure->fault],
                        "message", json_text(failure->message)));
    /* No cleanup: other threads may still use the library. */
    _exit(EXIT_FAILURE);
}

void die(enum fault fault, const char *format, ...) {
    char message[MESSAGE_CHARS];
    struct failure failure;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fail(&failure, fault, "", message);
    send_failed(&failure);
}
