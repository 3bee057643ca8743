//! Fleets as records of any announcement log.

pub(crate) mod record;
