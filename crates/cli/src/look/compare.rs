//! `waypost status --compare`: whether other Observers have made the same of the log, and if not,
//! which key shows it.
//!
//! Observers stand at different positions while the log flows, so digests are compared at the newest
//! tick that both remember. Which key differs is then looked for in one bucket of one partition
//! (module [`keys`]).

mod keys;
mod report;

use waypost_admin_api::{BucketDigests, Digests, PartitionDigests, path};

use crate::admin::Admin;
use crate::exit::{Exit, Failure};
use crate::limits::COMPARE_ROUNDS_MAX;
use crate::output;

use crate::args::OutputFormat;
use keys::Difference;
use report::{Compared, ComparedPartition, Comparison, Verdict};

/// Compares the Observer at `server` with each of `others`.
pub(crate) async fn run(
    server: &str,
    others: &[String],
    format: OutputFormat,
) -> Result<Exit, Failure> {
    let here = Admin::new(server);
    let first: Digests = here.get(&path::digests()).await?;
    let mut compared = Vec::new();
    for other in others {
        compared.push(compare(&here, other).await?);
    }
    let comparison = Comparison {
        server: server.to_owned(),
        identity: first.identity,
        others: compared,
    };
    output::print(format, &comparison, || comparison.lines().join("\n"))?;
    Ok(match comparison.is_equal() {
        true => Exit::Done,
        false => Exit::Bad,
    })
}

/// Compares with one other Observer. What differs and has no key that shows it is compared again: an
/// announcement has mended it in between, or the tick was forgotten.
async fn compare(here: &Admin, address: &str) -> Result<Compared, Failure> {
    let there = Admin::new(address);
    let mut compared = Compared::of(address, Verdict::Unreachable);
    for _ in 0..COMPARE_ROUNDS_MAX {
        let ours: Digests = here.get(&path::digests()).await?;
        let theirs: Digests = match there.get(&path::digests()).await {
            Ok(digests) => digests,
            Err(failure) => {
                compared.reason = Some(failure.to_string());
                return Ok(compared);
            }
        };
        compared = compare_digests(address, &ours, &theirs);
        let differing = compared.partitions.iter();
        let differing = differing.filter(|p| p.verdict == Verdict::Different);
        for partition in differing.filter_map(ComparedPartition::place) {
            match find_key(here, &there, partition).await {
                Ok(None) => {}
                Ok(found) => {
                    compared.first_difference = found;
                    return Ok(compared);
                }
                Err(failure) => {
                    compared.reason = Some(failure.to_string());
                    return Ok(compared);
                }
            }
        }
        if compared.verdict != Verdict::Different {
            return Ok(compared);
        }
    }
    compared.reason =
        Some("the digests differ, but its keys change too fast to name one".to_owned());
    Ok(compared)
}

/// What two answers say of each other.
fn compare_digests(address: &str, ours: &Digests, theirs: &Digests) -> Compared {
    let mut compared = Compared::of(address, Verdict::NotCompared);
    compared.reason = why_not_compared(ours, theirs);
    if compared.reason.is_some() {
        return compared;
    }
    let partitions = ours.partitions.iter().zip(&theirs.partitions);
    compared.partitions = partitions
        .map(|(ours, theirs)| compare_partition(ours, theirs))
        .collect();
    let has = |verdict| compared.partitions.iter().any(|p| p.verdict == verdict);
    compared.verdict = match (has(Verdict::Different), has(Verdict::NotCompared)) {
        (true, _) => Verdict::Different,
        (false, true) => Verdict::NotCompared,
        (false, false) => Verdict::Equal,
    };
    compared
}

/// Why two Observers cannot be compared at all.
fn why_not_compared(ours: &Digests, theirs: &Digests) -> Option<String> {
    let name = |identity: &Option<String>| identity.clone().unwrap_or_else(|| "none".to_owned());
    if !ours.loaded || !theirs.loaded {
        let who = if ours.loaded { "it" } else { "this one" };
        return Some(format!("{who} has not read the log to its end yet"));
    }
    if ours.identity != theirs.identity {
        return Some(format!(
            "it reads another log: identity {}, this one {}",
            name(&theirs.identity),
            name(&ours.identity)
        ));
    }
    if ours.partitions.len() != theirs.partitions.len() {
        return Some(format!(
            "it knows {} partition(s), this one {}",
            theirs.partitions.len(),
            ours.partitions.len()
        ));
    }
    None
}

fn compare_partition(ours: &PartitionDigests, theirs: &PartitionDigests) -> ComparedPartition {
    let pairs = ours.ticks.iter().rev().filter_map(|tick| {
        let same = theirs.ticks.iter().find(|t| t.offset == tick.offset)?;
        Some((tick, same))
    });
    let newest = { pairs }.next();
    let (verdict, reason) = match newest {
        Some((a, b)) if a.digest == b.digest => (Verdict::Equal, None),
        Some(_) => (Verdict::Different, None),
        None => (
            Verdict::NotCompared,
            Some(format!(
                "no tick that both remember: it stands at {}, this one at {}",
                theirs.position, ours.position
            )),
        ),
    };
    ComparedPartition {
        partition: ours.partition,
        offset: newest.map(|(tick, _)| tick.offset),
        verdict,
        reason,
    }
}

/// Looks for a key that shows why a partition differs after the tick at an offset. `None` if there
/// is none any more, or if the tick was forgotten meanwhile.
async fn find_key(
    here: &Admin,
    there: &Admin,
    (partition, offset): (u32, i64),
) -> Result<Option<Difference>, Failure> {
    let buckets = path::bucket_digests(partition, offset);
    let ours = here.get::<BucketDigests>(&buckets).await;
    let theirs = there.get::<BucketDigests>(&buckets).await;
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
        return Ok(None);
    };
    let pairs = ours.buckets.iter().zip(&theirs.buckets).enumerate();
    for (bucket, _) in pairs.filter(|(_, (ours, theirs))| ours != theirs) {
        if let Some(found) = keys::find(here, there, partition, bucket).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use waypost_admin_api::TickDigest;

    use super::*;

    fn digests(ticks: &[(i64, &str)]) -> Digests {
        let ticks = ticks.iter().map(|(offset, digest)| TickDigest {
            offset: *offset,
            digest: (*digest).to_owned(),
        });
        Digests {
            identity: Some("7".to_owned()),
            loaded: true,
            partitions: vec![PartitionDigests {
                partition: 0,
                position: 100,
                ticks: ticks.collect(),
            }],
        }
    }

    #[test]
    fn partitions_are_compared_at_the_newest_tick_that_both_remember() {
        /// Ticks of the other one, the verdict and where it was found.
        type Case = (&'static [(i64, &'static str)], Verdict, Option<i64>);
        let ours = digests(&[(1, "a"), (5, "b"), (9, "c")]);
        let cases: [Case; 5] = [
            (&[(1, "a"), (5, "b"), (9, "c")], Verdict::Equal, Some(9)),
            // What an earlier tick says counts no more, and a later one is not there to compare.
            (&[(1, "x"), (5, "b")], Verdict::Equal, Some(5)),
            (&[(5, "x"), (12, "c")], Verdict::Different, Some(5)),
            (&[(2, "a"), (12, "c")], Verdict::NotCompared, None),
            (&[], Verdict::NotCompared, None),
        ];
        for (ticks, verdict, offset) in cases {
            let compared = compare_digests("other", &ours, &digests(ticks));
            let partition = &compared.partitions[0];
            assert_eq!(
                (compared.verdict, partition.offset),
                (verdict, offset),
                "{ticks:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_compared_says_why() {
        type Change = fn(&mut Digests);
        let cases: [(Change, &str); 4] = [
            (|d| d.loaded = false, "not read the log to its end"),
            (
                |d| d.identity = Some("8".to_owned()),
                "another log: identity 8, this one 7",
            ),
            (|d| d.identity = None, "another log: identity none"),
            (|d| d.partitions.clear(), "knows 0 partition(s), this one 1"),
        ];
        for (change, expected) in cases {
            let mut theirs = digests(&[(1, "a")]);
            change(&mut theirs);
            let compared = compare_digests("other", &digests(&[(1, "a")]), &theirs);
            assert_eq!(compared.verdict, Verdict::NotCompared);
            let reason = compared.reason.unwrap();
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
