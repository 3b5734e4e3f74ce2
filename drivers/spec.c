/* Reads the trial, a TrialSpec in JSON, from stdin. Fails if the driver does not support it. */
#define _GNU_SOURCE
#include "spec.h"

#include "message.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SPEC_BYTES = 1 << 20, MAX_PASSWORD_BYTES = 4096 };

static struct spec spec;

static json_t *get(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    if (!value) die(FAULT_INTERNAL, "the trial's specification has no `%s`", key);
    return value;
}

static const char *text_of(json_t *object, const char *key) {
    const char *text = json_string_value(get(object, key));
    if (!text) die(FAULT_INTERNAL, "`%s` in the trial's specification is not a string", key);
    return text;
}

static int64_t number_of(json_t *object, const char *key) {
    json_t *number = get(object, key);
    if (!json_is_integer(number)) die(FAULT_INTERNAL, "`%s` in the trial's specification is not an integer", key);
    return json_integer_value(number);
}

/* The length of a list, 0 if it is absent. Fails above `limit`. */
static unsigned length_of(json_t *list, const char *what, unsigned limit) {
    size_t length = json_array_size(list);
    if (length > limit) die(FAULT_INTERNAL, "the trial's specification has more than %u %s", limit, what);
    return (unsigned)length;
}

static unsigned index_of(json_t *number, unsigned limit, const char *what) {
    json_int_t index = json_integer_value(number);
    if (!json_is_integer(number) || index < 0 || index >= limit)
        die(FAULT_INTERNAL, "the script refers to %s that does not exist", what);
    return (unsigned)index;
}

/* The tag of an enum: the string itself, or the only key of an object, whose value is returned. */
static const char *tag_of(json_t *tagged, json_t **body) {
    *body = NULL;
    if (json_is_string(tagged)) return json_string_value(tagged);
    void *only = json_object_iter(tagged);
    if (!only) die(FAULT_INTERNAL, "the trial's specification has an invalid enum");
    *body = json_object_iter_value(only);
    return json_object_iter_key(only);
}

static void read_draw(json_t *draw, unsigned number) {
    struct variable *variable = &spec.variables[number];
    const char *name = text_of(draw, "draw");
    if (strcmp(name, "uniform") == 0 || strcmp(name, "special") == 0) {
        variable->draw = strcmp(name, "uniform") == 0 ? UNIFORM : SPECIAL;
        variable->first = number_of(draw, "first");
        variable->last = number_of(draw, "last");
        if (variable->last < variable->first) die(FAULT_INTERNAL, "a variable's range is empty");
    } else if (strcmp(name, "offset") == 0) {
        variable->draw = OFFSET;
        variable->first = index_of(get(draw, "of"), number, "a variable");
        variable->last = number_of(draw, "by");
        if (spec.variables[variable->first].draw == DIGIT_GROUPS)
            die(FAULT_INTERNAL, "an offset needs a variable that is a number");
    } else if (strcmp(name, "digit_groups") == 0) {
        variable->draw = DIGIT_GROUPS;
        variable->first = number_of(draw, "groups");
        if (variable->first < 1 || variable->first * (GROUP_DIGITS + 1) > VALUE_CHARS)
            die(FAULT_INTERNAL, "a variable has too many groups of digits");
    } else {
        die(FAULT_INTERNAL, "this driver does not support the draw `%s`", name);
    }
}

/* Splits a text at its placeholders, `?` or `$1`, outside quotes. */
static void cut(struct script_statement *statement) {
    const char *start = statement->plain.sql;
    const bool numbered = strcmp(spec.trial.engine, "postgres") == 0;
    char quote = '\0';
    unsigned next = 0;
    for (const char *at = start; *at; at++) {
        if (quote) {
            if (*at == quote) quote = '\0';
        } else if (*at == '\'' || *at == '"' || *at == '`') {
            quote = *at;
        } else if (numbered ? (*at == '$' && at[1] >= '1' && at[1] <= '9') : *at == '?') {
            if (statement->piece_count >= MAX_PARAMETERS) die(FAULT_INTERNAL, "a statement has too many parameters");
            char *end = (char *)(uintptr_t)(at + 1);
            unsigned parameter = numbered ? (unsigned)strtoul(at + 1, &end, 10) - 1 : next++;
            statement->pieces[statement->piece_count].text = start;
            statement->pieces[statement->piece_count].bytes = (size_t)(at - start);
            statement->pieces[statement->piece_count++].parameter = parameter;
            if (parameter >= statement->plain.parameters) statement->plain.parameters = parameter + 1;
            start = end;
            at = end - 1;
        }
    }
    statement->pieces[statement->piece_count].text = start;
    statement->pieces[statement->piece_count++].bytes = strlen(start);
}

static void read_statement(json_t *from, unsigned number) {
    struct script_statement *statement = &spec.statements[number];
    const char *protocol = text_of(from, "protocol");
    statement->plain.sql = text_of(from, "sql");
    statement->prepared = strcmp(protocol, "prepared") == 0;
    if (!statement->prepared && strcmp(protocol, "text") != 0)
        die(FAULT_INTERNAL, "this driver does not support the protocol `%s`", protocol);
    if (strlen(statement->plain.sql) > MAX_SQL_CHARS / 2) die(FAULT_INTERNAL, "a statement is too long");
    cut(statement);
}

static void read_step(json_t *from, unsigned number) {
    struct step *step = &spec.steps[number];
    json_t *parameters = json_object_get(from, "parameters");
    step->statement = index_of(get(from, "statement"), spec.statement_count, "a statement");
    step->count = length_of(parameters, "parameters", MAX_PARAMETERS);
    const struct script_statement *statement = &spec.statements[step->statement];
    if (statement->plain.parameters != step->count)
        die(FAULT_INTERNAL, "a step's parameters do not match its statement's placeholders");
    for (unsigned i = 0; i < step->count; i++) {
        step->parameters[i] = index_of(json_array_get(parameters, i), spec.variable_count, "a variable");
        if (!statement->prepared && spec.variables[step->parameters[i]].draw == DIGIT_GROUPS)
            die(FAULT_INTERNAL, "only numbers can be inserted into the text of a statement");
    }
}

static void read_script(json_t *script) {
    json_t *statements = get(script, "statements"), *variables = get(script, "variables");
    json_t *steps = get(script, "steps"), *retry_on = json_object_get(script, "retry_on");
    spec.min_row_bytes = (uint64_t)json_integer_value(json_object_get(script, "min_row_bytes"));
    spec.statement_count = length_of(statements, "statements", MAX_STATEMENTS);
    spec.variable_count = length_of(variables, "variables", MAX_VARIABLES);
    spec.step_count = length_of(steps, "steps", MAX_STEPS);
    spec.retry_count = length_of(retry_on, "errors to begin again after", MAX_RETRY_CODES);
    if (spec.step_count == 0) die(FAULT_INTERNAL, "the script has no step");
    for (unsigned i = 0; i < spec.variable_count; i++) read_draw(json_array_get(variables, i), i);
    for (unsigned i = 0; i < spec.statement_count; i++) read_statement(json_array_get(statements, i), i);
    for (unsigned i = 0; i < spec.step_count; i++) read_step(json_array_get(steps, i), i);
    for (unsigned i = 0; i < spec.retry_count; i++) {
        const char *code = json_string_value(json_array_get(retry_on, i));
        spec.retry_on[i] = code ? code : "";
    }
}

static void read_work(json_t *work) {
    static const char *const NAMES[] = {"connect", "connect_query", "first_query", "transactions"};
    json_t *script;
    const char *name = tag_of(work, &script);
    for (spec.work = CONNECT; spec.work <= TRANSACTIONS; spec.work++)
        if (strcmp(name, NAMES[spec.work]) == 0) break;
    if (spec.work > TRANSACTIONS) die(FAULT_INTERNAL, "this driver does not support the work `%s`", name);
    if (spec.work != CONNECT) read_script(script);
    if (spec.work == CONNECT_QUERY || spec.work == FIRST_QUERY) {
        spec.step_count = 1;
        /* On a fresh connection, as text. */
        spec.statements[spec.steps[0].statement].prepared = false;
        for (unsigned i = 0; i < spec.steps[0].count; i++)
            if (spec.variables[spec.steps[0].parameters[i]].draw == DIGIT_GROUPS)
                die(FAULT_INTERNAL, "only numbers can be inserted into the text of a statement");
    }
}

static void read_endpoint(json_t *endpoint) {
    json_t *body;
    const char *name = tag_of(endpoint, &body);
    const char *text = json_string_value(body);
    if (!text) die(FAULT_INTERNAL, "the endpoint is not a string");
    if (strcmp(name, "unix") == 0) {
        spec.trial.socket = text;
        return;
    }
    static char host[64];
    const char *colon = strrchr(text, ':');
    if (!colon) die(FAULT_INTERNAL, "the endpoint has no port");
    bool bracketed = *text == '[';
    snprintf(host, sizeof host, "%.*s", (int)(colon - text) - 2 * bracketed, text + bracketed);
    spec.trial.host = host;
    spec.trial.port = (uint16_t)strtoul(colon + 1, NULL, 10);
}

static void read_tls(json_t *from) {
    struct tls *tls = &spec.trial.tls;
    if (json_is_null(from)) return;
    const char *ctx = text_of(from, "ctx");
    json_t *library = json_object_get(from, "library"), *identity = json_object_get(from, "identity");
    if (strcmp(ctx, "per-connect") != 0) die(FAULT_INTERNAL, "%s always builds its TLS context per connect", DRIVER_NAME);
    if (library && strcmp(json_string_value(library) ?: "", "openssl") != 0)
        die(FAULT_INTERNAL, "%s uses its own TLS library", DRIVER_NAME);
    json_t *start = json_object_get(from, "start");
    tls->wanted = true;
    tls->version = text_of(from, "version");
    tls->ca_file = text_of(from, "ca_file");
    tls->server_name = text_of(from, "server_name");
    tls->direct = start && strcmp(json_string_value(start) ?: "", "direct") == 0;
    if (!json_is_object(identity)) return;
    tls->certificate_file = text_of(identity, "certificate_file");
    tls->key_file = text_of(identity, "key_file");
}

static const char *read_password(const char *path) {
    static char password[MAX_PASSWORD_BYTES + 1];
    FILE *file = fopen(path, "re");
    if (!file) die(FAULT_HOST, "cannot read the password file: %s", strerror(errno));
    size_t length = fread(password, 1, sizeof password, file);
    fclose(file);
    if (length > MAX_PASSWORD_BYTES) die(FAULT_HOST, "the password is longer than %d bytes", MAX_PASSWORD_BYTES);
    password[length] = '\0';
    return password;
}

static void keep_to_processors(json_t *processors) {
    if (!json_is_array(processors)) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = 0; i < json_array_size(processors); i++) {
        json_int_t processor = json_integer_value(json_array_get(processors, i));
        if (processor >= 0 && processor < CPU_SETSIZE) CPU_SET((unsigned)processor, &set);
    }
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die(FAULT_HOST, "cannot pin to the processors of the specification: %s", strerror(errno));
}

/* Reads the seed from the text: it uses all 64 bits, and jansson's integers are signed. */
static uint64_t take_seed(char *text) {
    static const char KEY[] = "\"seed\":";
    char *at = strstr(text, KEY), *end;
    if (!at) die(FAULT_INTERNAL, "the trial's specification has no `seed`");
    at += sizeof KEY - 1;
    uint64_t seed = strtoull(at, &end, 10);
    if (end > at) {
        memset(at, ' ', (size_t)(end - at));
        *at = '0';
    }
    return seed;
}

const struct spec *read_spec(void) {
    static char text[MAX_SPEC_BYTES];
    json_error_t error;
    if (!fgets(text, sizeof text, stdin)) die(FAULT_INTERNAL, "no specification on stdin");
    spec.seed = take_seed(text);
    json_t *from = json_loads(text, 0, &error);
    if (!from) die(FAULT_INTERNAL, "the trial's specification does not parse: %s", error.text);
    spec.trial.engine = text_of(from, "engine");
    spec.trial.auth = text_of(from, "auth");
    spec.trial.user = text_of(from, "user");
    spec.trial.database = json_string_value(get(from, "database"));
    spec.trial.password = read_password(text_of(from, "password_file"));
    const char *const *engine = DRIVER_ENGINES;
    while (*engine && strcmp(spec.trial.engine, *engine) != 0) engine++;
    if (!*engine) die(FAULT_INTERNAL, "%s does not support %s", DRIVER_NAME, spec.trial.engine);
    json_t *pace = get(from, "pace");
    if (!json_is_string(pace) || strcmp(json_string_value(pace), "closed") != 0)
        die(FAULT_INTERNAL, "%s does not support a schedule, only pace closed", DRIVER_NAME);
    read_endpoint(get(from, "endpoint"));
    read_tls(get(from, "tls"));
    read_work(get(from, "work"));
    keep_to_processors(json_object_get(from, "processors"));
    int64_t clients = number_of(from, "clients");
    if (clients < 1 || clients > MAX_CLIENTS) die(FAULT_INTERNAL, "clients must be 1 to %d", MAX_CLIENTS);
    spec.clients = (unsigned)clients;
    spec.warm_up_ns = number_of(from, "warm_up_ns");
    spec.window_ns = number_of(from, "window_ns");
    /* `from` owns the strings above and is never freed. */
    return &spec;
}
