/* Every name under which the C library has the same function. Each is looked up, so that one that is missing is left out. */
#include "ways.h"
#include <dlfcn.h>
#include <stdarg.h>

#define COUNT(names) ((int)(sizeof names / sizeof *names))

static void *named(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* Whether the page at an offset reads back. */
static int holds(int file, off_t at, size_t length)
{
    char back[PAGE];
    return pread(file, back, length, at) == (ssize_t)length && memcmp(back, page, length) == 0;
}

static int print_list(int file, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = strcmp(name, "vdprintf") == 0
                      ? ((int (*)(int, const char *, va_list))named(name))(file, format, arguments)
                      : ((int (*)(int, int, const char *, va_list))named(name))(file, 1, format, arguments);
    va_end(arguments);
    return written;
}

/* Each writes a page of its own, whose plaintext would be found. */
int write_aliases(int file)
{
    static const char *at_offsets[] = {"pwrite", "pwrite64", "__pwrite64"};
    static const char *vectors[] = {"pwritev", "pwritev64"};
    static const char *flagged[] = {"pwritev2", "pwritev64v2"};
    static const char *writes[] = {"write", "__write"};
    static const char *lists[] = {"vdprintf", "__vdprintf_chk"};
    struct iovec piece = {page, PAGE};
    off_t at = AT;
    for (int n = 0; n < COUNT(at_offsets); n++, at += PAGE) {
        ssize_t (*call)(int, const void *, size_t, off_t) = named(at_offsets[n]);
        if (call && (call(file, page, PAGE, at) != PAGE || !holds(file, at, PAGE)))
            return EIO;
    }
    for (int n = 0; n < COUNT(vectors); n++, at += PAGE) {
        ssize_t (*call)(int, const struct iovec *, int, off_t) = named(vectors[n]);
        if (call && (call(file, &piece, 1, at) != PAGE || !holds(file, at, PAGE)))
            return EIO;
    }
    for (int n = 0; n < COUNT(flagged); n++, at += PAGE) {
        ssize_t (*call)(int, const struct iovec *, int, off_t, int) = named(flagged[n]);
        if (call && (call(file, &piece, 1, at, 0) != PAGE || !holds(file, at, PAGE)))
            return EIO;
    }
    for (int n = 0; n < COUNT(writes); n++, at += PAGE) {
        ssize_t (*call)(int, const void *, size_t) = named(writes[n]);
        lseek(file, at, SEEK_SET);
        if (call && (call(file, page, PAGE) != PAGE || !holds(file, at, PAGE)))
            return EIO;
    }
    for (int n = 0; n < COUNT(lists); n++, at += PAGE) {
        lseek(file, at, SEEK_SET);
        if (named(lists[n]) && (print_list(file, lists[n], "%.*s", PAGE, page) != PAGE || !holds(file, at, PAGE)))
            return EIO;
    }
    int (*print)(int, int, const char *, ...) = named("__dprintf_chk");
    lseek(file, at, SEEK_SET);
    if (print && (print(file, 1, "%.*s", PAGE, page) != PAGE || !holds(file, at, PAGE)))
        return EIO;
    return 0;
}

/* A function that reads past the library would return ciphertext. */
int read_aliases(int file)
{
    static const char *reads[] = {"read", "__read", "__read_chk"};
    static const char *at_offsets[] = {"pread", "pread64", "__pread64", "__pread_chk", "__pread64_chk"};
    static const char *vectors[] = {"preadv", "preadv64"};
    static const char *flagged[] = {"preadv2", "preadv64v2"};
    char back[PAGE];
    struct iovec piece = {back, PAGE};
#define EXPECT_PAGE(call) \
    if ((memset(back, 0, PAGE), (call)) != PAGE || memcmp(back, page, PAGE) != 0) \
        return EIO
    for (int n = 0; n < COUNT(reads); n++) {
        ssize_t (*call)(int, void *, size_t, size_t) = named(reads[n]);
        lseek(file, 0, SEEK_SET);
        if (call)
            EXPECT_PAGE(call(file, back, PAGE, PAGE));
    }
    for (int n = 0; n < COUNT(at_offsets); n++) {
        ssize_t (*call)(int, void *, size_t, off_t, size_t) = named(at_offsets[n]);
        if (call)
            EXPECT_PAGE(call(file, back, PAGE, 0, PAGE));
    }
    for (int n = 0; n < COUNT(vectors); n++) {
        ssize_t (*call)(int, const struct iovec *, int, off_t) = named(vectors[n]);
        if (call)
            EXPECT_PAGE(call(file, &piece, 1, 0));
    }
    for (int n = 0; n < COUNT(flagged); n++) {
        ssize_t (*call)(int, const struct iovec *, int, off_t, int) = named(flagged[n]);
        if (call)
            EXPECT_PAGE(call(file, &piece, 1, 0, 0));
    }
    lseek(file, 0, SEEK_SET);
    EXPECT_PAGE(readv(file, &piece, 1));
    static const char *streams[] = {"fopen", "fopen64", "_IO_fopen"};
    for (int n = 0; n < COUNT(streams); n++) {
        FILE *(*call)(const char *, const char *) = named(streams[n]);
        FILE *stream = call ? call(FILE_OF_CLUSTER, "r") : NULL;
        if (call && !stream)
            return errno;
        if (call)
            EXPECT_PAGE((ssize_t)fread(back, 1, PAGE, stream));
        if (stream)
            fclose(stream);
    }
    return write_page(file);
}

/* A short unit at the end of a file must be encrypted again when the size changes. */
int size_aliases(int file)
{
    static const char *cuts[] = {"ftruncate", "ftruncate64"};
    static const char *cuts_by_name[] = {"truncate", "truncate64"};
    static const char *grows[] = {"fallocate", "fallocate64"};
    static const char *grows_portably[] = {"posix_fallocate", "posix_fallocate64"};
    const size_t half = PAGE / 2;
    for (int n = 0; n < COUNT(cuts); n++) {
        int (*call)(int, off_t) = named(cuts[n]);
        if (call && (pwrite(file, page, PAGE, 0) != PAGE || call(file, half) < 0 || !holds(file, 0, half)))
            return EIO;
    }
    for (int n = 0; n < COUNT(cuts_by_name); n++) {
        int (*call)(const char *, off_t) = named(cuts_by_name[n]);
        if (call
            && (pwrite(file, page, PAGE, 0) != PAGE || call(FILE_OF_CLUSTER, half) < 0 || !holds(file, 0, half)))
            return EIO;
    }
    for (int n = 0; n < COUNT(grows); n++) {
        int (*call)(int, int, off_t, off_t) = named(grows[n]);
        if (call && (ftruncate(file, half) < 0 || call(file, 0, 0, PAGE) < 0 || !holds(file, 0, half)))
            return EIO;
    }
    for (int n = 0; n < COUNT(grows_portably); n++) {
        int (*call)(int, off_t, off_t) = named(grows_portably[n]);
        if (call && (ftruncate(file, half) < 0 || call(file, 0, PAGE) != 0 || !holds(file, 0, half)))
            return EIO;
    }
    return write_page(file);
}

/* Calls that must fail. Prints which one did not. */
int refused_aliases(int file)
{
    static const char *maps[] = {"mmap", "mmap64"};
    static const char *sends[] = {"sendfile", "sendfile64"};
    static const char *requests[] = {"aio_read", "aio_read64", "aio_write", "aio_write64"};
    static const char *lists[] = {"lio_listio", "lio_listio64"};
    static const char *reopens[] = {"freopen", "freopen64"};
    static const char *rings[] = {"io_uring_queue_init", "io_uring_queue_init_mem", "io_uring_queue_init_params", "io_setup", "io_queue_init"};
    static const char *links[] = {"link", "rename"};
    static struct aiocb request;
    struct aiocb *list[] = {&request};
    int unnoticed = 0;
    for (int n = 0; n < COUNT(maps); n++) {
        void *(*call)(void *, size_t, int, int, int, off_t) = named(maps[n]);
        unnoticed += call && call(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED;
    }
    for (int n = 0; n < COUNT(sends); n++) {
        ssize_t (*call)(int, int, off_t *, size_t) = named(sends[n]);
        unnoticed += call && call(file, source(), NULL, PAGE) >= 0;
    }
    request.aio_fildes = file;
    request.aio_buf = page;
    request.aio_nbytes = PAGE;
    request.aio_lio_opcode = LIO_READ;
    for (int n = 0; n < COUNT(requests); n++) {
        int (*call)(struct aiocb *) = named(requests[n]);
        unnoticed += call && call(&request) == 0;
    }
    for (int n = 0; n < COUNT(lists); n++) {
        int (*call)(int, struct aiocb *const[], int, struct sigevent *) = named(lists[n]);
        unnoticed += call && call(LIO_WAIT, list, 1, NULL) == 0;
    }
    for (int n = 0; n < COUNT(reopens); n++) {
        FILE *(*call)(const char *, const char *, FILE *) = named(reopens[n]);
        close(source());
        unnoticed += call && call(FILE_OF_CLUSTER, "r+", fopen("../plain-source", "r")) != NULL;
    }
    /* Of liburing and libaio there is nothing but what the library defines. */
    for (int n = 0; n < COUNT(rings); n++) {
        int (*call)(long, long, long, long) = named(rings[n]);
        unnoticed += !call || call(1, 0, 0, 0) >= 0;
    }
    for (int n = 0; n < COUNT(links); n++) {
        int (*call)(const char *, const char *) = named(links[n]);
        unnoticed += call(FILE_OF_CLUSTER, "base/5/16399") == 0;
    }
    unnoticed += linkat(AT_FDCWD, FILE_OF_CLUSTER, AT_FDCWD, "base/5/16399", 0) == 0;
    unnoticed += renameat(AT_FDCWD, FILE_OF_CLUSTER, AT_FDCWD, "base/5/16399") == 0;
    unnoticed += renameat2(AT_FDCWD, FILE_OF_CLUSTER, AT_FDCWD, "base/5/16399", 0) == 0;
    return unnoticed ? EIO : EPERM;
}

/* What was known of a number must be forgotten when it is closed or replaced: the next file with this number is another. */
static int reused(int number)
{
    int other = (int)machine_call(SYS_openat, AT_FDCWD, (long)FILE_OF_CLUSTER, O_RDWR, 0);
    if (other != number)
        return EBADF;
    int failed = write_page(other);
    return failed ? failed : holds(other, AT, PAGE) ? 0 : EIO;
}

/* A descriptor of another file, which the library knows. */
static int known(void)
{
    int other = source();
    return write(other, "", 1) == 1 ? other : -1;
}

int close_aliases(int file)
{
    static const char *closes[] = {"close", "__close", "closefrom"};
    static const char *streams[] = {"fclose", "_IO_fclose"};
    static const char *copies[] = {"dup2", "__dup2"};
    int failed = 0, other;
    for (int n = 0; n < COUNT(closes) && !failed; n++) {
        int (*call)(int) = named(closes[n]);
        if (!call)
            continue;
        other = known();
        call(other);
        failed = reused(other);
        machine_call(SYS_close, other, 0, 0, 0);
    }
    for (int n = 0; n < COUNT(streams) && !failed; n++) {
        int (*call)(FILE *) = named(streams[n]);
        other = known();
        if (call && call(fdopen(other, "r+")) == 0)
            failed = reused(other);
        machine_call(SYS_close, other, 0, 0, 0);
    }
    other = known();
    if (!failed && close_range((unsigned)other, (unsigned)other, 0) == 0)
        failed = reused(other);
    for (int n = 0; n < COUNT(copies) && !failed; n++) {
        int (*call)(int, int) = named(copies[n]);
        other = known();
        if (call && call(file, other) == other)
            failed = write_page(other);
    }
    other = known();
    if (!failed && dup3(file, other, 0) == other)
        failed = write_page(other);
    return failed;
}

/* After a copy of a descriptor appends, all must append. */
int flag_aliases(int file)
{
    static const char *names[] = {"fcntl", "fcntl64", "__fcntl"};
    for (int n = 0; n < COUNT(names); n++) {
        int (*call)(int, int, ...) = named(names[n]);
        if (!call)
            continue;
        int other = open(FILE_OF_CLUSTER, O_RDWR);
        if (ftruncate(other, AT) < 0 || lseek(other, 0, SEEK_SET) != 0 || call(other, F_SETFL, O_APPEND) < 0)
            return errno;
        if (write(other, page, PAGE) != PAGE || !holds(file, AT, PAGE) || !holds(file, 0, PAGE))
            return EIO;
        close(other);
    }
    return 0;
}

/* Opening for writing only: part of a unit can be written all the same, because the library also reads. */
int open_aliases(int file)
{
    static const char *opens[] = {"open", "open64", "__open", "__open64", "__open_2", "__open64_2"};
    static const char *opens_at[] = {"openat", "openat64", "__openat_2", "__openat64_2"};
    static const char *creates[] = {"creat", "creat64"};
    (void)file;
    int other = -1;
#define EXPECT_PART() \
    if (other < 0 || pwrite(other, page + 1000, 100, 1000) != 100) \
        return errno ? errno : EIO; \
    close(other)
    for (int n = 0; n < COUNT(opens); n++) {
        int (*call)(const char *, int, ...) = named(opens[n]);
        if (!call)
            continue;
        other = call(FILE_OF_CLUSTER, O_WRONLY);
        EXPECT_PART();
    }
    for (int n = 0; n < COUNT(opens_at); n++) {
        int (*call)(int, const char *, int, ...) = named(opens_at[n]);
        if (!call)
            continue;
        other = call(AT_FDCWD, FILE_OF_CLUSTER, O_WRONLY);
        EXPECT_PART();
    }
    for (int n = 0; n < COUNT(creates); n++) {
        int (*call)(const char *, mode_t) = named(creates[n]);
        if (!call)
            continue;
        other = call(FILE_OF_CLUSTER, 0600);
        if (other < 0 || pwrite(other, page, PAGE, 0) != PAGE)
            return errno;
        EXPECT_PART();
    }
    return write_page(file);
}
