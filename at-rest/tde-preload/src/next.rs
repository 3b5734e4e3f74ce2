//! The C library's own functions, of which this library replaces some.

#![expect(unsafe_code, reason = "looks up symbols of the C library")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

/// A function of the C library, which is looked up once: the loader's lock may be held in the child of a thread.
pub(crate) struct NextFunction {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl NextFunction {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address, to be cast to its type.
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a C string; returns an address or null.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            crate::process::die(b"the C library has no such function");
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}
