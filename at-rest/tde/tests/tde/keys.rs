//! Key files: wrapping, tampering, truncation, rotation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ciphertoll_tde::{CipherKind, DataKeys, KEY_FILE_BYTES, Kek, KekSource, KeyError, KeyFile, Replace};

fn kek() -> Kek {
    Kek::generate().expect("OpenSSL is random")
}

fn refused(result: Result<DataKeys, KeyError>) -> KeyError {
    result.err().expect("must be refused")
}

#[test]
fn a_key_file_decodes_to_itself() {
    for cipher_kind in [CipherKind::Aes256, CipherKind::Null] {
        let kek = kek();
        let file = KeyFile::create(cipher_kind, &kek).expect("a key file");
        let again = KeyFile::decode(&file.encode()).expect("decodes");
        assert_eq!(again, file);
        assert_eq!(again.unwrap(&kek).expect("unwraps").cipher_kind(), cipher_kind);
    }
}

#[test]
fn a_wrong_key_is_distinguished_from_a_damaged_file() {
    let file = KeyFile::create(CipherKind::Aes256, &kek()).expect("a key file");
    assert!(matches!(refused(file.unwrap(&kek())), KeyError::WrongKey));
}

#[test]
fn any_changed_bit_or_missing_byte_is_detected() {
    let kek = kek();
    let good = KeyFile::create(CipherKind::Aes256, &kek).expect("a key file").encode();
    for bit in 0..KEY_FILE_BYTES * 8 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        let opened = KeyFile::decode(&bad).and_then(|file| file.unwrap(&kek));
        assert!(opened.is_err(), "bit {bit} was changed");
    }
    for length in 0..KEY_FILE_BYTES {
        assert!(KeyFile::decode(&good[..length]).is_err(), "{length} bytes");
    }
    assert!(KeyFile::decode(&[&good[..], b"x"].concat()).is_err());
}

#[test]
fn a_key_file_of_another_version_is_refused_with_what_to_do() {
    let good = KeyFile::create(CipherKind::Aes256, &kek()).expect("a key file").encode();
    for (at, value, named) in
        [(8, 0, "version 0"), (8, 2, "version 2"), (8, 4, "version 4"), (10, 2, "AES-128-XTS")]
    {
        let mut other = good;
        other[at] = value;
        let error = KeyFile::decode(&other).expect_err("refused");
        assert!(matches!(error, KeyError::OtherVersion(_)), "{error:?}");
        let said = error.to_string();
        assert!(said.contains(named) && said.contains("ciphertoll tde convert --decrypt"), "{said}");
    }
}

#[test]
fn keys_cannot_be_exchanged_within_a_file() {
    let kek = kek();
    let mut bytes = KeyFile::create(CipherKind::Aes256, &kek).expect("a key file").encode();
    let (relations, wal) = bytes[40..].split_at_mut(60);
    relations.swap_with_slice(wal);
    let exchanged = KeyFile::decode(&bytes).expect("well-formed");
    assert!(matches!(refused(exchanged.unwrap(&kek)), KeyError::Damaged(_)));
}

#[test]
fn rotation_invalidates_the_old_key_and_is_counted() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("data.tde");
    let (old, new) = (kek(), kek());
    let file = KeyFile::create(CipherKind::Aes256, &old).expect("a key file");
    file.store(&path, Replace::Never).expect("stored");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(file.store(&path, Replace::Never).is_err(), "one is there already");
    let rotated = file.rotated(&old, &new).expect("rotated");
    rotated.store(&path, Replace::Atomically).expect("stored");
    let loaded = KeyFile::load(&path).expect("loaded");
    assert_eq!((loaded.generation(), loaded.cipher_kind()), (1, CipherKind::Aes256));
    assert!(loaded.unwrap(&new).is_ok());
    assert!(matches!(refused(loaded.unwrap(&old)), KeyError::WrongKey));
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 1, "no draft is left");
}

/// Both would say that their key opens the file now.
#[test]
fn of_two_rotations_at_once_one_fails() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("data.tde");
    let (old, one, other) = (kek(), kek(), kek());
    let file = KeyFile::create(CipherKind::Aes256, &old).expect("a key file");
    file.store(&path, Replace::Never).expect("stored");
    let [first, second] =
        [&one, &other].map(|new| KeyFile::load(&path).expect("loaded").rotated(&old, new).expect("rotated"));
    first.store(&path, Replace::Atomically).expect("stored");
    let failed = second.store(&path, Replace::Atomically).expect_err("too late").to_string();
    assert!(failed.contains("another rotation"), "{failed}");
    assert!(KeyFile::load(&path).expect("loaded").unwrap(&one).is_ok());
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 1, "no draft is left");
}

#[test]
fn a_rotation_keeps_the_mode_of_the_key_file() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("data.tde");
    let (old, new) = (kek(), kek());
    let file = KeyFile::create(CipherKind::Aes256, &old).expect("a key file");
    file.store(&path, Replace::Never).expect("stored");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a mode");
    file.rotated(&old, &new).expect("rotated").store(&path, Replace::Atomically).expect("stored");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o640);
}

#[test]
fn a_key_can_be_read_from_every_source() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("kek");
    let kek = kek();
    fs::write(&path, kek.text().as_bytes()).expect("written");
    let file = KeyFile::create(CipherKind::Aes256, &kek).expect("a key file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    let from_file = KekSource::File(path.clone());
    let open = fs::File::open(&path).expect("opened");
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&open);
    let command = |text: String| KekSource::Command(text.into());
    let cat = command(format!("cat {}", path.display()));
    for source in [from_file, KekSource::Descriptor(descriptor), KekSource::Descriptor(descriptor), cat] {
        assert!(file.unwrap(&source.read().expect("told")).is_ok(), "{source:?}");
    }
    for bad in ["exit 3", "true", "yes"] {
        assert!(command(bad.to_owned()).read().is_err(), "{bad}");
    }
}

/// A Kubernetes volume with `fsGroup` and a systemd credential are readable by a group.
#[test]
fn a_command_that_hangs_is_ended() {
    let limit = Duration::from_millis(300);
    // The second has closed its output. The first one's child keeps it open.
    for command in ["sleep infinity; :", "exec sleep infinity >&-"] {
        let read = KekSource::Command(command.into()).read_within(limit);
        let error = read.err().expect("no key").to_string();
        assert!(error.contains("gave no key within 0.3 s"), "{error}");
    }
}

#[test]
fn a_rotation_follows_a_symbolic_link() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, link) = (directory.path().join("keys"), directory.path().join("data.tde"));
    let (old, new) = (kek(), kek());
    let file = KeyFile::create(CipherKind::Aes256, &old).expect("a key file");
    file.store(&path, Replace::Never).expect("stored");
    std::os::unix::fs::symlink("keys", &link).expect("a link");
    let rotated = KeyFile::load(&link).expect("a key file").rotated(&old, &new).expect("rotated");
    rotated.store(&link, Replace::Atomically).expect("stored");
    assert!(link.is_symlink(), "the link was replaced by a file");
    let behind = KeyFile::load(&path).expect("a key file");
    assert!(behind == rotated, "the file behind the link is still wrapped by the old key");
}

#[test]
fn a_group_may_read_a_key_file_and_nothing_else() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("kek");
    fs::write(&path, kek().text().as_bytes()).expect("written");
    let source = KekSource::File(path.clone());
    for mode in [0o400, 0o600, 0o440, 0o640] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        assert!(source.read().is_ok(), "{mode:o}");
    }
    for mode in [0o660, 0o620, 0o604, 0o644, 0o602, 0o601, 0o610] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        let error = source.read().err().expect("refused");
        assert!(matches!(error, KeyError::Exposed { .. }), "{mode:o}");
        let said = error.to_string();
        assert!(
            said.contains(&format!("mode {mode:04o}")) && said.contains("0400, 0600, 0440 or 0640"),
            "{said}"
        );
    }
}

/// A user ID and group ID that no process of the test has.
const OTHER: u32 = 54_321;

#[test]
fn a_group_readable_key_file_of_another_user_or_group_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return ciphertoll_testing::not_for_all("only root can make key files of other users");
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("kek");
    fs::write(&path, kek().text().as_bytes()).expect("written");
    let source = KekSource::File(path.clone());
    for (owner, group, mode, accepted) in [
        (0, 0, 0o440, true),
        (OTHER, 0, 0o440, false),
        (0, OTHER, 0o440, false),
        (OTHER, OTHER, 0o640, false),
        (OTHER, OTHER, 0o600, true),
    ] {
        std::os::unix::fs::chown(&path, Some(owner), Some(group)).expect("given away");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        assert_eq!(source.read().is_ok(), accepted, "{owner}:{group} {mode:o}");
    }
}

#[test]
fn invalid_keys_are_refused() {
    let good = kek().text();
    assert!(Kek::parse(good.as_bytes()).is_ok() && Kek::parse(good.trim_end().as_bytes()).is_ok());
    for bad in ["", "00", &good.replace('\n', "0"), &format!("{}\n\n", good.trim_end()), &"g".repeat(64)] {
        assert!(matches!(Kek::parse(bad.as_bytes()), Err(KeyError::Malformed)), "{bad:?}");
    }
}

#[test]
fn a_key_file_cannot_be_changed_to_the_null_cipher() {
    const CIPHER_AT: usize = 10;
    const NULL: u8 = 3;
    let kek = kek();
    let mut bytes = KeyFile::create(CipherKind::Aes256, &kek).expect("a key file").encode();
    bytes[CIPHER_AT] = NULL;
    let file = KeyFile::decode(&bytes).expect("decodes");
    assert_eq!(file.cipher_kind(), CipherKind::Null);
    assert!(matches!(refused(file.unwrap(&kek)), KeyError::Damaged(_)));
}
