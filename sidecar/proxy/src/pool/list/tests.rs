use proptest::prelude::*;

use super::*;

/// The remainder of the number is the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TestServer(u8);

impl WorkerBound for TestServer {
    fn thread(self) -> usize {
        usize::from(self.0 % 3)
    }

    fn slot(self) -> usize {
        usize::from(self.0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    PushBack(u8),
    PushFront(u8),
    Remove(u8),
    NewestOf(usize),
    TakeNewest,
    TakeOldest(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12_u8).prop_map(Step::PushBack),
        1 => (0..12_u8).prop_map(Step::PushFront),
        3 => (0..12_u8).prop_map(Step::Remove),
        1 => (0..4_usize).prop_map(Step::NewestOf),
        1 => Just(Step::TakeNewest),
        1 => (0..4_usize, 0..100_u64).prop_map(|(thread, until)| Step::TakeOldest(thread, until)),
    ]
}

/// The same operations on a vector of connections and their numbers.
#[derive(Default)]
struct Naive(Vec<(TestServer, u64)>);

impl Naive {
    fn remove(&mut self, server: TestServer) -> bool {
        let before = self.0.len();
        self.0.retain(|(other, _)| *other != server);
        self.0.len() < before
    }

    fn newest_of(&self, thread: usize) -> Option<(TestServer, u64)> {
        self.0.iter().rfind(|(server, _)| server.thread() == thread).copied()
    }

    fn take_oldest(&mut self, thread: usize, until: u64) -> Option<TestServer> {
        let is_near = |(server, order): &(TestServer, u64)| server.thread() == thread && *order <= until;
        let near = self.0.iter().position(is_near).unwrap_or_default();
        self.0.get(near).is_some_and(|(_, order)| *order <= until).then(|| self.0.remove(near).0)
    }
}

proptest! {
    #[test]
    fn connections_behave_like_a_naive_list(steps in proptest::collection::vec(step(), 1..100)) {
        let (mut lists, mut connections) = (Lists::default(), Connections::default());
        let mut naive = Naive::default();
        for (order, step) in (1..).zip(steps) {
            match step {
                Step::PushBack(number) | Step::PushFront(number) => {
                    let server = TestServer(number);
                    prop_assert_eq!(connections.remove(&mut lists, server), naive.remove(server));
                    connections.push(&mut lists, server, order);
                    naive.0.push((server, order));
                }
                Step::Remove(number) => {
                    let server = TestServer(number);
                    let is_member = naive.0.iter().any(|(other, _)| *other == server);
                    prop_assert_eq!(connections.contains(&lists, server), is_member);
                    prop_assert_eq!(connections.remove(&mut lists, server), naive.remove(server));
                }
                Step::NewestOf(thread) => {
                    prop_assert_eq!(connections.newest_of(&lists, thread), naive.newest_of(thread));
                }
                Step::TakeNewest => {
                    let newest = naive.0.pop().map(|(server, _)| server);
                    prop_assert_eq!(connections.take_newest(&mut lists), newest);
                }
                Step::TakeOldest(thread, until) => {
                    let has_any = naive.0.iter().any(|(_, order)| *order <= until);
                    prop_assert_eq!(connections.has_until(&lists, until), has_any);
                    let taken = connections.take_oldest(&mut lists, thread, until);
                    prop_assert_eq!(taken, naive.take_oldest(thread, until));
                }
            }
            prop_assert_eq!(connections.count(), naive.0.len());
        }
    }

    #[test]
    fn lists_behave_like_naive_ones(steps in proptest::collection::vec((step(), any::<bool>()), 1..100)) {
        let mut lists = Lists::default();
        let both = [lists.create(), lists.create()];
        let mut naive = [Vec::new(), Vec::new()];
        for (value, (step, is_second)) in steps.into_iter().enumerate() {
            let at = usize::from(is_second);
            match step {
                Step::PushBack(number) | Step::PushFront(number) => {
                    let member = TestServer(number);
                    for list in &mut naive {
                        list.retain(|(other, _)| *other != member);
                    }
                    if matches!(step, Step::PushBack(_)) {
                        lists.push_back(both[at], member, value);
                        naive[at].push((member, value));
                    } else {
                        lists.push_front(both[at], member, value);
                        naive[at].insert(0, (member, value));
                    }
                }
                Step::Remove(number) => {
                    let member = TestServer(number);
                    let found = naive[at].iter().position(|(other, _)| *other == member);
                    prop_assert_eq!(lists.remove_from(both[at], member), found.is_some());
                    found.map(|found| naive[at].remove(found));
                }
                Step::NewestOf(_) | Step::TakeNewest | Step::TakeOldest(..) => {}
            }
            for (list, naive) in both.into_iter().zip(&naive) {
                prop_assert_eq!(lists.iter(list).collect::<Vec<_>>(), naive.clone());
                prop_assert_eq!(lists.first(list), naive.first().copied());
                prop_assert_eq!((lists.last(list), lists.len(list)), (naive.last().copied(), naive.len()));
            }
        }
    }
}

#[test]
fn an_earlier_member_of_the_same_slot_is_not_found() {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Generation(u8);
    impl WorkerBound for Generation {
        fn thread(self) -> usize {
            0
        }

        fn slot(self) -> usize {
            0
        }
    }
    let mut lists = Lists::default();
    let list = lists.create();
    lists.push_back(list, Generation(1), ());
    assert!(lists.remove_from(list, Generation(1)));
    lists.push_back(list, Generation(2), ());
    assert!(!lists.contains(list, Generation(1)) && !lists.remove_from(list, Generation(1)));
    assert_eq!((lists.remove(Generation(1)), lists.len(list)), (None, 1));
}
