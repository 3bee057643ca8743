//! Which clients are asked about.

use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{NodeMatcher, StringMatcher};
use tonic::Status;

use crate::limits::CSDS_MATCHERS_MAX;

/// Clients of which one matcher holds; all of them if there is none.
#[derive(Clone, Debug)]
pub(super) struct NodeMatchers(Vec<StringMatcher>);

impl NodeMatchers {
    /// # Errors
    /// A matcher that this Observer cannot judge: an answer that leaves it out would be about other clients.
    pub(super) fn read(matchers: &[NodeMatcher]) -> Result<Self, Status> {
        if matchers.len() > CSDS_MATCHERS_MAX {
            return Err(Status::invalid_argument(format!(
                "more than {CSDS_MATCHERS_MAX} node_matchers"
            )));
        }
        let ids = matchers.iter().map(|matcher| {
            if !matcher.node_metadatas.is_empty() {
                return Err(Status::invalid_argument(
                    "node_matchers by node_metadatas are not served, only by node_id",
                ));
            }
            let id = matcher.node_id.clone().unwrap_or_default();
            match &id.match_pattern {
                Some(
                    MatchPattern::Exact(_)
                    | MatchPattern::Prefix(_)
                    | MatchPattern::Suffix(_)
                    | MatchPattern::Contains(_),
                ) => Ok(id),
                None => Err(Status::invalid_argument(
                    "a node_matcher has no node_id to match",
                )),
                Some(_) => Err(Status::invalid_argument(
                    "node_matchers by node_id are served as exact, prefix, suffix and contains, not as regex or \
                     custom",
                )),
            }
        });
        Ok(Self(ids.collect::<Result<_, _>>()?))
    }

    pub(super) fn matches(&self, node_id: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|matcher| matches(matcher, node_id))
    }
}

fn matches(matcher: &StringMatcher, text: &str) -> bool {
    let fold = |text: &str| match matcher.ignore_case {
        true => text.to_lowercase(),
        false => text.to_owned(),
    };
    let text = fold(text);
    match &matcher.match_pattern {
        Some(MatchPattern::Exact(pattern)) => text == fold(pattern),
        Some(MatchPattern::Prefix(pattern)) => text.starts_with(&fold(pattern)),
        Some(MatchPattern::Suffix(pattern)) => text.ends_with(&fold(pattern)),
        Some(MatchPattern::Contains(pattern)) => text.contains(&fold(pattern)),
        _ => false,
    }
}
