//! What a replica writes of its own accord: the keeper's records, and a new name for a log that was
//! found cut.

use std::time::Duration;

use waypost_core::RecordKind;

use super::{Replica, Request, doubt};
use crate::fold::Fold;
use crate::keeper::Logs;

impl Replica {
    /// Whoever finds a log cut gives it a new name, so that everybody reads it again; until that is
    /// read or somebody else has done so.
    pub(super) fn push_renames(&mut self, now: Duration) {
        if self.renames.is_empty() || now.saturating_sub(self.renamed_at) < doubt::ASK_AGAIN_AFTER {
            return;
        }
        self.renamed_at = now;
        let logs = Logs {
            announcements: self.announcements.served(),
            config: self.config.served(),
            control: self.control.served(),
        };
        self.renames
            .retain(|topic, record| logs.clock(*topic).identity() == record.headers.follows);
        let due = self
            .renames
            .values()
            .cloned()
            .map(|record| Request::Append(Box::new(record)));
        self.requests.extend(due);
    }

    pub(super) fn push_keeper_records(&mut self, now: Duration) {
        let logs = Logs {
            announcements: self.announcements.served(),
            config: self.config.served(),
            control: self.control.served(),
        };
        if self.keeper.returns(now, &logs) {
            self.announcements.for_each_fold(Fold::follow_from_here);
        }
        let logs = Logs {
            announcements: self.announcements.served(),
            config: self.config.served(),
            control: self.control.served(),
        };
        for record in self.keeper.due(now, &logs) {
            let is_tick = record.headers.kind == RecordKind::Tick;
            let place = record.partition.filter(|_| is_tick);
            let doubtful = place.and_then(|partition| {
                let last = logs.clock(record.topic).find(partition)?.last_tick()?;
                let patience = self.settings.keeper.trust_in_ticks(record.topic);
                self.questions
                    .is_doubtful(record.topic, partition, patience, now)
                    .then_some((partition, last.at))
            });
            let Some((partition, last)) = doubtful else {
                self.requests.push_back(Request::Append(Box::new(record)));
                continue;
            };
            self.keeper.on_settled(&record);
            let question = self
                .questions
                .ask_last_tick(record.topic, partition, last, now);
            self.requests.extend(question);
        }
    }
}
