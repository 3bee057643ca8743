//! `Apply` and `Delete`: definitions, through the one place that knows their rules.

use tonic::Status;
use waypost_announcer::definitions::{self, DefinitionsError};
use waypost_proto::v1 as pb;

use crate::gateway::{Gateway, status_of, status_of_write};

pub(super) async fn apply(
    gateway: &Gateway,
    request: pb::ApplyRequest,
) -> Result<pb::ApplyResponse, Status> {
    let inputs = definitions::read_request(&request.definitions).map_err(|e| to_status(&e))?;
    let signed = gateway.sign(&request.author, "waypost apply")?;
    let changes = definitions::apply(&*gateway.log, &inputs, &signed)
        .await
        .map_err(|e| to_status(&e))?;
    Ok(pb::ApplyResponse {
        results: changes.iter().map(pb::DefinitionResult::from).collect(),
    })
}

pub(super) async fn delete(
    gateway: &Gateway,
    request: pb::DeleteRequest,
) -> Result<pb::DeleteResponse, Status> {
    let key = definitions::read_key(request.kind(), &request.name)
        .map_err(|mistake| Status::invalid_argument(mistake.to_string()))?;
    let signed = gateway.sign(&request.author, "waypost delete")?;
    let change = definitions::delete(&*gateway.log, key, &signed)
        .await
        .map_err(|e| to_status(&e))?;
    Ok(pb::DeleteResponse {
        result: Some((&change).into()),
    })
}

fn to_status(error: &DefinitionsError) -> Status {
    match error {
        DefinitionsError::Mistakes(_) => Status::invalid_argument(error.to_string()),
        DefinitionsError::Conflicts(_) => Status::aborted(error.to_string()),
        DefinitionsError::Read(source) | DefinitionsError::ReadBack(source) => {
            Status::new(status_of(source).code(), error.to_string())
        }
        DefinitionsError::Write { source, .. } => {
            Status::new(status_of_write(source).code(), error.to_string())
        }
    }
}
