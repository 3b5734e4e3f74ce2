//! Entry points with a variable number of arguments. Only C can define these (`shim.c`). This module exports them by a
//! jump, which keeps registers and stack as the caller left them.

#![expect(unsafe_code, reason = "replaces functions of the C library by jumps")]

use std::arch::naked_asm;

use libc::{c_char, c_int, c_long};

use crate::process::{copy, guard, is_tracked, with_file};
use crate::raw::{self, arguments};

unsafe extern "C" {
    fn ciphertoll_tde_shim_open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn ciphertoll_tde_shim_openat(directory: c_int, path: *const c_char, flags: c_int, ...) -> c_int;
    fn ciphertoll_tde_shim_fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
}

/// Defines exported functions that jump to a function of the shim.
macro_rules! jumps {
    ($($name:ident => $shim:ident),+ $(,)?) => {$(
        // SAFETY: replaces the C library's function, with its signature. The single
        // instruction jumps to a function with the same arguments and changes no register and no memory.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!("jmp {shim}", shim = sym $shim);
            #[cfg(target_arch = "aarch64")]
            naked_asm!("b {shim}", shim = sym $shim);
        }
    )+};
}

jumps! {
    open => ciphertoll_tde_shim_open,
    open64 => ciphertoll_tde_shim_open,
    openat => ciphertoll_tde_shim_openat,
    openat64 => ciphertoll_tde_shim_openat,
    fcntl => ciphertoll_tde_shim_fcntl,
    fcntl64 => ciphertoll_tde_shim_fcntl,
}

/// `fcntl`. `argument` is undefined for commands without one.
// SAFETY: the name is unique.
#[unsafe(no_mangle)]
unsafe extern "C" fn ciphertoll_tde_fcntl(descriptor: c_int, command: c_int, argument: c_long) -> c_int {
    let mut argument = argument;
    if command == libc::F_SETFL && is_tracked(descriptor) {
        let flags = argument as c_int;
        guard(|| with_file(descriptor, |_, file| file.appends = flags & libc::O_APPEND != 0));
        argument = c_long::from(flags & !libc::O_APPEND);
    }
    let given = arguments([c_long::from(descriptor), c_long::from(command), argument]);
    // SAFETY: the caller's arguments, checked by the kernel.
    let answer = unsafe { raw::call(libc::SYS_fcntl, given) as c_int };
    let copies = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    if copies && answer >= 0 && !guard(|| copy(descriptor, answer)) {
        raw::close(answer);
        return raw::fail(ciphertoll_tde::Errno(libc::EMFILE));
    }
    answer
}
