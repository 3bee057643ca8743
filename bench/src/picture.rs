//! `waypost-bench draw`: a picture of each curve. The data is a file of comma-separated values: a comment
//! line with the title, a line with the names of the columns, then numbers. The first column is
//! the one that grows; every other column becomes a line. Both axes are logarithmic, so that what is
//! linear is straight and what is constant lies flat.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use plotters::prelude::*;

/// Pixels.
const SIZE: (u32, u32) = (760, 420);

/// One colour a line.
const COLOURS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
];

/// Which files, and where the pictures go.
#[derive(Debug, Args)]
pub(crate) struct DrawArgs {
    /// Files of data, `NAME.csv`; each becomes `NAME.svg` beside it.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
struct Curves {
    title: String,
    grows: String,
    lines: Vec<Curve>,
}

#[derive(Clone, Debug, PartialEq)]
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws every file.
pub(crate) fn draw(args: &DrawArgs) -> anyhow::Result<()> {
    for file in &args.files {
        let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        let curves = Curves::parse(&text).with_context(|| format!("{}", file.display()))?;
        let picture = file.with_extension("svg");
        curves
            .draw(&picture)
            .with_context(|| format!("{}", picture.display()))?;
        println!("{}", picture.display());
    }
    Ok(())
}

impl Curves {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut rows = text.lines().filter(|line| !line.trim().is_empty());
        let title = rows.next().and_then(|line| line.strip_prefix('#'));
        let title = title.context("the first line must be a comment: the title")?;
        let mut rows = rows.filter(|line| !line.starts_with('#'));
        let names = rows.next().context("no line with names of columns")?;
        let mut names = names.split(',').map(|name| name.trim().to_owned());
        let grows = names.next().unwrap_or_default();
        let mut lines: Vec<Curve> = names
            .map(|name| Curve {
                name,
                points: Vec::new(),
            })
            .collect();
        for row in rows {
            let cells: Vec<&str> = row.split(',').map(str::trim).collect();
            ensure!(
                cells.len() == lines.len() + 1,
                "{row:?}: not a cell for each column"
            );
            let x = number(cells[0]).with_context(|| format!("{row:?}"))?;
            for (line, cell) in lines.iter_mut().zip(&cells[1..]) {
                // An empty cell was not measured.
                if !cell.is_empty() {
                    let y = number(cell).with_context(|| format!("{row:?}"))?;
                    line.points.push((x, y));
                }
            }
        }
        ensure!(
            lines.iter().any(|line| !line.points.is_empty()),
            "no numbers"
        );
        Ok(Self {
            title: title.trim().to_owned(),
            grows,
            lines,
        })
    }

    fn draw(&self, file: &Path) -> anyhow::Result<()> {
        let (x, y) = (self.span(|point| point.0), self.span(|point| point.1));
        let area = SVGBackend::new(file, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d(x.log_scale(), y.log_scale())?;
        chart
            .configure_mesh()
            .x_desc(&self.grows)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .light_line_style(RGBColor(235, 235, 235))
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS.into_iter().cycle()) {
            let points = || line.points.iter().copied();
            chart
                .draw_series(LineSeries::new(points(), colour.stroke_width(2)))?
                .label(&line.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                });
            let dots = points().map(|point| Circle::new(point, 3, colour.filled()));
            chart.draw_series(dots)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
        area.present()?;
        Ok(())
    }

    /// Whole powers of ten around all values, so that each has a label near.
    fn span(&self, of: impl Fn(&(f64, f64)) -> f64) -> Range<f64> {
        let values = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().map(&of));
        let (least, greatest) = values.fold((f64::MAX, f64::MIN), |(least, greatest), value| {
            (least.min(value), greatest.max(value))
        });
        let below = 10_f64.powf((least * 0.99).log10().floor());
        let above = 10_f64.powf((greatest * 1.01).log10().ceil());
        below..above
    }
}

fn number(cell: &str) -> anyhow::Result<f64> {
    let number: f64 = cell
        .parse()
        .with_context(|| format!("{cell:?} is no number"))?;
    ensure!(
        number.is_finite() && number > 0.0,
        "{cell}: a logarithmic axis has numbers above 0 only"
    );
    Ok(number)
}

/// A label of an axis.
fn short(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let unit = units.into_iter().find(|(size, _)| value >= *size);
    let (size, name) = unit.unwrap_or((1.0, ""));
    let digits = format!("{:.2}", value / size);
    format!(
        "{}{name}",
        digits.trim_end_matches('0').trim_end_matches('.')
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_data_becomes_a_picture_with_a_line_for_each_column() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("curve.csv");
        let text = "# CPU per delivery\nsubscribers,delta,SotW\n10,30.5,\n1000,28,33\n";
        std::fs::write(&file, text).unwrap();
        draw(&DrawArgs {
            files: vec![file.clone()],
        })
        .unwrap();
        let picture = std::fs::read_to_string(file.with_extension("svg")).unwrap();
        for shown in [
            "CPU per delivery",
            "subscribers",
            "delta",
            "SotW",
            "polyline",
        ] {
            assert!(picture.contains(shown), "{shown}");
        }
    }

    #[test]
    fn what_is_no_data_is_refused_with_the_row() {
        for (text, said) in [
            ("a,b\n1,2\n", "title"),
            ("# t\n", "names of columns"),
            ("# t\na,b\n1\n", "cell for each column"),
            ("# t\na,b\n1,x\n", "no number"),
            ("# t\na,b\n0,1\n", "above 0"),
            ("# t\na,b\n", "no numbers"),
        ] {
            let error = format!("{:#}", Curves::parse(text).unwrap_err());
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn labels_are_short() {
        for (value, label) in [(0.5, "0.5"), (10.0, "10"), (1500.0, "1.5k"), (3e6, "3M")] {
            assert_eq!(short(value), label);
        }
    }
}
