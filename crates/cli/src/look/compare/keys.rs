//! Which key of a bucket differs between two Observers that stand at different positions and go on
//! reading.
//!
//! Nobody is stopped for this. Each answer says at which position it was made, so that a difference
//! counts only if the Observer that lacks something has read what the other one has: a key that one
//! of them has announced, withdrawn or forgotten beyond the other's position proves nothing, and is
//! looked at again.

use std::collections::BTreeMap;

use serde::Serialize;
use waypost_admin_api::{BucketKeys, DigestedKey, path};

use crate::admin::Admin;
use crate::exit::Failure;
use crate::limits::{COMPARE_LOOKS_MAX, PAGES_MAX};

/// A key that two Observers do not agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// The partition of the announcements topic.
    pub(super) partition: u32,
    /// Its cluster.
    pub(super) cluster: String,
    /// Its URI.
    pub(super) uri: String,
    /// What differs.
    pub(super) what: What,
    /// As the Observer at `--server` has it.
    pub(super) here: Option<DigestedKey>,
    /// As the other one has it.
    pub(super) there: Option<DigestedKey>,
}

/// What differs about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// Only the other one has it.
    MissingHere,
    /// Only the Observer at `--server` has it.
    MissingThere,
    /// Its life, birth or count of changes.
    Order,
    /// What it announces, and perhaps its order, too.
    Content,
}

/// A bucket as one Observer has it. Pages come one after the other, so the position is a range.
#[derive(Clone, Debug)]
struct Side {
    /// All of it is at least as new as this position,
    from: i64,
    /// and at most as this one.
    to: i64,
    by_key: BTreeMap<(String, String), DigestedKey>,
}

/// Asks both in turn until a key is proven to differ, or none does.
pub(super) async fn find(
    here: &Admin,
    there: &Admin,
    partition: u32,
    bucket: usize,
) -> Result<Option<Difference>, Failure> {
    let mut ours = read(here, partition, bucket).await?;
    let mut theirs = read(there, partition, bucket).await?;
    for look in 0..COMPARE_LOOKS_MAX {
        match judge(partition, &ours, &theirs) {
            Judgement::Differ(difference) => return Ok(Some(*difference)),
            Judgement::Agree => return Ok(None),
            Judgement::Unknown if look % 2 == 0 => ours = read(here, partition, bucket).await?,
            Judgement::Unknown => theirs = read(there, partition, bucket).await?,
        }
    }
    Ok(None)
}

async fn read(admin: &Admin, partition: u32, bucket: usize) -> Result<Side, Failure> {
    let mut side = Side {
        from: i64::MAX,
        to: i64::MIN,
        by_key: BTreeMap::new(),
    };
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let asked = path::bucket_keys(partition, bucket, after.as_deref());
        let page: BucketKeys = admin.get(&asked).await?;
        side.from = side.from.min(page.position);
        side.to = side.to.max(page.position);
        let items = page.items.into_iter();
        let items = items.map(|item| ((item.cluster.clone(), item.uri.clone()), item));
        side.by_key.extend(items);
        after = page.next;
        if after.is_none() {
            return Ok(side);
        }
    }
    Err(Failure::failed(format!(
        "a bucket of partition {partition} has more than {PAGES_MAX} pages"
    )))
}

/// What two answers prove.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Judgement {
    /// This key differs, the first one that is proven to.
    Differ(Box<Difference>),
    /// Every key is the same.
    Agree,
    /// Some differ, but only because one of the two has read further.
    Unknown,
}

fn judge(partition: u32, ours: &Side, theirs: &Side) -> Judgement {
    let keys = ours.by_key.keys().chain(theirs.by_key.keys());
    let keys: std::collections::BTreeSet<_> = keys.collect();
    let mut judgement = Judgement::Agree;
    for key in keys {
        let (here, there) = (ours.by_key.get(key), theirs.by_key.get(key));
        let Some(what) = compare(here, there) else {
            continue;
        };
        let is_proven = match (here, there) {
            // Each has read the other's announcement.
            (Some(a), Some(b)) => a.offset < theirs.from && b.offset < ours.from,
            // The one without it has read the announcement and no removal that the other has not.
            (Some(a), None) => a.offset < theirs.from && theirs.to <= ours.from,
            (None, Some(b)) => b.offset < ours.from && ours.to <= theirs.from,
            (None, None) => false,
        };
        if is_proven {
            return Judgement::Differ(Box::new(Difference {
                partition,
                cluster: key.0.clone(),
                uri: key.1.clone(),
                what,
                here: here.cloned(),
                there: there.cloned(),
            }));
        }
        judgement = Judgement::Unknown;
    }
    judgement
}

/// What differs; `None` if nothing does. Offsets are no difference.
fn compare(here: Option<&DigestedKey>, there: Option<&DigestedKey>) -> Option<What> {
    let order = |key: &DigestedKey| (key.life_id.clone(), key.born_at_ms, key.seq);
    match (here, there) {
        (Some(_), None) => Some(What::MissingThere),
        (None, Some(_)) => Some(What::MissingHere),
        (Some(a), Some(b)) if a.content != b.content => Some(What::Content),
        (Some(a), Some(b)) if order(a) != order(b) => Some(What::Order),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instances as `(name, offset, content, seq)`.
    fn side(from: i64, to: i64, keys: &[(&str, i64, &str, u64)]) -> Side {
        let keys = keys.iter().map(|(name, offset, content, seq)| {
            let key = DigestedKey {
                cluster: "c".to_owned(),
                uri: (*name).to_owned(),
                life_id: Some("1".to_owned()),
                born_at_ms: Some(1),
                seq: *seq,
                content: (*content).to_owned(),
                offset: *offset,
            };
            ((key.cluster.clone(), key.uri.clone()), key)
        });
        Side {
            from,
            to,
            by_key: keys.collect(),
        }
    }

    fn judged(ours: &Side, theirs: &Side) -> Option<(String, What)> {
        match judge(3, ours, theirs) {
            Judgement::Differ(d) => Some((d.uri.clone(), d.what)),
            Judgement::Agree => None,
            Judgement::Unknown => Some(("?".to_owned(), What::Order)),
        }
    }

    #[test]
    fn a_difference_counts_only_where_both_have_read_what_it_rests_on() {
        /// Both sides, the key and what is said of it, why.
        type Case = (Side, Side, Option<(&'static str, What)>, &'static str);
        let unknown = Some(("?", What::Order));
        let cases: [Case; 10] = [
            (
                side(100, 100, &[("a", 90, "x", 1)]),
                side(200, 200, &[("a", 190, "x", 1)]),
                None,
                "a heartbeat is no difference",
            ),
            (
                side(100, 100, &[("a", 90, "x", 1), ("b", 50, "x", 1)]),
                side(200, 200, &[("a", 190, "x", 1), ("b", 60, "y", 2)]),
                Some(("b", What::Content)),
                "both have read 50 and 60",
            ),
            (
                side(100, 100, &[("b", 50, "x", 1)]),
                side(200, 200, &[("b", 150, "y", 2)]),
                unknown,
                "we have not read 150",
            ),
            (
                side(100, 100, &[("b", 50, "x", 1)]),
                side(200, 200, &[("b", 60, "x", 2)]),
                Some(("b", What::Order)),
                "a count of changes",
            ),
            (
                side(200, 200, &[("b", 50, "x", 1)]),
                side(100, 100, &[]),
                Some(("b", What::MissingThere)),
                "announced before 100 and still there",
            ),
            (
                side(100, 100, &[("b", 50, "x", 1)]),
                side(200, 200, &[]),
                unknown,
                "it may have left between 100 and 200",
            ),
            (
                side(200, 200, &[("b", 150, "x", 1)]),
                side(100, 100, &[]),
                unknown,
                "it may have come between 100 and 200",
            ),
            (
                side(100, 100, &[]),
                side(100, 100, &[("b", 50, "x", 1)]),
                Some(("b", What::MissingHere)),
                "at one position",
            ),
            (
                side(100, 140, &[]),
                side(120, 120, &[("b", 50, "x", 1)]),
                unknown,
                "pages of several positions",
            ),
            (side(1, 1, &[]), side(9, 9, &[]), None, "nothing at all"),
        ];
        for (ours, theirs, expected, why) in cases {
            let expected = expected.map(|(uri, what)| (uri.to_owned(), what));
            assert_eq!(judged(&ours, &theirs), expected, "{why}");
        }
    }
}
