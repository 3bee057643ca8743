//! `Set`, `Evict`, `Release`, `Restore`: an operator's hand, through the one place that knows the rules.

use tonic::Status;
use waypost_announcer::operator::{self, OperatorError, SetOutcome};
use waypost_core::config::{OverrideEffect, Weight};
use waypost_core::{
    ClusterName, ConfigKey, ConfigValue, InstanceKey, InstanceUri, NameError, ReleaseScope,
};
use waypost_proto::v1 as pb;
use waypost_proto::v1::restore_request::Action;
use waypost_proto::v1::set_request::Effect;

use super::append::to_message;
use super::{Gateway, status_of, status_of_write};

pub(super) async fn set(
    gateway: &Gateway,
    request: pb::SetRequest,
) -> Result<pb::SetResponse, Status> {
    let instance = read_instance(&request.cluster, &request.uri)?;
    let effect = read_effect(request.effect)?;
    let signed = gateway.sign(&request.author, &request.reason)?;
    let outcome = operator::set_override(&*gateway.log, &instance, effect, &signed)
        .await
        .map_err(|e| to_status(&e))?;
    Ok(pb::SetResponse {
        outcome: to_outcome(outcome).into(),
        announced: gateway.sight.is_announced(&instance),
    })
}

pub(super) async fn evict(
    gateway: &Gateway,
    request: pb::EvictRequest,
) -> Result<pb::EvictResponse, Status> {
    let instance = read_instance(&request.cluster, &request.uri)?;
    let signed = gateway.sign(&request.author, &request.reason)?;
    // Asked before: afterwards the instance may be gone by this very request.
    let announced = gateway.sight.is_announced(&instance);
    let purge = operator::evict(&*gateway.log, &instance, &signed)
        .await
        .map_err(|e| to_status(&e))?;
    Ok(pb::EvictResponse {
        purge: Some(to_message(purge)),
        announced,
    })
}

pub(super) async fn release(
    gateway: &Gateway,
    request: pb::ReleaseRequest,
) -> Result<pb::ReleaseResponse, Status> {
    let scope = match (request.cluster.as_str(), request.all) {
        ("", true) => ReleaseScope::All,
        (name, false) => ReleaseScope::Cluster(ClusterName::parse(name).map_err(bad_name)?),
        (_, true) => return Err(bad("a release is of one cluster or of all, not of both")),
    };
    let signed = gateway.sign(&request.author, &request.reason)?;
    let held = gateway.sight.held(&scope).await;
    operator::release(&*gateway.log, &scope, &signed)
        .await
        .map_err(|e| to_status(&e))?;
    Ok(pb::ReleaseResponse { held })
}

pub(super) async fn restore(
    gateway: &Gateway,
    request: pb::RestoreRequest,
) -> Result<pb::RestoreResponse, Status> {
    let action = Action::try_from(request.action)
        .map_err(|_| bad("an action that this release does not know"))?;
    let signed = gateway.sign(&request.author, &request.reason)?;
    let orphans = gateway.sight.orphans().await.ok_or_else(|| {
        Status::unavailable("this Observer is busy reading the log; try again, or ask another one")
    })?;
    let chosen = choose(&request, orphans)?;
    let log = &*gateway.log;
    let written = match action {
        Action::Restore => operator::restore(log, &chosen, &signed).await,
        Action::Forget => {
            let is_history =
                |key: &ConfigKey| matches!(key, ConfigKey::Journal(_) | ConfigKey::Eviction(_));
            let keys = chosen.into_iter().map(|(key, _)| key);
            let keys: Vec<_> = keys.filter(|key| !is_history(key)).collect();
            operator::forget(log, &keys, &signed).await
        }
    };
    let written = written.map_err(|e| to_status(&e))?;
    Ok(pb::RestoreResponse {
        records: written.iter().map(to_record).collect(),
    })
}

/// The orphaned records that a request names.
fn choose(
    request: &pb::RestoreRequest,
    mut orphans: Vec<(ConfigKey, ConfigValue)>,
) -> Result<Vec<(ConfigKey, ConfigValue)>, Status> {
    if request.all != request.names.is_empty() {
        return Err(bad("name what is meant, or say all, and not both"));
    }
    if request.all {
        return Ok(orphans);
    }
    let is_orphaned = |name: &String| orphans.iter().any(|(key, _)| key.name() == name);
    if let Some(unknown) = request.names.iter().find(|name| !is_orphaned(name)) {
        return Err(Status::not_found(format!(
            "this Observer keeps nothing of {unknown:?} that the log lost; `waypost status` names what is orphaned"
        )));
    }
    orphans.retain(|(key, _)| request.names.iter().any(|name| key.name() == name));
    Ok(orphans)
}

fn read_instance(cluster: &str, uri: &str) -> Result<InstanceKey, Status> {
    Ok(InstanceKey {
        cluster: ClusterName::parse(cluster).map_err(bad_name)?,
        uri: InstanceUri::parse(uri).map_err(bad_name)?,
    })
}

/// `None` clears.
fn read_effect(effect: Option<Effect>) -> Result<Option<OverrideEffect>, Status> {
    match effect {
        Some(Effect::Weight(weight)) => Weight::new(weight)
            .map(|weight| Some(OverrideEffect::Weight(weight)))
            .map_err(|e| bad(&format!("weight: {weight} {e}"))),
        Some(Effect::Drain(true)) => Ok(Some(OverrideEffect::Drain)),
        Some(Effect::Clear(true)) => Ok(None),
        Some(Effect::Drain(false) | Effect::Clear(false)) | None => {
            Err(bad("one of weight, drain and clear must be set"))
        }
    }
}

fn to_outcome(outcome: SetOutcome) -> pb::set_response::Outcome {
    use pb::set_response::Outcome;
    match outcome {
        SetOutcome::Set => Outcome::Set,
        SetOutcome::Changed => Outcome::Changed,
        SetOutcome::Unchanged => Outcome::Unchanged,
        SetOutcome::Cleared => Outcome::Cleared,
        SetOutcome::Absent => Outcome::Absent,
    }
}

fn to_record(key: &ConfigKey) -> pb::RestoredRecord {
    pb::RestoredRecord {
        kind: key.kind().to_owned(),
        name: key.to_string(),
    }
}

fn bad(text: &str) -> Status {
    Status::invalid_argument(text)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn bad_name(error: NameError) -> Status {
    Status::invalid_argument(error.to_string())
}

fn to_status(error: &OperatorError) -> Status {
    let text = error.to_string();
    match error {
        OperatorError::Mistake { .. } => Status::invalid_argument(text),
        OperatorError::TooManyOverrides => Status::failed_precondition(text),
        OperatorError::Conflicts(_) => Status::aborted(text),
        OperatorError::Read(source) | OperatorError::ReadBack(source) => {
            Status::new(status_of(source).code(), text)
        }
        OperatorError::Write { source, .. } => Status::new(status_of_write(source).code(), text),
    }
}
