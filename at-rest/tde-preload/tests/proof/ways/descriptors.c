/* Ways that forget, replace or copy a descriptor, or open the file unseen. */
#include "ways.h"

static int wait_for(pid_t child)
{
    int status;
    if (child < 0)
        return errno;
    if (waitpid(child, &status, 0) != child)
        return errno;
    return status == 0 ? 0 : ECHILD;
}

int vfork_close(int file)
{
    pid_t child = vfork();
    if (child == 0) {
        close(file);
        _exit(0);
    }
    int failed = wait_for(child);
    return failed ? failed : write_page(file);
}

int vfork_close_range(int file)
{
    pid_t child = vfork();
    if (child == 0) {
        close_range(3, ~0U, 0);
        _exit(0);
    }
    int failed = wait_for(child);
    return failed ? failed : write_page(file);
}

int vfork_closefrom(int file)
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
int vfork_dup2(int file)
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
int vfork_dup2_back(int file)
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

int vfork_open(int file)
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

int clone_vm(int file)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    shared = file;
    int failed = wait_for(clone(in_clone, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL));
    return failed ? failed : write_page(file);
}

int spawn_close(int file)
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

int fork_write(int file)
{
    pid_t child = fork();
    if (child == 0)
        _exit(write_page(file));
    return wait_for(child);
}

int raw_fork_write(int file)
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

int thread_reopens(int file)
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

int thread_unshares(int file)
{
    pthread_t thread;
    void *failed;
    if (pthread_create(&thread, NULL, unshares, &file) != 0 || pthread_join(thread, &failed) != 0 || failed)
        return EIO;
    return write_page(file);
}

int raw_open(int file)
{
    (void)file;
    int other = (int)syscall(SYS_openat, AT_FDCWD, FILE_OF_CLUSTER, O_RDWR);
    return other < 0 ? errno : write_page(other);
}

int raw_openat2(int file)
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

int raw_dup3(int file)
{
    int ends[2];
    if (pipe(ends) < 0 || write(ends[1], "x", 1) != 1)
        return errno;
    if (syscall(SYS_dup3, file, ends[1], 0) < 0)
        return errno;
    return write_page(ends[1]);
}

int duplicates(int file)
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

int large_descriptor(int file)
{
    int copy = dup2(file, 20000);
    return copy < 0 ? ABSENT(errno) : write_page(copy);
}

int received(int file)
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

int proc_self_fd(int file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int other = open(path, O_RDWR);
    return other < 0 ? errno : write_page(other);
}

int by_handle(int file)
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

int by_pidfd(int file)
{
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int other = self < 0 ? self : (int)syscall(SYS_pidfd_getfd, self, file, 0);
    return other < 0 ? ABSENT(errno) : write_page(other);
}

int by_alias(int file)
{
    (void)file;
    if (symlink("data", "../alias") < 0)
        return errno;
    int other = open("../alias/" FILE_OF_CLUSTER, O_RDWR);
    return other < 0 ? errno : write_page(other);
}

static int by_link_to_directory(const char *directory, const char *link, const char *target, const char *name)
{
    if (mkdir("../space", 0700) < 0 || mkdir(directory, 0700) < 0)
        return errno;
    if (symlink(target, link) < 0)
        return errno;
    int known = open(name, O_RDWR | O_CREAT, 0600);
    int other = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR);
    if (known < 0 || other < 0)
        return errno;
    char back[PAGE];
    int failed = write_page(other);
    if (failed)
        return failed;
    if (pread(known, back, PAGE, AT) != PAGE || memcmp(back, page, PAGE) != 0)
        return EIO;
    return 0;
}

/* Directories elsewhere, to which links in the data directory lead. The test also looks for plaintext there. */
int by_tablespace(int file)
{
    if (mkdir("pg_tblspc", 0700) < 0)
        return errno;
    int failed = by_link_to_directory("../space/PG_15_1", "pg_tblspc/16400", "../../space", "pg_tblspc/16400/PG_15_1/6/1");
    /* The directory of the database is missing, and is a link itself. */
    if (failed != ENOENT || mkdir("../space-of-6", 0700) < 0 || symlink("../../space-of-6", "../space/PG_15_1/6") < 0)
        return failed ? failed : EIO;
    int known = open("pg_tblspc/16400/PG_15_1/6/1", O_RDWR | O_CREAT, 0600);
    int other = (int)syscall(SYS_openat, AT_FDCWD, "pg_tblspc/16400/PG_15_1/6/1", O_RDWR);
    if (known < 0 || other < 0 || write_page(other))
        return errno;
    return write_page(file);
}

int by_linked_database(int file)
{
    int failed = by_link_to_directory("../space/6", "base/6", "../../space/6", "base/6/16384");
    return failed ? failed : write_page(file);
}

/* Writes to a file that has two names; looks it up by both. */
static int by_both_names(const char *name, const char *other_name)
{
    int known = open(name, O_RDWR | O_CREAT, 0600);
    int copy = dup(known);
    if (known < 0 || copy < 0 || write_page(copy))
        return errno ? errno : EIO;
    int other = open(other_name, O_RDWR);
    char back[PAGE];
    if (other < 0 || pread(known, back, PAGE, AT) != PAGE || memcmp(back, page, PAGE) != 0)
        return EIO;
    if (pread(other, back, PAGE, AT) != PAGE || memcmp(back, page, PAGE) != 0)
        return EIO;
    return write_page(other);
}

static int made(const char *const *directories)
{
    for (; *directories; directories++)
        if (mkdir(*directories, 0700) < 0)
            return errno;
    return 0;
}

/* Links to directories that are in the data directory themselves. */
int by_tablespace_inside(int file)
{
    static const char *const directories[] = {"pg_tblspc", "ts", "ts/PG_15_1", "ts/PG_15_1/6", 0};
    int failed = made(directories);
    if (failed || symlink("../ts", "pg_tblspc/16400") < 0)
        return failed ? failed : errno;
    failed = by_both_names("pg_tblspc/16400/PG_15_1/6/1", "ts/PG_15_1/6/1");
    return failed ? failed : write_page(file);
}

int by_wal_inside(int file)
{
    static const char *const directories[] = {"wal_disk", 0};
    int failed = made(directories);
    if (failed || symlink("wal_disk", "pg_wal") < 0)
        return failed ? failed : errno;
    static const char *const names[] = {"pg_wal/000000010000000000000001", "wal_disk/000000010000000000000001"};
    char kept[PAGE];
    memcpy(kept, page, PAGE);
    /* As a page of WAL begins. */
    memcpy(page, "\x10\xD1\0\0\1\0\0\0", 8);
    failed = by_both_names(names[0], names[1]);
    memcpy(page, kept, PAGE);
    return failed ? failed : write_page(file);
}

/* A tablespace in another one, and both in a directory to which a link of somebody else leads. */
int by_nested_tablespaces(int file)
{
    static const char *const directories[] = {"pg_tblspc", "../space", "../space/a", "../space/a/PG_15_1", "../space/a/PG_15_1/6",
        "../space/a/b", "../space/a/b/PG_15_1", "../space/a/b/PG_15_1/6", 0};
    int failed = made(directories);
    if (failed || symlink("../space", "backup") < 0 || symlink("../../space/a", "pg_tblspc/16400") < 0
        || symlink("../../space/a/b", "pg_tblspc/16401") < 0)
        return failed ? failed : errno;
    failed = by_both_names("pg_tblspc/16400/PG_15_1/6/1", "backup/a/PG_15_1/6/1");
    failed = failed ? failed : by_both_names("pg_tblspc/16401/PG_15_1/6/1", "backup/a/b/PG_15_1/6/1");
    return failed ? failed : write_page(file);
}

/* A base backup would contain the file twice, and its receiver would store it in plaintext by the second name. */
int backup_of_wal_inside(int file)
{
    int failed = by_wal_inside(file);
    am_walsender = 1;
    debug_query_string = "BASE_BACKUP ( LABEL 'a')";
    int other = open("./wal_disk/000000010000000000000001", O_RDONLY);
    return failed ? failed : other < 0 ? errno : 0;
}

/* The links are still found after the data directory was renamed. */
int by_linked_database_renamed(int file)
{
    if (rename("../data", "../moved") < 0)
        return errno;
    int failed = by_link_to_directory("../space/6", "base/6", "../../space/6", "base/6/16384");
    failed = failed ? failed : write_page(file);
    if (rename("../moved", "../data") < 0)
        return errno;
    return failed;
}

/* Somebody renames the data directory of a running server, whose working directory it is. */
int renamed(int file)
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

int deleted(int file)
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

int closed_stream(int file)
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

int as_stdout(int file)
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
int opened_as_stdout(int file)
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
