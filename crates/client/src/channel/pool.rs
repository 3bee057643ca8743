//! One connection an endpoint, and who is passed over.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::endpoints::{Assignment, Endpoint, EndpointList};
use crate::limits::{PASSED_OVER_FIRST, PASSED_OVER_MAX};
use crate::metrics::OwnCounters;

use super::connection::Connection;

/// Connections by the address of their endpoint.
#[derive(Default)]
pub(super) struct Pool {
    slots_by_address: Mutex<HashMap<SocketAddr, Arc<Slot>>>,
    /// The list that slots were last compared with.
    compared_with: Mutex<Option<Arc<Assignment>>>,
}

/// What is known of one endpoint.
#[derive(Default)]
struct Slot {
    /// Held while connecting, so that requests that come together open one connection.
    connection: tokio::sync::Mutex<Option<Connection>>,
    failure: Mutex<Option<Failure>>,
}

/// It could not be connected to.
#[derive(Clone)]
struct Failure {
    at: Instant,
    pause: Duration,
    why: Arc<str>,
}

impl Pool {
    /// Lets go of endpoints that are in the list no longer. Requests in flight on them go on.
    pub(super) fn forget_all_but(&self, list: &EndpointList) {
        let mut compared_with = self.compared_with.lock();
        let is_known = compared_with
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &list.assignment));
        if is_known {
            return;
        }
        let listed: HashSet<_> = list.endpoints().iter().map(|e| e.address()).collect();
        let mut slots_by_address = self.slots_by_address.lock();
        slots_by_address.retain(|address, _| listed.contains(address));
        *compared_with = Some(Arc::clone(&list.assignment));
    }

    /// Whether an endpoint is not passed over now.
    pub(super) fn is_usable(&self, endpoint: &Endpoint) -> bool {
        let slots_by_address = self.slots_by_address.lock();
        let slot = slots_by_address.get(&endpoint.address());
        let failure = slot.and_then(|slot| slot.failure.lock().clone());
        failure.is_none_or(|failure| failure.at.elapsed() >= failure.pause)
    }

    /// The connection to an endpoint, opened now if there is none.
    ///
    /// # Errors
    /// It cannot be, for this reason; the endpoint is passed over for a while.
    pub(super) async fn connect(
        &self,
        endpoint: &Endpoint,
        own: &OwnCounters,
    ) -> Result<Channel, Arc<str>> {
        let asked = Instant::now();
        let slot = {
            let mut slots_by_address = self.slots_by_address.lock();
            Arc::clone(slots_by_address.entry(endpoint.address()).or_default())
        };
        let mut connection = slot.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| open.is_open()) {
            return Ok(open.channel());
        }
        *connection = None;
        // Who waited while somebody else tried is answered by that.
        let failure = slot.failure.lock().clone();
        if let Some(failure) = failure.filter(|failure| failure.at >= asked) {
            return Err(failure.why);
        }
        match Connection::open(endpoint.addresses()).await {
            Ok(opened) => {
                own.connections_opened.fetch_add(1, Ordering::Relaxed);
                *slot.failure.lock() = None;
                Ok(connection.insert(opened).channel())
            }
            Err(error) => {
                own.connections_failed.fetch_add(1, Ordering::Relaxed);
                Err(slot.pass_over(&error))
            }
        }
    }
}

impl Slot {
    fn pass_over(&self, error: &tonic::transport::Error) -> Arc<str> {
        let mut failure = self.failure.lock();
        let pause = match &*failure {
            Some(before) => (before.pause * 2).min(PASSED_OVER_MAX),
            None => PASSED_OVER_FIRST,
        };
        let cause = std::error::Error::source(error).map(ToString::to_string);
        let why: Arc<str> = cause.unwrap_or_else(|| error.to_string()).into();
        *failure = Some(Failure {
            at: Instant::now(),
            pause,
            why: Arc::clone(&why),
        });
        why
    }
}
