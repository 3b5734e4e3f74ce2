/*
 * Random sequences of operations on descriptors, in this process, its threads and its children. Prints what was read. With
 * the library the output must be the same as without. RANDOM_SEED and RANDOM_SEQUENCES choose the sequences.
 */
#include "ways.h"
#include <stdint.h>

enum { SLOTS = 8, STEPS = 60, MOST_BYTES = 3 * PAGE };

static const char *const names[] = {FILE_OF_CLUSTER, "base/5/16385", "pg_replslot/a/state", "../outside"};
enum { NAMES = sizeof names / sizeof *names, RELATIONS = 2 };

struct slot {
    int file;
    int name;
    int appends;
};

static struct slot slots[SLOTS];
static uint64_t random_state;
static char bytes[MOST_BYTES];

static unsigned below(unsigned limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % limit;
}

static uint64_t sum(const char *from, ssize_t count)
{
    uint64_t hash = 14695981039346656037u;
    for (ssize_t n = 0; n < count; n++)
        hash = (hash ^ (unsigned char)from[n]) * 1099511628211u;
    return hash;
}

static struct slot *any(void)
{
    return &slots[below(SLOTS)];
}

/* A server writes relations only in pages. */
static size_t length_for(const struct slot *slot)
{
    return slot->name < RELATIONS ? (1 + below(2)) * PAGE : 1 + below(1500);
}

static off_t offset_for(const struct slot *slot)
{
    return slot->name < RELATIONS ? (off_t)below(3) * PAGE : (off_t)below(3000);
}

static void fill(size_t length)
{
    unsigned first = below(PAGE);
    for (size_t n = 0; n < length; n++)
        bytes[n] = page[(first + n) % PAGE];
}

static void write_somewhere(struct slot *slot)
{
    size_t length = length_for(slot);
    off_t offset = offset_for(slot);
    fill(length);
    struct iovec pieces[2] = {{bytes, length / 2}, {bytes + length / 2, length - length / 2}};
    unsigned how = below(slot->appends ? 3 : 6);
    ssize_t count = -1;
    if (!slot->appends)
        lseek(slot->file, offset, SEEK_SET);
    switch (how) {
    case 0: count = write(slot->file, bytes, length); break;
    case 1: count = writev(slot->file, pieces, 2); break;
    case 2: count = syscall(SYS_write, slot->file, bytes, length); break;
    case 3: count = pwrite(slot->file, bytes, length, offset); break;
    case 4: count = pwritev(slot->file, pieces, 2, offset); break;
    default: count = syscall(SYS_pwrite64, slot->file, bytes, length, offset); break;
    }
    printf(" wrote %zd", count);
}

static void read_somewhere(const struct slot *slot)
{
    static char back[MOST_BYTES];
    size_t length = 1 + below(MOST_BYTES - 1);
    off_t offset = (off_t)below(4 * PAGE);
    ssize_t count = pread(slot->file, back, length, offset);
    printf(" read %zd %llx", count, (unsigned long long)sum(back, count));
}

static void open_file(struct slot *slot)
{
    int name = (int)below(NAMES);
    int appends = name == 2 && below(3) == 0;
    slot->file = open(names[name], O_RDWR | O_CREAT | (appends ? O_APPEND : 0), 0600);
    slot->name = name;
    slot->appends = appends;
    printf(" opened %d", slot->file >= 0);
}

static void close_file(struct slot *slot)
{
    switch (below(3)) {
    case 0: close(slot->file); break;
    case 1: close_range((unsigned)slot->file, (unsigned)slot->file, 0); break;
    default: syscall(SYS_close, slot->file); break;
    }
    slot->file = -1;
}

/* Copies a descriptor to the number of another one, or to a new number. */
static void copy(const struct slot *from, struct slot *to)
{
    if (from == to)
        return;
    int file = to->file;
    if (file < 0)
        file = below(2) ? dup(from->file) : fcntl(from->file, F_DUPFD, 3);
    else if (below(3) == 0)
        file = dup3(from->file, file, O_CLOEXEC);
    else
        file = below(2) ? dup2(from->file, file) : (int)syscall(SYS_dup3, from->file, file, 0);
    printf(" copied %d", file >= 0);
    *to = *from;
    to->file = file;
}

/* A child with shared memory and descriptors of its own: nothing of it may matter here. */
static void child_with_our_memory(const struct slot *one, const struct slot *other)
{
    unsigned how = below(4);
    pid_t child = vfork();
    if (child == 0) {
        if (how == 0)
            close_range(3, ~0u, 0);
        else if (how == 1)
            close(one->file);
        else if (how == 2 && one->file >= 0 && other->file >= 0)
            dup2(one->file, other->file);
        else
            closefrom(3);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void child_with_a_copy(struct slot *slot)
{
    fflush(stdout);
    pid_t child = below(2) ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0) {
        write_somewhere(slot);
        read_somewhere(slot);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    /* The child used its own state. */
    below(1);
}

static void spawn(void)
{
    char *arguments[] = {(char *)"true", NULL};
    pid_t child;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int n = 0; n < SLOTS; n++)
        if (slots[n].file >= 0)
            posix_spawn_file_actions_addclose(&actions, slots[n].file);
    if (posix_spawnp(&child, "true", &actions, NULL, arguments, environ) == 0)
        waitpid(child, NULL, 0);
    posix_spawn_file_actions_destroy(&actions);
}

static void *in_thread(void *slot)
{
    write_somewhere(slot);
    return NULL;
}

static void step(void)
{
    struct slot *slot = any();
    pthread_t thread;
    if (slot->file < 0) {
        open_file(slot);
        return;
    }
    switch (below(12)) {
    case 0: close_file(slot); break;
    case 1: copy(slot, any()); break;
    case 2: child_with_our_memory(slot, any()); break;
    case 3: child_with_a_copy(slot); break;
    case 4: spawn(); break;
    case 5:
        if (pthread_create(&thread, NULL, in_thread, slot) == 0)
            pthread_join(thread, NULL);
        break;
    case 6: printf(" cut %d", ftruncate(slot->file, offset_for(slot))); break;
    case 7:
    case 8: read_somewhere(slot); break;
    default: write_somewhere(slot); break;
    }
}

static void sequence(void)
{
    for (int n = 0; n < SLOTS; n++)
        slots[n].file = -1;
    for (int n = 0; n < STEPS; n++)
        step();
    for (int n = 0; n < SLOTS; n++)
        if (slots[n].file >= 0)
            close(slots[n].file);
    /* Copies are equal to their originals. */
    for (int n = 0; n < NAMES; n++) {
        static char back[64 * PAGE];
        int file = open(names[n], O_RDONLY);
        ssize_t count = file < 0 ? -1 : pread(file, back, sizeof back, 0);
        printf("\n%s %zd %llx", names[n], count, (unsigned long long)sum(back, count));
        if (file >= 0)
            close(file);
        /* A new file the next time. */
        if (n > 0)
            unlink(names[n]);
    }
    printf("\n");
}

int random_descriptors(int file)
{
    const char *seed = getenv("RANDOM_SEED"), *sequences = getenv("RANDOM_SEQUENCES");
    mkdir("pg_replslot", 0700);
    mkdir("pg_replslot/a", 0700);
    int first = seed ? atoi(seed) : 1, count = sequences ? atoi(sequences) : 3;
    for (int n = 0; n < count; n++) {
        random_state = (uint64_t)(first + n);
        below(1);
        printf("%d:", first + n);
        sequence();
    }
    return write_page(file);
}
