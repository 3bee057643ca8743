//! Who is told of what, in which order, and that nobody misses anything.

#[cfg(test)]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::common::Marks;
use waypost_core::ResourceType::{D2Node, D2Uri};
use waypost_core::{Interest, ResourceName, ResourceType, Subscriber};
use waypost_store::Subscribers;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn each_kind_of_interest_is_told_of_what_it_covers() {
    let subscribers = Subscribers::default();
    let [explicit, glob, wildcard] = std::array::from_fn(|_| Arc::new(Marks::default()));
    let member = "xdstp:///indis.D2URI/c/a";
    for (interest, marks) in [
        (member, &explicit),
        ("xdstp:///indis.D2URI/c/*", &glob),
        ("*", &wildcard),
    ] {
        subscribers.subscribe(D2Uri, &Interest::parse(interest), marks.clone());
    }
    for name in [
        member,
        "xdstp:///indis.D2URI/c/b",
        "xdstp:///indis.D2URI/c/d/a",
        "xdstp:///indis.D2URI/d/a",
        "c/a",
    ] {
        subscribers.notify(D2Uri, &name.into());
        subscribers.notify(D2Node, &name.into());
    }
    assert_eq!(explicit.take(), [member]);
    assert_eq!(glob.take(), [member, "xdstp:///indis.D2URI/c/b"]);
    assert_eq!(wildcard.take().len(), 5);
}

#[test]
fn a_subscription_ends_with_its_own_token_only() {
    let subscribers = Subscribers::default();
    let interest = Interest::parse("n");
    let first = Arc::new(Marks::default());
    let second = Arc::new(Marks::default());
    assert!(!subscribers.is_wanted(D2Node));
    let token = subscribers.subscribe(D2Node, &interest, first.clone());
    subscribers.unsubscribe(D2Node, &interest, token);
    assert!(!subscribers.is_wanted(D2Node));
    let other = subscribers.subscribe(D2Node, &interest, second.clone());
    // Used up, of another type, of another name: nothing happens.
    subscribers.unsubscribe(D2Node, &interest, token);
    subscribers.unsubscribe(D2Uri, &interest, other);
    subscribers.unsubscribe(D2Node, &Interest::parse("m"), other);
    assert_eq!(subscribers.count(D2Node), 1);
    subscribers.notify(D2Node, &"n".into());
    assert_eq!((first.take(), second.take()), (vec![], names(&["n"])));
}

/// Writes its number into a list that all share.
struct Numbered(usize, Arc<parking_lot::Mutex<Vec<usize>>>);

impl Subscriber for Numbered {
    fn mark_changed(&self, _: ResourceType, _: &ResourceName) {
        self.1.lock().push(self.0);
    }
}

#[test]
fn subscribers_are_called_in_an_order_that_stays() {
    let subscribers = Subscribers::default();
    let interest = Interest::parse("n");
    let called = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let tokens: Vec<_> = (0..1000)
        .map(|n| subscribers.subscribe(D2Node, &interest, Arc::new(Numbered(n, called.clone()))))
        .collect();
    let notified = || {
        subscribers.notify(D2Node, &"n".into());
        std::mem::take(&mut *called.lock())
    };
    assert_eq!(notified(), (0..1000).collect::<Vec<_>>());
    for token in tokens.iter().skip(1).step_by(2) {
        subscribers.unsubscribe(D2Node, &interest, *token);
    }
    assert_eq!(notified(), (0..1000).step_by(2).collect::<Vec<_>>());
}

/// With anything quadratic in it this takes hours.
#[test]
fn half_a_million_subscribers_of_one_name_leave_in_any_order() {
    let subscribers = Subscribers::default();
    let interest = Interest::parse("n");
    let marks = Arc::new(Marks::default());
    let mut tokens: Vec<_> = (0..500_000)
        .map(|_| subscribers.subscribe(D2Node, &interest, marks.clone()))
        .collect();
    let half = tokens.split_off(250_000);
    for token in half.into_iter().rev().chain(tokens) {
        subscribers.unsubscribe(D2Node, &interest, token);
    }
    assert!(!subscribers.is_wanted(D2Node));
    assert_eq!(subscribers.count_explicit(D2Node, "n"), 0);
}

/// A subscriber may leave, or bring another, while it is called: no lock is held.
struct Leaves(Arc<Subscribers>, Arc<Marks>);

impl Subscriber for Leaves {
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
        let interest = Interest::Explicit(name.clone());
        self.0.subscribe(resource_type, &interest, self.1.clone());
    }
}

#[test]
fn no_lock_is_held_while_a_subscriber_is_called() {
    let subscribers = Arc::new(Subscribers::default());
    let marks = Arc::new(Marks::default());
    let leaves = Arc::new(Leaves(subscribers.clone(), marks.clone()));
    for interest in ["n", "*"] {
        subscribers.subscribe(D2Node, &Interest::parse(interest), leaves.clone());
    }
    subscribers.notify(D2Node, &"n".into());
    assert_eq!(subscribers.count(D2Node), 4);
}

/// Marks that something changed, as an outbox does.
#[derive(Default)]
struct Dirty(AtomicBool);

impl Subscriber for Dirty {
    fn mark_changed(&self, _: ResourceType, _: &ResourceName) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Counts down when it is dropped, by a panic too.
struct Finished<'a>(&'a AtomicUsize);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One thread changes a value and tells; others subscribe and then look, over and over. Once the
/// value has moved on twice, the first change after the look has been told completely, so whoever is
/// not marked by then holds an old value for ever.
#[test]
fn whoever_subscribes_and_then_looks_misses_nothing() {
    const ROUNDS: u64 = 50;
    for interest in ["xdstp:///t/c/n", "xdstp:///t/c/*", "*"] {
        let interest = Interest::parse(interest);
        let subscribers = Subscribers::default();
        let value = AtomicU64::new(0);
        let name: ResourceName = "xdstp:///t/c/n".into();
        let busy = AtomicUsize::new(2);
        let look = || value.load(Ordering::Acquire);
        let subscribe_and_look = || {
            let _finished = Finished(&busy);
            for _ in 0..ROUNDS {
                let dirty = Arc::new(Dirty::default());
                let token = subscribers.subscribe(D2Uri, &interest, dirty.clone());
                let seen = look();
                while look() < seen + 2 {
                    std::thread::yield_now();
                }
                assert!(
                    dirty.0.load(Ordering::SeqCst),
                    "missed the change after {seen}"
                );
                subscribers.unsubscribe(D2Uri, &interest, token);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(subscribe_and_look);
            }
            while busy.load(Ordering::SeqCst) > 0 {
                value.fetch_add(1, Ordering::Release);
                if subscribers.is_wanted(D2Uri) {
                    subscribers.notify(D2Uri, &name);
                }
            }
        });
    }
}
