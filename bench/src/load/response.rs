//! What a client must know of a response: its nonce, how many resources it holds, and when the newest
//! of what it brings was announced. Field numbers are those of `envoy.service.discovery.v3`,
//! `envoy.config.endpoint.v3` and `indis`.

use super::wire::{Fields, Value, find_last};

/// Stamps count microseconds since the Unix epoch modulo this (bench/README.md, "What every server
/// under test has in common").
pub(crate) const STAMP_MODULUS: u64 = 1 << 30;

/// The weight of an endpoint that has no stamp.
const PLAIN_UNITS: u64 = 100;

/// The variant of xDS that a stream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Variant {
    /// Incremental: an ACK is a nonce.
    Delta,
    /// State of the world: an ACK repeats all names.
    Sotw,
}

/// A response that was walked over, borrowed from its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Response<'a> {
    /// To be repeated in the ACK.
    pub(super) nonce: &'a [u8],
    /// Of the response, state of the world only: to be repeated in the ACK.
    pub(super) version: &'a [u8],
    pub(super) resources: u32,
    /// Names that the server says are gone; delta only.
    pub(super) removed: u32,
}

/// One resource of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resource<'a> {
    /// Delta only; in state of the world a client finds it inside the resource.
    pub(super) name: &'a [u8],
    /// As `name`.
    pub(super) version: &'a [u8],
    pub(super) body: &'a [u8],
}

/// Walks over a response and shows each resource to `visit`. `None` where it is not one.
pub(super) fn scan<'a>(
    variant: Variant,
    message: &'a [u8],
    mut visit: impl FnMut(Resource<'a>),
) -> Option<Response<'a>> {
    let mut response = Response::default();
    let mut fields = Fields::of(message);
    for (number, value) in fields.by_ref() {
        match (number, variant) {
            (1, Variant::Sotw) => response.version = value.bytes(),
            (2, Variant::Sotw) => {
                response.resources += 1;
                visit(Resource {
                    body: body_of_any(value),
                    ..Resource::default()
                });
            }
            (2, Variant::Delta) => {
                response.resources += 1;
                visit(delta_resource(value.bytes()));
            }
            (5, _) => response.nonce = value.bytes(),
            (6, Variant::Delta) => response.removed += 1,
            _ => {}
        }
    }
    fields.is_whole().then_some(response)
}

fn delta_resource(message: &[u8]) -> Resource<'_> {
    let mut resource = Resource::default();
    for (number, value) in Fields::of(message) {
        match number {
            1 => resource.version = value.bytes(),
            2 => resource.body = body_of_any(value),
            3 => resource.name = value.bytes(),
            _ => {}
        }
    }
    resource
}

fn body_of_any(any: Value<'_>) -> &[u8] {
    find_last(any.bytes(), 2).map_or(&[], Value::bytes)
}

/// The stamp in the endpoints of a cluster: the weight of the first endpoint that has not a plain one.
/// `None` where none was set yet.
pub(super) fn find_endpoint_stamp(assignment: &[u8]) -> Option<u64> {
    let localities = Fields::of(assignment).filter(|(number, _)| *number == 2);
    for (_, locality) in localities {
        let endpoints = Fields::of(locality.bytes()).filter(|(number, _)| *number == 2);
        for (_, endpoint) in endpoints {
            let weight = find_last(endpoint.bytes(), 4).map_or(&[][..], Value::bytes);
            let units = find_last(weight, 1).map_or(0, Value::varint);
            if units > PLAIN_UNITS {
                return Some(units);
            }
        }
    }
    None
}

/// When an `indis.D2URI` was changed: its time of modification, as a stamp.
pub(super) fn find_uri_stamp(uri: &[u8]) -> Option<u64> {
    let time = find_last(uri, 2)?.bytes();
    let seconds = find_last(time, 1)?.varint();
    let nanos = find_last(time, 2).map_or(0, Value::varint);
    Some((seconds * 1_000_000 + nanos / 1000) % STAMP_MODULUS)
}

/// Microseconds between a stamp and now; a stamp from the future (a clock was set) is of now.
pub(super) fn age(stamp: u64, now_unix_micros: u64) -> u64 {
    let age = (now_unix_micros % STAMP_MODULUS + STAMP_MODULUS - stamp) % STAMP_MODULUS;
    if age > STAMP_MODULUS / 2 { 0 } else { age }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
