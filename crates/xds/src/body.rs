//! A stream as the body of an HTTP/2 response. Each time the connection asks for a frame it reads
//! the requests that are there, takes the marks of its outbox, and only then decides what to send.
//! No task of its own, no queue of messages.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt as _;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::buf::MessageBuf;
use crate::events::{EndReason, Event};
use crate::framing::{FrameError, FrameReader};
use crate::limits::REQUESTS_PER_POLL_MAX;
use crate::registry::StreamHandle;
use crate::server::ServerCore;
use crate::status::{Code, Status};

/// The response body of an xDS stream.
pub struct AdsBody {
    state: State,
}

enum State {
    Open(Box<OpenStream>),
    /// Refused in the response's headers: there is no body.
    Empty,
    Ended,
}

impl AdsBody {
    pub(crate) fn empty() -> Self {
        Self {
            state: State::Empty,
        }
    }

    pub(crate) fn open(
        server: Arc<ServerCore>,
        handle: Arc<StreamHandle>,
        incoming: Incoming,
    ) -> Self {
        let first_request_by = handle.opened_at + server.engine.settings.first_request_timeout;
        Self {
            state: State::Open(Box::new(OpenStream {
                server,
                handle,
                incoming,
                reader: FrameReader::default(),
                first_request_by: Some(first_request_by),
                timer: None,
                has_ended: false,
            })),
        }
    }
}

impl Body for AdsBody {
    type Data = MessageBuf;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<MessageBuf>, Self::Error>>> {
        let State::Open(open) = &mut self.state else {
            return Poll::Ready(None);
        };
        match ready!(open.poll_message(cx)) {
            Ok(message) => Poll::Ready(Some(Ok(Frame::data(message)))),
            Err((reason, status)) => {
                let _ = open.handle.end.set(reason);
                self.state = State::Ended;
                let mut trailers = HeaderMap::with_capacity(2);
                status.put(&mut trailers);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        !matches!(self.state, State::Open(_))
    }

    fn size_hint(&self) -> SizeHint {
        match self.state {
            State::Open(_) => SizeHint::default(),
            State::Empty | State::Ended => SizeHint::with_exact(0),
        }
    }
}

struct OpenStream {
    server: Arc<ServerCore>,
    handle: Arc<StreamHandle>,
    incoming: Incoming,
    reader: FrameReader,
    /// When the stream ends unless a request came; `None` once one came.
    first_request_by: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The client sends no more.
    has_ended: bool,
}

// Of every open stream.
const _: () = assert!(size_of::<OpenStream>() <= 152);

type End = (EndReason, Status);

/// What is to be expected of the request body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// Nothing for now; the task is woken when more comes.
    Waiting,
    /// More may be there already.
    More,
    /// Nothing ever.
    Ended,
}

impl OpenStream {
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<MessageBuf, End>> {
        // Before anything is looked at, so that no mark falls between the look and the wait.
        self.handle.outbox.register(cx.waker());
        loop {
            if let Some(reason) = self.handle.end.get() {
                return Poll::Ready(Err((*reason, end_status(*reason))));
            }
            let input = self.read_requests(cx)?;
            let now = Instant::now();
            if self.first_request_by.is_some_and(|by| by <= now) {
                let reason = EndReason::FirstRequestTimeout;
                return Poll::Ready(Err((reason, end_status(reason))));
            }
            let mut stream = self.handle.stream.lock();
            if let Some(message) = stream.next_response(now) {
                return Poll::Ready(Ok(message));
            }
            let deadline = earliest(stream.deadline(), self.first_request_by);
            drop(stream);
            match input {
                Input::Waiting => {}
                Input::More => {
                    // Others on this thread first.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Input::Ended => return Poll::Ready(Err(client_end())),
            }
            if self.poll_timer(cx, deadline).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Applies the requests that have arrived.
    fn read_requests(&mut self, cx: &mut Context<'_>) -> Result<Input, End> {
        if self.has_ended {
            return Ok(Input::Ended);
        }
        let bytes_max = self.server.engine.settings.request_bytes_max;
        for _ in 0..REQUESTS_PER_POLL_MAX {
            let message = self.reader.next_message(bytes_max);
            match message.map_err(|error| self.frame_end(error))? {
                Some(message) => self.apply(message)?,
                None => match Pin::new(&mut self.incoming).poll_frame(cx) {
                    Poll::Pending => return Ok(Input::Waiting),
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            self.reader.push(data);
                        }
                    }
                    Poll::Ready(Some(Err(_))) => return Err(client_end()),
                    Poll::Ready(None) => {
                        self.has_ended = true;
                        return self.half_close();
                    }
                },
            }
        }
        Ok(Input::More)
    }

    fn apply(&mut self, message: Bytes) -> Result<(), End> {
        self.first_request_by = None;
        let mut stream = self.handle.stream.lock();
        stream
            .on_message(message, Instant::now())
            .map_err(|status| (EndReason::BadRequest(status.code), status))
    }

    fn frame_end(&self, error: FrameError) -> End {
        let code = match error {
            FrameError::Compressed => Code::Unimplemented,
            FrameError::Flag(_) => Code::InvalidArgument,
            FrameError::TooLarge { bytes, .. } => {
                self.server
                    .engine
                    .events
                    .on_event(&Event::RequestOverMaxSize {
                        peer: self.handle.peer,
                        bytes,
                    });
                Code::ResourceExhausted
            }
        };
        let status = Status::new(code, error.to_string());
        (EndReason::BadRequest(code), status)
    }

    /// The client sends no more: what it asked for is answered, then the stream ends.
    fn half_close(&self) -> Result<Input, End> {
        if self.reader.is_between_messages() {
            return Ok(Input::Ended);
        }
        let code = Code::InvalidArgument;
        let status = Status::new(code, "the request stream ended within a message");
        Err((EndReason::BadRequest(code), status))
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else {
            self.timer = None;
            return Poll::Pending;
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.poll_unpin(cx)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.handle.stream.lock().close();
        let reason = self.handle.end.get().copied();
        self.server
            .close(&self.handle, reason.unwrap_or(EndReason::Client));
    }
}

fn client_end() -> End {
    (EndReason::Client, end_status(EndReason::Client))
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn end_status(reason: EndReason) -> Status {
    match reason {
        EndReason::Client => Status::new(Code::Ok, ""),
        EndReason::FirstRequestTimeout => Status::new(
            Code::Unavailable,
            "no request in time (setting first_request_timeout)",
        ),
        EndReason::BadRequest(code) => Status::new(code, ""),
        EndReason::Stalled => Status::new(
            Code::Unavailable,
            "the client did not read in time (setting stall_timeout)",
        ),
        EndReason::Draining => Status::new(
            Code::Unavailable,
            "this Observer is going down; connect to another one",
        ),
        EndReason::ConnectionAge => Status::new(
            Code::Ok,
            "the connection has reached its largest age (setting connection_age_max)",
        ),
    }
}
