//! Very many instances in few processes, which can be killed.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use waypost_core::{Announcement, ClusterName, InstanceUri, Timestamp};
use waypost_testkit::process::Process;
use waypost_testkit::waypost::Server;

use crate::fleet::{HEARTBEAT, TTL, pool_to_gateways};

/// Processes that announce.
const PROCESSES: usize = 4;
/// How soon a process has announced its part.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(180);
/// What a process says then.
const ANNOUNCED: &str = "announced";

/// Which instances there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) instances: usize,
    pub(super) per_cluster: usize,
}

impl Plan {
    pub(super) fn clusters(self) -> impl Iterator<Item = String> {
        (0..self.instances.div_ceil(self.per_cluster)).map(cluster)
    }
}

/// Processes that announce every instance of a plan.
pub(super) struct Crowd(Vec<Process>);

impl Crowd {
    /// Returns once the log has all of them.
    pub(super) async fn start(plan: Plan, dev: &Server) -> anyhow::Result<Self> {
        let part = plan.instances.div_ceil(PROCESSES);
        let mut processes = Vec::new();
        for first in (0..plan.instances).step_by(part) {
            let count = part.min(plan.instances - first);
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["announcers", &dev.listen().to_string()]);
            let numbers = [first, count, plan.per_cluster];
            command.args(numbers.map(|number| number.to_string()));
            processes.push(Process::spawn("announcers", command)?);
        }
        for process in &mut processes {
            process
                .wait_for_line("all of them", ANNOUNCED_WITHIN, |line| line == ANNOUNCED)
                .await?;
        }
        Ok(Self(processes))
    }

    /// All at once.
    pub(super) fn kill_9(mut self) -> anyhow::Result<()> {
        self.0.iter_mut().try_for_each(Process::kill_9)
    }
}

/// What such a process does: announces `count` instances from number `first` on, until it is killed.
///
/// # Errors
/// The gateway does not take them.
pub async fn announce(
    gateway: &str,
    first: usize,
    count: usize,
    per_cluster: usize,
) -> anyhow::Result<()> {
    let pool = pool_to_gateways(&[gateway.to_owned()])?;
    let mut announcers = Vec::new();
    for number in first..first + count {
        let cluster = ClusterName::parse(&cluster(number / per_cluster))?;
        let (third, fourth) = (number / 250, number % 250 + 1);
        let uri = InstanceUri::parse(&format!("grpc://10.1.{third}.{fourth}:8080"))?;
        let mut announcement = Announcement::new(cluster, uri, Timestamp(0));
        announcement.heartbeat = HEARTBEAT;
        announcement.ttl = TTL;
        announcers.push(pool.add(announcement)?);
    }
    announcers
        .iter()
        .for_each(waypost_announcer::Announcer::mark_up);
    for announcer in &announcers {
        announcer.settled().await.context("an instance")?;
    }
    println!("{ANNOUNCED}");
    std::future::pending().await
}

fn cluster(number: usize) -> String {
    format!("silence-{number}")
}
