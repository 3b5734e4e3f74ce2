/* The random number generator, and how a script's variables are drawn. */
#include "draw.h"

#include <stdio.h>

enum { SPECIAL_DRAWS = 12 };

uint64_t next_random(uint64_t *state) {
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

static double next_fraction(uint64_t *state) { return (double)(next_random(state) >> 11) * 0x1p-53; }

/* Uniform in 0 to `count` - 1; rejects the last, incomplete range of the generator. */
static uint64_t next_below(uint64_t *state, uint64_t count) {
    if (count == 0) return next_random(state);
    const uint64_t unfair = UINT64_MAX - UINT64_MAX % count;
    uint64_t random;
    do random = next_random(state);
    while (random >= unfair);
    return random % count;
}

static int64_t draw_special(uint64_t *state, int64_t first, int64_t last) {
    const double spread = (double)(last - first);
    const double where = next_fraction(state);
    double sum = 0;
    if (where >= 0.25) {
        /* sysbench reuses the same fraction, which excludes the first quarter of the middle hundredth. */
        return first + (int64_t)(where * (spread / 100 + 1) + spread / 2 - spread / 200);
    }
    for (int i = 0; i < SPECIAL_DRAWS; i++) sum += next_fraction(state);
    return first + (int64_t)(sum * spread / SPECIAL_DRAWS);
}

static void draw_digits(uint64_t *state, struct value *value, int64_t groups) {
    char *at = value->text;
    for (int64_t group = 0; group < groups; group++) {
        if (group > 0) *at++ = '-';
        uint64_t digits = next_below(state, UINT64_C(100000000000));
        for (int place = GROUP_DIGITS - 1; place >= 0; place--, digits /= 10) at[place] = (char)('0' + digits % 10);
        at += GROUP_DIGITS;
    }
    *at = '\0';
    value->text_bytes = (size_t)(at - value->text);
}

void draw_variables(const struct variable *variables, unsigned count, uint64_t *state, struct value *values) {
    for (unsigned i = 0; i < count; i++) {
        const struct variable *variable = &variables[i];
        struct value *value = &values[i];
        uint64_t range = (uint64_t)variable->last - (uint64_t)variable->first + 1;
        value->is_number = variable->draw != DIGIT_GROUPS;
        switch (variable->draw) {
        case UNIFORM:
            value->number = (int64_t)((uint64_t)variable->first + next_below(state, range));
            break;
        case SPECIAL: value->number = draw_special(state, variable->first, variable->last); break;
        case OFFSET: value->number = values[variable->first].number + variable->last; break;
        case DIGIT_GROUPS: draw_digits(state, value, variable->first); continue;
        }
        value->text_bytes = (size_t)snprintf(value->text, sizeof value->text, "%lld", (long long)value->number);
    }
}
