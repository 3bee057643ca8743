//! Plans side by side, as a table of Markdown.

use super::model::{Bound, Fleet, Plan, to_f64};

type Column = (Fleet, Plan);
type Row = (&'static str, fn(&Column) -> String);

const ROWS: &[Row] = &[
    ("parts of the fleet, each with its log", |(_, plan)| {
        count(plan.parts)
    }),
    ("records of a log a second", |(_, plan)| count(plan.events)),
    ("cores that reading takes, each Observer", |(_, plan)| {
        format!("{:.2}", plan.ingest_cores)
    }),
    ("memory that the fleet takes, each Observer", |(_, plan)| {
        bytes(plan.fleet_bytes)
    }),
    ("streams that one Observer can be given", |(_, plan)| {
        let why = match plan.bound {
            Bound::Cpu => "CPU",
            Bound::Memory => "memory",
            Bound::Streams => "how many may come back at once",
        };
        format!("{} ({why})", count(plan.streams_per_observer))
    }),
    ("**Observers**, a tenth of them spare", |(_, plan)| {
        format!("**{}**", count(plan.observers))
    }),
    ("streams of each", |(_, plan)| count(plan.streams)),
    ("CPU of all others when one dies", |(_, plan)| {
        format!("{:.1} s", plan.rejoin_cpu_seconds)
    }),
    ("partitions of a log", |(_, plan)| count(plan.partitions)),
    (
        "into the brokers of a log, replicas included",
        |(_, plan)| per_second(plan.broker_in),
    ),
    ("out of the brokers of a log", |(_, plan)| {
        per_second(plan.broker_out)
    }),
    ("into an Observer", |(_, plan)| per_second(plan.observer_in)),
    ("out of an Observer", |(_, plan)| {
        per_second(plan.observer_out)
    }),
];

/// One column a plan.
pub(crate) fn render(columns: &[Column]) -> String {
    let heads = columns
        .iter()
        .map(|(fleet, _)| count(to_f64(fleet.instances)));
    let mut lines = vec![
        line("instances", heads),
        line("---", columns.iter().map(|_| "---:".to_owned())),
    ];
    for (name, cell) in ROWS {
        lines.push(line(name, columns.iter().map(cell)));
    }
    lines.join("\n")
}

fn line(first: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = std::iter::once(first.to_owned()).chain(cells).collect();
    format!("| {} |", cells.join(" | "))
}

/// A whole number with its thousands apart.
fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = digits
        .get(..first)
        .into_iter()
        .filter(|g| !g.is_empty())
        .collect();
    let rest = digits.get(first..).unwrap_or_default();
    groups.extend(
        (0..rest.len())
            .step_by(3)
            .filter_map(|at| rest.get(at..at + 3)),
    );
    groups.join(",")
}

fn bytes(value: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut scaled = value;
    let mut unit = units[0];
    for next in &units[1..] {
        if scaled < 1000.0 {
            break;
        }
        scaled /= 1000.0;
        unit = next;
    }
    format!("{scaled:.1} {unit}")
}

fn per_second(value: f64) -> String {
    format!("{}/s", bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        for (value, expected) in [
            (7.0, "7"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (12_345_678.0, "12,345,678"),
        ] {
            assert_eq!(count(value), expected);
        }
        assert_eq!(bytes(41_379_310.0), "41.4 MB");
        assert_eq!(bytes(2.1e9), "2.1 GB");
    }
}
