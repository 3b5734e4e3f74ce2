/* Runs a way, and checks what it wrote. */
#include "ways.h"

char page[PAGE] __attribute__((aligned(4096)));
int io_method = 0;
_Bool am_walsender = 0;
const char *debug_query_string = 0;

int result(ssize_t count)
{
    if (count == PAGE)
        return 0;
    return count < 0 ? errno : EIO;
}

int write_page(int file)
{
    return result(pwrite(file, page, PAGE, AT));
}

int seek(int file)
{
    return lseek(file, AT, SEEK_SET) == AT ? 0 : errno;
}

int source(void)
{
    int file = open("../plain-source", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || pwrite(file, page, PAGE, 0) != PAGE)
        exit(3);
    lseek(file, 0, SEEK_SET);
    return file;
}

static const struct {
    const char *name;
    int (*run)(int file);
} ways[] = {
#define ENTRY(name) {#name, name},
    WAYS(ENTRY)
};

int main(int count, char **arguments)
{
    for (int n = 0; n < PAGE; n++)
        page[n] = MARKER "\n"[n % (sizeof MARKER)];
    signal(SIGPIPE, SIG_IGN);
    if (count < 2)
        return 2;
    /* Other arguments are for the library. */
    const char *way = arguments[count - 1];
    for (unsigned n = 0; n < sizeof ways / sizeof *ways; n++) {
        if (strcmp(ways[n].name, way) != 0)
            continue;
        int file = open(FILE_OF_CLUSTER, O_RDWR | O_CREAT, 0600);
        if (file < 0 || pwrite(file, page, PAGE, 0) != PAGE)
            return 3;
        int failed = ways[n].run(file);
        unlink("../plain-source");
        if (failed) {
            printf(failed < 0 ? "absent %d" : "refused %d", abs(failed));
            return 0;
        }
        char back[PAGE];
        int other = open(FILE_OF_CLUSTER, O_RDONLY);
        ssize_t held = pread(other, back, PAGE, AT);
        printf(held == PAGE && memcmp(back, page, PAGE) == 0 ? "wrote" : "garbled");
        return 0;
    }
    return 2;
}
