//! The formula of docs/capacity.md.

use super::units::Units;

/// Share of an Observer's cores that may be used on an ordinary day: what is left takes the streams of
/// Observers that are gone, and a deploy.
const CPU_SHARE_MAX: f64 = 0.5;

/// Cores that reading may take of an Observer: one thread reads, and after a restart it must read
/// everything much faster than it is written.
const INGEST_CORES_MAX: f64 = 0.5;

/// Share of an Observer's memory that may be used: allocators and kernels need the rest.
const MEMORY_SHARE_MAX: f64 = 0.8;

/// Streams that one Observer is given at most: when it dies that many come back at once.
const STREAMS_PER_OBSERVER_MAX: f64 = 40_000.0;

/// Observers that may be gone at once without the others being overloaded, as a share.
const SPARE_SHARE: f64 = 0.1;

/// Share of an Observer's memory that instances may take, the second copy of a replay included; the
/// rest of what may be used is for streams.
const INSTANCES_MEMORY_SHARE_MAX: f64 = 0.5;

/// Records a second that one partition is given: its fold is one thread's work, and so is its leader's.
const EVENTS_PER_PARTITION: f64 = 10_000.0;

/// Partitions of a small fleet: replays of several go side by side.
const PARTITIONS_MIN: f64 = 8.0;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) instances: u64,
    pub(crate) heartbeat_seconds: f64,
    pub(crate) change_share: f64,
    pub(crate) streams: u64,
    pub(crate) updates_per_stream: f64,
    pub(crate) cores: f64,
    pub(crate) memory_bytes: f64,
    pub(crate) replication: u32,
}

/// What it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Parts that the fleet is divided into, by fabric or by cluster, each with a log and Observers of
    /// its own. All below is of one part, but for `observers`.
    pub(crate) parts: f64,
    /// Records a second, which every Observer of the part reads.
    pub(crate) events: f64,
    /// Cores of each Observer that reading takes.
    pub(crate) ingest_cores: f64,
    /// Memory of each Observer that the fleet takes, bytes; twice while a log is replayed.
    pub(crate) fleet_bytes: f64,
    /// Streams that one Observer can be given, and what bounds them.
    pub(crate) streams_per_observer: f64,
    pub(crate) bound: Bound,
    /// Of all parts together.
    pub(crate) observers: f64,
    /// Streams of one of them.
    pub(crate) streams: f64,
    /// Seconds of one core for the streams of one Observer that died, at all others together.
    pub(crate) rejoin_cpu_seconds: f64,
    pub(crate) partitions: f64,
    /// Bytes a second: into all brokers with replication, out of them to Observers.
    pub(crate) broker_in: f64,
    pub(crate) broker_out: f64,
    /// Bytes a second of one Observer.
    pub(crate) observer_in: f64,
    pub(crate) observer_out: f64,
}

/// What keeps an Observer from more streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Cpu,
    Memory,
    Streams,
}

/// Applies the formula.
pub(crate) fn plan(fleet: &Fleet, units: &Units) -> Plan {
    let parts = parts(fleet, units);
    let instances = to_f64(fleet.instances) / parts;
    let streams = to_f64(fleet.streams) / parts;
    let events = events(fleet) / parts;
    let ingest_cores = events * units.cpu_us_per_event / 1e6;
    let fleet_bytes = instances * units.bytes_per_instance;

    let cpu_left = fleet.cores * CPU_SHARE_MAX - ingest_cores;
    let memory_left = fleet.memory_bytes * MEMORY_SHARE_MAX - 2.0 * fleet_bytes;
    let cpu_per_stream = fleet.updates_per_stream * units.cpu_us_per_delivery / 1e6;
    let bounds = [
        (cpu_left / cpu_per_stream, Bound::Cpu),
        (memory_left / units.bytes_per_stream, Bound::Memory),
        (STREAMS_PER_OBSERVER_MAX, Bound::Streams),
    ];
    let (streams_per_observer, bound) = bounds
        .into_iter()
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or((STREAMS_PER_OBSERVER_MAX, Bound::Streams));
    let needed = (streams / streams_per_observer.max(1.0)).ceil();
    let observers = needed + (needed * SPARE_SHARE).ceil().max(1.0);
    let streams_each = streams / observers;
    let log_bytes = events * units.bytes_per_record;
    Plan {
        parts,
        events,
        ingest_cores,
        fleet_bytes,
        streams_per_observer,
        bound,
        observers: observers * parts,
        streams: streams_each,
        rejoin_cpu_seconds: streams_each * units.cpu_us_per_join / 1e6,
        partitions: (events / EVENTS_PER_PARTITION).ceil().max(PARTITIONS_MIN),
        broker_in: log_bytes * f64::from(fleet.replication),
        broker_out: log_bytes * observers,
        observer_in: log_bytes,
        observer_out: streams_each * fleet.updates_per_stream * units.bytes_per_delivery,
    }
}

/// Records a second of the whole fleet.
fn events(fleet: &Fleet) -> f64 {
    let heartbeats = to_f64(fleet.instances) / fleet.heartbeat_seconds;
    heartbeats / (1.0 - fleet.change_share)
}

/// As few as let one Observer read and hold its part.
fn parts(fleet: &Fleet, units: &Units) -> f64 {
    let ingest_max = INGEST_CORES_MAX.min(fleet.cores * CPU_SHARE_MAX / 2.0);
    let by_cpu = events(fleet) * units.cpu_us_per_event / 1e6 / ingest_max;
    let bytes_max = fleet.memory_bytes * INSTANCES_MEMORY_SHARE_MAX;
    let by_memory = 2.0 * to_f64(fleet.instances) * units.bytes_per_instance / bytes_max;
    by_cpu.max(by_memory).ceil().max(1.0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of instances and streams are far below 2^52"
)]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: Units = Units {
        cpu_us_per_delivery: 40.0,
        cpu_us_per_event: 4.0,
        cpu_us_per_join: 100.0,
        bytes_per_instance: 500.0,
        bytes_per_stream: 20_000.0,
        bytes_per_record: 400.0,
        bytes_per_delivery: 1_000.0,
    };

    fn mk_fleet(instances: u64) -> Fleet {
        Fleet {
            instances,
            heartbeat_seconds: 20.0,
            change_share: 0.0,
            streams: instances,
            updates_per_stream: 0.25,
            cores: 2.0,
            memory_bytes: 16e9,
            replication: 3,
        }
    }

    #[test]
    fn a_plan_follows_the_formula() {
        let plan = plan(&mk_fleet(1_000_000), &UNITS);
        // 50,000 records a second at 4 µs are a fifth of a core; the other 0.8 of what may be used
        // carry 80,000 streams at 10 µs a second, so the bound is how many may come back at once.
        assert_eq!(
            (plan.parts, plan.events, plan.ingest_cores),
            (1.0, 50_000.0, 0.2)
        );
        assert_eq!((plan.bound, plan.observers), (Bound::Streams, 28.0));
        assert_eq!(plan.broker_in, 60e6);
        assert_eq!(plan.broker_out, 28.0 * 20e6);
    }

    #[test]
    fn the_tightest_bound_counts() {
        for (fleet, bound) in [
            (
                Fleet {
                    cores: 0.9,
                    ..mk_fleet(1_000_000)
                },
                Bound::Cpu,
            ),
            (
                Fleet {
                    memory_bytes: 2e9,
                    ..mk_fleet(1_000_000)
                },
                Bound::Memory,
            ),
            (mk_fleet(1_000_000), Bound::Streams),
        ] {
            assert_eq!(plan(&fleet, &UNITS).bound, bound, "{fleet:?}");
        }
    }

    #[test]
    fn a_fleet_that_one_observer_cannot_read_or_hold_is_divided() {
        let many_records = mk_fleet(30_000_000);
        let many_bytes = Fleet {
            memory_bytes: 1e9,
            ..mk_fleet(1_000_000)
        };
        for (fleet, parts) in [(many_records, 12.0), (many_bytes, 2.0)] {
            let plan = plan(&fleet, &UNITS);
            assert_eq!(plan.parts, parts, "{fleet:?}");
            assert!(plan.ingest_cores <= INGEST_CORES_MAX);
        }
    }
}
