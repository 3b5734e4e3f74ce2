/*
 * Entry points with a variable number of arguments. Each reads the optional argument, as the C library does, and passes
 * a fixed number on. They are hidden: `variadic.rs` exports them under the C library's names.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

#define HIDDEN __attribute__((visibility("hidden")))

int ciphertoll_tde_openat(int directory, const char *path, int flags, mode_t mode);
int ciphertoll_tde_fcntl(int descriptor, int command, long argument);

/* The mode is present only if the call may create a file. */
static mode_t mode_of(int flags, va_list *arguments)
{
    if ((flags & O_CREAT) == 0 && (flags & O_TMPFILE) != O_TMPFILE)
        return 0;
    return va_arg(*arguments, mode_t);
}

HIDDEN int ciphertoll_tde_shim_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, &arguments);
    va_end(arguments);
    return ciphertoll_tde_openat(AT_FDCWD, path, flags, mode);
}

HIDDEN int ciphertoll_tde_shim_openat(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, &arguments);
    va_end(arguments);
    return ciphertoll_tde_openat(directory, path, flags, mode);
}

/* Always reads an argument, as the C library does: the kernel ignores it for commands without one. */
HIDDEN int ciphertoll_tde_shim_fcntl(int descriptor, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    return ciphertoll_tde_fcntl(descriptor, command, argument);
}
