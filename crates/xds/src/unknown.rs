//! Types that are not served. Each gets one answer that says "nothing", so that a client does not
//! wait, and the other types of the stream go on (as in diderot).

use waypost_core::ResourceName;

use crate::limits::UNKNOWN_TYPES_MAX;
use crate::request::Request;
use crate::responder::{Answer, AnswerType, Content, Entry, Responder};

/// The unserved types that a stream asked for.
#[derive(Debug, Default)]
pub(crate) struct UnknownTypes {
    types: Vec<UnknownType>,
}

#[derive(Debug)]
struct UnknownType {
    type_url: Box<str>,
    /// Names to be answered as absent.
    names: Vec<String>,
    is_due: bool,
}

impl UnknownTypes {
    pub(crate) fn on_request(&mut self, request: Request) {
        let type_url = request.type_url();
        let known = self.types.iter().position(|t| &*t.type_url == type_url);
        if known.is_none() && self.types.len() >= UNKNOWN_TYPES_MAX {
            return;
        }
        let is_first = known.is_none();
        let index = known.unwrap_or(self.types.len());
        if is_first {
            self.types.push(UnknownType {
                type_url: type_url.into(),
                names: Vec::new(),
                is_due: true,
            });
        }
        let Some(unknown) = self.types.get_mut(index) else {
            return;
        };
        // A `SotW` response can only say "nothing" as a whole, which needs no repetition.
        if let Request::Delta(request) = request
            && !request.resource_names_subscribe.is_empty()
        {
            unknown.names.extend(request.resource_names_subscribe);
            unknown.is_due = true;
        }
    }

    /// The answer for a type that waits for one.
    pub(crate) fn next(&mut self, responder: &Responder) -> Option<Answer> {
        let unknown = self.types.iter_mut().find(|t| t.is_due)?;
        unknown.is_due = false;
        let mut names = std::mem::take(&mut unknown.names);
        names.sort_unstable();
        names.dedup();
        let max = responder.entries_bytes_max(&unknown.type_url);
        let entries = names.into_iter().map(|name| Entry {
            name: ResourceName::from(name),
            content: Content::Removal,
            is_change: false,
        });
        let entries = entries
            .filter(|entry| responder.entry_len(entry) <= max)
            .collect();
        let (next, rest) = responder.pack(&unknown.type_url, entries);
        Some(Answer {
            of: AnswerType::Unknown(unknown.type_url.clone()),
            version: 0,
            next,
            rest: rest.into_iter(),
        })
    }
}
