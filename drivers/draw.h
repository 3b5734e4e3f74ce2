/* The variables of a script, drawn again for each operation. */
#ifndef CIPHERTOLL_DRAW_H
#define CIPHERTOLL_DRAW_H

#include "load.h"

enum { GROUP_DIGITS = 11 };

enum draw { UNIFORM, SPECIAL, OFFSET, DIGIT_GROUPS };

struct variable {
    enum draw draw;
    int64_t first, last; /* of an offset: the index of its base variable, and the distance */
};

/* SplitMix64: small, and sufficient for choosing rows. */
uint64_t next_random(uint64_t *state);
/* Draws `count` values in order: an offset follows its base variable. */
void draw_variables(const struct variable *variables, unsigned count, uint64_t *state, struct value *values);

#endif
