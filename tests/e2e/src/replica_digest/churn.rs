//! Instances that come, change, go, die and are back, for as long as they are let.

use std::time::Duration;

use anyhow::Context as _;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use tokio::sync::watch;
use tokio::time::Instant;
use waypost_announcer::{Announcer, AnnouncerPool, PartitionWeights};
use waypost_testkit::process::Process;
use waypost_testkit::waypost::command;

use crate::fleet::{CLUSTER, HEARTBEAT, TTL, announcement};

/// Between two changes.
const PACE: Duration = Duration::from_millis(100);
/// Between two kills of a process that announces.
const KILL_PACE: Duration = Duration::from_secs(5);

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Churned {
    /// Weights that were changed.
    pub(super) changed: usize,
    /// Withdrawals.
    pub(super) withdrawn: usize,
    /// Announcements after a withdrawal.
    pub(super) came_back: usize,
    /// Processes killed with -9.
    pub(super) killed: usize,
    /// Of those, the ones started again.
    pub(super) restarted: usize,
}

/// Everything that announces.
pub(super) struct Churn {
    kafka: String,
    topic_prefix: String,
    /// Announced by this process.
    announcers: Vec<(Announcer, bool)>,
    /// Announced by processes of their own, which are killed; `None` while one is dead.
    agents: Vec<(String, Option<Process>)>,
    done: Churned,
}

impl Churn {
    /// Announces `instances` by this process and `agents` by processes of their own.
    pub(super) async fn start(
        pool: &AnnouncerPool,
        (kafka, topic_prefix): (&str, &str),
        instances: usize,
        agents: usize,
    ) -> anyhow::Result<Self> {
        let mut churn = Self {
            kafka: kafka.to_owned(),
            topic_prefix: topic_prefix.to_owned(),
            announcers: Vec::new(),
            agents: Vec::new(),
            done: Churned::default(),
        };
        for number in 0..instances {
            let announcer =
                pool.add(announcement(&format!("grpc://10.0.0.1:{}", 1000 + number))?)?;
            announcer.mark_up();
            churn.announcers.push((announcer, true));
        }
        for number in 0..agents {
            let uri = format!("grpc://10.0.0.2:{}", 1000 + number);
            let process = churn.spawn_agent(&uri)?;
            churn.agents.push((uri, Some(process)));
        }
        for (announcer, _) in &churn.announcers {
            announcer.settled().await?;
        }
        Ok(churn)
    }

    /// Goes on until told to stop; says what happened.
    pub(super) async fn run(
        mut self,
        mut stop_rx: watch::Receiver<bool>,
    ) -> anyhow::Result<Churned> {
        let mut pace = tokio::time::interval(PACE);
        let mut kill_at = Instant::now() + KILL_PACE;
        loop {
            tokio::select! {
                stopped = stop_rx.wait_for(|stop| *stop) => {
                    stopped?;
                    return Ok(self.done);
                }
                _ = pace.tick() => {}
            }
            self.change_one()?;
            if kill_at <= Instant::now() {
                kill_at = Instant::now() + KILL_PACE;
                self.kill_one()?;
            }
        }
    }

    fn change_one(&mut self) -> anyhow::Result<()> {
        let mut rng = rand::rng();
        let index = rng.random_range(0..self.announcers.len());
        let (announcer, is_up) = &mut self.announcers[index];
        match (*is_up, rng.random_range(0..4)) {
            (false, _) => {
                announcer.mark_up();
                *is_up = true;
                self.done.came_back += 1;
            }
            (true, 0) => {
                announcer.mark_down();
                *is_up = false;
                self.done.withdrawn += 1;
            }
            (true, _) => {
                let weight = f64::from(rng.random_range(1..1000_u16)) / 10.0;
                announcer.change_weight(PartitionWeights::from([(0, weight)]))?;
                self.done.changed += 1;
            }
        }
        Ok(())
    }

    /// Kills a process that announces; every other one is started again at once, faster than anybody
    /// can notice, and one that is dead already comes back.
    fn kill_one(&mut self) -> anyhow::Result<()> {
        let mut rng = rand::rng();
        let indices: Vec<usize> = (0..self.agents.len()).collect();
        let index = *indices.choose(&mut rng).context("no agents")?;
        let (uri, process) = &mut self.agents[index];
        let uri = uri.clone();
        if let Some(mut living) = process.take() {
            living.kill_9()?;
            self.done.killed += 1;
            if rng.random_bool(0.5) {
                return Ok(());
            }
        }
        let again = self.spawn_agent(&uri)?;
        self.agents[index].1 = Some(again);
        self.done.restarted += 1;
        Ok(())
    }

    fn spawn_agent(&self, uri: &str) -> anyhow::Result<Process> {
        let seconds = |duration: Duration| format!("{}s", duration.as_secs());
        let (heartbeat, ttl) = (seconds(HEARTBEAT), seconds(TTL));
        let args = [
            "announce",
            "--cluster",
            CLUSTER,
            "--uri",
            uri,
            "--kafka",
            &self.kafka,
            "--topic-prefix",
            &self.topic_prefix,
            "--heartbeat",
            &heartbeat,
            "--ttl",
            &ttl,
        ];
        Process::spawn("agent", command(&args)?)
    }
}
