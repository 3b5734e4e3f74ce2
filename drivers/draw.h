/* The variables of a script. Their values are drawn for each operation. */
#ifndef CIPHERTOLL_DRAW_H
#define CIPHERTOLL_DRAW_H

#include "load.h"

enum { GROUP_DIGITS = 11 };

enum draw { UNIFORM, SPECIAL, OFFSET, DIGIT_GROUPS };

struct variable {
    enum draw draw;
    int64_t first, last; /* of an offset: its variable, the difference */
};

/* SplitMix64: small, and good enough to choose rows. */
uint64_t next_random(uint64_t *state);
/* Draws `count` values in order: an offset comes after its variable. */
void draw_variables(const struct variable *variables, unsigned count, uint64_t *state, struct value *values);

#endif
