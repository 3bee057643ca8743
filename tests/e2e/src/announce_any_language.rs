//! The worked example of docs/announcing.md, run as it stands: a Kafka client that is not ours announces.

use crate::Form;
use crate::figures::Figures;

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(_form: Form, _figures: &mut Figures) -> anyhow::Result<()> {
    anyhow::bail!("the example is not there yet")
}
