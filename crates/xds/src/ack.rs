//! Nonces, and what the client said about the responses that carried them.

use std::fmt;
use std::num::NonZero;

use waypost_core::ResourceType;

use crate::events::Transport;
use crate::limits::ERROR_TEXT_BYTES_MAX;
use crate::node::cut;
use crate::request::ErrorDetail;

/// The nonce of a response: 24 hexadecimal digits of 8 unique bytes and the big-endian count of
/// chunks of the same answer that are still to come, by which rest.li's wildcard watchers know that
/// they have everything (rest.li `XdsClientImpl`; diderot `ads`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonce {
    unique: u64,
    /// One more than the chunks to come, so that no nonce takes no room of its own.
    remaining_plus_one: NonZero<u32>,
}

impl Nonce {
    pub(crate) const TEXT_BYTES: usize = 24;

    fn parse(text: &str) -> Option<Self> {
        if text.len() != Self::TEXT_BYTES || !text.is_ascii() {
            return None;
        }
        let (unique, remaining) = text.split_at(16);
        let unique = u64::from_str_radix(unique, 16).ok()?;
        Some(Self::new(unique, u32::from_str_radix(remaining, 16).ok()?))
    }

    fn new(unique: u64, remaining: u32) -> Self {
        Self {
            unique,
            remaining_plus_one: NonZero::<u32>::MIN.saturating_add(remaining),
        }
    }

    fn remaining(self) -> u32 {
        self.remaining_plus_one.get() - 1
    }

    /// The text on the wire.
    pub(crate) fn to_text(self) -> [u8; Self::TEXT_BYTES] {
        let mut text = [0; Self::TEXT_BYTES];
        let (unique, remaining) = text.split_at_mut(16);
        unique.copy_from_slice(&hex::<16>(self.unique));
        remaining.copy_from_slice(&hex::<8>(self.remaining().into()));
        text
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:08x}", self.unique, self.remaining())
    }
}

/// The lowest `DIGITS` hexadecimal digits of `value`.
pub(crate) fn hex<const DIGITS: usize>(mut value: u64) -> [u8; DIGITS] {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b"0123456789abcdef"[usize::from((value & 0xf) as u8)];
        value >>= 4;
    }
    text
}

/// Gives out the nonces of one stream, in rising order.
#[derive(Debug)]
pub(crate) struct NonceSource {
    next_unique: u64,
}

impl NonceSource {
    /// `seed` should differ between streams and processes, so that a nonce of another stream is
    /// not taken for one of this.
    pub(crate) fn new(seed: u64) -> Self {
        Self { next_unique: seed }
    }

    pub(crate) fn next(&mut self, remaining: u32) -> Nonce {
        let unique = self.next_unique;
        self.next_unique = unique.wrapping_add(1);
        Nonce::new(unique, remaining)
    }
}

/// What a request says about earlier responses of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No response has been sent that it could be about.
    None,
    Ack,
    Nack,
    /// A nonce that does not count, or none: in delta a mere change of subscriptions.
    Stale,
}

/// How it stands with the newest response of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none.
    NothingSent,
    /// The client has not answered it.
    Awaited,
    /// The client confirmed it.
    Acked,
    /// The client rejected it.
    Rejected,
}

/// The responses of one type and their acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct AckState {
    newest: Option<Nonce>,
    /// Unique part of the first response of the type: older ones belong to other streams.
    oldest_unique: u64,
    answered: Option<Nonce>,
    acked: Option<Nonce>,
    nacks: u32,
    responses: u64,
    last_error: Option<Box<str>>,
}

impl AckState {
    /// A response with `nonce` was sent.
    pub(crate) fn sent(&mut self, nonce: Nonce) {
        if self.newest.is_none() {
            self.oldest_unique = nonce.unique;
        }
        self.newest = Some(nonce);
        self.responses += 1;
    }

    /// Judges a request and keeps what it says. Only `error_detail` makes a NACK (xDS protocol,
    /// "ACK and NACK semantics summary"). A delta client confirms each response by its own nonce;
    /// of a `SotW` client's requests only the one with the newest nonce of the type counts.
    pub(crate) fn judge(
        &mut self,
        transport: Transport,
        nonce: &str,
        error: Option<&ErrorDetail>,
    ) -> Verdict {
        let Some(newest) = self.newest else {
            // What a first request carries is left over from another stream.
            return Verdict::None;
        };
        let counts = |n: &Nonce| match transport {
            Transport::Delta => (self.oldest_unique..=newest.unique).contains(&n.unique),
            Transport::Sotw => *n == newest,
        };
        let Some(nonce) = Nonce::parse(nonce).filter(counts) else {
            return Verdict::Stale;
        };
        self.answered = Some(nonce);
        let Some(error) = error else {
            self.acked = Some(nonce);
            return Verdict::Ack;
        };
        self.nacks = self.nacks.saturating_add(1);
        self.last_error = Some(cut(error.message.clone(), ERROR_TEXT_BYTES_MAX).into());
        Verdict::Nack
    }

    /// Whether the newest response has not been answered.
    pub(crate) fn is_awaited(&self) -> bool {
        self.newest.is_some() && self.answered != self.newest
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.newest {
            None => Standing::NothingSent,
            newest if self.answered != newest => Standing::Awaited,
            newest if self.acked == newest => Standing::Acked,
            Some(_) => Standing::Rejected,
        }
    }

    /// Whether any response was answered on this stream.
    pub(crate) fn has_answer(&self) -> bool {
        self.answered.is_some()
    }

    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    pub(crate) fn view(&self, resource_type: ResourceType) -> AckView {
        AckView {
            resource_type,
            standing: self.standing(),
            last_nonce_sent: self.newest.map(|n| n.to_string()),
            last_nonce_acked: self.acked.map(|n| n.to_string()),
            responses: self.responses,
            nacks: self.nacks,
            last_error: self.last_error.as_deref().map(str::to_owned),
        }
    }
}

/// How far a client is with the responses of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckView {
    /// The type.
    pub resource_type: ResourceType,
    /// How it stands with the newest response.
    pub standing: Standing,
    /// Nonce of the newest response.
    pub last_nonce_sent: Option<String>,
    /// Nonce of the newest response that the client confirmed.
    pub last_nonce_acked: Option<String>,
    /// Responses sent.
    pub responses: u64,
    /// Responses rejected.
    pub nacks: u32,
    /// The client's words at the last rejection, cut to a bound.
    pub last_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_error() -> ErrorDetail {
        ErrorDetail {
            code: 3,
            message: "no".into(),
        }
    }

    #[test]
    fn nonces_are_24_digits_that_end_in_the_chunks_to_come() {
        let mut source = NonceSource::new(0x0102_0304_0506_0708);
        assert_eq!(source.next(4).to_string(), "010203040506070800000004");
        let second = source.next(0);
        assert_eq!(second.to_string(), "010203040506070900000000");
        assert_eq!(second.to_text(), *b"010203040506070900000000");
        assert_eq!(Nonce::parse(&second.to_string()), Some(second));
        for foreign in ["", "x", "n1", &"z".repeat(24), "ééééééééoooo"] {
            assert_eq!(Nonce::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn only_the_newest_nonce_counts_in_sotw_and_only_error_detail_makes_a_nack() {
        let mut source = NonceSource::new(7);
        let mut acks = AckState::default();
        let judge = |acks: &mut AckState, nonce: &str, error: Option<&ErrorDetail>| {
            acks.judge(Transport::Sotw, nonce, error)
        };
        let foreign = source.next(0).to_string();
        assert_eq!(judge(&mut acks, &foreign, None), Verdict::None);
        assert_eq!(judge(&mut acks, "", Some(&mk_error())), Verdict::None);

        let (first, second) = (source.next(0), source.next(0));
        acks.sent(first);
        assert!(acks.is_awaited());
        assert_eq!(judge(&mut acks, &first.to_string(), None), Verdict::Ack);
        assert!(!acks.is_awaited());
        acks.sent(second);
        for stale in [foreign.as_str(), "", "junk", &first.to_string()] {
            assert_eq!(judge(&mut acks, stale, None), Verdict::Stale, "{stale}");
        }
        assert!(acks.is_awaited());
        for _ in 0..2 {
            let verdict = judge(&mut acks, &second.to_string(), Some(&mk_error()));
            assert_eq!(verdict, Verdict::Nack);
        }
        assert!(!acks.is_awaited());
        assert_eq!(acks.standing(), Standing::Rejected);
        let view = acks.view(ResourceType::Cluster);
        assert_eq!((view.nacks, view.responses), (2, 2));
        assert_eq!(view.last_error.as_deref(), Some("no"));
        assert_eq!(view.last_nonce_acked, Some(first.to_string()));
    }

    #[test]
    fn delta_counts_every_nonce_of_its_own_stream() {
        let mut source = NonceSource::new(7);
        let foreign = source.next(0).to_string();
        let (first, second) = (source.next(1), source.next(0));
        let mut acks = AckState::default();
        acks.sent(first);
        acks.sent(second);
        let error = mk_error();
        let mut judge = |nonce: &str, error| acks.judge(Transport::Delta, nonce, error);
        assert_eq!(judge(&first.to_string(), None), Verdict::Ack);
        assert_eq!(judge(&foreign, Some(&error)), Verdict::Stale);
        assert_eq!(judge("bogus", Some(&error)), Verdict::Stale);
        assert_eq!(judge(&second.to_string(), Some(&error)), Verdict::Nack);
        assert_eq!(acks.view(ResourceType::Cluster).nacks, 1);
    }
}
