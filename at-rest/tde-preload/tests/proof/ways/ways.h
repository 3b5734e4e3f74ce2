/*
 * Every way by which a program can write to a file of the cluster. `ways.rs` runs each under the library:
 * `postgres WAY`, in the data directory. Prints `wrote` if the page was written and reads back, `garbled` if it reads
 * back differently, `refused ERRNO` if a call failed, and `absent ERRNO` if this kernel or user does not have it.
 *
 * A way gets the open file. It writes `page` at the offset AT, and returns 0, or an error number.
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
/* A result that is no error of the way: the kernel lacks the call, or the user may not use it. */
#define ABSENT(error) (-(error))

extern char **environ;
extern char page[PAGE];

/* What a server exports; the library looks at it. */
extern int io_method;
extern _Bool am_walsender;
extern const char *debug_query_string;

/* Helpers: the result of a call that should have written a page. */
int result(ssize_t count);
int write_page(int file);
int seek(int file);
/* A file outside the cluster that holds the page, open for reading. */
int source(void);

/* A system call by machine code. */
long machine_call(long number, long first, long second, long third, long fourth);

#define WAYS(WAY) \
    WAY(vfork_close) WAY(vfork_close_range) WAY(vfork_closefrom) WAY(vfork_dup2) WAY(vfork_dup2_back) \
    WAY(vfork_open) WAY(clone_vm) WAY(spawn_close) WAY(fork_write) WAY(raw_fork_write) WAY(thread_reopens) \
    WAY(thread_unshares) WAY(raw_open) WAY(raw_openat2) WAY(raw_dup3) WAY(duplicates) WAY(large_descriptor) \
    WAY(received) WAY(proc_self_fd) WAY(by_handle) WAY(by_pidfd) WAY(by_alias) WAY(renamed) WAY(by_tablespace) WAY(by_linked_database) \
    WAY(by_tablespace_inside) WAY(by_wal_inside) WAY(by_nested_tablespaces) WAY(backup_of_wal_inside) \
    WAY(by_linked_database_renamed) WAY(foreign_file) WAY(deleted) \
    WAY(closed_stream) WAY(as_stdout) WAY(opened_as_stdout) WAY(by_write) WAY(by_writev) WAY(by_pwritev) \
    WAY(by_pwritev2) WAY(by_pwritev2_append) WAY(by_aliases) WAY(raw_write) WAY(raw_pwrite) WAY(raw_pwritev) \
    WAY(raw_pwritev2) WAY(raw_writev) WAY(by_dprintf) WAY(by_stream) WAY(by_fdopen) WAY(by_alias_fdopen) WAY(by_freopen) \
    WAY(by_alias_stream) WAY(by_linked) WAY(by_linked_stream) WAY(by_sendfile) WAY(raw_sendfile) \
    WAY(by_splice) WAY(raw_splice) WAY(by_vmsplice) WAY(by_copy_file_range) WAY(raw_copy_file_range) \
    WAY(by_clone_range) WAY(by_clone) WAY(by_mmap) WAY(raw_mmap) WAY(by_process_vm) WAY(by_aio) WAY(by_lio) \
    WAY(raw_io_setup) WAY(raw_io_uring) WAY(by_append) WAY(by_forgotten_append) WAY(by_link) WAY(raw_rename) WAY(plain_segment_restored) \
    WAY(by_symlink) WAY(unknown_name) WAY(mapped_inside) WAY(mapped_inside_without_number) WAY(mapped_unknown_name) \
    WAY(mapped_to_memory) WAY(wal_elsewhere) WAY(allocates_too_much) WAY(by_memfd) WAY(server_with_io_uring) \
    WAY(backup_to_client) WAY(backup_to_shell) WAY(backup_to_other) \
    WAY(machine_write) WAY(machine_dup) \
    WAY(write_aliases) WAY(read_aliases) WAY(size_aliases) WAY(refused_aliases) WAY(close_aliases) WAY(flag_aliases) \
    WAY(open_aliases) WAY(random_descriptors)

#define DECLARE(name) int name(int file);
WAYS(DECLARE)
#undef DECLARE
