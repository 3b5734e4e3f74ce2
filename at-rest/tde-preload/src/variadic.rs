//! Entry points with a variable number of arguments. Only C can define these (`shim.c`). This module exports them by a
//! jump, which keeps registers and stack as the caller left them.

#![expect(unsafe_code, reason = "replaces functions of the C library by jumps")]

use std::arch::naked_asm;

use libc::{c_char, c_int, c_long, c_uint, c_ulong};

use ciphertoll_tde::Errno;

use crate::process::{DescriptorKind, forget, forget_range, kind};
use crate::raw::{self, arguments};

/// Commands of `ioctl` (`linux/fs.h`).
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940D;
const FIDEDUPERANGE: c_ulong = 0xC018_9436;

unsafe extern "C" {
    fn ciphertoll_tde_shim_open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn ciphertoll_tde_shim_openat(directory: c_int, path: *const c_char, flags: c_int, ...) -> c_int;
    fn ciphertoll_tde_shim_fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
    fn ciphertoll_tde_shim_ioctl(descriptor: c_int, command: c_ulong, ...) -> c_int;
    fn ciphertoll_tde_shim_syscall(number: c_long, ...) -> c_long;
    fn ciphertoll_tde_shim_dprintf(descriptor: c_int, format: *const c_char, ...) -> c_int;
    fn ciphertoll_tde_shim_dprintf_chk(descriptor: c_int, flag: c_int, format: *const c_char, ...) -> c_int;
    fn ciphertoll_tde_shim_vdprintf();
    fn ciphertoll_tde_shim_vdprintf_chk();
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
    __open => ciphertoll_tde_shim_open,
    __open64 => ciphertoll_tde_shim_open,
    open64 => ciphertoll_tde_shim_open,
    openat => ciphertoll_tde_shim_openat,
    openat64 => ciphertoll_tde_shim_openat,
    fcntl => ciphertoll_tde_shim_fcntl,
    fcntl64 => ciphertoll_tde_shim_fcntl,
    __fcntl => ciphertoll_tde_shim_fcntl,
    ioctl => ciphertoll_tde_shim_ioctl,
    syscall => ciphertoll_tde_shim_syscall,
    dprintf => ciphertoll_tde_shim_dprintf,
    __dprintf_chk => ciphertoll_tde_shim_dprintf_chk,
    vdprintf => ciphertoll_tde_shim_vdprintf,
    __vdprintf_chk => ciphertoll_tde_shim_vdprintf_chk,
}

/// `fcntl`. `argument` is undefined for commands without one.
// SAFETY: the name is unique.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ciphertoll_tde_fcntl(
    descriptor: c_int,
    command: c_int,
    argument: c_long,
) -> c_int {
    let given = arguments([c_long::from(descriptor), c_long::from(command), argument]);
    // SAFETY: the caller's arguments, checked by the kernel.
    let answer = unsafe { raw::call(libc::SYS_fcntl, given) as c_int };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => forget(answer),
        // Copies of the descriptor append, too.
        libc::F_SETFL if kind(descriptor) == DescriptorKind::Encrypted => forget_range(0, c_uint::MAX),
        _ => {}
    }
    answer
}

/// `ioctl`. Refuses to share blocks between files: an encrypted file has a key of its own. `argument` is undefined for
/// commands without one.
// SAFETY: the name is unique.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ciphertoll_tde_ioctl(
    descriptor: c_int,
    command: c_ulong,
    argument: c_long,
) -> c_int {
    let source = match command {
        FICLONE => Some(argument as c_int),
        FICLONERANGE if argument != 0 => {
            // SAFETY: `struct file_clone_range` by the kernel's contract, which begins with the source, 64 bits long.
            Some(unsafe { *std::ptr::with_exposed_provenance::<i64>(argument as usize) } as c_int)
        }
        FIDEDUPERANGE => Some(descriptor),
        _ => None,
    };
    let is_plain = |descriptor| kind(descriptor) == DescriptorKind::Plain;
    if source.is_some_and(|source| !is_plain(source) || !is_plain(descriptor)) {
        return raw::fail(Errno(libc::EOPNOTSUPP));
    }
    let given = arguments([c_long::from(descriptor), command as c_long, argument]);
    // SAFETY: the caller's arguments, checked by the kernel.
    unsafe { raw::call(libc::SYS_ioctl, given) as c_int }
}
