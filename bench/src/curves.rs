//! `waypost-bench curves`: what a unit costs as one size grows, as data; `waypost-bench draw` makes the
//! pictures. Each curve is one file of comma-separated values: a comment with the title, the names of
//! the columns, then a line a size.

mod delivery;
mod fit;
mod heartbeat;
mod memory;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::scenario::{Setup, Size};
use crate::server::Side;

/// Which curves, and where they go.
#[derive(Debug, Args)]
pub(crate) struct CurvesArgs {
    /// Curves, by the names of their files; all by default.
    curves: Vec<String>,
    /// The folder for the data; printed only, where none is named.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Tiny sizes: shows that it runs, measures nothing.
    #[arg(long)]
    short: bool,
}

/// One curve.
struct Curve {
    /// Its file, without `.csv`.
    name: &'static str,
    title: &'static str,
    /// What grows, and what is measured.
    columns: [&'static str; 2],
    full: &'static [u32],
    short: &'static [u32],
    /// Whether it should be a straight line: then its slope and how well it fits are printed.
    is_line: bool,
    /// The value at one size.
    measure: fn(&Setup<'_>, u32) -> anyhow::Result<f64>,
}

const ALL: &[Curve] = &[
    delivery::SUBSCRIBERS,
    delivery::CLUSTER_SIZE,
    heartbeat::FLEET_SIZE,
    memory::STREAMS,
    memory::INSTANCES,
];

/// Measures every curve that is asked for.
///
/// # Errors
/// A curve is unknown, cannot be measured, or its file cannot be written.
pub(crate) fn run(args: &CurvesArgs) -> anyhow::Result<()> {
    let ours = Side::ours()?;
    let (server_cores, load_cores) = ours.placement();
    let setup = Setup {
        side: &ours,
        size: if args.short { Size::Short } else { Size::Full },
        server_cores,
        load_cores,
        time: None,
    };
    for name in &args.curves {
        let is_known = ALL.iter().any(|curve| curve.name == name);
        anyhow::ensure!(is_known, "there is no curve {name}");
    }
    let is_asked = |curve: &&Curve| {
        args.curves.is_empty() || args.curves.iter().any(|name| name == curve.name)
    };
    for curve in ALL.iter().filter(is_asked) {
        let text = curve.measured(&setup).with_context(|| curve.name)?;
        if let Some(folder) = &args.out {
            let file = folder.join(curve.name).with_extension("csv");
            std::fs::write(&file, &text).with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}

impl Curve {
    fn measured(&self, setup: &Setup<'_>) -> anyhow::Result<String> {
        let sizes = match setup.size {
            Size::Full => self.full,
            Size::Short => self.short,
        };
        let [grows, value] = self.columns;
        let mut text = format!("# {}\n{grows},{value}\n", self.title);
        print!("{text}");
        let mut points = Vec::new();
        for size in sizes {
            let measured =
                (self.measure)(setup, *size).with_context(|| format!("{grows} {size}"))?;
            let line = format!("{size},{measured:.3}");
            println!("{line}");
            writeln!(text, "{line}")?;
            points.push((f64::from(*size), measured));
        }
        if self.is_line
            && let Some(line) = fit::line(&points)
        {
            println!(
                "{value} = {:.1} + {:.4} a unit; the line explains {:.2} % of the variation",
                line.at_zero,
                line.slope,
                100.0 * line.explained
            );
        }
        Ok(text)
    }
}
