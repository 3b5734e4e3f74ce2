/* What every part of a driver says on stdout, and how it gives up. */
#ifndef CIPHERTOLL_MESSAGE_H
#define CIPHERTOLL_MESSAGE_H

#include "load.h"

#include <jansson.h>

/* One line; takes the message over. */
void send_json(json_t *message);
/* Text of a library that is no UTF-8 must not cost the message. */
json_t *json_text(const char *text);
/* Ends the process with the message `failed`. */
__attribute__((noreturn)) void send_failed(const struct failure *failure);
__attribute__((noreturn, format(printf, 2, 3))) void die(enum fault fault, const char *format, ...);

#endif
