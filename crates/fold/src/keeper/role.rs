//! Who ticks. Nobody is elected: whoever hears no tick for a while begins, and of two that tick the
//! one with the larger id stops.

use std::time::Duration;

use waypost_core::record::KeeperId;
use xxhash_rust::xxh3::xxh3_64;

use super::{Keeper, Role};
use crate::limits::{TAKEOVER_JITTER_TICKS, TAKEOVER_MISSED_TICKS};

impl Keeper {
    /// A tick of partition 0 was read.
    pub(super) fn hear(&mut self, writer: KeeperId, now: Duration) {
        self.heard_at = now;
        if self.role == Role::Ticking && writer < self.id {
            self.role = Role::Standby;
        }
    }

    /// Moves on the role of an Observer that is at the end of every partition.
    pub(super) fn take_turns(&mut self, now: Duration) {
        match self.role {
            Role::Follower => {
                self.role = Role::Standby;
                self.heard_at = now;
            }
            Role::Standby if now.saturating_sub(self.heard_at) >= self.patience() => {
                self.role = Role::Ticking;
            }
            Role::Standby | Role::Ticking => {}
        }
    }

    /// How long this Observer bears silence: three ticks, and a part of two more by its id, so that
    /// of several mostly one begins.
    fn patience(&self) -> Duration {
        let jitter = xxh3_64(&self.id.0.to_le_bytes()) % 1000;
        let ticks = self.settings.tick_interval;
        let jitter_max = ticks.saturating_mul(TAKEOVER_JITTER_TICKS);
        let jitter = jitter_max.mul_f64(f64::from(u32::try_from(jitter).unwrap_or(0)) / 1000.0);
        ticks.saturating_mul(TAKEOVER_MISSED_TICKS) + jitter
    }
}
