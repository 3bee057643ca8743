//! What the writer does after the disk failed it (full, removed, gone bad): the store is opened
//! again, the truth is taken from it, and what was visible is written again.

use std::collections::BTreeSet;

use tokio::time::Instant;
use waypost_core::record::{Record, Topic};

use super::opening::{Continuity, load};
use super::store::{Closing, Store, StoreError};
use super::stored::Place;
use super::writer::{Failure, Health, Pending, Writer};
use crate::limits::EMBEDDED_RETRY_INTERVAL;

impl Failure {
    pub(super) fn new(reason: String, in_doubt: Vec<(Topic, Record)>) -> Self {
        Self {
            reason,
            retry_at: Instant::now() + EMBEDDED_RETRY_INTERVAL,
            in_doubt,
        }
    }
}

impl Writer {
    /// Tries to write again, if the log failed and it is time to.
    pub(super) fn recover_if_due(&mut self) {
        let Health::Failed(failure) = &mut self.health else {
            return;
        };
        if failure.retry_at > Instant::now() {
            return;
        }
        let mut in_doubt = std::mem::take(&mut failure.in_doubt);
        match self.recover(&mut in_doubt) {
            Ok(()) => {
                self.health = Health::Writing;
                self.shared.set_failure(None);
                tracing::info!("the log takes records again");
            }
            Err(error) => {
                let reason = self.shared.to_reason(&error);
                self.shared.set_failure(Some(reason.clone()));
                self.health = Health::Failed(Failure::new(reason, in_doubt));
            }
        }
    }

    /// Leaves `in_doubt` empty as soon as it is known what became of it.
    fn recover(&mut self, in_doubt: &mut Vec<(Topic, Record)>) -> Result<(), StoreError> {
        // A store that was removed is kept open: it alone still has what was read.
        self.shared.check_store()?;
        let open = &self.open;
        self.shared.replace_store(|| Store::open(open))?;
        let loaded = self
            .shared
            .ask(|store| load(store, Continuity::SameProcess))?;
        let given_out = std::mem::replace(&mut self.ledger, loaded.ledger).ends(Closing::Orderly);
        let pending = std::mem::take(&mut self.pending);
        self.pending.remove(loaded.replaced);
        let attempted = self.commits + 1;
        if loaded.contents.commits == attempted {
            // It had reached the disk: it is the truth, and so is all that was pending with it.
            self.commits = attempted;
            let visible = in_doubt.iter().map(|(topic, record)| (*topic, record));
            self.shared.publish(visible);
        } else {
            self.write_visible_again(pending, in_doubt);
        }
        in_doubt.clear();
        for (topic, partition, end) in given_out {
            self.ledger.skip_to(topic, partition, end);
        }
        self.commit(Closing::Crash)
    }

    /// What was pending and visible is pending again; what nobody saw is forgotten.
    fn write_visible_again(&mut self, pending: Pending, in_doubt: &[(Topic, Record)]) {
        let unseen: BTreeSet<Place> = in_doubt
            .iter()
            .map(|(topic, record)| Place::of(*topic, record))
            .collect();
        for (place, record) in pending.changes.puts {
            if !unseen.contains(&place) {
                self.note(place.topic, &record);
            }
        }
    }
}
