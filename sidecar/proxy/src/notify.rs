//! Notifies systemd of the state of the proxy (`sd_notify(3)`), if `NOTIFY_SOCKET` is set.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;

use nix::time::{ClockId, clock_gettime};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// The service manager; `None` if the proxy was not started by one.
#[derive(Clone, Debug, Default)]
pub struct Notifier(Option<Arc<UnixDatagram>>);

impl Notifier {
    pub fn from_environment() -> Self {
        Self(env::var_os(VARIABLE).and_then(|name| connect(name.as_bytes())).map(Arc::new))
    }

    /// Clients can connect.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// Settings are being read again; [`Self::ready`] follows.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
        let micros = now.map_or(0, |now| now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000);
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Clients can no longer connect.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// From now on this process is the service's main one, and it is ready.
    pub fn main_process(&self, pid: u32) {
        self.say(&format!("MAINPID={pid}\nREADY=1"));
    }

    fn say(&self, state: &str) {
        if let Some(socket) = &self.0 {
            // The proxy runs on even if the service manager does not listen.
            let _ = socket.send(state.as_bytes());
        }
    }
}

/// A path, or after an `@` an abstract name.
fn connect(name: &[u8]) -> Option<UnixDatagram> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_a_datagram() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier(connect(path.as_os_str().as_bytes()).map(Arc::new));
        notifier.ready();
        notifier.reloading();
        notifier.stopping();
        let mut states = Vec::new();
        for _ in 0..3 {
            let mut bytes = [0; 128];
            let length = manager.recv(&mut bytes).unwrap();
            states.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
        }
        assert_eq!((states[0].as_str(), states[2].as_str()), ("READY=1", "STOPPING=1"));
        assert!(states[1].starts_with("RELOADING=1\nMONOTONIC_USEC="), "{}", states[1]);
        assert!(connect(b"/nowhere/at/all").is_none());
        Notifier(None).ready();
    }
}
