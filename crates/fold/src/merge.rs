//! What a new fold keeps of the one it replaces after a replay (docs/announcement-log.md,
//! "Identity, loading, replay").

use waypost_core::partition::partition_for_key;
use waypost_core::{InstanceKey, PartitionId};

use crate::copies;
use crate::event::{FoldEvent, GoneCause};
use crate::fold::Fold;
use crate::key_state::{Gone, KeyState, Live, Standing};
use crate::lane::Sameness;
use crate::order;
use crate::partition_fold::NewKey;

/// What becomes of an instance of the old fold.
enum Fate {
    /// The new fold holds it: nothing, or other content.
    Held,
    /// It has left.
    Left(GoneCause),
    /// It stands until this log confirms it or its time-to-live has passed.
    Unconfirmed,
}

impl Fold {
    /// After another or a shorter log was read, keeps what it does not know as unconfirmed, and what
    /// was withdrawn as withdrawn. After the same log, what it does not hold has left.
    pub(crate) fn adopt_missing(
        &mut self,
        old: &Self,
        sameness: Sameness,
        events: &mut Vec<FoldEvent>,
    ) {
        for state in old.standing_states() {
            match &state.standing {
                Standing::Live(live) => self.adopt_live(state, live, sameness, events),
                Standing::Gone(gone) if sameness == Sameness::Other => self.adopt_gone(state, gone),
                Standing::Gone(_) => {}
            }
        }
        for partition in (0..self.clock.partition_count()).map(PartitionId) {
            // What is served after this is said below.
            self.settle(partition, &mut Vec::new());
        }
        let new = self.standing_states().filter_map(|state| {
            let live = state.live()?;
            let before = copies::find_standing(&old.partitions, &state.key);
            let was_live = before.is_some_and(|(_, before)| before.live().is_some());
            (!was_live).then(|| FoldEvent::Live {
                key: state.key.clone(),
                value: live.value.clone(),
            })
        });
        events.extend(new);
    }

    fn adopt_live(
        &mut self,
        state: &KeyState,
        live: &Live,
        sameness: Sameness,
        events: &mut Vec<FoldEvent>,
    ) {
        let found = copies::find_standing(&self.partitions, &state.key);
        let found = found.map(|(_, found)| &found.standing);
        if let Some(Standing::Live(new)) = found
            && new.value != live.value
        {
            events.push(FoldEvent::Live {
                key: state.key.clone(),
                value: new.value.clone(),
            });
        }
        // An unconfirmed one was never in this log: that it lacks it says nothing.
        let is_expected = sameness == Sameness::Same && !state.is_unconfirmed();
        let fate = match found {
            Some(Standing::Live(_)) => Fate::Held,
            Some(Standing::Gone(_)) if is_expected => Fate::Left(GoneCause::Withdrawn),
            Some(Standing::Gone(gone)) => match order::withdraw_on_live(live.life(), gone.life) {
                Ok(()) => Fate::Left(GoneCause::Withdrawn),
                Err(_) => Fate::Unconfirmed,
            },
            None if is_expected => Fate::Left(GoneCause::Missed),
            None => Fate::Unconfirmed,
        };
        match fate {
            Fate::Held => {}
            Fate::Left(cause) => events.push(FoldEvent::Gone {
                key: state.key.clone(),
                cause,
            }),
            Fate::Unconfirmed => self.insert_unconfirmed(&state.key, live),
        }
    }

    fn insert_unconfirmed(&mut self, key: &InstanceKey, live: &Live) {
        let Some(partition) = self.own_partition(key) else {
            return;
        };
        let fold = self.partitions.get_mut(partition.0 as usize);
        if let (Some(fold), Some(clock)) = (fold, self.clock.find(partition)) {
            fold.insert_unconfirmed(key, live, clock, &mut self.names);
        }
    }

    fn adopt_gone(&mut self, state: &KeyState, gone: &Gone) {
        let Some(partition) = self.own_partition(&state.key) else {
            return;
        };
        if copies::find_standing(&self.partitions, &state.key).is_some() {
            return;
        }
        let key = NewKey {
            key: self.names.intern(state.key.clone()),
            stray: false,
        };
        let fold = self.partitions.get_mut(partition.0 as usize);
        if let (Some(fold), Some(clock)) = (fold, self.clock.find(partition)) {
            fold.insert_gone(key, gone.life, clock.mark(), &mut self.names);
        }
    }

    fn own_partition(&self, key: &InstanceKey) -> Option<PartitionId> {
        let count = self.partition_count;
        (count > 0).then(|| partition_for_key(&key.to_record_key(), count))
    }
}
