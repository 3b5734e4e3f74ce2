/*
 * Entry points with a variable number of arguments. Each reads the optional argument, as the C library does, and passes
 * a fixed number on. They are hidden: `variadic.rs` exports them under the C library's names.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define HIDDEN __attribute__((visibility("hidden")))

int ciphertoll_tde_openat(int directory, const char *path, int flags, mode_t mode);
int ciphertoll_tde_fcntl(int descriptor, int command, long argument);
int ciphertoll_tde_ioctl(int descriptor, unsigned long command, long argument);
long ciphertoll_tde_syscall(long number, long a, long b, long c, long d, long e, long f);
ssize_t ciphertoll_tde_write_all(int descriptor, const void *bytes, size_t count);

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

/* As above. */
HIDDEN int ciphertoll_tde_shim_ioctl(int descriptor, unsigned long command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    return ciphertoll_tde_ioctl(descriptor, command, argument);
}

/* As above: the C library also passes six arguments on. */
HIDDEN long ciphertoll_tde_shim_syscall(long number, ...)
{
    va_list arguments;
    long given[6];
    va_start(arguments, number);
    for (int n = 0; n < 6; n++)
        given[n] = va_arg(arguments, long);
    va_end(arguments);
    return ciphertoll_tde_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

/* The C library would write by itself. */
HIDDEN int ciphertoll_tde_shim_vdprintf(int descriptor, const char *format, va_list arguments)
{
    char *text;
    int length = vasprintf(&text, format, arguments);
    if (length < 0)
        return length;
    ssize_t written = ciphertoll_tde_write_all(descriptor, text, (size_t)length);
    free(text);
    return (int)written;
}

HIDDEN int ciphertoll_tde_shim_vdprintf_chk(int descriptor, int flag, const char *format, va_list arguments)
{
    (void)flag;
    return ciphertoll_tde_shim_vdprintf(descriptor, format, arguments);
}

HIDDEN int ciphertoll_tde_shim_dprintf(int descriptor, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = ciphertoll_tde_shim_vdprintf(descriptor, format, arguments);
    va_end(arguments);
    return written;
}

HIDDEN int ciphertoll_tde_shim_dprintf_chk(int descriptor, int flag, const char *format, ...)
{
    va_list arguments;
    (void)flag;
    va_start(arguments, format);
    int written = ciphertoll_tde_shim_vdprintf(descriptor, format, arguments);
    va_end(arguments);
    return written;
}
