//! Any interleaving of what can happen, and what must hold a quiet heartbeat interval later
//! (docs/announcement-log.md, scenario 33).
//!
//! A case is its seed: [`run`] plays many over all cores, and [`replay`] one of them again. A case that
//! fails is made smaller until nothing can be left out.

mod case;
mod event;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub use case::Done;
pub use event::{ByHand, Event};

/// Events of a case at most.
const EVENTS_MAX: usize = 40;

/// Tries to make a failing case smaller.
const SHRINKS_MAX: usize = 2_000;

/// What many cases did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Cases played.
    pub cases: u64,
    /// Events that happened in them.
    pub events: u64,
    /// Records that their logs took.
    pub records: u64,
    /// Times that an Observer read a topic again.
    pub replays: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases, {} events, {} records, {} replays",
            self.cases, self.events, self.records, self.replays
        )
    }
}

/// A case that does not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Plays it again.
    pub seed: u64,
    /// The smallest sequence found.
    pub events: Vec<Event>,
    /// What does not hold of it.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.reason)?;
        for event in &self.events {
            writeln!(f, "    {event:?}")?;
        }
        write!(
            f,
            "again: cargo run -p waypost-sim -- replay --seed {}",
            self.seed
        )
    }
}

/// Plays the cases `first..first + cases`, on every core; the first failure ends it.
///
/// # Errors
/// A case does not hold.
pub fn run(first: u64, cases: u64) -> Result<Figures, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, failed) = (AtomicU64::new(first), AtomicBool::new(false));
    let work = || {
        let mut figures = Figures::default();
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + cases {
                break;
            }
            if let Err(failure) = play(seed, &mut figures) {
                failed.store(true, Ordering::Relaxed);
                return Err(failure);
            }
        }
        Ok(figures)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|joined| joined.expect("cases are caught"))
            .collect()
    });
    let mut total = Figures::default();
    for result in results {
        let figures = result?;
        total.cases += figures.cases;
        total.events += figures.events;
        total.records += figures.records;
        total.replays += figures.replays;
    }
    Ok(total)
}

/// Plays one case, made smaller if it fails; then its log is printed as well.
///
/// # Errors
/// It does not hold.
pub fn replay(seed: u64) -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    play(seed, &mut figures).inspect_err(|failure| {
        case::IS_TRACED.store(true, Ordering::Relaxed);
        let _ = check(&failure.events);
    })?;
    Ok(figures)
}

fn play(seed: u64, figures: &mut Figures) -> Result<(), Failure> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = event::any_events(EVENTS_MAX).new_tree(&mut runner);
    let mut tree = tree.expect("any sequence will do");
    let events = tree.current();
    let reason = match check(&events) {
        Ok(done) => {
            figures.cases += 1;
            figures.events += events.len() as u64;
            figures.records += done.records;
            figures.replays += done.replays;
            return Ok(());
        }
        Err(reason) => reason,
    };
    let mut smallest = Failure {
        seed,
        events,
        reason,
    };
    let mut is_simpler = tree.simplify();
    for _ in 0..SHRINKS_MAX {
        if !is_simpler {
            break;
        }
        let events = tree.current();
        is_simpler = match check(&events) {
            Err(reason) => {
                smallest = Failure {
                    seed,
                    events,
                    reason,
                };
                tree.simplify()
            }
            Ok(_) => tree.complicate(),
        };
    }
    Err(smallest)
}

/// Plays a sequence; what it panics with is why it does not hold.
fn check(events: &[Event]) -> Result<Done, String> {
    catch_unwind(AssertUnwindSafe(|| case::play(events))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default()
    })
}
