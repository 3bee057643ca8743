//! What one connection hands to hyper: the service that tells xDS streams from other calls.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::{Either, Ready, ready as ready_future};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tower::util::Oneshot;
use tower::{Service, ServiceExt as _};

use crate::body::AdsBody;
use crate::buf::MessageBuf;
use crate::drive::ConnectionExecutor;
use crate::listener::PeerAddress;
use crate::server::AdsServer;
use crate::status::{Code, Status};

/// Answers the calls of one connection.
pub(crate) struct ConnectionService<F> {
    server: AdsServer,
    peer: SocketAddr,
    fallback: F,
    executor: ConnectionExecutor,
}

impl<F> ConnectionService<F> {
    pub(crate) fn new(
        server: AdsServer,
        peer: SocketAddr,
        fallback: F,
        executor: ConnectionExecutor,
    ) -> Self {
        Self {
            server,
            peer,
            fallback,
            executor,
        }
    }
}

type AnyResponse<B> = Result<Response<AnyBody<B>>, Infallible>;

impl<F, B> hyper::service::Service<Request<Incoming>> for ConnectionService<F>
where
    F: Service<Request<Incoming>, Response = Response<B>> + Clone,
    F::Error: std::fmt::Display,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<AnyBody<B>>;
    type Error = Infallible;
    /// In a box for the other calls: the room for one would be kept for every xDS stream too.
    type Future = Either<Ready<AnyResponse<B>>, Pin<Box<FallbackFuture<F>>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if AdsServer::serves(request.uri().path()) {
            let (response, handle) = self.server.open(request, self.peer);
            self.executor.opened(handle);
            let response = response.map(|body| AnyBody::Ads { body });
            return Either::Left(ready_future(Ok(response)));
        }
        request.extensions_mut().insert(PeerAddress(self.peer));
        Either::Right(Box::pin(FallbackFuture {
            call: self.fallback.clone().oneshot(request),
        }))
    }
}

pin_project_lite::pin_project! {
    /// A call of the other service.
    pub(crate) struct FallbackFuture<F>
    where
        F: Service<Request<Incoming>>,
    {
        #[pin]
        call: Oneshot<F, Request<Incoming>>,
    }
}

impl<F, B> Future for FallbackFuture<F>
where
    F: Service<Request<Incoming>, Response = Response<B>>,
    F::Error: std::fmt::Display,
{
    type Output = AnyResponse<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match ready!(self.project().call.poll(cx)) {
            Ok(response) => response.map(|body| AnyBody::Other { body }),
            Err(error) => {
                tracing::warn!(%error, "a service of the listener failed");
                let mut response = Response::new(AnyBody::Ads {
                    body: AdsBody::empty(),
                });
                Status::new(Code::Unavailable, "the service failed; try again")
                    .put(response.headers_mut());
                response
            }
        };
        Poll::Ready(Ok(response))
    }
}

pin_project_lite::pin_project! {
    /// The body of either kind of call.
    #[project = AnyBodyProj]
    pub(crate) enum AnyBody<B> {
        Ads {
            body: AdsBody,
        },
        Other {
            #[pin]
            body: B,
        },
    }
}

impl<B> Body for AnyBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = MessageBuf;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<MessageBuf>, Self::Error>>> {
        match self.project() {
            AnyBodyProj::Ads { body } => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            AnyBodyProj::Other { body } => body
                .poll_frame(cx)
                .map_ok(|frame| frame.map_data(MessageBuf::single))
                .map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ads { body } => body.is_end_stream(),
            Self::Other { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ads { body } => body.size_hint(),
            Self::Other { body } => body.size_hint(),
        }
    }
}
