/* What no library can see: system calls by machine code. The sampler must find what they wrote. */
#include "ways.h"

long machine_call(long number, long first, long second, long third, long fourth)
{
#if defined __x86_64__
    register long r10 __asm__("r10") = fourth;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10)
                     : "rcx", "r11", "memory");
    return answer;
#elif defined __aarch64__
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second;
    register long x2 __asm__("x2") = third;
    register long x3 __asm__("x3") = fourth;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
}

/* Writes plaintext past the library, and then other pages through it. */
int machine_write(int file)
{
    if (machine_call(SYS_pwrite64, file, (long)page, PAGE, AT) != PAGE)
        return EIO;
    for (int n = 0; n < 100; n++)
        if (pwrite(file, page, PAGE, 0) != PAGE)
            return errno;
    return 0;
}

/* Replaces a descriptor that the library knows as that of another file. */
int machine_dup(int file)
{
    int other = source();
    write(other, "", 1);
    if (machine_call(SYS_dup3, file, other, 0, 0) != other)
        return EIO;
    for (int n = 0; n < 100; n++)
        if (pwrite(other, page, PAGE, AT) != PAGE)
            return errno;
    return 0;
}
