/* Writes messages to stdout, and ends the process on a failure. */
#ifndef CIPHERTOLL_MESSAGE_H
#define CIPHERTOLL_MESSAGE_H

#include "load.h"

#include <jansson.h>

/* Writes one line; takes ownership of the message. */
void send_json(json_t *message);
/* A library's text that is not UTF-8 must not prevent the message. */
json_t *json_text(const char *text);
/* Ends the process with the message `failed`. */
__attribute__((noreturn)) void send_failed(const struct failure *failure);
__attribute__((noreturn, format(printf, 2, 3))) void die(enum fault fault, const char *format, ...);

#endif
