//! Random bytes, drawn many at a time: each call of OpenSSL costs 8,000 instructions and a system call.

/// Values per call of OpenSSL.
const VALUES: usize = 512;

#[derive(Default)]
pub(crate) struct RandomBytes(Vec<u8>);

impl RandomBytes {
    /// `None` if OpenSSL has no random bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.0.is_empty() {
            self.0.resize(VALUES * N, 0);
            if openssl::rand::rand_bytes(&mut self.0).is_err() {
                self.0.clear();
            }
        }
        let value = *self.0.last_chunk()?;
        self.0.truncate(self.0.len() - N);
        Some(value)
    }
}

/// Random bytes are used once: a clone draws its own.
impl Clone for RandomBytes {
    fn clone(&self) -> Self {
        Self::default()
    }
}
