//! What a proof did and measured.

use std::fmt;
use std::time::Duration;

/// Figures in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<(String, String)>);

impl Figures {
    /// Says what happens now. Printed at once; not a figure.
    pub fn step(&self, what: &str) {
        println!("- {what}");
    }

    /// Adds one figure.
    pub fn add(&mut self, what: impl Into<String>, value: impl fmt::Display) {
        self.0.push((what.into(), value.to_string()));
    }

    /// Adds the figures of a part that was measured by itself.
    pub fn extend(&mut self, part: Self) {
        self.0.extend(part.0);
    }

    /// Adds a time and fails if it is over its bound.
    ///
    /// # Errors
    /// It is.
    pub fn add_within(
        &mut self,
        what: &str,
        took: Duration,
        bound: Duration,
    ) -> anyhow::Result<()> {
        self.add(
            what,
            format_args!(
                "{:.3} s (at most {} s)",
                took.as_secs_f64(),
                bound.as_secs_f64()
            ),
        );
        anyhow::ensure!(took <= bound, "{what}: {took:.3?}, at most {bound:?}");
        Ok(())
    }

    /// Adds a count and fails if it is over its bound.
    ///
    /// # Errors
    /// It is.
    pub fn add_at_most(&mut self, what: &str, count: usize, most: usize) -> anyhow::Result<()> {
        self.add(what, format_args!("{count} (at most {most})"));
        anyhow::ensure!(count <= most, "{what}: {count}, at most {most}");
        Ok(())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .0
            .iter()
            .map(|(what, _)| what.chars().count())
            .max()
            .unwrap_or(0);
        self.0
            .iter()
            .try_for_each(|(what, value)| writeln!(f, "{what:<width$}  {value}"))
    }
}
