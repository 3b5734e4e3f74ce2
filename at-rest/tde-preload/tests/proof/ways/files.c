/* Ways by names, sizes and settings. */
#include "ways.h"

int by_append(int file)
{
    (void)file;
    int other = open(FILE_OF_CLUSTER, O_WRONLY | O_APPEND);
    return other < 0 ? errno : result(write(other, page, PAGE));
}

/* An appending descriptor that the table forgets still appends. */
int by_forgotten_append(int file)
{
    (void)file;
    int other = open(FILE_OF_CLUSTER, O_WRONLY | O_APPEND);
    int copy = (int)syscall(SYS_dup, other);
    lseek(copy, 0, SEEK_SET);
    return copy < 0 ? errno : result(write(copy, page, PAGE));
}

int by_link(int file)
{
    (void)file;
    return link(FILE_OF_CLUSTER, "../outside") < 0 ? errno : 0;
}

int raw_rename(int file)
{
    (void)file;
    close(source());
    return syscall(SYS_renameat2, AT_FDCWD, "../plain-source", AT_FDCWD, FILE_OF_CLUSTER, 0) < 0 ? errno : 0;
}

/* What `restore_command` gets from the archive of an unencrypted server. The command runs without the library. */
int plain_segment_restored(int file)
{
    (void)file;
    static const unsigned char header[] = {0x10, 0xD1, 7, 0, 1, 0, 0, 0};
    static const unsigned char sizes[] = {0, 0, 0, 1, 0, 0x20, 0, 0};
    struct stat status;
    memcpy(page, header, sizeof header);
    memcpy(page + 32, sizes, sizeof sizes);
    close(source());
    if (mkdir("pg_wal", 0700) < 0 || system("cp ../plain-source pg_wal/RECOVERYXLOG") != 0)
        return EIO;
    int failed = rename("pg_wal/RECOVERYXLOG", "pg_wal/000000010000000000000001") < 0 ? errno : 0;
    if (stat("pg_wal/RECOVERYXLOG", &status) < 0 || status.st_size != 0)
        return EIO;
    return failed;
}

int by_symlink(int file)
{
    (void)file;
    close(source());
    if (symlink("../../../plain-source", "base/5/16385") < 0)
        return errno;
    int other = open("base/5/16385", O_RDWR);
    return other < 0 ? errno : write_page(other);
}

int unknown_name(int file)
{
    (void)file;
    int other = open("base/5/16384_other", O_RDWR | O_CREAT, 0600);
    return other < 0 ? errno : write_page(other);
}

/* What `pg_basebackup` writes to a tablespace that is mapped into the target itself. There is no link yet. */
int mapped_inside(int file)
{
    if (mkdir("16400", 0700) < 0 || mkdir("16400/PG_15_1", 0700) < 0 || mkdir("16400/PG_15_1/6", 0700) < 0)
        return errno;
    int other = open("16400/PG_15_1/6/1", O_RDWR | O_CREAT, 0600);
    int copy = dup(other);
    if (other < 0 || write_page(other) || write_page(copy))
        return errno;
    return write_page(file);
}

static int created(const char *directories, const char *name)
{
    char command[200];
    snprintf(command, sizeof command, "mkdir -p %s", directories);
    if (system(command) != 0)
        return EIO;
    int other = open(name, O_RDWR | O_CREAT, 0600);
    return other < 0 ? errno : write_page(other);
}

int mapped_inside_without_number(int file)
{
    (void)file;
    return created("ts/PG_15_1/6", "ts/PG_15_1/6/1");
}

int mapped_unknown_name(int file)
{
    (void)file;
    return created("../space/16400/PG_15_1/6", "../space/16400/PG_15_1/6/99999_columnar");
}

int mapped_to_memory(int file)
{
    (void)file;
    return created("/dev/shm", "/dev/shm/ciphertoll-proof-1");
}

int wal_elsewhere(int file)
{
    (void)file;
    return created("wal_disk", "wal_disk/000000010000000000000001");
}

/* A file of somebody else in the data directory: plaintext, with a warning. */
int foreign_file(int file)
{
    int other = open("dump.sql", O_RDWR | O_CREAT, 0600);
    if (other < 0 || write(other, "plain", 5) != 5 || close(other) < 0)
        return errno;
    return write_page(file);
}

/* More than the disk has: the file must stay as it was. */
int allocates_too_much(int file)
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

int by_memfd(int file)
{
    int memory = memfd_create("memory", 0);
    if (memory < 0 || write_page(memory))
        return errno;
    return write_page(file);
}

int server_with_io_uring(int file)
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

int backup_to_client(int file)
{
    int failed = backup_to("BASE_BACKUP ( LABEL 'a TARGET ''shell''', \"target\" 'client', WAL )");
    return failed ? failed : write_page(file);
}

int backup_to_shell(int file)
{
    (void)file;
    return backup_to("BASE_BACKUP ( LABEL 'pg_basebackup base backup', TARGET 'shell')");
}

int backup_to_other(int file)
{
    (void)file;
    return backup_to("  base_backup(\"target\" $$shell$$)");
}
