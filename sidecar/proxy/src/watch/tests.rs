use super::*;

fn snapshot(size: u64) -> Snapshot {
    let stamp = Stamp { file: (1, 1), bytes: size, modified: (0, 0), changed: (0, 0) };
    Snapshot(vec![("/ca.pem".into(), Some(stamp))])
}

#[test]
fn a_change_counts_when_it_has_settled() {
    let mut watch = FileWatch { read: snapshot(1), last: snapshot(1), ..FileWatch::default() };
    assert_eq!(watch.look(snapshot(1)), Look::Unchanged);
    assert_eq!(watch.look(snapshot(2)), Look::Settling);
    assert!(watch.is_settling.load(Ordering::Relaxed));
    assert_eq!(watch.look(snapshot(3)), Look::Settling);
    assert_eq!(watch.look(snapshot(3)), Look::Changed);
    assert!(!watch.is_settling.load(Ordering::Relaxed));
    // Files that cannot be used are tried again, and reported once.
    assert!(watch.failed());
    assert_eq!(watch.look(snapshot(3)), Look::Changed);
    assert!(!watch.failed());
    assert_eq!((watch.look(snapshot(4)), watch.look(snapshot(4))), (Look::Settling, Look::Changed));
    assert!(watch.failed());
    watch.applied();
    assert_eq!(watch.look(snapshot(4)), Look::Unchanged);
    // Back to what is in use.
    assert_eq!((watch.look(snapshot(5)), watch.look(snapshot(4))), (Look::Settling, Look::Unchanged));
}

#[test]
fn a_link_to_another_file_is_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["one", "two"] {
        std::fs::write(path(name), "same").unwrap();
    }
    std::os::unix::fs::symlink("one", path("link")).unwrap();
    let stamp = || metadata(path("link")).ok().as_ref().map(Stamp::of);
    let before = stamp();
    assert!(before.is_some() && before == stamp());
    std::os::unix::fs::symlink("two", path("next")).unwrap();
    std::fs::rename(path("next"), path("link")).unwrap();
    assert_ne!(stamp(), before);
    std::fs::remove_file(path("two")).unwrap();
    assert_eq!(stamp(), None);
}
