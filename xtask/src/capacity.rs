//! What a fleet needs: Observers, partitions, the brokers' bytes, the network, from measured unit costs.
//! docs/capacity.md explains the formula and holds what this prints.

mod model;
mod table;
mod units;

use clap::Args;

use model::Fleet;
use units::Units;

use crate::sh;

/// The fleets that docs/capacity.md shows.
const SHOWN_INSTANCES: [u64; 3] = [300_000, 3_000_000, 30_000_000];

/// Which fleets, and what they do. The defaults are what LinkedIn published of its own.
#[derive(Args, Clone, Debug)]
pub(crate) struct Question {
    /// Instances of the fleet; several make several columns.
    #[arg(long, value_delimiter = ',', default_values_t = SHOWN_INSTANCES)]
    instances: Vec<u64>,
    /// Seconds between two heartbeats of an instance.
    #[arg(long, default_value_t = 29.0, value_parser = above_zero)]
    heartbeat_seconds: f64,
    /// Changes, as a share of all records.
    #[arg(long, default_value_t = 0.05, value_parser = share)]
    change_share: f64,
    /// Streams: one for each instance when not given.
    #[arg(long)]
    streams: Option<u64>,
    /// Updates that a stream is sent, a second.
    #[arg(long, default_value_t = 0.25, value_parser = above_zero)]
    updates_per_stream: f64,
    /// Cores of an Observer.
    #[arg(long, default_value_t = 2.0, value_parser = above_zero)]
    cores: f64,
    /// Memory of an Observer, GiB.
    #[arg(long, default_value_t = 16.0, value_parser = above_zero)]
    memory_gib: f64,
    /// Copies that Kafka keeps of a record.
    #[arg(long, default_value_t = 3)]
    replication: u32,
}

impl Question {
    fn fleet(&self, instances: u64) -> Fleet {
        Fleet {
            instances,
            heartbeat_seconds: self.heartbeat_seconds,
            change_share: self.change_share,
            streams: self.streams.unwrap_or(instances),
            updates_per_stream: self.updates_per_stream,
            cores: self.cores,
            memory_bytes: self.memory_gib * f64::from(1 << 30),
            replication: self.replication,
        }
    }
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    (number.is_finite() && number > 0.0)
        .then_some(number)
        .ok_or_else(|| "must be above 0".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    (0.0..1.0)
        .contains(&number)
        .then_some(number)
        .ok_or_else(|| "must be at least 0 and below 1".to_owned())
}

/// Prints the answer as a table that is Markdown as well.
pub(crate) fn run(question: &Question) -> anyhow::Result<()> {
    sh::say(&answer(question, &Units::read()?));
    Ok(())
}

fn answer(question: &Question, units: &Units) -> String {
    let fleets = question
        .instances
        .iter()
        .map(|count| question.fleet(*count));
    let plans: Vec<_> = fleets
        .map(|fleet| (fleet, model::plan(&fleet, units)))
        .collect();
    table::render(&plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        question: Question,
    }

    #[test]
    fn the_page_shows_what_the_command_prints() {
        let question = <Line as clap::Parser>::parse_from(["capacity"]).question;
        let table = answer(&question, &Units::read().unwrap());
        let page = std::fs::read_to_string(sh::root().join("docs/capacity.md")).unwrap();
        assert!(
            page.contains(&table),
            "docs/capacity.md is behind: put in what `cargo xtask capacity` prints:\n{table}"
        );
    }
}
