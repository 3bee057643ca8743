//! How many instances each cluster has.
//!
//! Fleets of real companies have a few clusters of thousands and thousands of clusters of a few. Here the
//! sizes are the quantiles of a Pareto distribution, so that not even their largest depends on luck; the
//! seed only says which cluster has which.

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

/// Exponent of the tail: the largest tenth of the clusters has two fifths of the instances.
const TAIL_EXPONENT: f64 = 1.5;

/// Instances of the largest cluster, where the others have room for the rest.
const CLUSTER_INSTANCES_MAX: f64 = 10_000.0;

/// How often what is cut off the largest is given to the others. Each time fewer are cut.
const ROUNDS: usize = 8;

/// Sizes of `clusters` clusters that add up to `instances`, each at least 1; to as many as there are
/// clusters where `instances` is less.
pub(super) fn draw(instances: u32, clusters: u32, seed: u64) -> Vec<u32> {
    let count = clusters.max(1);
    let spare = instances.saturating_sub(count);
    let shares = shares(count, f64::from(spare));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shares of a 32-bit number, none below 0"
    )]
    let mut sizes: Vec<u32> = shares.iter().map(|share| 1 + *share as u32).collect();
    let given: u32 = sizes.iter().sum();
    let rest = instances.saturating_sub(given) as usize;
    // Less than one each was lost by rounding, unless all are at their largest.
    for index in 0..rest {
        sizes[index % count as usize] += 1;
    }
    sizes.shuffle(&mut StdRng::seed_from_u64(seed));
    sizes
}

/// `spare` in `count` parts, the largest first, none above the largest size.
fn shares(count: u32, spare: f64) -> Vec<f64> {
    let quantile = |rank: u32| {
        let above = (f64::from(rank) + 0.5) / f64::from(count);
        above.powf(-1.0 / TAIL_EXPONENT)
    };
    let mut parts: Vec<f64> = (0..count).map(quantile).collect();
    if spare == 0.0 {
        return vec![0.0; parts.len()];
    }
    for _ in 0..ROUNDS {
        let scale = spare / parts.iter().sum::<f64>();
        for part in &mut parts {
            *part = (*part * scale).min(CLUSTER_INSTANCES_MAX - 1.0);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_add_up_and_a_few_clusters_have_most_instances() {
        let cases = [
            (1, 1),
            (100, 100),
            (10_000, 100),
            (300_000, 22_000),
            (3_000_000, 30_000),
            (50_000, 2),
        ];
        for (instances, clusters) in cases {
            let mut sizes = draw(instances, clusters, 1);
            assert_eq!(sizes.len(), clusters as usize);
            assert_eq!(sizes.iter().sum::<u32>(), instances, "{clusters} clusters");
            sizes.sort_unstable();
            assert!(sizes[0] >= 1);
            if instances >= 100 * clusters && clusters > 2 {
                let top = sizes.iter().rev().take(sizes.len() / 10).sum::<u32>();
                assert!(
                    top * 3 > instances,
                    "the largest tenth has {top} of {instances}"
                );
                assert!(sizes[sizes.len() - 1] <= 10_001, "{:?}", sizes.last());
            }
        }
    }

    #[test]
    fn the_seed_says_which_cluster_is_large_and_nothing_else() {
        let (mut one, mut other) = (draw(5_000, 50, 1), draw(5_000, 50, 2));
        assert_ne!(one, other);
        one.sort_unstable();
        other.sort_unstable();
        assert_eq!(one, other);
    }
}
