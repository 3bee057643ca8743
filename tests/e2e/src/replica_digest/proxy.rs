//! A way to Kafka that can be made to lie: from a moment on, the records of one key arrive under another
//! key. Whoever reads through it misses what happens to that instance and nothing else, as if one record
//! after another were lost on its way.
//!
//! It knows as much of Kafka's protocol as that takes: a response is a length and so many bytes, names
//! brokers by host and port, and holds records in batches (format 2) with a checksum.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The largest response that is passed on: a fetch of every partition.
const FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Ends when dropped, and its connections with it.
#[derive(Debug)]
pub(super) struct LyingProxy {
    address: SocketAddr,
    key_tx: watch::Sender<Option<Vec<u8>>>,
    lies: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

/// What is put in the place of what.
struct Rules {
    broker: SocketAddr,
    proxy: SocketAddr,
    key_rx: watch::Receiver<Option<Vec<u8>>>,
    lies: Arc<AtomicUsize>,
}

impl LyingProxy {
    /// Passes everything on to `broker`, as it is.
    pub(super) async fn start(broker: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((broker.ip(), 0)).await?;
        let address = listener.local_addr()?;
        let (key_tx, key_rx) = watch::channel(None);
        let lies = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lies);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let rules = Rules {
                    broker,
                    proxy: address,
                    key_rx: key_rx.clone(),
                    lies: Arc::clone(&counted),
                };
                // A connection that breaks is the client's to open again.
                tokio::spawn(pass(client, rules));
            }
        });
        Ok(Self {
            address,
            key_tx,
            lies,
            accepting,
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on records of this key arrive under another one.
    pub(super) fn falsify(&self, record_key: &[u8]) {
        self.key_tx.send_replace(Some(record_key.to_vec()));
    }

    /// How many times a key was falsified.
    pub(super) fn lies(&self) -> usize {
        self.lies.load(Ordering::Relaxed)
    }
}

impl Drop for LyingProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(client: TcpStream, rules: Rules) -> anyhow::Result<()> {
    let broker = TcpStream::connect(rules.broker).await?;
    let (mut from_client, to_client) = client.into_split();
    let (from_broker, mut to_broker) = broker.into_split();
    tokio::select! {
        done = tokio::io::copy(&mut from_client, &mut to_broker) => { done?; }
        done = pass_responses(from_broker, to_client, rules) => done?,
    }
    Ok(())
}

async fn pass_responses(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    rules: Rules,
) -> anyhow::Result<()> {
    loop {
        let length = from.read_u32().await?;
        let bytes = usize::try_from(length)?;
        ensure!(bytes <= FRAME_BYTES_MAX, "a response of {bytes} bytes");
        let mut frame = vec![0; bytes];
        from.read_exact(&mut frame).await.context("a response")?;
        rules.apply(&mut frame);
        to.write_u32(length).await?;
        to.write_all(&frame).await?;
    }
}

impl Rules {
    fn apply(&self, frame: &mut [u8]) {
        let named = |address: SocketAddr| {
            let port = u32::from(address.port()).to_be_bytes();
            [address.ip().to_string().as_bytes(), &port].concat()
        };
        // The client must come through here again for every further connection.
        replace(frame, &named(self.broker), &named(self.proxy));
        if let Some(key) = &*self.key_rx.borrow() {
            let lies = falsify(frame, key);
            self.lies.fetch_add(lies, Ordering::Relaxed);
        }
    }
}

/// Puts another key in the place of `key` in every record batch, with a checksum that holds; gives how
/// many there were.
fn falsify(frame: &mut [u8], key: &[u8]) -> usize {
    if !frame.windows(key.len()).any(|window| window == key) {
        return 0;
    }
    let mut lies = 0;
    let mut at = 0;
    while at + BATCH_HEAD < frame.len() {
        let Some(batch) = find_batch(&mut frame[at..]) else {
            at += 1;
            continue;
        };
        at += batch.len();
        lies += replace(&mut batch[CHECKED_FROM..], key, &another(key));
        let checksum = crc32c(&batch[CHECKED_FROM..]);
        batch[CHECKSUM_AT..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
    }
    lies
}

/// Of a record batch: where its length, its format and its checksum stand, from where on it is checked,
/// and how long its head is. Base offset and length are not part of the length.
const LENGTH_AT: usize = 8;
const LENGTH_FROM: usize = 12;
const FORMAT_AT: usize = 16;
const CHECKSUM_AT: usize = 17;
const CHECKED_FROM: usize = 21;
const BATCH_HEAD: usize = 61;

/// The record batch that `bytes` begin with, if they do.
fn find_batch(bytes: &mut [u8]) -> Option<&mut [u8]> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let is_format_2 = bytes.get(FORMAT_AT) == Some(&2);
    let length = usize::try_from(number(LENGTH_AT)?).ok()?;
    let end = LENGTH_FROM.checked_add(length)?;
    let checksum = number(CHECKSUM_AT)?;
    let fits = is_format_2 && (BATCH_HEAD..=bytes.len()).contains(&end);
    (fits && crc32c(&bytes[CHECKED_FROM..end]) == checksum).then(|| &mut bytes[..end])
}

/// CRC-32C (Castagnoli), bit by bit: few bytes pass here.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
    });
    !crc
}

/// A key of the same length that nobody announces.
fn another(key: &[u8]) -> Vec<u8> {
    let mut other = key.to_vec();
    if let Some(last) = other.last_mut() {
        *last = if *last == b'0' { b'1' } else { b'0' };
    }
    other
}

/// Puts `new`, which is as long, in the place of every `old`; gives how many there were.
fn replace(frame: &mut [u8], old: &[u8], new: &[u8]) -> usize {
    let mut found = 0;
    let mut at = 0;
    while let Some(next) = frame[at..].windows(old.len()).position(|w| w == old) {
        at += next;
        frame[at..at + old.len()].copy_from_slice(new);
        at += old.len();
        found += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_replaced_and_nothing_else() {
        let mut frame = b"abXXcdXXXX".to_vec();
        assert_eq!(replace(&mut frame, b"XX", b"YY"), 3);
        assert_eq!(frame, b"abYYcdYYYY");
        assert_eq!(replace(&mut frame, b"XX", b"YY"), 0);
        assert_eq!(another(b"c\0grpc://h:10"), b"c\0grpc://h:11");
    }

    #[test]
    fn a_falsified_batch_has_a_checksum_that_holds() {
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let mut batch = vec![0; BATCH_HEAD];
        batch.extend_from_slice(b"before KEY0 after");
        let length = u32::try_from(batch.len() - LENGTH_FROM).unwrap();
        batch[LENGTH_AT..LENGTH_FROM].copy_from_slice(&length.to_be_bytes());
        batch[FORMAT_AT] = 2;
        let checksum = crc32c(&batch[CHECKED_FROM..]).to_be_bytes();
        batch[CHECKSUM_AT..CHECKED_FROM].copy_from_slice(&checksum);
        let mut frame = [b"head KEY0".as_slice(), &batch, &batch, b"KEY0"].concat();
        assert_eq!(falsify(&mut frame, b"KEY0"), 2);
        let start = "head KEY0".len();
        assert!(find_batch(&mut frame[start..]).is_some());
        assert!(frame[start..].windows(4).any(|window| window == b"KEY1"));
        assert!(frame.ends_with(b"KEY0"), "outside of a batch");
    }
}
