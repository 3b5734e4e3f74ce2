//! Page encryption under `PostgreSQL`: the library that is preloaded into it, its keys, and whether it is there.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ciphertoll_model::{Tde, TdeCipher, TdeTarget};
use ciphertoll_tde::{CipherKind, Kek, KeyError, KeyFile, MAP_MAGIC, PRELOAD_LIBRARY, Replace};

use crate::error::{Context, Error};
use crate::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE, PUBLIC_FILE};
use crate::user::RunAs;

/// The key-encryption key, and what is wrapped by it: both on the same disk here, as they are only to be measured.
const KEK_FILE: &str = "kek";
const KEYS_FILE: &str = "keys.tde";
/// What AWS-LC and OpenSSL read to use fewer of a processor's instructions than there are.
const CAPABILITIES: &str = "OPENSSL_ia32cap";
/// Without AES instructions, and without those for several blocks.
const WITHOUT_AES: &str = "~0x200000000000000:~0x20000000000";
/// Without those for several blocks.
const WITHOUT_VAES: &str = ":~0x20000000000";
/// What AWS-LC asks of a processor to encrypt several blocks of XTS at a time.
const FLAGS_OF_VAES: [&str; 7] =
    ["vaes", "vpclmulqdq", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vbmi2"];
/// Small, always there, and with a beginning that is known in the clear.
const RELATION_MAP: &str = "global/pg_filenode.map";

/// The library where servers of another user can load it, with what it is told.
#[derive(Clone, Debug)]
pub(crate) struct Preload {
    library: PathBuf,
    keys: PathBuf,
    data: PathBuf,
    tde: Tde,
}

/// The library beside the program, if this machine can do what is asked for.
pub(crate) fn find_library(helper: &Path, tde: Tde) -> Result<PathBuf, Error> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if let Some(missing) = missing_flag(tde.target, &cpuinfo) {
        return Err(Error::AtRestUnavailable(format!(
            "this machine's processor cannot take that target: {missing} is not among its instructions"
        )));
    }
    let library = helper.with_file_name(PRELOAD_LIBRARY);
    if library.is_file() {
        return Ok(library);
    }
    Err(Error::AtRestUnavailable(format!(
        "{PRELOAD_LIBRARY} is not beside the program ({}): `make run` and `cargo build -p ciphertoll-tde-preload` make it",
        library.parent().unwrap_or(helper).display()
    )))
}

/// What a processor of x86-64 must have for that, and has not.
fn missing_flag(target: TdeTarget, cpuinfo: &str) -> Option<&'static str> {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    let has = |name: &str| flags.split_ascii_whitespace().any(|flag| flag == name);
    let needed: &[&'static str] = match target {
        TdeTarget::Best => &[],
        // Every one has it, and others are told in another way to go without.
        TdeTarget::Portable => &["sse2"],
        TdeTarget::AesNi => &["aes"],
        TdeTarget::Vaes => &FLAGS_OF_VAES,
    };
    needed.iter().copied().find(|flag| !has(flag))
}

/// Makes a directory with fresh keys in it.
pub(crate) fn make_keys(tde: Tde, directory: &Path, owner: RunAs) -> Result<(), Error> {
    let strength = match tde.cipher {
        TdeCipher::Aes256 => CipherKind::Aes256,
        TdeCipher::Aes128 => CipherKind::Aes128,
        TdeCipher::Null => CipherKind::Null,
    };
    let failed = |error: KeyError| Error::AtRestUnavailable(format!("no keys can be made: {error}"));
    files::make_directory(directory, PRIVATE_DIRECTORY, owner)?;
    let kek = Kek::generate().map_err(failed)?;
    files::write(&directory.join(KEK_FILE), kek.text().as_bytes(), PRIVATE_FILE, owner)?;
    let keys = directory.join(KEYS_FILE);
    KeyFile::create(strength, &kek).and_then(|file| file.store(&keys, Replace::Never)).map_err(failed)?;
    files::give(&keys, owner)
}

impl Preload {
    /// Copies the library into `place`, which the server's user passes through, as it may not where the library was made.
    pub(crate) fn lay(from: &Path, place: &Path, keys: &Path, data: &Path, tde: Tde) -> Result<Self, Error> {
        let library = place.join(PRELOAD_LIBRARY);
        fs::copy(from, &library).context("copy", from)?;
        fs::set_permissions(&library, Permissions::from_mode(PUBLIC_FILE)).context("give", &library)?;
        Ok(Self { library, keys: keys.to_owned(), data: data.to_owned(), tde })
    }

    /// What is in the environment of a server, and of what makes its data. It says where keys are, and none of them.
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

    /// What is not as it should be of the server with this process: the library is not in it, or its files are not what
    /// the library would have made of them.
    pub(crate) fn unencrypted(&self, pid: i32) -> Result<Option<String>, Error> {
        let maps = PathBuf::from(format!("/proc/{pid}/maps"));
        let mapped = fs::read_to_string(&maps).context("read", &maps)?;
        if !has_mapped(&mapped, &self.library) {
            return Ok(Some(format!("{PRELOAD_LIBRARY} is not in the server's process")));
        }
        let map = self.data.join(RELATION_MAP);
        let mut beginning = [0; MAP_MAGIC.len()];
        File::open(&map).and_then(|mut file| file.read_exact(&mut beginning)).context("read", &map)?;
        let is_clear = beginning == MAP_MAGIC;
        if is_clear == (self.tde.cipher == TdeCipher::Null) {
            return Ok(None);
        }
        let seen = if is_clear { "in the clear" } else { "encrypted" };
        Ok(Some(format!("{RELATION_MAP} is {seen}")))
    }
}

/// Whether code of `library` is in the memory that `maps` tells of.
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
    fn keys_are_for_their_owner_only_and_in_no_environment() {
        let place = tempfile::tempdir().unwrap();
        let (keys, built) = (place.path().join("keys"), place.path().join("built"));
        for cipher in [TdeCipher::Aes256, TdeCipher::Aes128, TdeCipher::Null] {
            let tde = Tde { cipher, target: TdeTarget::AesNi };
            make_keys(tde, &keys, RunAs::Ourselves).unwrap();
            let kek = fs::read_to_string(keys.join(KEK_FILE)).unwrap();
            for name in [KEK_FILE, KEYS_FILE] {
                assert_eq!(fs::metadata(keys.join(name)).unwrap().permissions().mode() & 0o777, 0o600);
            }
            fs::write(&built, "code").unwrap();
            let preload = Preload::lay(&built, place.path(), &keys, Path::new("/data"), tde).unwrap();
            let told = format!("{:?}", preload.environment());
            assert!(told.contains("CIPHERTOLL_TDE_KEK_FILE") && !told.contains(kek.trim()), "{told}");
            assert_eq!(told.contains("CIPHERTOLL_TDE_NULL"), cipher == TdeCipher::Null, "{told}");
            assert!(told.contains(WITHOUT_VAES), "{told}");
            let file = KeyFile::load(&keys.join(KEYS_FILE)).unwrap();
            assert_eq!(file.cipher_kind().encrypts(), cipher != TdeCipher::Null);
            fs::remove_dir_all(&keys).unwrap();
        }
    }

    #[test]
    fn a_processor_has_what_a_target_needs_or_is_told_what_not() {
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
    fn code_in_a_process_is_seen() {
        let library = Path::new("/s/libciphertoll_tde_preload.so");
        let line = |rights: &str, name: &str| format!("7f00-7f10 {rights} 00001000 08:01 42      {name}\n");
        assert!(has_mapped(&line("r-xp", "/s/libciphertoll_tde_preload.so"), library));
        assert!(!has_mapped(&line("r--p", "/s/libciphertoll_tde_preload.so"), library));
        assert!(!has_mapped(&line("r-xp", "/other/s/libciphertoll_tde_preload.so.1"), library));
        assert!(!has_mapped("", library));
    }
}
