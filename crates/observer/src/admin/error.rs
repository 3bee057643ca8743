//! Errors as the API gives them: a status and one line.

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use waypost_admin_api::ErrorBody;

use crate::ingest::IngestGone;

/// An answer that is not 2xx.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    text: String,
}

impl ApiError {
    /// There is nothing of that name.
    pub(super) fn not_found(text: String) -> Self {
        let status = StatusCode::NOT_FOUND;
        Self { status, text }
    }

    /// The request makes no sense.
    pub(super) fn bad_request(text: String) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Self { status, text }
    }

    /// Try again later.
    pub(super) fn unavailable(text: String) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { status, text }
    }
}

impl From<IngestGone> for ApiError {
    fn from(gone: IngestGone) -> Self {
        Self::unavailable(gone.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody { error: self.text };
        (self.status, Json(body)).into_response()
    }
}

/// The answer to a path that is none.
pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!(
        "there is nothing at {}; see /api/v1/status, /digests, /clusters, /services, /uris/CLUSTER, /operator, /streams, /watch/CLUSTER, and /config_dump, /metrics, /ready, /live",
        uri.path()
    ))
}
