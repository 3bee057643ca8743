//! Protocol buffers, just far enough to walk over the fields of a message without decoding it, and to
//! write the few that requests are made of.

/// The value of a field, borrowed from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Any integer, or an enum or a boolean.
    Varint(u64),
    /// A string, bytes, an embedded message or packed numbers.
    Bytes(&'a [u8]),
    /// A number of four or eight bytes; nothing here needs one.
    Fixed,
}

impl<'a> Value<'a> {
    /// The bytes of a length-delimited field; empty for any other.
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Varint(_) | Self::Fixed => &[],
        }
    }

    /// The number of a varint field; 0 for any other.
    pub(super) fn varint(self) -> u64 {
        match self {
            Self::Varint(number) => number,
            Self::Bytes(_) | Self::Fixed => 0,
        }
    }
}

/// The fields of a message in wire order: number and value. Ends early at a field that is cut off or
/// of a wire type that is no longer used; [`Fields::is_whole`] tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Whether the message was walked to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self) -> Option<(u64, Value<'a>)> {
        let mut rest = self.rest;
        let key = take_varint(&mut rest)?;
        let value = match key & 7 {
            0 => Value::Varint(take_varint(&mut rest)?),
            1 => take_fixed(&mut rest, 8)?,
            2 => {
                let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                let (bytes, after) = rest.split_at_checked(length)?;
                rest = after;
                Value::Bytes(bytes)
            }
            5 => take_fixed(&mut rest, 4)?,
            _ => return None,
        };
        self.rest = rest;
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        self.take()
    }
}

/// The last field of a number, as protocol buffers want it of a scalar.
pub(super) fn find_last(message: &[u8], number: u64) -> Option<Value<'_>> {
    Fields::of(message)
        .filter(|(found, _)| *found == number)
        .map(|(_, value)| value)
        .last()
}

fn take_fixed<'a>(rest: &mut &'a [u8], length: usize) -> Option<Value<'a>> {
    let (_, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(Value::Fixed)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (index, byte) in rest.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *rest = &rest[index + 1..];
            return Some(number);
        }
    }
    None
}

/// Appends a string, bytes or an embedded message as field `number`.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push((number << 3) | 2);
    put_varint(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or(0));
}
