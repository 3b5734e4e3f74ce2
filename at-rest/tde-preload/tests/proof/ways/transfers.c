/* Ways that move bytes. */
#include "ways.h"
#include <dlfcn.h>

int by_write(int file)
{
    return seek(file) ? errno : result(write(file, page, PAGE));
}

int by_writev(int file)
{
    struct iovec pieces[] = {{page, 100}, {page + 100, PAGE - 100}};
    return seek(file) ? errno : result(writev(file, pieces, 2));
}

int by_pwritev(int file)
{
    struct iovec pieces[] = {{page, 100}, {page + 100, PAGE - 100}};
    return result(pwritev(file, pieces, 2, AT));
}

int by_pwritev2(int file)
{
    struct iovec pieces[] = {{page, 100}, {page + 100, PAGE - 100}};
    return result(pwritev2(file, pieces, 2, AT, 0));
}

int by_pwritev2_append(int file)
{
    struct iovec piece = {page, PAGE};
    return result(pwritev2(file, &piece, 1, AT, RWF_APPEND));
}

int by_aliases(int file)
{
    extern ssize_t __write(int, const void *, size_t), __pwrite64(int, const void *, size_t, off_t);
    extern int __open(const char *, int, ...), __close(int);
    int other = __open(FILE_OF_CLUSTER, O_RDWR);
    if (other < 0 || seek(other) || result(__write(other, page, PAGE)) || __close(other) < 0)
        return errno;
    return result(__pwrite64(file, page, PAGE, AT));
}

int raw_write(int file)
{
    return seek(file) ? errno : result(syscall(SYS_write, file, page, (size_t)PAGE));
}

int raw_pwrite(int file)
{
    return result(syscall(SYS_pwrite64, file, page, (size_t)PAGE, (off_t)AT));
}

int raw_pwritev(int file)
{
    struct iovec piece = {page, PAGE};
    return result(syscall(SYS_pwritev, file, &piece, 1, (unsigned long)AT, 0UL));
}

int raw_pwritev2(int file)
{
    struct iovec piece = {page, PAGE};
    return result(syscall(SYS_pwritev2, file, &piece, 1, (unsigned long)AT, 0UL, 0));
}

int raw_writev(int file)
{
    struct iovec piece = {page, PAGE};
    return seek(file) ? errno : result(syscall(SYS_writev, file, &piece, 1));
}

int by_dprintf(int file)
{
    return seek(file) ? errno : result(dprintf(file, "%.*s", PAGE, page));
}

int by_stream(int file)
{
    (void)file;
    FILE *stream = fopen(FILE_OF_CLUSTER, "r+");
    if (!stream || fseek(stream, AT, SEEK_SET) != 0 || fwrite(page, 1, PAGE, stream) != PAGE)
        return errno;
    return fclose(stream) == 0 ? 0 : errno;
}

int by_fdopen(int file)
{
    FILE *stream = fdopen(file, "r+");
    if (!stream || fseek(stream, AT, SEEK_SET) != 0 || fwrite(page, 1, PAGE, stream) != PAGE)
        return errno;
    return fclose(stream) == 0 ? 0 : errno;
}

/* By the other name that the C library exports. */
int by_alias_fdopen(int file)
{
    FILE *(*call)(int, const char *) = (FILE *(*)(int, const char *))dlsym(RTLD_DEFAULT, "_IO_fdopen");
    FILE *stream = call ? call(file, "r+") : fdopen(file, "r+");
    if (!stream || fseek(stream, AT, SEEK_SET) != 0 || fwrite(page, 1, PAGE, stream) != PAGE)
        return errno;
    return fclose(stream) == 0 ? 0 : errno;
}

int by_freopen(int file)
{
    (void)file;
    FILE *stream = fopen("/dev/null", "w");
    stream = freopen(FILE_OF_CLUSTER, "r+", stream);
    if (!stream)
        return errno;
    fseek(stream, AT, SEEK_SET);
    fwrite(page, 1, PAGE, stream);
    return fclose(stream) == 0 ? 0 : errno;
}

int by_alias_stream(int file)
{
    (void)file;
    if (symlink("data", "../alias") < 0)
        return errno;
    FILE *stream = fopen("../alias/" FILE_OF_CLUSTER, "r+");
    if (!stream)
        return errno;
    fseek(stream, AT, SEEK_SET);
    fwrite(page, 1, PAGE, stream);
    return fclose(stream) == 0 ? 0 : errno;
}

/* A link elsewhere to the file itself. */
int by_linked(int file)
{
    (void)file;
    if (symlink("data/" FILE_OF_CLUSTER, "../linked") < 0)
        return errno;
    int other = open("../linked", O_RDWR);
    return other < 0 ? errno : write_page(other);
}

int by_linked_stream(int file)
{
    (void)file;
    if (symlink("data/" FILE_OF_CLUSTER, "../linked") < 0)
        return errno;
    FILE *stream = fopen("../linked", "r+");
    if (!stream)
        return errno;
    fseek(stream, AT, SEEK_SET);
    fwrite(page, 1, PAGE, stream);
    return fclose(stream) == 0 ? 0 : errno;
}

int by_sendfile(int file)
{
    return seek(file) ? errno : result(sendfile(file, source(), NULL, PAGE));
}

int raw_sendfile(int file)
{
    return seek(file) ? errno : result(syscall(SYS_sendfile, file, source(), NULL, (size_t)PAGE));
}

int by_splice(int file)
{
    int ends[2];
    off_t at = AT;
    if (pipe(ends) < 0 || write(ends[1], page, PAGE) != PAGE)
        return errno;
    return result(splice(ends[0], NULL, file, &at, PAGE, 0));
}

int raw_splice(int file)
{
    int ends[2];
    off_t at = AT;
    if (pipe(ends) < 0 || write(ends[1], page, PAGE) != PAGE)
        return errno;
    return result(syscall(SYS_splice, ends[0], NULL, file, &at, (size_t)PAGE, 0));
}

int by_vmsplice(int file)
{
    int ends[2];
    off_t at = AT;
    struct iovec piece = {page, PAGE};
    if (pipe(ends) < 0 || vmsplice(ends[1], &piece, 1, 0) != PAGE)
        return errno;
    return result(splice(ends[0], NULL, file, &at, PAGE, 0));
}

int by_copy_file_range(int file)
{
    off_t from = 0, to = AT;
    return result(copy_file_range(source(), &from, file, &to, PAGE, 0));
}

int raw_copy_file_range(int file)
{
    off_t from = 0, to = AT;
    return result(syscall(SYS_copy_file_range, source(), &from, file, &to, (size_t)PAGE, 0));
}

int by_clone_range(int file)
{
    struct file_clone_range range = {.src_fd = source(), .src_length = PAGE, .dest_offset = AT};
    return ioctl(file, FICLONERANGE, &range) < 0 ? errno : 0;
}

int by_clone(int file)
{
    return ioctl(file, FICLONE, source()) < 0 ? errno : 0;
}

int by_mmap(int file)
{
    char *mapped = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        return errno;
    memcpy(mapped + AT, page, PAGE);
    return 0;
}

int raw_mmap(int file)
{
    char *mapped = (char *)syscall(SYS_mmap, NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L);
    if (mapped == MAP_FAILED)
        return errno;
    memcpy(mapped + AT, page, PAGE);
    return 0;
}

/* Other processes can write only to memory that is mapped, so that no file is reached. */
int by_process_vm(int file)
{
    char *mapped = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct iovec from = {page, PAGE}, to = {mapped + AT, PAGE};
    return process_vm_writev(getpid(), &from, 1, &to, 1, 0) < 0 ? errno : 0;
}

int by_aio(int file)
{
    struct aiocb request = {.aio_fildes = file, .aio_buf = page, .aio_nbytes = PAGE, .aio_offset = AT};
    const struct aiocb *all[] = {&request};
    if (aio_write(&request) < 0)
        return errno;
    aio_suspend(all, 1, NULL);
    return aio_error(&request);
}

int by_lio(int file)
{
    struct aiocb request = {.aio_fildes = file, .aio_buf = page, .aio_nbytes = PAGE, .aio_offset = AT, .aio_lio_opcode = LIO_WRITE};
    struct aiocb *all[] = {&request};
    return lio_listio(LIO_WAIT, all, 1, NULL) < 0 ? errno : 0;
}

int raw_io_setup(int file)
{
    unsigned long context = 0;
    (void)file;
    return syscall(SYS_io_setup, 1, &context) < 0 ? errno : 0;
}

int raw_io_uring(int file)
{
    struct io_uring_params settings = {0};
    (void)file;
    return syscall(SYS_io_uring_setup, 1, &settings) < 0 ? errno : 0;
}
