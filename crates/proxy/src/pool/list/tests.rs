use proptest::prelude::*;

use super::*;

/// The remainder of the number is the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TestServer(u8);

impl WorkerBound for TestServer {
    fn thread(self) -> usize {
        usize::from(self.0 % 3)
    }
}

#[derive(Clone, Debug)]
enum Step {
    PushBack(u8),
    PushFront(u8),
    Remove(u8),
    TakeNewestOf(usize),
    TakeNewest,
    TakeOldest(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12_u8).prop_map(Step::PushBack),
        1 => (0..12_u8).prop_map(Step::PushFront),
        3 => (0..12_u8).prop_map(Step::Remove),
        1 => (0..4_usize).prop_map(Step::TakeNewestOf),
        1 => Just(Step::TakeNewest),
        1 => (0..4_usize).prop_map(Step::TakeOldest),
    ]
}

/// The same operations on a vector.
#[derive(Default)]
struct Naive(Vec<TestServer>);

impl Naive {
    fn remove(&mut self, server: TestServer) -> bool {
        let before = self.0.len();
        self.0.retain(|other| *other != server);
        self.0.len() < before
    }

    fn take_newest_of(&mut self, thread: usize) -> Option<TestServer> {
        self.0.iter().rposition(|server| server.thread() == thread).map(|at| self.0.remove(at))
    }

    fn take_oldest(&mut self, thread: usize) -> Option<TestServer> {
        let near = self.0.iter().position(|server| server.thread() == thread).unwrap_or_default();
        (!self.0.is_empty()).then(|| self.0.remove(near))
    }
}

proptest! {
    #[test]
    fn connections_behave_like_a_naive_list(steps in proptest::collection::vec(step(), 1..100)) {
        let (mut connections, mut naive) = (Connections::default(), Naive::default());
        for step in steps {
            match step {
                Step::PushBack(number) | Step::PushFront(number) => {
                    connections.push(TestServer(number));
                    naive.remove(TestServer(number));
                    naive.0.push(TestServer(number));
                }
                Step::Remove(number) => {
                    prop_assert_eq!(connections.remove(TestServer(number)), naive.remove(TestServer(number)));
                }
                Step::TakeNewestOf(thread) => {
                    prop_assert_eq!(connections.take_newest_of(thread), naive.take_newest_of(thread));
                }
                Step::TakeNewest => prop_assert_eq!(connections.take_newest(), naive.0.pop()),
                Step::TakeOldest(thread) => {
                    prop_assert_eq!(connections.take_oldest(thread), naive.take_oldest(thread));
                }
            }
            prop_assert_eq!(connections.is_empty(), naive.0.is_empty());
        }
    }

    #[test]
    fn a_linked_map_behaves_like_a_naive_list(steps in proptest::collection::vec(step(), 1..100)) {
        let (mut map, mut naive) = (LinkedMap::default(), Vec::new());
        for (value, step) in steps.into_iter().enumerate() {
            match step {
                Step::PushBack(key) => {
                    map.push_back(key, value);
                    naive.retain(|(other, _)| *other != key);
                    naive.push((key, value));
                }
                Step::PushFront(key) => {
                    map.push_front(key, value);
                    naive.retain(|(other, _)| *other != key);
                    naive.insert(0, (key, value));
                }
                Step::Remove(key) => {
                    let at = naive.iter().position(|(other, _)| *other == key);
                    prop_assert_eq!(map.remove(key), at.map(|at| naive.remove(at).1));
                }
                Step::TakeNewestOf(_) | Step::TakeNewest | Step::TakeOldest(_) => {}
            }
            prop_assert_eq!(map.iter().collect::<Vec<_>>(), naive.clone());
            prop_assert_eq!((map.first(), map.last()), (naive.first().copied(), naive.last().copied()));
            prop_assert_eq!((map.len(), map.is_empty()), (naive.len(), naive.is_empty()));
        }
    }
}
