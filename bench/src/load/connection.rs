//! A connection with its streams: bytes in, ACKs out. Everything that one read brought is answered by
//! one write.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::rc::Rc;

use mio::net::TcpStream;

use super::frame::{self, Frame, Windows, flag, kind};
use super::plan::Kind;
use super::request::{Names, put_ack, put_first};
use super::response::{Resource, Variant, age, find_endpoint_stamp, find_uri_stamp, scan};
use super::stats::Stats;
use crate::clock::now_micros;

/// What all connections share: what streams ask for, and what was seen.
pub(super) struct Shared {
    pub(super) variant: Variant,
    /// Two where streams are of two kinds: even ones the first, odd ones the second.
    pub(super) names: Vec<Names>,
    pub(super) header_block: Vec<u8>,
    /// Names and versions that streams hold, each text once; `None` where nobody comes back with them.
    pub(super) texts: Option<Texts>,
    pub(super) stats: Stats,
    /// Streams that wait for their first response.
    pub(super) unanswered: usize,
    /// Where a message is put together.
    pub(super) scratch: Vec<u8>,
}

/// Texts that many streams hold, each once.
#[derive(Debug, Default)]
pub(super) struct Texts(HashMap<Rc<str>, ()>);

/// One HTTP/2 connection.
pub(super) struct Connection {
    socket: TcpStream,
    streams: Vec<Stream>,
    /// A frame that was not read to its end.
    partial: Vec<u8>,
    out: Vec<u8>,
    /// What the server lets the connection send.
    send_window: i64,
    /// What it lets a new stream send.
    stream_send_window: i64,
    /// What was read since the server was last told; told at half of the window.
    read_bytes: u32,
    windows: Windows,
    /// Whether a stream has something to say that no window had room for.
    is_blocked: bool,
}

struct Stream {
    number: usize,
    send_window: i64,
    read_bytes: u32,
    is_answered: bool,
    /// Messages that no window had room for.
    unsent: Vec<u8>,
    /// A message that was not read to its end.
    partial: Vec<u8>,
    /// Version by name, where the load remembers.
    held: HashMap<Rc<str>, Rc<str>>,
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Lost,
}

impl Connection {
    /// Starts to connect.
    pub(super) fn open(server: SocketAddr, windows: Windows) -> std::io::Result<Self> {
        let socket = TcpStream::connect(server)?;
        let mut out = Vec::new();
        frame::put_preface(&mut out, windows);
        Ok(Self {
            socket,
            streams: Vec::new(),
            partial: Vec::new(),
            out,
            send_window: frame::WINDOW_BYTES_DEFAULT,
            stream_send_window: frame::WINDOW_BYTES_DEFAULT,
            read_bytes: 0,
            windows,
            is_blocked: false,
        })
    }

    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Opens a stream and subscribes; sent by the next [`Self::write`].
    pub(super) fn add_stream(&mut self, number: usize, shared: &mut Shared) {
        self.add(Stream::new(number), shared);
    }

    /// Opens anew what a lost connection had, with what its streams held.
    pub(super) fn take_over(&mut self, lost: Self, shared: &mut Shared) {
        for stream in lost.streams {
            if !stream.is_answered {
                shared.unanswered -= 1;
            }
            let again = Stream {
                held: stream.held,
                ..Stream::new(stream.number)
            };
            self.add(again, shared);
        }
    }

    fn add(&mut self, mut stream: Stream, shared: &mut Shared) {
        let id = stream_id(self.streams.len());
        let block = &shared.header_block;
        frame::put_frame(&mut self.out, kind::HEADERS, flag::END_HEADERS, id, block);
        stream.send_window = self.stream_send_window;
        let mut message = std::mem::take(&mut shared.scratch);
        message.clear();
        let held = stream
            .held
            .iter()
            .map(|(name, version)| (&**name, &**version));
        let names = shared.names_of(stream.number);
        put_first(&mut message, shared.variant, names, stream.number, held);
        self.streams.push(stream);
        self.send(self.streams.len() - 1, &message);
        shared.scratch = message;
        shared.unanswered += 1;
    }

    /// Reads all that there is, since the kernel signals only what is new; answers it in `out`.
    pub(super) fn read(&mut self, buffer: &mut [u8], shared: &mut Shared) -> Fate {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Fate::Lost,
                Ok(length) => {
                    shared.stats.counts.bytes += length as u64;
                    self.on_bytes(&buffer[..length], shared);
                    // A read that did not fill the buffer emptied the socket.
                    if length < buffer.len() {
                        return Fate::Open;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Fate::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Fate::Lost,
            }
        }
    }

    /// Writes what is to be said, as far as the socket takes it.
    pub(super) fn write(&mut self) -> Fate {
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(length) if length == self.out.len() => {
                    self.out.clear();
                    // Thousands of connections: none keeps what it needed once.
                    self.out.shrink_to(1024);
                }
                Ok(length) => drop(self.out.drain(..length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Also before the connection is there.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::NotConnected
                    ) =>
                {
                    return Fate::Open;
                }
                Err(_) => return Fate::Lost,
            }
        }
        Fate::Open
    }

    fn on_bytes(&mut self, bytes: &[u8], shared: &mut Shared) {
        let mut joined = std::mem::take(&mut self.partial);
        let mut rest = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined[..]
        };
        let now = now_micros();
        while let Some(frame) = Frame::take(&mut rest) {
            self.on_frame(frame, now, shared);
        }
        self.partial = rest.to_vec();
        self.refill_window();
    }

    fn on_frame(&mut self, frame: Frame<'_>, now: u64, shared: &mut Shared) {
        match frame.kind {
            kind::DATA => self.on_data(frame, now, shared),
            kind::WINDOW_UPDATE => self.on_window_update(frame),
            kind::SETTINGS if !frame.has(flag::ACK) => {
                if let Some(window) = frame.initial_window() {
                    let more = window - self.stream_send_window;
                    self.stream_send_window = window;
                    for stream in &mut self.streams {
                        stream.send_window += more;
                    }
                    self.send_unsent();
                }
                frame::put_frame(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
            }
            kind::PING if !frame.has(flag::ACK) => {
                frame::put_frame(&mut self.out, kind::PING, flag::ACK, 0, frame.payload);
            }
            kind::RST_STREAM => shared.stats.counts.failed += 1,
            kind::HEADERS if frame.has(flag::END_STREAM) => shared.stats.counts.failed += 1,
            kind::GOAWAY => {}
            _ => {}
        }
    }

    fn on_data(&mut self, frame: Frame<'_>, now: u64, shared: &mut Shared) {
        let length = u32::try_from(frame.payload.len()).unwrap_or(0);
        self.read_bytes += length;
        let Some(index) = index_of(frame.stream) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(index) else {
            return;
        };
        stream.read_bytes += length;
        if stream.read_bytes > self.windows.stream_bytes / 2 {
            frame::put_window_update(&mut self.out, frame.stream, stream.read_bytes);
            stream.read_bytes = 0;
        }
        let mut joined = std::mem::take(&mut stream.partial);
        if joined.is_empty() {
            let mut rest = frame.data();
            self.on_messages(index, &mut rest, now, shared);
            self.streams[index].partial = rest.to_vec();
            return;
        }
        joined.extend_from_slice(frame.data());
        let mut rest = &joined[..];
        self.on_messages(index, &mut rest, now, shared);
        self.streams[index].partial = match rest.len() {
            length if length == joined.len() => joined,
            _ => rest.to_vec(),
        };
    }

    fn on_messages(&mut self, index: usize, rest: &mut &[u8], now: u64, shared: &mut Shared) {
        while let Some(message) = take_message(rest) {
            self.on_message(index, message, now, shared);
        }
    }

    fn on_message(&mut self, index: usize, message: &[u8], now: u64, shared: &mut Shared) {
        let stream = &mut self.streams[index];
        let number = stream.number;
        let kind = shared.names_of(number).kind();
        let Shared { stats, texts, .. } = shared;
        let is_first = !std::mem::replace(&mut stream.is_answered, true);
        let response = scan(shared.variant, message, |resource| {
            stats.counts.resources += 1;
            let stamp = if is_first {
                None
            } else {
                find_stamp(kind, &resource)
            };
            if let Some(stamp) = stamp {
                stats.on_change(age(stamp, now));
            }
            if let Some(texts) = texts {
                stream.remember(&resource, texts);
            }
        });
        let Some(response) = response else {
            stats.counts.malformed += 1;
            return;
        };
        stats.counts.responses += 1;
        stats.counts.removed += u64::from(response.removed);
        if is_first {
            stats.on_answer();
            shared.unanswered -= 1;
        }
        let mut ack = std::mem::take(&mut shared.scratch);
        ack.clear();
        put_ack(
            &mut ack,
            shared.variant,
            shared.names_of(number),
            number,
            &response,
        );
        self.send(index, &ack);
        shared.scratch = ack;
    }

    fn on_window_update(&mut self, frame: Frame<'_>) {
        match index_of(frame.stream) {
            None => self.send_window += frame.window_update(),
            Some(index) => {
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.send_window += frame.window_update();
                }
            }
        }
        self.send_unsent();
    }

    fn refill_window(&mut self) {
        if self.read_bytes > self.windows.connection_bytes / 2 {
            frame::put_window_update(&mut self.out, 0, self.read_bytes);
            self.read_bytes = 0;
        }
    }

    /// Puts a message behind all that the stream has not sent yet.
    fn send(&mut self, index: usize, message: &[u8]) {
        const PREFIX_BYTES: usize = 5;
        let stream = &mut self.streams[index];
        let length = message.len() + PREFIX_BYTES;
        let room = frame::PAYLOAD_BYTES_MAX as i64;
        let room = room.min(self.send_window).min(stream.send_window);
        let is_direct = stream.unsent.is_empty() && length as i64 <= room;
        let out = if is_direct {
            let id = stream_id(index);
            frame::put_header(&mut self.out, length, kind::DATA, 0, id);
            self.send_window -= length as i64;
            stream.send_window -= length as i64;
            &mut self.out
        } else {
            &mut stream.unsent
        };
        // Not compressed, then the length (gRPC over HTTP/2, "Length-Prefixed-Message").
        out.push(0);
        out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(message);
        if !is_direct {
            self.is_blocked = true;
            self.send_unsent();
        }
    }

    /// Sends what windows have room for now.
    fn send_unsent(&mut self) {
        if !std::mem::take(&mut self.is_blocked) {
            return;
        }
        for (index, stream) in self.streams.iter_mut().enumerate() {
            while !stream.unsent.is_empty() {
                let room = self.send_window.min(stream.send_window);
                let room = usize::try_from(room).unwrap_or(0);
                let length = stream.unsent.len().min(room).min(frame::PAYLOAD_BYTES_MAX);
                if length == 0 {
                    self.is_blocked = true;
                    break;
                }
                let bytes = &stream.unsent[..length];
                frame::put_frame(&mut self.out, kind::DATA, 0, stream_id(index), bytes);
                stream.unsent.drain(..length);
                self.send_window -= length as i64;
                stream.send_window -= length as i64;
            }
        }
    }
}

impl Stream {
    fn new(number: usize) -> Self {
        Self {
            number,
            send_window: 0,
            read_bytes: 0,
            is_answered: false,
            unsent: Vec::new(),
            partial: Vec::new(),
            held: HashMap::new(),
        }
    }

    fn remember(&mut self, resource: &Resource<'_>, texts: &mut Texts) {
        let [name, version] = [resource.name, resource.version].map(|text| texts.intern(text));
        self.held.insert(name, version);
    }
}

impl Shared {
    fn names_of(&self, stream: usize) -> &Names {
        &self.names[stream % self.names.len()]
    }
}

impl Texts {
    fn intern(&mut self, bytes: &[u8]) -> Rc<str> {
        let text = String::from_utf8_lossy(bytes);
        if let Some((known, ())) = self.0.get_key_value(&*text) {
            return Rc::clone(known);
        }
        let text: Rc<str> = Rc::from(&*text);
        self.0.insert(Rc::clone(&text), ());
        text
    }
}

/// Takes a whole message of gRPC off the front; `None` while more must be read.
fn take_message<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let ([_, length @ ..], after) = rest.split_first_chunk::<5>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (message, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(message)
}

/// When what a resource brings was changed. Of a map of URIs nobody asks: its newest entry would have
/// to be searched.
fn find_stamp(kind: Kind, resource: &Resource<'_>) -> Option<u64> {
    match kind {
        Kind::Endpoints => find_endpoint_stamp(resource.body),
        Kind::UriGlob | Kind::UriMapAndGlob => find_uri_stamp(resource.body),
        Kind::UriMap => None,
    }
}

/// A client's streams are the odd ones, in order (RFC 9113, 5.1.1).
fn stream_id(index: usize) -> u32 {
    u32::try_from(2 * index + 1).unwrap_or(u32::MAX)
}

fn index_of(id: u32) -> Option<usize> {
    usize::try_from(id.checked_sub(1)? / 2).ok()
}
