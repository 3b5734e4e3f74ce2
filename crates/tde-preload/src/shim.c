/*
 * Entry points with a variable number of arguments. Each takes the one that may be there, as the C library does, and
 * passes a fixed number on. They are hidden: `variadic.rs` exports them under their own names.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

#define HIDDEN __attribute__((visibility("hidden")))

int ciphertoll_tde_openat(int directory, const char *path, int flags, mode_t mode);
int ciphertoll_tde_fcntl(int descriptor, int command, long argument);

/* Only a file that may be made has a mode. */
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

/* As the C library does: whether there is an argument, and whether it is a pointer, is the kernel's affair. */
HIDDEN int ciphertoll_tde_shim_fcntl(int descriptor, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    return ciphertoll_tde_fcntl(descriptor, command, argument);
}
