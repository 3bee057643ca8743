//! Servers of tonic that answer with their own name, and the call to one.
//!
//! Each is a thread with a runtime of its own, so that it can end as a process does: at once, with
//! every connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::limits::START_MAX;

const METHOD: &str = "/waypost.test.Greeter/Hello";

/// A running server; ended at once when dropped.
#[derive(Debug)]
pub struct TonicGreeter {
    address: SocketAddr,
    end_tx: Option<oneshot::Sender<End>>,
    thread: Option<JoinHandle<()>>,
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Requests in flight end first.
    Polite,
    /// Now.
    AtOnce,
}

impl TonicGreeter {
    /// Starts a server on a free port of 127.0.0.1 that takes `delay` for each answer.
    ///
    /// # Errors
    /// It cannot.
    pub async fn start(delay: Duration) -> anyhow::Result<Self> {
        let (end_tx, end_rx) = oneshot::channel();
        let (up_tx, up_rx) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("greeter".to_owned())
            .spawn(move || serve(delay, up_tx, end_rx))?;
        let address = tokio::time::timeout(START_MAX, up_rx).await;
        Ok(Self {
            address: address.context("the greeter does not start")??,
            end_tx: Some(end_tx),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it answers: its address.
    #[must_use]
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    /// Ends it once requests in flight have ended.
    ///
    /// # Errors
    /// It does not end.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.end(End::Polite).await
    }

    /// Ends it at once, as kill -9 does.
    ///
    /// # Errors
    /// It does not end.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.end(End::AtOnce).await
    }

    async fn end(&mut self, how: End) -> anyhow::Result<()> {
        let (Some(end_tx), Some(thread)) = (self.end_tx.take(), self.thread.take()) else {
            return Ok(());
        };
        // A server that has ended already is ended.
        let _ = end_tx.send(how);
        let joined = tokio::task::spawn_blocking(move || thread.join()).await?;
        joined.map_err(|_| anyhow!("the greeter panicked"))
    }
}

impl Drop for TonicGreeter {
    fn drop(&mut self) {
        if let Some(end_tx) = self.end_tx.take() {
            let _ = end_tx.send(End::AtOnce);
        }
    }
}

/// Calls a greeter and gives the name that it answers.
///
/// # Errors
/// The status of the call.
pub async fn hello<S>(channel: S) -> Result<String, Status>
where
    S: tonic::client::GrpcService<tonic::body::Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: Body<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as Body>::Error: Into<StdError> + Send,
{
    let mut client = tonic::client::Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::from_error(error.into()))?;
    let path = http::uri::PathAndQuery::from_static(METHOD);
    let codec = ProstCodec::<Text, Text>::default();
    let answer = client
        .unary(Request::new(Text::default()), path, codec)
        .await?;
    Ok(answer.into_inner().text)
}

#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

fn serve(delay: Duration, up_tx: oneshot::Sender<SocketAddr>, end_rx: oneshot::Receiver<End>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return;
    };
    runtime.block_on(async {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0").await else {
            return;
        };
        let Ok(address) = listener.local_addr() else {
            return;
        };
        let greeter = Greeter {
            name: address.to_string(),
            delay,
        };
        let (polite_tx, polite_rx) = oneshot::channel::<()>();
        let serving = Server::builder()
            .add_service(greeter)
            .serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
                let _ = polite_rx.await;
            });
        let _ = up_tx.send(address);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            _ = &mut serving => return,
            end = end_rx => if end != Ok(End::Polite) { return },
        }
        let _ = polite_tx.send(());
        let _ = serving.await;
    });
    // Whatever is left of it, connections too, ends here.
    runtime.shutdown_background();
}

#[derive(Clone)]
struct Greeter {
    name: String,
    delay: Duration,
}

impl UnaryService<Text> for Greeter {
    type Response = Text;
    type Future = BoxFuture<Response<Text>, Status>;

    fn call(&mut self, _: Request<Text>) -> Self::Future {
        let Self { name, delay } = self.clone();
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            Ok(Response::new(Text { text: name }))
        })
    }
}

impl<B> Service<http::Request<B>> for Greeter
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let greeter = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Text, Text>::default());
            Ok(grpc.unary(greeter, request).await)
        })
    }
}

impl NamedService for Greeter {
    const NAME: &'static str = "waypost.test.Greeter";
}
