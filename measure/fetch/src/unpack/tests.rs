use std::io::Write;
use std::os::unix::fs::MetadataExt;

use tar::{Builder, Header};

use super::*;

fn header(path: &str, kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_ustar();
    // The crate refuses to write paths that lead out.
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(1_700_000_000);
    header.set_size(size as u64);
    header
}

fn tar_of(entries: &[(&str, EntryType, u32, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for &(path, kind, mode, contents) in entries {
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        let mut header = header(path, kind, mode, if is_link { 0 } else { contents.len() });
        if is_link {
            header.as_old_mut().linkname[..contents.len()].copy_from_slice(contents.as_bytes());
        }
        header.set_cksum();
        builder.append(&header, if is_link { &[][..] } else { contents.as_bytes() }).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn modes_are_normalized_and_times_are_kept() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("server");
    let tar = tar_of(&[
        ("./bin/postgres", EntryType::Regular, 0o700, "program"),
        ("lib/", EntryType::Directory, 0o700, ""),
        ("lib/libssl.so.1.1", EntryType::Regular, 0o4600, "library"),
        ("lib/libssl.so", EntryType::Symlink, 0o777, "libssl.so.1.1"),
    ]);
    unpack_tar(&tar[..], &target).unwrap();
    let mode = |path: &str| fs::metadata(target.join(path)).unwrap().mode() & 0o7777;
    assert_eq!(["", "bin", "lib", "bin/postgres"].map(mode), [0o755; 4]);
    assert_eq!(mode("lib/libssl.so.1.1"), 0o644);
    assert_eq!(fs::read_to_string(target.join("lib/libssl.so")).unwrap(), "library");
    assert_eq!(fs::metadata(target.join("bin/postgres")).unwrap().mtime(), 1_700_000_000);
}

#[test]
fn entries_outside_the_directory_are_refused() {
    let file = EntryType::Regular;
    for entries in [
        &[("../out", file, 0o644, "x")][..],
        &[("/out", file, 0o644, "x")],
        &[("lib/../../out", file, 0o644, "x")],
        &[("link", EntryType::Symlink, 0o777, "..")],
        &[("link", EntryType::Symlink, 0o777, "/tmp")],
        &[("link", EntryType::Symlink, 0o777, "lib/../..")],
        &[("link", EntryType::Link, 0o644, "lib")],
        &[("device", EntryType::Char, 0o644, "")],
        // Through a link, even within the directory.
        &[
            ("lib", EntryType::Directory, 0o755, ""),
            ("link", EntryType::Symlink, 0o777, "lib"),
            ("link/x", file, 0o644, "x"),
        ],
        &[("twice", file, 0o644, "x"), ("twice", file, 0o644, "y")],
    ] {
        let place = tempfile::tempdir().unwrap();
        let error = unpack_tar(&tar_of(entries)[..], &place.path().join("server"));
        assert!(error.is_err(), "{entries:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{entries:?}");
    }
}

const PARTS: ZipSelection =
    ZipSelection { included: &["README", "bin/server", "lib/"], except: &["lib/debug/"] };

fn zip_of(files: &[(&str, u32, &str)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    for &(name, mode, contents) in files {
        let options = zip::write::SimpleFileOptions::default().unix_permissions(mode);
        zip.start_file(name, options).unwrap();
        zip.write_all(contents.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn unpack_zip(zip: Vec<u8>, target: &Path) -> io::Result<()> {
    unpack_tree(&mut ZipArchive::new(io::Cursor::new(zip))?, &PARTS, target)
}

#[test]
fn only_selected_files_of_a_zip_are_unpacked() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("server");
    let zip = zip_of(&[
        ("bin/server", 0o700, "program"),
        ("bin/server-debug", 0o755, "program"),
        ("lib/a/b.so", 0o600, "library"),
        ("lib/debug/b.so", 0o755, "library"),
        ("README", 0o644, "text"),
        ("README.more", 0o644, "text"),
    ]);
    unpack_zip(zip, &target).unwrap();
    let mode = |path: &str| fs::metadata(target.join(path)).unwrap().mode() & 0o7777;
    assert_eq!(["", "bin", "lib/a", "bin/server"].map(mode), [0o755; 4]);
    assert_eq!(["lib/a/b.so", "README"].map(mode), [0o644; 2]);
    for absent in ["bin/server-debug", "lib/debug", "README.more"] {
        assert!(!target.join(absent).exists(), "{absent}");
    }
}

#[test]
fn zip_entries_that_lead_out_link_or_exceed_their_size_are_refused() {
    let mut link = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    link.add_symlink("lib/link", "/etc", zip::write::SimpleFileOptions::default()).unwrap();
    // The central directory declares the size at offset 24 of an entry.
    let mut longer = zip_of(&[("lib/file", 0o644, "contents")]);
    let entry = longer.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
    longer[entry + 24] -= 1;
    for (what, zip) in [
        ("out", zip_of(&[("lib/../../out", 0o644, "x")])),
        ("a link", link.finish().unwrap().into_inner()),
        ("longer than it says", longer),
    ] {
        let place = tempfile::tempdir().unwrap();
        assert!(unpack_zip(zip, &place.path().join("server")).is_err(), "{what}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{what}");
    }
    let mut budget = UnpackBudget::ALL;
    assert!(budget.take(Path::new("large"), 5 << 30).is_err());
    let mut budget = UnpackBudget { entries: 1, ..UnpackBudget::ALL };
    assert!(budget.take(Path::new("one"), 1).is_ok() && budget.take(Path::new("two"), 1).is_err());
}

#[test]
fn archives_that_are_too_large_or_truncated_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let mut large = header("large", EntryType::Regular, 0o644, 5 << 30);
    large.set_cksum();
    let error = unpack_tar(&large.as_bytes()[..], &place.path().join("a")).unwrap_err();
    assert!(error.to_string().contains("maximum size of a server"), "{error}");
    let whole = tar_of(&[("file", EntryType::Regular, 0o644, "contents")]);
    assert!(unpack_tar(&whole[..515], &place.path().join("b")).is_err());
}
