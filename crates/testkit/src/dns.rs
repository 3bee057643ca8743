//! A DNS server for one name: what an operator's DNS does when all Observers stand behind one name.
//!
//! Just enough of RFC 1035: every `A` question is answered with all addresses, every other question
//! with none. Clients are told to ask it by a target like `dns://127.0.0.1:PORT/NAME:PORT`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;

/// Largest question over UDP (RFC 1035, section 4.2.1).
const MESSAGE_BYTES_MAX: usize = 512;
/// The fixed part of a message.
const HEADER_BYTES: usize = 12;
/// How often a server without questions looks whether it should end.
const IDLE: Duration = Duration::from_millis(200);
/// How long an answer may be kept, seconds.
const TTL_SECONDS: u32 = 1;

/// A running server; ends when dropped.
#[derive(Debug)]
pub struct DnsServer {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl DnsServer {
    /// Serves these addresses for whatever name is asked for, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port is to be had.
    pub fn start(addresses: &[IpAddr]) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a port for DNS")?;
        socket.set_read_timeout(Some(IDLE))?;
        let address = socket.local_addr()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let v4 = addresses.iter().filter_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        let (v4, is_stopped): (Vec<_>, _) = (v4.collect(), Arc::clone(&stopped));
        std::thread::spawn(move || serve(&socket, &v4, &is_stopped));
        Ok(Self { address, stopped })
    }

    /// Where it is asked.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

fn serve(socket: &UdpSocket, addresses: &[Ipv4Addr], stopped: &AtomicBool) {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    while !stopped.load(Ordering::Relaxed) {
        if let Ok((length, client)) = socket.recv_from(&mut buffer)
            && let Some(answer) = answer(&buffer[..length], addresses)
        {
            // A client that is gone asks nobody again.
            let _ = socket.send_to(&answer, client);
        }
    }
}

/// The answer to a message with one question; `None` for anything else.
fn answer(question: &[u8], addresses: &[Ipv4Addr]) -> Option<Vec<u8>> {
    let rest = question.get(HEADER_BYTES..)?;
    // The name ends with an empty label; the type and the class follow, two bytes each.
    let name_bytes = rest.iter().position(|byte| *byte == 0)? + 1;
    let asked = rest.get(..name_bytes + 4)?;
    let is_a = asked[name_bytes..name_bytes + 2] == [0, 1];
    let answers: &[Ipv4Addr] = if is_a { addresses } else { &[] };

    let mut message = question.get(..2)?.to_vec();
    // A response that is authoritative and can be recursed, without error; one question.
    message.extend([0x85, 0x80, 0, 1]);
    message.extend(u16::try_from(answers.len()).ok()?.to_be_bytes());
    message.extend([0, 0, 0, 0]);
    message.extend(asked);
    for address in answers {
        // The name stands at byte 12; type A, class IN.
        message.extend([0xc0, 12, 0, 1, 0, 1]);
        message.extend(TTL_SECONDS.to_be_bytes());
        message.extend([0, 4]);
        message.extend(address.octets());
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_for_addresses_is_answered_with_all_of_them_and_others_with_none() {
        let name = b"\x09observers\x04test\x00";
        let ask = |kind: u8| {
            let mut message = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            message.extend(name);
            message.extend([0, kind, 0, 1]);
            answer(
                &message,
                &[Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)],
            )
            .unwrap()
        };
        let a = ask(1);
        assert_eq!(a[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 2]);
        assert!(a.windows(4).any(|bytes| bytes == [127, 0, 0, 3]));
        assert_eq!(ask(28)[6..8], [0, 0], "AAAA");
        assert_eq!(answer(b"short", &[]), None);
    }
}
