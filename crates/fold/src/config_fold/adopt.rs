//! After a replay: what another log held is kept until an operator decides
//! (docs/announcement-log.md, "Identity, loading, replay").

use waypost_core::ConfigKey;

use super::{ConfigFold, Held, Origin, to_event};
use crate::event::FoldEvent;
use crate::lane::Sameness;

impl ConfigFold {
    /// Takes the place of `old`, which was served until now: tells what is served differently from
    /// now on, and keeps as *orphaned* what `old` held and this log does not know.
    ///
    /// What the same log does not know was deleted, and its tombstone was compacted: it goes. Only
    /// what `old` itself had as orphaned stays so, since this log never held it.
    ///
    /// Releases are not kept: each is a word about the moment at which its log took it.
    pub fn adopt_missing(&mut self, old: &Self, sameness: Sameness, events: &mut Vec<FoldEvent>) {
        let is_kept = |key: &ConfigKey, held: &Held| {
            let is_moment = matches!(key, ConfigKey::Release(_));
            let is_unknown = sameness == Sameness::Other || held.origin == Origin::Orphaned;
            held.is_live() && !is_moment && is_unknown
        };
        self.tell_differences(old, events);
        for (key, held) in &old.by_key {
            if self.by_key.contains_key(key) {
                continue;
            }
            if is_kept(key, held) {
                let orphan = Held {
                    origin: Origin::Orphaned,
                    conflict: None,
                    ..held.clone()
                };
                self.hold(key.clone(), orphan);
            } else if held.is_live() {
                let gone = Held {
                    value: None,
                    ..held.clone()
                };
                events.extend(to_event(key, &gone));
            }
        }
        self.conflicts_total += old.conflicts_total;
        for conflict in old.conflicts().cloned() {
            self.conflicts.push_front(conflict);
        }
        while self.conflicts.len() > crate::limits::CONFLICTS_HELD_MAX {
            self.conflicts.pop_front();
        }
    }

    /// What this log holds and `old` held differently or not at all.
    pub(crate) fn tell_differences(&self, old: &Self, events: &mut Vec<FoldEvent>) {
        for (key, held) in &self.by_key {
            let before = old.find(key).and_then(|held| held.value.as_ref());
            if before != held.value.as_ref() {
                events.extend(to_event(key, held));
            }
        }
    }
}
