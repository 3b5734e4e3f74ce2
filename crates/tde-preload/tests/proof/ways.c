/*
 * Every way by which a program can write to a file of the cluster. `ways.rs` runs each under the library:
 * `postgres WAY`, in the data directory. Prints `wrote` if the page was written and reads back, `garbled` if it reads
 * back differently, `refused ERRNO` if a call failed, and `absent ERRNO` if this kernel or user does not have it.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 8192
#define FILE_OF_CLUSTER "base/5/16384"
#define MARKER "marker-of-the-proof-7b1f"
/* The page that a way writes is the second, so that the first one shows that the descriptor worked before. */
#define AT PAGE

/* Negative results are not errors of the way: the kernel lacks the call, or the user may not use it. */
#define ABSENT(error) (-(error))

extern char **environ;
static char page[PAGE] __attribute__((aligned(4096)));
static char source_path[] = "plain-source";

/* What a server exports; the library looks at it. */
int io_method = 0;
_Bool am_walsender = 0;
const char *debug_query_string = 0;

static int result(ssize_t count)
{
    if (count == PAGE)
        return 0;
    return count < 0 ? errno : EIO;
}

static int write_page(int file)
{
    return result(pwrite(file, page, PAGE, AT));
}

static int seek(int file)
{
    return lseek(file, AT, SEEK_SET) == AT ? 0 : errno;
}

/* A file outside the cluster that holds the page, open for reading. */
static int source(void)
{
    int file = open("../plain-source", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || pwrite(file, page, PAGE, 0) != PAGE)
        exit(3);
    lseek(file, 0, SEEK_SET);
    (void)source_path;
    return file;
}

/* --- what forgets or replaces a descriptor --- */

static int wait_for(pid_t child)
{
    int status;
    if (child < 0)
        return errno;
    if (waitpid(child, &status, 0) != child)
        return errno;
    return status == 0 ? 0 : ECHILD;
}

static int vfork_close(int file)
{
    pid_t child = vfork();
    if (child == 0) {
        close(file);
        _exit(0);
    }
    int failed = wait_for(child);
    return failed ? failed : write_page(file);
}

static int vfork_close_range(int file)
{
    pid_t child = vfork();
    if (child == 0) {
        close_range(3, ~0U, 0);
        _exit(0);
    }
    int failed = wait_for(child);
    return failed ? failed : write_page(file);
}

static int vfork_closefrom(int file)
{
    pid_t child = vfork();
    if (child == 0) {
        closefrom(3);
        _exit(0);
    }
    int failed = wait_for(child);
    return failed ? failed : write_page(file);
}

/* The child's descriptor of that number is another file: neither the child nor the parent may use the other's. */
static int vfork_dup2(int file)
{
    pid_t child = vfork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, file);
        _exit(write(file, page, PAGE) == PAGE ? 0 : 1);
    }
    int failed = wait_for(child);
    return failed ? failed : write_page(file);
}

/* The same the other way round: the parent's descriptor is a pipe, the child's a file of the cluster. */
static int vfork_dup2_back(int file)
{
    int ends[2];
    if (pipe(ends) < 0 || write(ends[1], "x", 1) != 1)
        return errno;
    pid_t child = vfork();
    if (child == 0) {
        dup2(file, ends[1]);
        _exit(write_page(ends[1]));
    }
    return wait_for(child);
}

static int vfork_open(int file)
{
    pid_t child = vfork();
    if (child == 0) {
        close(file);
        int null = open("/dev/null", O_WRONLY);
        _exit(null == file && write(null, page, PAGE) == PAGE ? 0 : 1);
    }
    int failed = wait_for(child);
    return failed ? failed : write_page(file);
}

static int shared;

static int in_clone(void *unused)
{
    (void)unused;
    close_range(3, ~0U, 0);
    int null = open("/dev/null", O_WRONLY);
    while (null >= 0 && null < shared)
        null = dup(null);
    if (null == shared && write(null, page, PAGE) != PAGE)
        return 1;
    return 0;
}

static int clone_vm(int file)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    shared = file;
    int failed = wait_for(clone(in_clone, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL));
    return failed ? failed : write_page(file);
}

static int spawn_close(int file)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    char *arguments[] = {"true", NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, file);
    int failed = posix_spawn(&child, "/bin/true", &actions, NULL, arguments, environ);
    failed = failed ? failed : wait_for(child);
    return failed ? failed : write_page(file);
}

static int fork_write(int file)
{
    pid_t child = fork();
    if (child == 0)
        _exit(write_page(file));
    return wait_for(child);
}

static int raw_fork_write(int file)
{
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(write_page(file));
    return wait_for(child);
}

static void *closes(void *file)
{
    syscall(SYS_close, *(int *)file);
    int other = (int)syscall(SYS_openat, AT_FDCWD, FILE_OF_CLUSTER, O_RDWR);
    if (other != *(int *)file)
        exit(3);
    return NULL;
}

static int thread_reopens(int file)
{
    pthread_t thread;
    /* A descriptor that was something else before. */
    int ends[2];
    if (pipe(ends) < 0 || write(ends[1], "x", 1) != 1)
        return errno;
    close(ends[0]);
    int number = ends[1];
    close(file);
    if (dup2(number, file) != file || write(file, "x", 1) >= 0)
        return EIO;
    if (pthread_create(&thread, NULL, closes, &file) != 0 || pthread_join(thread, NULL) != 0)
        return EIO;
    return write_page(file);
}

static int in_unshared;

static void *unshares(void *file)
{
    if (unshare(CLONE_FILES) < 0)
        return &in_unshared;
    int null = open("/dev/null", O_WRONLY);
    dup2(null, *(int *)file);
    return write(*(int *)file, page, PAGE) == PAGE ? NULL : &in_unshared;
}

static int thread_unshares(int file)
{
    pthread_t thread;
    void *failed;
    if (pthread_create(&thread, NULL, unshares, &file) != 0 || pthread_join(thread, &failed) != 0 || failed)
        return EIO;
    return write_page(file);
}

/* --- descriptors that the library did not see opened --- */

static int raw_open(int file)
{
    (void)file;
    int other = (int)syscall(SYS_openat, AT_FDCWD, FILE_OF_CLUSTER, O_RDWR);
    return other < 0 ? errno : write_page(other);
}

static int raw_openat2(int file)
{
    struct {
        unsigned long long flags, mode, resolve;
    } how = {O_RDWR, 0, 0};
    (void)file;
    int other = (int)syscall(SYS_openat2, AT_FDCWD, FILE_OF_CLUSTER, &how, sizeof how);
    if (other < 0)
        return errno == ENOSYS ? ABSENT(errno) : errno;
    return write_page(other);
}

static int raw_dup3(int file)
{
    int ends[2];
    if (pipe(ends) < 0 || write(ends[1], "x", 1) != 1)
        return errno;
    if (syscall(SYS_dup3, file, ends[1], 0) < 0)
        return errno;
    return write_page(ends[1]);
}

static int duplicates(int file)
{
    int copies[] = {dup(file), dup2(file, 70), dup3(file, 71, O_CLOEXEC), fcntl(file, F_DUPFD, 80),
                    fcntl(file, F_DUPFD_CLOEXEC, 90)};
    for (unsigned n = 0; n < sizeof copies / sizeof *copies; n++) {
        int failed = copies[n] < 0 ? errno : write_page(copies[n]);
        if (failed)
            return failed;
    }
    return 0;
}

static int large_descriptor(int file)
{
    int copy = dup2(file, 20000);
    return copy < 0 ? ABSENT(errno) : write_page(copy);
}

static int received(int file)
{
    int sockets[2];
    char byte = 'x', control[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0)
        return errno;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof file);
    if (sendmsg(sockets[0], &message, 0) != 1)
        return errno;
    close(file);
    if (recvmsg(sockets[1], &message, 0) != 1)
        return errno;
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return write_page(file);
}

static int proc_self_fd(int file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int other = open(path, O_RDWR);
    return other < 0 ? errno : write_page(other);
}

static int by_handle(int file)
{
    struct {
        struct file_handle handle;
        unsigned char bytes[MAX_HANDLE_SZ];
    } named = {.handle = {.handle_bytes = MAX_HANDLE_SZ}};
    int mount;
    (void)file;
    if (name_to_handle_at(AT_FDCWD, FILE_OF_CLUSTER, &named.handle, &mount, 0) < 0)
        return ABSENT(errno);
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    int other = open_by_handle_at(directory, &named.handle, O_RDWR);
    return other < 0 ? ABSENT(errno) : write_page(other);
}

static int by_pidfd(int file)
{
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int other = self < 0 ? self : (int)syscall(SYS_pidfd_getfd, self, file, 0);
    return other < 0 ? ABSENT(errno) : write_page(other);
}

static int by_alias(int file)
{
    (void)file;
    if (symlink("data", "../alias") < 0)
        return errno;
    int other = open("../alias/" FILE_OF_CLUSTER, O_RDWR);
    return other < 0 ? errno : write_page(other);
}

/* Somebody renames the data directory of a running server, whose working directory it is. */
static int renamed(int file)
{
    if (rename("../data", "../moved") < 0)
        return errno;
    close(file);
    int other = open(FILE_OF_CLUSTER, O_RDWR);
    int failed = other < 0 ? errno : write_page(other);
    if (rename("../moved", "../data") < 0)
        return errno;
    return failed;
}

static int deleted(int file)
{
    int other = (int)syscall(SYS_openat, AT_FDCWD, FILE_OF_CLUSTER, O_RDWR);
    if (unlink(FILE_OF_CLUSTER) < 0)
        return errno;
    int failed = other < 0 ? errno : write_page(other);
    /* A link keeps its ciphertext for the test. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", other);
    char raw[PAGE];
    if (syscall(SYS_pread64, file, raw, PAGE, AT) != PAGE || memcmp(raw, page, PAGE) != 0)
        return EIO;
    int again = open(FILE_OF_CLUSTER, O_RDWR | O_CREAT, 0600);
    return failed ? failed : write_page(again);
}

static int closed_stream(int file)
{
    /* The C library closes the descriptor of a stream itself. */
    int plain = source();
    if (write(plain, "x", 1) != 1)
        return errno;
    FILE *stream = fdopen(plain, "r+");
    fclose(stream);
    int other = (int)syscall(SYS_dup, file);
    if (other != plain)
        return EIO;
    return write_page(other);
}

static int as_stdout(int file)
{
    int kept = dup(1);
    if (dup2(file, 1) == 1) {
        lseek(1, AT, SEEK_SET);
        fwrite(page, 1, PAGE, stdout);
        fflush(stdout);
        dup2(kept, 1);
        return 0;
    }
    return errno;
}

/* An open that would return the number of a standard stream. */
static int opened_as_stdout(int file)
{
    int kept = dup(1);
    (void)file;
    close(1);
    int other = open(FILE_OF_CLUSTER, O_RDWR);
    fwrite(page, 1, PAGE, stdout);
    fflush(stdout);
    clearerr(stdout);
    int failed = write_page(other);
    dup2(kept, 1);
    return failed;
}

/* --- calls that move bytes --- */

static int by_write(int file)
{
    return seek(file) ? errno : result(write(file, page, PAGE));
}

static int by_writev(int file)
{
    struct iovec pieces[] = {{page, 100}, {page + 100, PAGE - 100}};
    return seek(file) ? errno : result(writev(file, pieces, 2));
}

static int by_pwritev(int file)
{
    struct iovec pieces[] = {{page, 100}, {page + 100, PAGE - 100}};
    return result(pwritev(file, pieces, 2, AT));
}

static int by_pwritev2(int file)
{
    struct iovec pieces[] = {{page, 100}, {page + 100, PAGE - 100}};
    return result(pwritev2(file, pieces, 2, AT, 0));
}

static int by_pwritev2_append(int file)
{
    struct iovec piece = {page, PAGE};
    return result(pwritev2(file, &piece, 1, AT, RWF_APPEND));
}

static int by_aliases(int file)
{
    extern ssize_t __write(int, const void *, size_t), __pwrite64(int, const void *, size_t, off_t);
    extern int __open(const char *, int, ...), __close(int);
    int other = __open(FILE_OF_CLUSTER, O_RDWR);
    if (other < 0 || seek(other) || result(__write(other, page, PAGE)) || __close(other) < 0)
        return errno;
    return result(__pwrite64(file, page, PAGE, AT));
}

static int raw_write(int file)
{
    return seek(file) ? errno : result(syscall(SYS_write, file, page, (size_t)PAGE));
}

static int raw_pwrite(int file)
{
    return result(syscall(SYS_pwrite64, file, page, (size_t)PAGE, (off_t)AT));
}

static int raw_pwritev(int file)
{
    struct iovec piece = {page, PAGE};
    return result(syscall(SYS_pwritev, file, &piece, 1, (unsigned long)AT, 0UL));
}

static int raw_pwritev2(int file)
{
    struct iovec piece = {page, PAGE};
    return result(syscall(SYS_pwritev2, file, &piece, 1, (unsigned long)AT, 0UL, 0));
}

static int raw_writev(int file)
{
    struct iovec piece = {page, PAGE};
    return seek(file) ? errno : result(syscall(SYS_writev, file, &piece, 1));
}

static int by_dprintf(int file)
{
    return seek(file) ? errno : result(dprintf(file, "%.*s", PAGE, page));
}

static int by_stream(int file)
{
    (void)file;
    FILE *stream = fopen(FILE_OF_CLUSTER, "r+");
    if (!stream || fseek(stream, AT, SEEK_SET) != 0 || fwrite(page, 1, PAGE, stream) != PAGE)
        return errno;
    return fclose(stream) == 0 ? 0 : errno;
}

static int by_fdopen(int file)
{
    FILE *stream = fdopen(file, "r+");
    if (!stream || fseek(stream, AT, SEEK_SET) != 0 || fwrite(page, 1, PAGE, stream) != PAGE)
        return errno;
    return fclose(stream) == 0 ? 0 : errno;
}

static int by_freopen(int file)
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

static int by_alias_stream(int file)
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
static int by_linked(int file)
{
    (void)file;
    if (symlink("data/" FILE_OF_CLUSTER, "../linked") < 0)
        return errno;
    int other = open("../linked", O_RDWR);
    return other < 0 ? errno : write_page(other);
}

static int by_linked_stream(int file)
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

static int by_sendfile(int file)
{
    return seek(file) ? errno : result(sendfile(file, source(), NULL, PAGE));
}

static int raw_sendfile(int file)
{
    return seek(file) ? errno : result(syscall(SYS_sendfile, file, source(), NULL, (size_t)PAGE));
}

static int by_splice(int file)
{
    int ends[2];
    off_t at = AT;
    if (pipe(ends) < 0 || write(ends[1], page, PAGE) != PAGE)
        return errno;
    return result(splice(ends[0], NULL, file, &at, PAGE, 0));
}

static int raw_splice(int file)
{
    int ends[2];
    off_t at = AT;
    if (pipe(ends) < 0 || write(ends[1], page, PAGE) != PAGE)
        return errno;
    return result(syscall(SYS_splice, ends[0], NULL, file, &at, (size_t)PAGE, 0));
}

static int by_vmsplice(int file)
{
    int ends[2];
    off_t at = AT;
    struct iovec piece = {page, PAGE};
    if (pipe(ends) < 0 || vmsplice(ends[1], &piece, 1, 0) != PAGE)
        return errno;
    return result(splice(ends[0], NULL, file, &at, PAGE, 0));
}

static int by_copy_file_range(int file)
{
    off_t from = 0, to = AT;
    return result(copy_file_range(source(), &from, file, &to, PAGE, 0));
}

static int raw_copy_file_range(int file)
{
    off_t from = 0, to = AT;
    return result(syscall(SYS_copy_file_range, source(), &from, file, &to, (size_t)PAGE, 0));
}

static int by_clone_range(int file)
{
    struct file_clone_range range = {.src_fd = source(), .src_length = PAGE, .dest_offset = AT};
    return ioctl(file, FICLONERANGE, &range) < 0 ? errno : 0;
}

static int by_clone(int file)
{
    return ioctl(file, FICLONE, source()) < 0 ? errno : 0;
}

static int by_mmap(int file)
{
    char *mapped = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        return errno;
    memcpy(mapped + AT, page, PAGE);
    return 0;
}

static int raw_mmap(int file)
{
    char *mapped = (char *)syscall(SYS_mmap, NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L);
    if (mapped == MAP_FAILED)
        return errno;
    memcpy(mapped + AT, page, PAGE);
    return 0;
}

/* Other processes can write only to memory that is mapped, so that no file is reached. */
static int by_process_vm(int file)
{
    char *mapped = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct iovec from = {page, PAGE}, to = {mapped + AT, PAGE};
    return process_vm_writev(getpid(), &from, 1, &to, 1, 0) < 0 ? errno : 0;
}

static int by_aio(int file)
{
    struct aiocb request = {.aio_fildes = file, .aio_buf = page, .aio_nbytes = PAGE, .aio_offset = AT};
    const struct aiocb *all[] = {&request};
    if (aio_write(&request) < 0)
        return errno;
    aio_suspend(all, 1, NULL);
    return aio_error(&request);
}

static int by_lio(int file)
{
    struct aiocb request = {.aio_fildes = file, .aio_buf = page, .aio_nbytes = PAGE, .aio_offset = AT, .aio_lio_opcode = LIO_WRITE};
    struct aiocb *all[] = {&request};
    return lio_listio(LIO_WAIT, all, 1, NULL) < 0 ? errno : 0;
}

static int raw_io_setup(int file)
{
    unsigned long context = 0;
    (void)file;
    return syscall(SYS_io_setup, 1, &context) < 0 ? errno : 0;
}

static int raw_io_uring(int file)
{
    struct io_uring_params settings = {0};
    (void)file;
    return syscall(SYS_io_uring_setup, 1, &settings) < 0 ? errno : 0;
}

static int by_append(int file)
{
    (void)file;
    int other = open(FILE_OF_CLUSTER, O_WRONLY | O_APPEND);
    return other < 0 ? errno : result(write(other, page, PAGE));
}

/* An appending descriptor that the table forgets still appends. */
static int by_forgotten_append(int file)
{
    (void)file;
    int other = open(FILE_OF_CLUSTER, O_WRONLY | O_APPEND);
    int copy = (int)syscall(SYS_dup, other);
    lseek(copy, 0, SEEK_SET);
    return copy < 0 ? errno : result(write(copy, page, PAGE));
}

static int by_link(int file)
{
    (void)file;
    return link(FILE_OF_CLUSTER, "../outside") < 0 ? errno : 0;
}

static int raw_rename(int file)
{
    (void)file;
    close(source());
    return syscall(SYS_renameat2, AT_FDCWD, "../plain-source", AT_FDCWD, FILE_OF_CLUSTER, 0) < 0 ? errno : 0;
}

static int by_symlink(int file)
{
    (void)file;
    close(source());
    if (symlink("../../../plain-source", "base/5/16385") < 0)
        return errno;
    int other = open("base/5/16385", O_RDWR);
    return other < 0 ? errno : write_page(other);
}

static int unknown_name(int file)
{
    (void)file;
    int other = open("base/5/16384_other", O_RDWR | O_CREAT, 0600);
    return other < 0 ? errno : write_page(other);
}

/* More than the disk has: the file must stay as it was. */
static int allocates_too_much(int file)
{
    struct statvfs disk;
    struct stat status;
    if (statvfs(".", &disk) < 0)
        return errno;
    off_t length = (off_t)(disk.f_blocks * disk.f_frsize * 2);
    if (posix_fallocate(file, 0, length) != ENOSPC || fallocate(file, 0, 0, length) == 0)
        return EIO;
    if (fstat(file, &status) < 0 || status.st_size != PAGE)
        return EFBIG;
    if (posix_fallocate(file, 0, 2 * PAGE) != 0 || fstat(file, &status) < 0 || status.st_size != 2 * PAGE)
        return ENOSPC;
    return write_page(file);
}

static int by_memfd(int file)
{
    int memory = memfd_create("memory", 0);
    if (memory < 0 || write_page(memory))
        return errno;
    return write_page(file);
}

static int server_with_io_uring(int file)
{
    (void)file;
    io_method = 2;
    int lock = open("postmaster.pid", O_RDWR | O_CREAT | O_EXCL, 0600);
    return lock < 0 ? errno : 0;
}

static int backup_to(const char *command)
{
    am_walsender = 1;
    debug_query_string = command;
    int other = open(FILE_OF_CLUSTER, O_RDONLY);
    return other < 0 ? errno : 0;
}

static int backup_to_client(int file)
{
    int failed = backup_to("BASE_BACKUP ( LABEL 'a TARGET ''shell''', \"target\" 'client', WAL )");
    return failed ? failed : write_page(file);
}

static int backup_to_shell(int file)
{
    (void)file;
    return backup_to("BASE_BACKUP ( LABEL 'pg_basebackup base backup', TARGET 'shell')");
}

static int backup_to_other(int file)
{
    (void)file;
    return backup_to("  base_backup(\"target\" $$shell$$)");
}

static const struct {
    const char *name;
    int (*run)(int file);
} ways[] = {
#define WAY(name) {#name, name}
    WAY(vfork_close), WAY(vfork_close_range), WAY(vfork_closefrom), WAY(vfork_dup2), WAY(vfork_dup2_back),
    WAY(vfork_open), WAY(clone_vm), WAY(spawn_close), WAY(fork_write), WAY(raw_fork_write), WAY(thread_reopens),
    WAY(thread_unshares), WAY(raw_open), WAY(raw_openat2), WAY(raw_dup3), WAY(duplicates), WAY(large_descriptor),
    WAY(received), WAY(proc_self_fd), WAY(by_handle), WAY(by_pidfd), WAY(by_alias), WAY(renamed), WAY(deleted),
    WAY(closed_stream), WAY(as_stdout), WAY(opened_as_stdout), WAY(by_write), WAY(by_writev), WAY(by_pwritev),
    WAY(by_pwritev2), WAY(by_pwritev2_append), WAY(by_aliases), WAY(raw_write), WAY(raw_pwrite), WAY(raw_pwritev),
    WAY(raw_pwritev2), WAY(raw_writev), WAY(by_dprintf), WAY(by_stream), WAY(by_fdopen), WAY(by_freopen),
    WAY(by_alias_stream), WAY(by_linked), WAY(by_linked_stream), WAY(by_sendfile), WAY(raw_sendfile), WAY(by_splice), WAY(raw_splice), WAY(by_vmsplice),
    WAY(by_copy_file_range), WAY(raw_copy_file_range), WAY(by_clone_range), WAY(by_clone), WAY(by_mmap), WAY(raw_mmap),
    WAY(by_process_vm), WAY(by_aio), WAY(by_lio), WAY(raw_io_setup), WAY(raw_io_uring), WAY(by_append),
    WAY(by_forgotten_append), WAY(by_link), WAY(raw_rename), WAY(by_symlink), WAY(unknown_name), WAY(allocates_too_much), WAY(by_memfd),
    WAY(server_with_io_uring), WAY(backup_to_client), WAY(backup_to_shell), WAY(backup_to_other),
};

int main(int count, char **arguments)
{
    for (int n = 0; n < PAGE; n++)
        page[n] = MARKER "\n"[n % (sizeof MARKER)];
    signal(SIGPIPE, SIG_IGN);
    if (count != 2)
        return 2;
    for (unsigned n = 0; n < sizeof ways / sizeof *ways; n++) {
        if (strcmp(ways[n].name, arguments[1]) != 0)
            continue;
        int file = open(FILE_OF_CLUSTER, O_RDWR | O_CREAT, 0600);
        if (file < 0 || pwrite(file, page, PAGE, 0) != PAGE)
            return 3;
        int failed = ways[n].run(file);
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
