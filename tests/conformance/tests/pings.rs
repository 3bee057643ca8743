//! HTTP/2 pings: clients that find dead servers by them are answered for as long as they like.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: what cannot be set up fails the test"
)]

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use waypost_conformance::engine::EngineTarget;
use waypost_conformance::target::Target as _;

/// What a client sends first, with empty settings (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Types of frames, and the flag of an answer (RFC 9113, 6.7, 6.8).
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// As many as a client that sends one a minute sends within ten hours.
const PINGS: u64 = 600;

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn pings_on_an_idle_connection_do_not_end_it() {
    let target = EngineTarget::start(&[]).unwrap();
    let mut connection = TcpStream::connect(target.address()).await.unwrap();
    connection.write_all(PREFACE).await.unwrap();
    for number in 0..PINGS {
        let mut frame = vec![0, 0, 8, PING, 0, 0, 0, 0, 0];
        frame.extend(number.to_be_bytes());
        connection.write_all(&frame).await.unwrap();
        let answered = timeout(DEADLINE, answer(&mut connection)).await;
        assert_eq!(answered.unwrap(), number);
    }
}

/// The payload of the next answer to a ping.
async fn answer(connection: &mut TcpStream) -> u64 {
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.unwrap();
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        connection.read_exact(&mut payload).await.unwrap();
        assert_ne!(head[3], GOAWAY, "{payload:?}");
        if (head[3], head[4]) == (PING, ACK) {
            return u64::from_be_bytes(payload.try_into().unwrap());
        }
    }
}
