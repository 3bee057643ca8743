//! Which server next, and when.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::limits::{BACKOFF_FIRST, BACKOFF_GROWTH_PERCENT, BACKOFF_JITTER_PERCENT, BACKOFF_MAX};
use crate::policy::{FallBack, Policy, RetryAfterResponse, ServerOrder};

/// The way through a list of servers. Those of one round are tried without a pause; a round in which
/// none answered costs one that grows (gRFC A57, A71).
#[derive(Debug)]
pub(crate) struct Route {
    /// Servers in the order in which they are tried.
    order: Vec<usize>,
    /// Place in `order` of the one that is used or tried next.
    at: usize,
    failed_in_round: usize,
    pause: Duration,
    /// When the next stream is opened; `None` while one is.
    open_at: Option<Duration>,
    /// When the first server is tried while another is used.
    fall_back_at: Option<Duration>,
    rng: StdRng,
}

impl Route {
    pub(crate) fn new(servers: usize, policy: &Policy, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut order: Vec<usize> = (0..servers).collect();
        if policy.server_order == ServerOrder::Shuffled {
            order.shuffle(&mut rng);
        }
        Self {
            order,
            at: 0,
            failed_in_round: 0,
            pause: BACKOFF_FIRST,
            open_at: Some(Duration::ZERO),
            fall_back_at: None,
            rng,
        }
    }

    /// The server to open a stream to, if it is time.
    pub(crate) fn poll_open(&mut self, now: Duration) -> Option<usize> {
        self.open_at.filter(|at| *at <= now)?;
        self.open_at = None;
        self.order.get(self.at).copied()
    }

    /// The preferred server, if it is time to look for it.
    pub(crate) fn poll_fall_back(&mut self, now: Duration) -> Option<usize> {
        self.fall_back_at.filter(|at| *at <= now)?;
        self.fall_back_at = None;
        self.order.first().copied()
    }

    pub(crate) fn open_at(&self) -> Option<Duration> {
        self.open_at
    }

    pub(crate) fn fall_back_at(&self) -> Option<Duration> {
        self.fall_back_at
    }

    /// A stream has its first response.
    pub(crate) fn answered(&mut self, server: usize, policy: &Policy, now: Duration) {
        self.failed_in_round = 0;
        self.pause = BACKOFF_FIRST;
        self.at = self.order.iter().position(|s| *s == server).unwrap_or(0);
        self.plan_fall_back(policy, now);
    }

    /// A stream that had answered is gone.
    pub(crate) fn lost(&mut self, policy: &Policy, now: Duration) {
        self.fall_back_at = None;
        self.at = match policy.server_order {
            ServerOrder::AsListed => 0,
            ServerOrder::Shuffled => (self.at + 1) % self.order.len().max(1),
        };
        let spread = match policy.retry_after_response {
            RetryAfterResponse::AtOnce => Duration::ZERO,
            RetryAfterResponse::Spread(span) => span.mul_f64(self.rng.random()),
        };
        self.open_at = Some(now + spread);
    }

    /// A stream ended before it had answered.
    pub(crate) fn failed(&mut self, now: Duration) {
        self.fall_back_at = None;
        let servers = self.order.len().max(1);
        self.at = (self.at + 1) % servers;
        self.failed_in_round += 1;
        if self.failed_in_round < servers {
            self.open_at = Some(now);
            return;
        }
        self.failed_in_round = 0;
        self.open_at = Some(now + jittered(self.pause, &mut self.rng));
        self.pause = (self.pause * BACKOFF_GROWTH_PERCENT / 100).min(BACKOFF_MAX);
    }

    /// The preferred server did not answer: another look later.
    pub(crate) fn plan_fall_back(&mut self, policy: &Policy, now: Duration) {
        self.fall_back_at = match policy.fall_back {
            FallBack::ToFirst(every) if self.at != 0 => Some(now + jittered(every, &mut self.rng)),
            FallBack::ToFirst(_) | FallBack::Stay => None,
        };
    }
}

fn jittered(pause: Duration, rng: &mut StdRng) -> Duration {
    let off = f64::from(BACKOFF_JITTER_PERCENT) / 100.0;
    pause.mul_f64(rng.random_range(1.0 - off..=1.0 + off))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_to_their_bound_and_only_after_a_whole_round() {
        let policy = Policy::grpc();
        let mut route = Route::new(3, &policy, 1);
        let mut now = Duration::ZERO;
        let mut expected = BACKOFF_FIRST;
        for round in 0..12 {
            for server in 0..3 {
                assert_eq!(route.poll_open(now), Some(server), "round {round}");
                route.failed(now);
                if server < 2 {
                    assert_eq!(route.open_at(), Some(now), "the next one at once");
                }
            }
            let pause = route.open_at().unwrap() - now;
            assert!(pause >= expected.mul_f64(0.79), "{round}: {pause:?}");
            assert!(pause <= expected.mul_f64(1.21), "{round}: {pause:?}");
            now += pause;
            expected = expected.mul_f64(1.6).min(BACKOFF_MAX);
        }
        assert_eq!(route.poll_open(now), Some(0));
        route.answered(0, &policy, now);
        route.lost(&policy, now);
        assert_eq!(route.open_at(), Some(now), "gRPC returns at once");
        for _ in 0..3 {
            assert!(route.poll_open(now).is_some());
            route.failed(now);
        }
        assert!(
            route.open_at().unwrap() - now < 2 * SECOND,
            "from the start"
        );
    }

    #[test]
    fn clients_that_lost_an_observer_return_over_a_span() {
        let policy = Policy::waypost();
        let returns = |seed| {
            let mut route = Route::new(1, &policy, seed);
            route.poll_open(Duration::ZERO).unwrap();
            route.answered(0, &policy, SECOND);
            route.lost(&policy, SECOND);
            route.open_at().unwrap() - SECOND
        };
        let all: Vec<Duration> = (0..100).map(returns).collect();
        let bound = crate::limits::RETURN_SPREAD;
        assert!(all.iter().all(|pause| *pause <= bound), "{all:?}");
        let early = all.iter().filter(|pause| **pause < bound / 2).count();
        assert!(
            (20..80).contains(&early),
            "{early} of 100 in the first half"
        );
    }

    #[test]
    fn shuffled_clients_start_with_different_servers() {
        let policy = Policy::waypost();
        let first = |seed| Route::new(4, &policy, seed).poll_open(Duration::ZERO);
        let firsts: std::collections::BTreeSet<_> = (0..64).map(first).collect();
        assert_eq!(firsts.len(), 4);
    }
}
