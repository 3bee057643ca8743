//! What CSDS says of streams, against the engine itself.

use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    NodeMatcher, RegexMatcher, StringMatcher, StructMatcher,
};

use super::*;

fn mk_matcher(pattern: MatchPattern, ignore_case: bool) -> NodeMatcher {
    NodeMatcher {
        node_id: Some(StringMatcher {
            ignore_case,
            match_pattern: Some(pattern),
        }),
        node_metadatas: Vec::new(),
    }
}

#[test]
fn node_matchers_are_or_ed_and_none_means_everybody() {
    use MatchPattern::{Contains, Exact, Prefix, Suffix};
    let text = str::to_owned;
    for (matchers, matched, unmatched) in [
        (vec![], vec!["a", ""], vec![]),
        (
            vec![mk_matcher(Exact(text("a-1")), false)],
            vec!["a-1"],
            vec!["A-1", "a-12"],
        ),
        (
            vec![mk_matcher(Exact(text("a-1")), true)],
            vec!["A-1"],
            vec!["b"],
        ),
        (
            vec![
                mk_matcher(Prefix(text("a-")), false),
                mk_matcher(Suffix(text("-9")), false),
            ],
            vec!["a-1", "b-9"],
            vec!["b-1"],
        ),
        (
            vec![mk_matcher(Contains(text("x")), false)],
            vec!["axb"],
            vec!["ab"],
        ),
    ] {
        let read = NodeMatchers::read(&matchers).unwrap();
        for id in matched {
            assert!(read.matches(id), "{matchers:?}: {id}");
        }
        for id in unmatched {
            assert!(!read.matches(id), "{matchers:?}: {id}");
        }
    }
}

#[test]
fn a_matcher_that_cannot_be_judged_is_refused() {
    let regex = MatchPattern::SafeRegex(RegexMatcher::default());
    let by_metadata = NodeMatcher {
        node_id: None,
        node_metadatas: vec![StructMatcher::default()],
    };
    for bad in [
        mk_matcher(regex, false),
        by_metadata,
        NodeMatcher::default(),
    ] {
        let error = NodeMatchers::read(&[bad]).unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument, "{error}");
    }
}

#[test]
fn what_was_not_sent_is_requested_if_it_exists_and_absent_if_not() {
    use ClientResourceStatus as Client;
    for (state, exists, expected) in [
        (
            ResourceState::NotSent,
            true,
            (ConfigStatus::NotSent, Client::Requested),
        ),
        (
            ResourceState::NotSent,
            false,
            (ConfigStatus::NotSent, Client::DoesNotExist),
        ),
        (
            ResourceState::Absent,
            true,
            (ConfigStatus::Synced, Client::DoesNotExist),
        ),
        (
            ResourceState::Sent,
            true,
            (ConfigStatus::Stale, Client::Unknown),
        ),
        (
            ResourceState::Acked,
            true,
            (ConfigStatus::Synced, Client::Acked),
        ),
        (
            ResourceState::Doubtful,
            true,
            (ConfigStatus::Error, Client::Nacked),
        ),
    ] {
        assert_eq!(statuses(state, || exists), expected, "{state:?}");
    }
}
