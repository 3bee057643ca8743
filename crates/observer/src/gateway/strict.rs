//! A request that cannot be decoded is its sender's mistake, and not an internal error.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::TryFutureExt as _;
use futures::future::MapOk;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

/// How the decoder of messages begins what it says (percent-encoded, as it is on the wire).
const UNDECODABLE: &[u8] = b"failed%20to%20decode%20Protobuf%20message";

/// A service whose answers to bytes that are no message say `INVALID_ARGUMENT`.
#[derive(Clone, Debug)]
pub struct Strict<S>(pub S);

impl<S: NamedService> NamedService for Strict<S> {
    const NAME: &'static str = S::NAME;
}

type Response = http::Response<Body>;

impl<S> Service<http::Request<Body>> for Strict<S>
where
    S: Service<http::Request<Body>, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = MapOk<S::Future, fn(Response) -> Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.call(request).map_ok(blame_sender as fn(_) -> _)
    }
}

fn blame_sender(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let is_undecodable = headers
        .get("grpc-message")
        .is_some_and(|text| text.as_bytes().starts_with(UNDECODABLE));
    if is_undecodable {
        let code = i32::from(Code::InvalidArgument).into();
        headers.insert("grpc-status", code);
    }
    response
}
