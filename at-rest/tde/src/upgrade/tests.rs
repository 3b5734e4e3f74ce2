use super::*;
use crate::cluster::DiskFile;
use crate::{CipherKind, Storage};

const TAILED: [&str; 3] =
    ["pg_twophase/0000000A", "pg_replslot/slot/xid-7.spill", "pg_logical/mappings/map-1"];
const UNCHANGED: &str = "pg_replslot/slot/state";

struct OldCluster {
    place: tempfile::TempDir,
    kek: Kek,
    engine: EncryptionEngine,
    contents: Vec<(&'static str, Vec<u8>)>,
}

impl OldCluster {
    fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    fn keys(&self) -> PathBuf {
        KeyFile::path_beside(&self.data())
    }

    /// Files as earlier versions wrote them.
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let kek = Kek::generate().expect("a key");
        let file = KeyFile::create(CipherKind::Aes256, &kek).expect("keys");
        let file = file.in_format(KeyFileFormat::Sealed, &kek).expect("an old key file");
        let engine = EncryptionEngine::new(file.unwrap(&kek).expect("keys")).expect("an engine");
        let mut cluster = Self { place, kek, engine, contents: Vec::new() };
        file.store(&cluster.keys(), Replace::Never).expect("stored");
        for (path, size) in TAILED.into_iter().zip([517_usize, 1027, 2048 + 15]).chain([(UNCHANGED, 200)]) {
            let content: Vec<u8> = (0..size).map(|n| (n * 7 + n / 256) as u8).collect();
            let mut stored = content.clone();
            let mut opened = OpenFile::new(FileClass::of(path.as_bytes()));
            cluster.engine.encrypt_separately(&mut opened, &mut stored).expect("encrypted");
            let to = cluster.data().join(path);
            fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
            fs::write(to, stored).expect("written");
            cluster.contents.push((path, content));
        }
        cluster
    }

    fn upgrade(&mut self) -> Option<KeyFile> {
        let (data, path) = (self.data(), self.keys());
        let file = KeyFile::load(&path).expect("a key file");
        upgrade(&data, &mut self.engine, (&path, &file), &self.kek).expect("upgraded")
    }

    fn is_upgraded(&mut self) {
        let format = KeyFile::load(&self.keys()).expect("a key file").format();
        assert!(!is_needed(&self.data(), format));
        for (path, content) in &self.contents {
            let file = DiskFile(File::open(self.place.path().join("data").join(path)).expect("a file"));
            let mut back = vec![0; content.len() + 1];
            let mut opened = OpenFile::new(FileClass::of(path.as_bytes()));
            let count = self.engine.read_at(&mut opened, &file, &mut back, 0).expect("read");
            assert_eq!(
                (count as u64, &back[..count]),
                (file.size().expect("a size"), &content[..]),
                "{path}"
            );
        }
    }
}

#[test]
fn tails_of_earlier_versions_are_joined_once() {
    let mut cluster = OldCluster::new();
    assert!(is_needed(&cluster.data(), KeyFileFormat::Sealed));
    let upgraded = cluster.upgrade().expect("a new key file");
    assert_eq!(upgraded.format(), KeyFileFormat::NEWEST);
    cluster.is_upgraded();
    assert!(cluster.upgrade().is_none());
    cluster.is_upgraded();
}

/// Before the key file changes, the old files count; after it, the drafts.
#[test]
fn an_interrupted_upgrade_continues() {
    let mut cluster = OldCluster::new();
    let data = cluster.data();
    let draft = data.join(DRAFTS).join(TAILED[0]);
    fs::create_dir_all(draft.parent().expect("a directory")).expect("a directory");
    fs::write(&draft, "incomplete").expect("a draft");
    cluster.upgrade().expect("a new key file");
    cluster.is_upgraded();

    let mut cluster = OldCluster::new();
    let data = cluster.data();
    for path in TAILED {
        write_draft(&data, Path::new(path), &mut cluster.engine).expect("a draft");
    }
    let file = KeyFile::load(&cluster.keys()).expect("a key file");
    let newer = file.in_format(KeyFileFormat::NEWEST, &cluster.kek).expect("a key file");
    newer.store(&cluster.keys(), Replace::Atomically).expect("stored");
    fs::rename(data.join(DRAFTS).join(TAILED[1]), data.join(TAILED[1])).expect("one is replaced");
    assert!(is_needed(&data, newer.format()), "drafts are left");
    assert!(cluster.upgrade().is_none());
    cluster.is_upgraded();
}
