//! Page encryption of PostgreSQL: the library that is preloaded into the server, its keys, and checks that it is active.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ciphertoll_host::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE, PUBLIC_FILE};
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{NO_AES_128, Tde, TdeCipher, TdeTarget};
use ciphertoll_record::Context;
use ciphertoll_tde::{
    CipherKind, Kek, KeyError, KeyFile, MAP_MAGIC, PRELOAD_LIBRARY, Replace, find_preload_library,
};

use crate::error::Error;

/// The key-encryption key, and the keys that it wraps. Both are on the same disk: they serve measurements only.
const KEK_FILE: &str = "kek";
const KEYS_FILE: &str = "keys.tde";
/// The variable by which AWS-LC and OpenSSL disable instructions of the processor.
const CAPABILITIES: &str = "OPENSSL_ia32cap";
/// Disables AES instructions, including those for several blocks.
const WITHOUT_AES: &str = "~0x200000000000000:~0x20000000000";
/// Disables AES instructions for several blocks.
const WITHOUT_VAES: &str = ":~0x20000000000";
/// Flags that AWS-LC requires for its XTS code for several blocks.
const FLAGS_OF_VAES: [&str; 7] =
    ["vaes", "vpclmulqdq", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vbmi2"];
/// A small file that always exists and whose plaintext begins with known bytes.
const RELATION_MAP: &str = "global/pg_filenode.map";

/// The library in a directory that the server's user can read, and its configuration.
#[derive(Clone, Debug)]
pub(crate) struct Preload {
    library: PathBuf,
    keys: PathBuf,
    data: PathBuf,
    tde: Tde,
}

/// The library of our program. Fails if this processor lacks the instructions of the target.
pub(crate) fn find_library(helper: &Path, tde: Tde) -> Result<PathBuf, Error> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if let Some(missing) = missing_flag(tde.target, &cpuinfo) {
        return Err(Error::AtRestUnavailable(format!(
            "the processor does not support this target: it has no {missing} instructions"
        )));
    }
    find_preload_library(helper).ok_or_else(|| {
        Error::AtRestUnavailable(format!(
            "{PRELOAD_LIBRARY} of {} is missing: install the package ciphertoll-tde, or build it with `cargo build -p ciphertoll-tde-preload`",
            helper.display()
        ))
    })
}

/// A flag of an x86-64 processor that the target requires and that is missing.
fn missing_flag(target: TdeTarget, cpuinfo: &str) -> Option<&'static str> {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    let has = |name: &str| flags.split_ascii_whitespace().any(|flag| flag == name);
    let needed: &[&'static str] = match target {
        TdeTarget::Best => &[],
        // Every x86-64 processor has it; on other architectures, the variable has no effect.
        TdeTarget::Portable => &["sse2"],
        TdeTarget::AesNi => &["aes"],
        TdeTarget::Vaes => &FLAGS_OF_VAES,
    };
    needed.iter().copied().find(|flag| !has(flag))
}

pub(crate) fn create_keys(tde: Tde, directory: &Path, owner: RunAs) -> Result<(), Error> {
    let cipher = match tde.cipher {
        TdeCipher::Aes256 => CipherKind::Aes256,
        // A resumed run of an earlier build.
        TdeCipher::Aes128 => return Err(Error::AtRestUnavailable(NO_AES_128.to_owned())),
        TdeCipher::Null => CipherKind::Null,
    };
    let failed = |error: KeyError| Error::AtRestUnavailable(format!("cannot create keys: {error}"));
    files::make_directory(directory, PRIVATE_DIRECTORY, owner)?;
    let kek = Kek::generate().map_err(failed)?;
    files::write(&directory.join(KEK_FILE), kek.text().as_bytes(), PRIVATE_FILE, owner)?;
    let keys = directory.join(KEYS_FILE);
    KeyFile::create(cipher, &kek).and_then(|file| file.store(&keys, Replace::Never)).map_err(failed)?;
    Ok(files::set_owner(&keys, owner)?)
}

impl Preload {
    /// Copies the library into `directory`, because the server's user may have no access to the directory of our program.
    pub(crate) fn install(
        from: &Path,
        directory: &Path,
        keys: &Path,
        data: &Path,
        tde: Tde,
    ) -> Result<Self, Error> {
        if ciphertoll_record::is_noexec(directory)? {
            return Err(Error::AtRestUnavailable(format!(
                "at-rest tde runs a library from {}, which is mounted noexec: choose another directory by --scratch-dir",
                directory.display()
            )));
        }
        let library = directory.join(PRELOAD_LIBRARY);
        fs::copy(from, &library).context("copy", from)?;
        fs::set_permissions(&library, Permissions::from_mode(PUBLIC_FILE))
            .context("set the permissions of", &library)?;
        Ok(Self { library, keys: keys.to_owned(), data: data.to_owned(), tde })
    }

    /// The environment of the server and of its installer. It contains paths of keys, but no keys.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let path = |path: &Path| path.display().to_string();
        let mut all = BTreeMap::from([
            ("LD_PRELOAD", path(&self.library)),
            ("CIPHERTOLL_TDE_DATA", path(&self.data)),
            ("CIPHERTOLL_TDE_KEYS", path(&self.keys.join(KEYS_FILE))),
            ("CIPHERTOLL_TDE_KEK_FILE", path(&self.keys.join(KEK_FILE))),
        ]);
        if self.tde.cipher == TdeCipher::Null {
            all.insert("CIPHERTOLL_TDE_NULL", "for measuring".to_owned());
        }
        let capabilities = match self.tde.target {
            TdeTarget::Best | TdeTarget::Vaes => None,
            TdeTarget::Portable => Some(WITHOUT_AES),
            TdeTarget::AesNi => Some(WITHOUT_VAES),
        };
        all.extend(capabilities.map(|capabilities| (CAPABILITIES, capabilities.to_owned())));
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What is wrong with the server process: the library is not loaded, or a file is not encrypted as it should be.
    pub(crate) fn find_unencrypted(&self, pid: i32) -> Result<Option<String>, Error> {
        let maps = PathBuf::from(format!("/proc/{pid}/maps"));
        let mapped = fs::read_to_string(&maps).context("read", &maps)?;
        if !has_mapped(&mapped, &self.library) {
            return Ok(Some(format!("the server process has not loaded {PRELOAD_LIBRARY}")));
        }
        let map = self.data.join(RELATION_MAP);
        let mut beginning = [0; MAP_MAGIC.len()];
        File::open(&map).and_then(|mut file| file.read_exact(&mut beginning)).context("read", &map)?;
        let is_clear = beginning == MAP_MAGIC;
        if is_clear == (self.tde.cipher == TdeCipher::Null) {
            return Ok(None);
        }
        let seen = if is_clear { "not encrypted" } else { "encrypted" };
        Ok(Some(format!("{RELATION_MAP} is {seen}")))
    }
}

/// Whether `maps`, of a process, contains code of `library`.
fn has_mapped(maps: &str, library: &Path) -> bool {
    let library = library.display().to_string();
    maps.lines().any(|line| {
        let rights = line.split_ascii_whitespace().nth(1).unwrap_or_default();
        rights.contains('x') && line.ends_with(&format!(" {library}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_private_files_and_in_no_environment() {
        let place = tempfile::tempdir().unwrap();
        let (keys, built) = (place.path().join("keys"), place.path().join("built"));
        for cipher in [TdeCipher::Aes256, TdeCipher::Null] {
            let tde = Tde { cipher, target: TdeTarget::AesNi };
            create_keys(tde, &keys, RunAs::Ourselves).unwrap();
            let kek = fs::read_to_string(keys.join(KEK_FILE)).unwrap();
            for name in [KEK_FILE, KEYS_FILE] {
                assert_eq!(fs::metadata(keys.join(name)).unwrap().permissions().mode() & 0o777, 0o600);
            }
            fs::write(&built, "code").unwrap();
            let preload = Preload::install(&built, place.path(), &keys, Path::new("/data"), tde).unwrap();
            let environment = format!("{:?}", preload.environment());
            assert!(
                environment.contains("CIPHERTOLL_TDE_KEK_FILE") && !environment.contains(kek.trim()),
                "{environment}"
            );
            assert_eq!(
                environment.contains("CIPHERTOLL_TDE_NULL"),
                cipher == TdeCipher::Null,
                "{environment}"
            );
            assert!(environment.contains(WITHOUT_VAES), "{environment}");
            let file = KeyFile::load(&keys.join(KEYS_FILE)).unwrap();
            assert_eq!(file.cipher_kind().encrypts(), cipher != TdeCipher::Null);
            fs::remove_dir_all(&keys).unwrap();
        }
    }

    #[test]
    fn a_missing_instruction_of_a_target_is_found() {
        let old = "processor\t: 0\nflags\t\t: fpu sse2 aes avx2\n";
        let new = format!("flags\t\t: sse2 aes {}\n", FLAGS_OF_VAES.join(" "));
        let arm = "Features\t: fp asimd aes\n";
        assert_eq!(missing_flag(TdeTarget::Vaes, old), Some("vaes"));
        assert_eq!(missing_flag(TdeTarget::AesNi, old), None);
        assert_eq!(missing_flag(TdeTarget::Vaes, &new), None);
        assert_eq!(missing_flag(TdeTarget::Best, arm), None);
        for target in [TdeTarget::Portable, TdeTarget::AesNi, TdeTarget::Vaes] {
            assert!(missing_flag(target, arm).is_some(), "{target:?}");
        }
    }

    #[test]
    fn loaded_code_is_found_in_maps() {
        let library = Path::new("/s/libciphertoll_tde_preload.so");
        let line = |rights: &str, name: &str| format!("7f00-7f10 {rights} 00001000 08:01 42      {name}\n");
        assert!(has_mapped(&line("r-xp", "/s/libciphertoll_tde_preload.so"), library));
        assert!(!has_mapped(&line("r--p", "/s/libciphertoll_tde_preload.so"), library));
        assert!(!has_mapped(&line("r-xp", "/other/s/libciphertoll_tde_preload.so.1"), library));
        assert!(!has_mapped("", library));
    }
}
