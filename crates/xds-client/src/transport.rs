//! Drives a [`Machine`] over tonic: the only part with a clock and sockets.

mod link_io;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Endpoint;
use waypost_tls::{ClientTls, ServerAddress};

use crate::codec::Codec;
use crate::counters::Counters;
use crate::event::Event;
use crate::limits::{CONNECT_MAX, KEEPALIVE, SERVERS_MAX};
use crate::machine::{Action, Machine};

use link_io::{IoEvent, LinkIo};

/// A list of servers that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerAddressError {
    /// None is given.
    #[error("no server is given; expected HOST:PORT, for example 127.0.0.1:18000")]
    None,
    /// More than [`SERVERS_MAX`].
    #[error("{0} servers are given; at most {SERVERS_MAX} are allowed")]
    TooMany(usize),
    /// Not an address.
    #[error(
        "bad server address {0:?}; expected HOST:PORT or https://HOST:PORT, for example 127.0.0.1:18000"
    )]
    Bad(String),
}

/// What a driver has done, for whoever looks from outside its task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// What its machine has done.
    pub counters: Counters,
    /// When the last response came.
    pub last_response: Option<Instant>,
}

/// A machine with its connections. It lives in whatever task calls [`Driver::next`].
#[derive(Debug)]
pub struct Driver<C: Codec> {
    machine: Machine<C>,
    servers: Vec<Endpoint>,
    tls: ClientTls,
    links: Vec<LinkIo>,
    /// The machine's times count from here.
    epoch: Instant,
    activity_tx: watch::Sender<Activity>,
}

impl<C: Codec> Driver<C> {
    /// Connects a machine to its servers, as many as it was made for: `HOST:PORT`, or `https://HOST:PORT` by TLS.
    /// Nothing is opened before something is watched and [`Driver::next`] is awaited, on a tokio runtime.
    ///
    /// # Errors
    /// See [`ServerAddressError`].
    pub fn new<A: AsRef<str>>(
        machine: Machine<C>,
        servers: &[A],
    ) -> Result<Self, ServerAddressError> {
        if servers.is_empty() {
            return Err(ServerAddressError::None);
        }
        if servers.len() > SERVERS_MAX {
            return Err(ServerAddressError::TooMany(servers.len()));
        }
        let servers = servers.iter().map(|server| to_endpoint(server.as_ref()));
        Ok(Self {
            machine,
            servers: servers.collect::<Result<_, _>>()?,
            tls: ClientTls::default(),
            links: Vec::new(),
            epoch: Instant::now(),
            activity_tx: watch::Sender::default(),
        })
    }

    /// Connects to `https://` servers by `tls` instead of the certificates that are installed on this machine.
    #[must_use]
    pub fn with_tls(mut self, tls: ClientTls) -> Self {
        self.tls = tls;
        self
    }

    /// What it watches and holds.
    #[must_use]
    pub fn machine(&self) -> &Machine<C> {
        &self.machine
    }

    /// What it has done, always the latest.
    #[must_use]
    pub fn activity(&self) -> watch::Receiver<Activity> {
        self.activity_tx.subscribe()
    }

    /// To watch and to restore. What follows is done by the next [`Driver::next`].
    pub fn machine_mut(&mut self) -> &mut Machine<C> {
        &mut self.machine
    }

    /// Drives the streams until something happens to what is watched. Dropping the future loses
    /// nothing; while nobody awaits it nothing moves.
    pub async fn next(&mut self) -> Event<C::Value> {
        loop {
            self.machine.tick(self.now());
            while let Some(action) = self.machine.poll_action(self.now()) {
                self.act(action);
            }
            if let Some(event) = self.machine.poll_event() {
                return event;
            }
            let deadline = self.machine.deadline().map(|at| self.epoch + at);
            let io = poll_fn(|cx| self.poll_io(cx));
            let happened = match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline, io).await.ok(),
                None => Some(io.await),
            };
            if let Some((place, event)) = happened {
                self.handle(place, event);
            }
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Open { link, server } => {
                let endpoint = &self.servers[server];
                let channel = waypost_tls::connect_lazy(endpoint, &self.tls);
                let io = LinkIo::open(link, channel, self.machine.policy());
                self.links.push(io);
            }
            Action::Close { link } => self.links.retain(|io| io.id != link),
        }
    }

    /// What one of the streams has to say. A stream that has something to send is not read until it
    /// could: its server gets the verdict on one response before it is asked for the next.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<(usize, IoEvent)> {
        let machine = &self.machine;
        for (place, io) in self.links.iter_mut().enumerate() {
            if let Poll::Ready(event) = io.poll(cx, machine.has_request(io.id)) {
                return Poll::Ready((place, event));
            }
        }
        Poll::Pending
    }

    fn handle(&mut self, place: usize, event: IoEvent) {
        let is_response = matches!(event, IoEvent::Response(_));
        self.pass_on(place, event);
        let counters = self.machine.counters();
        self.activity_tx.send_modify(|activity| {
            activity.counters = counters;
            if is_response {
                activity.last_response = Some(Instant::now());
            }
        });
    }

    fn pass_on(&mut self, place: usize, event: IoEvent) {
        let now = self.epoch.elapsed();
        let io = &mut self.links[place];
        match event {
            IoEvent::Room => {
                if let Some(request) = self.machine.poll_request(io.id, now) {
                    io.send(request);
                }
            }
            IoEvent::Up => self.machine.up(io.id, now),
            IoEvent::Response(response) => self.machine.response(io.id, response, now),
            IoEvent::Ended(reason) => {
                let io = self.links.swap_remove(place);
                tracing::debug!(reason, "the xDS stream ended");
                self.machine.ended(io.id, &reason, now);
            }
        }
    }
}

fn to_endpoint(address: &str) -> Result<Endpoint, ServerAddressError> {
    let bad = || ServerAddressError::Bad(address.to_owned());
    let endpoint = ServerAddress::parse(address).and_then(|address| address.to_endpoint());
    Ok(endpoint
        .map_err(|_| bad())?
        .connect_timeout(CONNECT_MAX)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, RawCodec};

    #[test]
    fn addresses_that_name_no_port_are_refused() {
        let mk = || Machine::new(Policy::waypost(), Default::default(), RawCodec, 1, 1);
        for bad in ["", "host", ":1", "http://h:1", "u@h:1", "h:99999"] {
            let error = Driver::new(mk(), &[bad]).unwrap_err();
            assert_eq!(error, ServerAddressError::Bad(bad.to_owned()));
        }
        let none: [&str; 0] = [];
        assert_eq!(
            Driver::new(mk(), &none).unwrap_err(),
            ServerAddressError::None
        );
        let many = vec!["h:1"; SERVERS_MAX + 1];
        let error = Driver::new(mk(), &many).unwrap_err();
        assert_eq!(error, ServerAddressError::TooMany(SERVERS_MAX + 1));
    }
}
