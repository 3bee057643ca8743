//! HTTP/2 frames (RFC 9113) as a client of one long call a stream needs them. Headers of responses are
//! not decoded: that a stream failed is seen from its end.

/// What a client sends first: the preface (RFC 9113, 3.4); its settings follow.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's header.
pub(super) const HEADER_BYTES: usize = 9;

/// The largest payload of a frame, each way: the protocol's default, which both sides keep.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16_384;

/// The window of a connection and of a stream before anybody says otherwise.
pub(super) const WINDOW_BYTES_DEFAULT: i64 = 65_535;

/// Types of frames that somebody here reads or writes.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
}

/// Flags of frames.
pub(super) mod flag {
    /// Of DATA and HEADERS.
    pub(crate) const END_STREAM: u8 = 0x1;
    /// Of SETTINGS and PING.
    pub(crate) const ACK: u8 = 0x1;
    /// Of HEADERS.
    pub(crate) const END_HEADERS: u8 = 0x4;
    /// Of DATA and HEADERS.
    pub(crate) const PADDED: u8 = 0x8;
}

/// How much a server may send before it hears of the client again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub(super) stream_bytes: u32,
    pub(super) connection_bytes: u32,
}

impl Windows {
    /// So large that a server waits for its socket, hardly ever for a window.
    pub(super) const LARGE: Self = Self {
        stream_bytes: 16 << 20,
        connection_bytes: 1 << 30,
    };

    /// A few responses of a stream: what a server has for a client that does not read, it soon has to
    /// keep. Windows of connections begin no smaller than this one (RFC 9113, 6.9.2).
    pub(super) const SMALL: Self = Self {
        stream_bytes: 2_048,
        connection_bytes: 65_535,
    };
}

/// A frame, borrowed from what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// 0 for the connection.
    pub(super) stream: u32,
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes a whole frame off the front; `None` while more must be read.
    pub(super) fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let (header, after) = rest.split_first_chunk::<HEADER_BYTES>()?;
        let [high, middle, low, kind, flags, a, b, c, d] = *header;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let (payload, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
        *rest = after;
        Some(Self {
            kind,
            flags,
            stream: u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff,
            payload,
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload of a DATA frame without its padding.
    pub(super) fn data(&self) -> &'a [u8] {
        if !self.has(flag::PADDED) {
            return self.payload;
        }
        let Some((padding, data)) = self.payload.split_first() else {
            return &[];
        };
        let length = data.len().saturating_sub(usize::from(*padding));
        &data[..length]
    }

    /// The number in a WINDOW_UPDATE.
    pub(super) fn window_update(&self) -> i64 {
        let bytes = self.payload.first_chunk::<4>().copied();
        i64::from(u32::from_be_bytes(bytes.unwrap_or_default()) & 0x7fff_ffff)
    }

    /// What a server's SETTINGS say of the window of a stream.
    pub(super) fn initial_window(&self) -> Option<i64> {
        const INITIAL_WINDOW_SIZE: u16 = 4;
        let settings = self.payload.as_chunks::<6>().0.iter();
        settings
            .filter(|[high, low, ..]| u16::from_be_bytes([*high, *low]) == INITIAL_WINDOW_SIZE)
            .map(|[_, _, a, b, c, d]| i64::from(u32::from_be_bytes([*a, *b, *c, *d])))
            .next_back()
    }
}

/// Appends the header of a frame whose payload is then appended.
pub(super) fn put_header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

pub(super) fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    put_header(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

pub(super) fn put_window_update(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    put_frame(out, kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

/// Appends what opens a connection: preface, settings (no compression state, no push), window.
pub(super) fn put_preface(out: &mut Vec<u8>, windows: Windows) {
    const HEADER_TABLE_SIZE: u16 = 1;
    const ENABLE_PUSH: u16 = 2;
    const INITIAL_WINDOW_SIZE: u16 = 4;
    out.extend_from_slice(PREFACE);
    let settings = [
        (HEADER_TABLE_SIZE, 0),
        (ENABLE_PUSH, 0),
        (INITIAL_WINDOW_SIZE, windows.stream_bytes),
    ];
    put_header(out, settings.len() * 6, kind::SETTINGS, 0, 0);
    for (name, value) in settings {
        out.extend_from_slice(&u16::to_be_bytes(name));
        out.extend_from_slice(&u32::to_be_bytes(value));
    }
    let default = u32::try_from(WINDOW_BYTES_DEFAULT).unwrap_or(0);
    if windows.connection_bytes > default {
        put_window_update(out, 0, windows.connection_bytes - default);
    }
}

/// The header block of a call of gRPC over plaintext, in literals that change no compression state
/// (RFC 7541, 6.2.2), so that it is the same for every stream.
pub(super) fn header_block(path: &str, authority: &str) -> Vec<u8> {
    /// Entries of the static table (RFC 7541, appendix A), whole.
    const METHOD_POST: u8 = 0x80 | 3;
    const SCHEME_HTTP: u8 = 0x80 | 6;
    /// Names of the static table, for literals without indexing; those above 14 take two bytes.
    const PATH: &[u8] = &[4];
    const AUTHORITY: &[u8] = &[1];
    const CONTENT_TYPE: &[u8] = &[0x0f, 31 - 15];
    const NEW_NAME: &[u8] = &[0];
    let mut block = vec![METHOD_POST, SCHEME_HTTP];
    let mut literal = |name: &[u8], text: &[&str]| {
        block.extend_from_slice(name);
        for text in text {
            // One byte of length: all of these are shorter than 127.
            block.push(u8::try_from(text.len()).unwrap_or(0) & 0x7f);
            block.extend_from_slice(text.as_bytes());
        }
    };
    literal(PATH, &[path]);
    literal(AUTHORITY, &[authority]);
    literal(CONTENT_TYPE, &["application/grpc"]);
    literal(NEW_NAME, &["te", "trailers"]);
    block
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
