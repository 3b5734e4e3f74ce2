//! A real sshd, a user's keys, and an `ssh` that knows both.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{script, system, text};

pub(crate) const SSHD: &str = "/usr/sbin/sshd";

/// The files of sshd and ssh, all in one directory.
pub(crate) struct Ssh {
    pub(crate) place: PathBuf,
}

impl Ssh {
    /// Makes the keys.
    pub(crate) fn new(place: &Path) -> Self {
        for name in ["host", "user"] {
            let file = place.join(name);
            system("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", text(&file)]).expect("a key");
        }
        // Where sshd confines itself; Debian's service makes it.
        let _ = fs::create_dir("/run/sshd");
        Self { place: place.to_owned() }
    }

    /// The configuration of an sshd whose sessions have their caches and scratch files in `home`.
    pub(crate) fn sshd_config(&self, home: &Path, listen: &str) -> PathBuf {
        let (host, user) = (self.place.join("host"), self.place.join("user.pub"));
        let [cache, scratch] = ["cache", "scratch"].map(|name| home.join(name));
        for directory in [home, &cache, &scratch] {
            fs::DirBuilder::new().mode(0o700).create(directory).expect("a directory");
        }
        let config = home.join("sshd_config");
        let own = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
             SetEnv XDG_CACHE_HOME={} CIPHERTOLL_SCRATCH_DIR={}\n",
            text(&host),
            text(&user),
            text(&cache),
            text(&scratch),
        );
        fs::write(&config, format!("{listen}{own}")).expect("a configuration");
        config
    }

    /// An `ssh` with a configuration of its own; `hosts` are names with the lines that are theirs.
    /// Returns a directory for `PATH`.
    pub(crate) fn client(&self, hosts: &[(String, String)]) -> PathBuf {
        let place = text(&self.place);
        let host_key = fs::read_to_string(self.place.join("host.pub")).expect("a key");
        let configured = |(name, lines): &(String, String)| {
            format!(
                "Host {name}\n HostKeyAlias {name}\n User root\n IdentityFile {place}/user\n\
                 UserKnownHostsFile {place}/known\n{lines}\n"
            )
        };
        let configuration = hosts.iter().map(configured).collect::<Vec<_>>().concat();
        let known = hosts.iter().map(|(name, _)| format!("{name} {host_key}")).collect::<Vec<_>>().concat();
        fs::write(self.place.join("ssh_config"), configuration).expect("a configuration");
        fs::write(self.place.join("known"), known).expect("known hosts");
        let bin = self.place.join("bin");
        fs::create_dir(&bin).expect("a directory");
        let checked = format!("exec /usr/bin/ssh -F {place}/ssh_config -o StrictHostKeyChecking=yes \"$@\"");
        script(&bin.join("ssh"), &checked);
        bin
    }
}
