//! A small client of the admin port: one connection, one question.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;
use waypost_admin_api::{ErrorBody, Page, path};

use crate::exit::Failure;
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_MAX, CONNECT_MAX, PAGES_MAX};

/// The admin port of one Observer.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    address: String,
}

/// An HTTP exchange that did not come about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// No connection, or it broke.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Not HTTP, or it broke in the middle.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The address makes no request.
    #[error("{0}")]
    Request(#[from] hyper::http::Error),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

impl Admin {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
        }
    }

    /// Asks for one JSON value.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let response = self.open(path).await?;
        let body = timeout(
            ANSWER_MAX,
            Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect(),
        );
        let body = body
            .await
            .map_err(|_| self.mk_failure(&HttpError::Late(ANSWER_MAX)))?
            .map_err(|e| Failure::failed(format!("the Observer at {}: {e}", self.address)))?;
        serde_json::from_slice(&body.to_bytes()).map_err(|e| {
            Failure::failed(format!(
                "the Observer at {} answers {path} in a form that this release does not know: {e}",
                self.address
            ))
        })
    }

    /// Asks for every page of a list.
    pub(crate) async fn get_all<T: DeserializeOwned>(&self, list: &str) -> Result<Vec<T>, Failure> {
        let mut items = Vec::new();
        let mut query = String::new();
        for _ in 0..PAGES_MAX {
            let page: Page<T> = self.get(&format!("{list}{query}")).await?;
            items.extend(page.items);
            match page.next {
                Some(cursor) => query = path::after(&cursor),
                None => return Ok(items),
            }
        }
        Err(Failure::failed(format!(
            "{list} has more than {PAGES_MAX} pages"
        )))
    }

    /// Asks, and hands out the body as it arrives. Anything but success is an error with the
    /// Observer's own words.
    pub(crate) async fn open(&self, path: &str) -> Result<Response<Incoming>, Failure> {
        let response = get(&self.address, path, ANSWER_MAX)
            .await
            .map_err(|e| self.mk_failure(&e))?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response);
        }
        let body = timeout(
            ANSWER_MAX,
            Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect(),
        );
        let body = body.await.ok().and_then(Result::ok).map(|b| b.to_bytes());
        let said = body.and_then(|b| serde_json::from_slice::<ErrorBody>(&b).ok());
        Err(Failure::failed(match said {
            Some(said) => said.error,
            None => format!(
                "the Observer at {} answers {path} with {status}",
                self.address
            ),
        }))
    }

    fn mk_failure(&self, error: &HttpError) -> Failure {
        Failure::failed(format!(
            "no Observer answers at {}: {error}; start one or name another with --server",
            self.address
        ))
    }
}

/// One GET over a connection of its own; `wait` is for the answer to begin.
pub(crate) async fn get(
    address: &str,
    path: &str,
    wait: Duration,
) -> Result<Response<Incoming>, HttpError> {
    let stream = timeout(CONNECT_MAX.min(wait), TcpStream::connect(address))
        .await
        .map_err(|_| HttpError::Late(CONNECT_MAX.min(wait)))??;
    let answer = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the connection: when the body is read or dropped.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let request = Request::get(path)
            .header(header::HOST, address)
            .header(
                header::USER_AGENT,
                concat!("waypost/", env!("CARGO_PKG_VERSION")),
            )
            .body(Empty::<Bytes>::new())?;
        Ok::<_, HttpError>(sender.send_request(request).await?)
    };
    timeout(wait, answer)
        .await
        .map_err(|_| HttpError::Late(wait))?
}
