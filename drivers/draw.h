/* The variables of a script, whose values are drawn afresh for each operation. */
#ifndef CIPHERTOLL_DRAW_H
#define CIPHERTOLL_DRAW_H

#include "load.h"

enum { GROUP_DIGITS = 11 };

enum draw { UNIFORM, SPECIAL, OFFSET, DIGIT_GROUPS };

struct variable {
    enum draw draw;
    int64_t first, last; /* of an offset: whose, how many more */
};

/* SplitMix64: small, and good enough to choose rows. */
uint64_t next_random(uint64_t *state);
/* Draws `count` values in their order: an offset stands after the variable it is of. */
void draw_variables(const struct variable *variables, unsigned count, uint64_t *state, struct value *values);

#endif
