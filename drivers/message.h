/* Messages on stdout, and exiting with a failure. */
#ifndef CIPHERTOLL_MESSAGE_H
#define CIPHERTOLL_MESSAGE_H

#include "load.h"

#include <jansson.h>

/* Sends one line; takes ownership of the message. */
void send_json(json_t *message);
/* Replaces a text of a library that is not UTF-8. */
json_t *json_text(const char *text);
/* Sends the message `failed` and exits. */
__attribute__((noreturn)) void send_failed(const struct failure *failure);
__attribute__((noreturn, format(printf, 2, 3))) void die(enum fault fault, const char *format, ...);

#endif
