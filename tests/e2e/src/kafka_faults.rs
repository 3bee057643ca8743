//! Faults of a fabric: three Kafka brokers, two Observers, hundreds of instances, real calls all the
//! time. Observers and brokers are killed and suspended, the log stands still, its topics grow and are
//! made anew: no call fails and no instance is taken away.

mod foreign;
mod phases;
mod report;
mod stage;
mod witness;

use crate::Form;
use crate::figures::Figures;

use self::stage::Stage;

/// Runs the proof. Every phase runs, whatever became of those before it.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut stage = Stage::set(form, figures, folder.path()).await?;
    let mut failures = Vec::new();
    for phase in phases::of(form) {
        if let Err(error) = phases::run(phase, &mut stage, figures).await {
            let failure = format!("{}: {error:#}", phase.name);
            figures.step(&format!("  DOES NOT HOLD: {failure}"));
            failures.push(failure);
        }
    }
    if let Err(error) = stage.end(figures).await {
        failures.push(format!("in the end: {error:#}"));
    }
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
