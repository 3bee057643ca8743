//! What may happen in a case: events that are few enough in kind, key and life to meet.

use proptest::prelude::*;

/// Keys that things happen to.
pub(super) const KEYS: u8 = 3;

/// Observers at most.
pub(super) const OBSERVERS: usize = 4;

/// One thing that happens. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time passes, half seconds.
    Wait(u8),
    /// A process begins to announce a key, beside those that do already.
    Start(u8),
    /// The youngest process of a key is killed.
    Kill(u8),
    /// The youngest process of a key is stopped (SIGSTOP).
    Freeze(u8),
    /// Every stopped process of a key goes on.
    Thaw(u8),
    /// The youngest process of a key announces other content.
    Change(u8, u8),
    /// The oldest living process of a key withdraws.
    Withdraw(u8),
    /// The youngest process of a key hears no acknowledgements any more.
    Deafen(u8),
    /// An announcement by hand.
    Announced(ByHand, u8),
    /// A withdrawal by hand.
    Withdrawn(ByHand),
    /// An announcement without order data.
    Bare(u8, u8),
    /// A null without order data.
    Purge(u8),
    /// An expire by who has no right to, with evidence that many records before the end; of the
    /// living instance if the key is none.
    Forge(u8, u8),
    /// Any bytes as key and value.
    Noise(Option<Vec<u8>>, Option<Vec<u8>>),
    /// The log's cleaner runs.
    Compact,
    /// The log takes nothing, and says so, until it is healed.
    RefuseAppends,
    /// The log can be neither read nor written, and does not answer.
    Hang,
    /// The log is as it should be.
    Heal,
    /// Nobody is told of what was written.
    LoseAcknowledgements,
    /// The next records are written twice.
    Duplicate(u8),
    /// Another leader, whose clock is so many seconds ahead.
    MoveLeader(u8, i16),
    /// An unclean election loses that many of the last records.
    Elect(u8, u8),
    /// The same, and no client hears of it.
    Truncate(u8, u8),
    /// The topic is made anew; `true`: with an identity.
    Recreate(bool),
    /// The topic gets more partitions.
    Grow,
    /// One more Observer.
    Join,
    /// An Observer other than the first is killed and started again.
    Restart(u8),
    /// An Observer is stopped (SIGSTOP).
    Sleep(u8),
    /// An Observer goes on.
    Wake(u8),
    /// So many of the next ticks of an Observer never arrive.
    LoseTicks(u8, u8),
}

/// The order data of a record written by hand.
#[derive(Clone, Copy, Debug)]
pub struct ByHand {
    /// Which key.
    pub key: u8,
    /// Which life: later ones are born later and have smaller ids.
    pub life: u8,
    /// Its number.
    pub seq: u8,
    /// Whether it says when it was born.
    pub with_birth: bool,
}

fn any_by_hand() -> impl Strategy<Value = ByHand> {
    (0..KEYS, 0..4_u8, 0..4_u8, any::<bool>()).prop_map(|(key, life, seq, with_birth)| ByHand {
        key,
        life,
        seq,
        with_birth,
    })
}

/// What instances and those who announce them do.
fn any_announcing() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..KEYS).prop_map(Event::Start),
        2 => (0..KEYS).prop_map(Event::Kill),
        1 => (0..KEYS).prop_map(Event::Freeze),
        1 => (0..KEYS).prop_map(Event::Thaw),
        1 => (0..KEYS, 0..3_u8).prop_map(|(key, content)| Event::Change(key, content)),
        2 => (0..KEYS).prop_map(Event::Withdraw),
        1 => (0..KEYS).prop_map(Event::Deafen),
        3 => (any_by_hand(), 0..3_u8).prop_map(|(order, content)| Event::Announced(order, content)),
        2 => any_by_hand().prop_map(Event::Withdrawn),
        1 => (0..KEYS, 0..3_u8).prop_map(|(key, content)| Event::Bare(key, content)),
        1 => (0..KEYS).prop_map(Event::Purge),
    ]
}

/// What the log does.
fn any_fault() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Compact),
        1 => Just(Event::RefuseAppends),
        1 => Just(Event::Hang),
        3 => Just(Event::Heal),
        1 => Just(Event::LoseAcknowledgements),
        1 => (1..4_u8).prop_map(Event::Duplicate),
        2 => (any::<u8>(), -60..3600_i16).prop_map(|(p, ahead_s)| Event::MoveLeader(p, ahead_s)),
        1 => (any::<u8>(), 1..80_u8).prop_map(|(p, records)| Event::Elect(p, records)),
        1 => (any::<u8>(), 1..80_u8).prop_map(|(p, records)| Event::Truncate(p, records)),
        1 => any::<bool>().prop_map(Event::Recreate),
        1 => Just(Event::Grow),
    ]
}

/// What Observers do.
fn any_observing() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Join),
        1 => any::<u8>().prop_map(Event::Restart),
        2 => any::<u8>().prop_map(Event::Sleep),
        3 => any::<u8>().prop_map(Event::Wake),
        1 => (any::<u8>(), 1..8_u8).prop_map(|(o, ticks)| Event::LoseTicks(o, ticks)),
    ]
}

/// What nobody should do.
fn any_mischief() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..=KEYS, 0..20_u8).prop_map(|(key, back)| Event::Forge(key, back)),
        1 => (proptest::option::of(any::<Vec<u8>>()), proptest::option::of(any::<Vec<u8>>()))
            .prop_map(|(key, value)| Event::Noise(key, value)),
    ]
}

/// Any sequence of at most `events_max`.
pub(super) fn any_events(events_max: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (1..30_u8).prop_map(Event::Wait),
        8 => any_announcing(),
        4 => any_fault(),
        3 => any_observing(),
        1 => any_mischief(),
    ];
    proptest::collection::vec(event, 1..events_max)
}
