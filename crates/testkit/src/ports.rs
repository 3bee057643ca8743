//! Ports for servers that a test starts and may have to start again at the same place.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::limits::PORTS;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that is free on 127.0.0.1, 127.0.0.2 and 127.0.0.3 now. Each call in one process gives
/// another; processes start at different places, so that tests that run side by side rarely meet.
#[must_use]
pub fn free_port() -> u16 {
    let span = PORTS.end - PORTS.start;
    let start = u16::try_from(u64::from(std::process::id()) * 97 % u64::from(span)).unwrap_or(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (start.wrapping_add(step)) % span;
        if [1, 2, 3].iter().all(|host| is_free(loopback(*host), port)) {
            return port;
        }
        assert!(step < span, "no free port in {PORTS:?}");
    }
}

/// 127.0.0.`host`. Every address in 127.0.0.0/8 is this machine on Linux.
#[must_use]
pub fn loopback(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, host))
}

/// A free port on 127.0.0.1.
#[must_use]
pub fn free_addr() -> SocketAddr {
    SocketAddr::new(loopback(1), free_port())
}

fn is_free(host: IpAddr, port: u16) -> bool {
    TcpListener::bind(SocketAddr::new(host, port)).is_ok()
}
