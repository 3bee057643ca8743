//! What is measured, one file a scenario, and what they are all made of.

mod capacity;
mod fanout;
mod fleet;
mod flood;
mod headline;
mod ingest;
mod memory;
mod real;
mod reconnect;
mod slow_reader;
mod steady;

use std::time::Duration;

use crate::clients::Clients;
use crate::clock::Stopwatch;
use crate::kernel;
use crate::load::LoadOptions;
use crate::load::plan::Kind;
use crate::load::response::Variant;
use crate::load::stats::Report;
use crate::server::{Cores, Server, Side};

/// All scenarios, in the order in which they run.
pub(crate) const ALL: &[Scenario] = &[
    steady::DELTA,
    steady::SOTW,
    capacity::CAPACITY,
    flood::FLOOD,
    slow_reader::SLOW_READER,
    memory::ONE_EACH,
    memory::EIGHT_EACH,
    memory::JOIN,
    fanout::WIDE,
    fanout::GLOB,
    reconnect::RECONNECT,
    ingest::INGEST,
    headline::HEADLINE,
    fleet::FLEET,
];

/// Connections of one process of the load: a usual limit of descriptors is 20,000.
const CONNECTIONS_PER_PROCESS_MAX: usize = 15_000;

/// Something that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) peers: Peers,
    /// What a run gives, in the order of the table.
    pub(crate) figures: &'static [Figure],
    pub(crate) run: fn(&Setup<'_>) -> anyhow::Result<Values>,
}

/// Whether others can do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    Compared,
    /// They have nothing like it, or it is ours alone.
    None,
}

/// A figure of a scenario and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) bar: Bar,
    /// What ours divided by the better peer's of the same run must be; judged wherever a peer ran.
    pub(crate) ratio: Option<Bound>,
    /// What the better peer had on the machine on which the bars were set (bench/README.md).
    pub(crate) reference: Option<f64>,
    /// How it says what a unit of work costs, where it does.
    pub(crate) unit_cost: Option<UnitCost>,
}

/// How a figure says what a unit of work costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitCost {
    /// CPU time of always the same work.
    CpuTime,
    /// Units of work for a CPU-second.
    PerCpuSecond,
}

/// How much more a unit of work may cost on more cores than on one.
const UNIT_COST_ON_MORE_CORES_MAX: f64 = 1.15;

/// A limit for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// What is asked of a figure by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// Nothing.
    None,
    /// Missing it fails the command: CPU time, bytes and counts, which hold on a noisy machine.
    Judged(Bound),
    /// For the reader: seconds, which do not.
    Shown(Bound),
}

impl Figure {
    /// A figure that nothing is asked of.
    pub(crate) const fn new(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            bar: Bar::None,
            ratio: None,
            reference: None,
            unit_cost: None,
        }
    }

    pub(crate) const fn unit_cost(self, unit_cost: UnitCost) -> Self {
        Self {
            unit_cost: Some(unit_cost),
            ..self
        }
    }

    pub(crate) const fn judged(self, bound: Bound) -> Self {
        Self {
            bar: Bar::Judged(bound),
            ..self
        }
    }

    pub(crate) const fn shown(self, bound: Bound) -> Self {
        Self {
            bar: Bar::Shown(bound),
            ..self
        }
    }

    pub(crate) const fn against_peer(self, bound: Bound) -> Self {
        Self {
            ratio: Some(bound),
            ..self
        }
    }

    pub(crate) const fn reference(self, value: f64) -> Self {
        Self {
            reference: Some(value),
            ..self
        }
    }
}

impl UnitCost {
    /// What the figure on one core divided by the figure on more must be.
    pub(crate) fn bound_on_more_cores(self) -> Bound {
        match self {
            Self::CpuTime => Bound::AtLeast(1.0 / UNIT_COST_ON_MORE_CORES_MAX),
            Self::PerCpuSecond => Bound::AtMost(UNIT_COST_ON_MORE_CORES_MAX),
        }
    }
}

impl Scenario {
    /// Whether a figure of it says what a unit of work costs.
    pub(crate) fn has_unit_cost(&self) -> bool {
        self.figures.iter().any(|figure| figure.unit_cost.is_some())
    }
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

/// How large a scenario is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// What figures are taken with.
    Full,
    /// A few seconds, unoptimised: shows that it runs, measures nothing.
    Short,
}

/// What one run of a scenario gave, by the names of its figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    by_name: Vec<(&'static str, f64)>,
    /// What the machine did meanwhile; of the busiest window.
    pub(crate) surroundings: Surroundings,
}

/// What shared the machine with the server, each in cores.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Surroundings {
    pub(crate) server: f64,
    /// Near 1 the load, not the server, was the limit.
    pub(crate) load: f64,
    pub(crate) others: f64,
    /// Taken by the hypervisor.
    pub(crate) stolen: f64,
}

impl Values {
    pub(crate) fn set(&mut self, name: &'static str, value: f64) {
        self.by_name.push((name, value));
    }

    pub(crate) fn find(&self, name: &str) -> Option<f64> {
        let mut values = self.by_name.iter();
        values
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    /// Keeps what the machine did during a window.
    pub(crate) fn add_surroundings(&mut self, window: &Window) {
        let most = &mut self.surroundings;
        let new = window.surroundings();
        most.server = most.server.max(new.server);
        most.load = most.load.max(new.load);
        most.others = most.others.max(new.others);
        most.stolen = most.stolen.max(new.stolen);
    }
}

/// What a run is made with.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) side: &'a Side,
    pub(crate) size: Size,
    pub(crate) server_cores: Cores,
    pub(crate) load_cores: Cores,
    /// How long the longest window lasts, where somebody says so.
    pub(crate) time: Option<Duration>,
}

/// The streams of a scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams {
    pub(crate) streams: usize,
    pub(crate) connections: usize,
    pub(crate) names: usize,
    pub(crate) clusters: usize,
    pub(crate) kind: Kind,
    pub(crate) variant: Variant,
}

/// A stretch of time: what it cost, and what arrived.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) report: Report,
    load_cpu: Duration,
    machine: kernel::MachineTime,
}

impl Setup<'_> {
    pub(crate) fn is_short(&self) -> bool {
        self.size == Size::Short
    }

    /// Starts the server.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) fn server(&self, clusters: usize, endpoints: usize) -> anyhow::Result<Server> {
        Server::start(self.side, self.server_cores, clusters, endpoints)
    }

    /// Starts clients that have no connection yet.
    ///
    /// # Errors
    /// As [`Clients::start`].
    pub(crate) fn clients(&self, server: &Server, streams: &Streams) -> anyhow::Result<Clients> {
        self.clients_by(&streams.options(server), streams.streams)
    }

    /// As [`Self::clients`], with everything that a load can be told.
    ///
    /// # Errors
    /// As [`Clients::start`].
    pub(crate) fn clients_by(
        &self,
        options: &LoadOptions,
        streams_max: usize,
    ) -> anyhow::Result<Clients> {
        let processes = options.connections.div_ceil(CONNECTIONS_PER_PROCESS_MAX);
        Clients::start(options, processes.max(1), streams_max, self.load_cores)
    }
}

impl Streams {
    /// So many times fewer of everything, as far as that leaves something to see.
    pub(crate) fn shrunk(self, times: usize) -> Self {
        const CLUSTERS_MAX: usize = 50;
        Self {
            streams: (self.streams / times).max(1),
            connections: (self.connections / times).max(1),
            clusters: self.clusters.min(CLUSTERS_MAX),
            ..self
        }
    }

    /// What the load is told.
    pub(crate) fn options(&self, server: &Server) -> LoadOptions {
        LoadOptions {
            grpc: server.grpc(),
            then: None,
            connections: self.connections,
            kind: self.kind,
            variant: self.variant,
            clusters: self.clusters,
            names: self.names,
            first_stream: 0,
            unanswered_max: 200,
            slow_percent: 0,
        }
    }
}

/// Measures what happens during `work`; what the clients counted before is forgotten.
///
/// # Errors
/// `work` fails, or server or load end.
pub(crate) fn window(
    server: &Server,
    clients: &mut Clients,
    work: impl FnOnce(&mut Clients) -> anyhow::Result<()>,
) -> anyhow::Result<Window> {
    clients.mark()?;
    let watch = Stopwatch::start();
    let machine = kernel::machine_time()?;
    let (cpu, load_cpu) = (server.cpu_time()?, clients.cpu_time()?);
    work(clients)?;
    let cpu = server.cpu_time()?.saturating_sub(cpu);
    let load_cpu = clients.cpu_time()?.saturating_sub(load_cpu);
    let wall = watch.elapsed();
    let after = kernel::machine_time()?;
    Ok(Window {
        report: clients.report()?,
        wall,
        cpu,
        load_cpu,
        machine: kernel::MachineTime {
            busy: after.busy.saturating_sub(machine.busy),
            stolen: after.stolen.saturating_sub(machine.stolen),
        },
    })
}

/// Lets time pass: a real program needs real time.
#[expect(clippy::unnecessary_wraps, reason = "the shape of a window's work")]
pub(crate) fn wait(time: Duration) -> anyhow::Result<()> {
    std::thread::sleep(time);
    Ok(())
}

impl Window {
    /// So many per CPU-second of the server.
    pub(crate) fn per_cpu_second(&self, count: u64) -> f64 {
        count as f64 / self.cpu.as_secs_f64().max(1e-9)
    }

    /// So many per second.
    pub(crate) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// The age at receipt that a share of what was delivered stayed within, in milliseconds.
    pub(crate) fn age_ms(&self, share: f64) -> f64 {
        ms(self.report.ages.quantile(share))
    }

    fn surroundings(&self) -> Surroundings {
        let cores = |time: Duration| time.as_secs_f64() / self.wall.as_secs_f64().max(1e-9);
        let others = self.machine.busy.saturating_sub(self.cpu + self.load_cpu);
        Surroundings {
            server: cores(self.cpu),
            load: cores(self.load_cpu),
            others: cores(others),
            stolen: cores(self.machine.stolen),
        }
    }
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
