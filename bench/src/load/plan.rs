//! Which stream subscribes to what.

use clap::ValueEnum;

/// What a stream subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Endpoints of clusters, as Envoy and gRPC clients do.
    Endpoints,
    /// `indis.D2URIMap` of clusters.
    UriMap,
    /// `indis.D2URI`: the collection of all instances of a cluster, by glob.
    UriGlob,
    /// Odd streams globs, even ones maps.
    UriMapAndGlob,
}

impl Kind {
    pub(super) fn type_url(self) -> &'static str {
        match self {
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::UriMap => "type.googleapis.com/indis.D2URIMap",
            Self::UriGlob | Self::UriMapAndGlob => "type.googleapis.com/indis.D2URI",
        }
    }

    pub(super) fn name_of(self, cluster: usize) -> String {
        match self {
            Self::Endpoints => format!("cluster-{cluster}"),
            Self::UriMap => format!("/d2/uris/cluster-{cluster}"),
            Self::UriGlob | Self::UriMapAndGlob => {
                format!("xdstp:///indis.D2URI/cluster-{cluster}/*")
            }
        }
    }

    /// A name that nothing has.
    pub(super) fn absent_name(self) -> &'static str {
        match self {
            Self::Endpoints => "absent",
            Self::UriMap => "/d2/uris/absent",
            Self::UriGlob | Self::UriMapAndGlob => "xdstp:///indis.D2URI/absent/none",
        }
    }
}

/// The clusters that a stream subscribes to: `names` of `clusters`.
///
/// Every cluster is subscribed by as many streams as any other (give or take one). The names of a
/// stream are neighbours, which servers under test do not change one after the other, so that one
/// change costs one delivery to each of its subscribers.
pub(crate) fn clusters_of(
    stream: usize,
    names: usize,
    clusters: usize,
) -> impl Iterator<Item = usize> {
    let names = names.min(clusters);
    // Laps over all clusters are shifted against each other, so that not always the same streams
    // share all of their names; not where a stream's names may lie in two laps.
    let shift = if clusters.is_multiple_of(names) { 7 } else { 0 };
    let first = stream * names;
    (first..first + names).map(move |index| (index + index / clusters * shift) % clusters)
}

/// How many of the first `connections` connections are slow readers: they are spread evenly.
pub(crate) fn slow_before(connections: usize, slow_percent: usize) -> usize {
    connections * slow_percent / 100
}

/// How many of the first `streams` streams subscribe to one cluster, on average.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of streams are far below 2^52"
)]
pub(crate) fn subscribers_of_each(streams: usize, names: usize, clusters: usize) -> f64 {
    (streams * names.min(clusters)) as f64 / clusters as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::clusters_of;

    #[test]
    fn every_cluster_has_as_many_subscribers_and_no_stream_a_cluster_twice() {
        let sizes = [
            (10_000, 10, 1_000),
            (40_000, 10, 1_000),
            (50, 10, 50),
            (7, 1, 1),
            (3, 5, 5),
            (4, 9, 5),
            (13, 3, 7),
            (9, 4, 10),
        ];
        for (streams, names, clusters) in sizes {
            let mut subscribers = vec![0_usize; clusters];
            for stream in 0..streams {
                let chosen: Vec<usize> = clusters_of(stream, names, clusters).collect();
                let distinct: HashSet<&usize> = chosen.iter().collect();
                assert_eq!(distinct.len(), chosen.len(), "{streams} {names} {clusters}");
                for cluster in chosen {
                    subscribers[cluster] += 1;
                }
            }
            let (least, most) = (subscribers.iter().min(), subscribers.iter().max());
            let spread = most.unwrap() - least.unwrap();
            assert!(spread <= 1, "{streams} {names} {clusters}: {subscribers:?}");
        }
    }
}
