//! Sums of what streams report.

use envoy_types::pb::envoy::config::core::v3::Locality as PbLocality;
use envoy_types::pb::google::protobuf;

use super::*;

/// A report of one locality over ten seconds.
fn mk_stats(cluster: &str, zone: &str, [succeeded, failed, issued]: [u64; 3]) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.to_owned(),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            locality: Some(PbLocality {
                region: "east".to_owned(),
                zone: zone.to_owned(),
                ..PbLocality::default()
            }),
            total_successful_requests: succeeded,
            total_error_requests: failed,
            total_issued_requests: issued,
            total_requests_in_progress: 1,
            ..UpstreamLocalityStats::default()
        }],
        load_report_interval: Some(protobuf::Duration {
            seconds: 10,
            nanos: 0,
        }),
        ..ClusterStats::default()
    }
}

fn mk_reports() -> LoadReports {
    LoadReports::new(LoadMetrics::default())
}

fn zone(zone: &str) -> Locality {
    Locality {
        region: "east".to_owned(),
        zone: zone.to_owned(),
    }
}

fn issued(reports: &LoadReports, cluster: &str) -> u64 {
    let load = reports.find(cluster).unwrap();
    load.now.values().map(|rates| rates.issued_per_1000s).sum()
}

#[test]
fn the_load_of_now_is_the_sum_of_the_last_report_of_each_stream() {
    let reports = mk_reports();
    let (mut one, mut other) = (reports.reporter(), reports.reporter());
    one.report(&[mk_stats("profile", "a", [90, 10, 100])]);
    other.report(&[
        mk_stats("profile", "a", [5, 0, 5]),
        mk_stats("profile", "b", [1, 0, 1]),
    ]);
    let load = reports.find("profile").unwrap();
    assert_eq!(load.reporters, 2);
    let in_a = Rates {
        issued_per_1000s: 10_500,
        failed_per_1000s: 1_000,
        in_progress: 2,
    };
    assert_eq!(load.now[&zone("a")], in_a);
    assert_eq!(load.now[&zone("b")].issued_per_1000s, 100);

    one.report(&[mk_stats("profile", "a", [10, 0, 10])]);
    assert_eq!(issued(&reports, "profile"), 1_000 + 500 + 100);
    // Of a cluster that it does not name any more there is nothing to say.
    one.report(&[]);
    assert_eq!(issued(&reports, "profile"), 600);
    assert_eq!(reports.find("profile").unwrap().reporters, 1);
}

#[test]
fn a_stream_that_ends_takes_its_part_along_and_totals_stay() {
    let reports = mk_reports();
    let mut reporter = reports.reporter();
    let mut stats = mk_stats("profile", "a", [90, 10, 100]);
    stats.total_dropped_requests = 7;
    reporter.report(&[stats]);
    assert_eq!(reports.find("profile").unwrap().dropped_per_1000s, 700);
    drop(reporter);
    let load = reports.find("profile").unwrap();
    assert!(load.now.is_empty() && load.reporters == 0 && load.dropped_per_1000s == 0);
    let totals = Totals {
        succeeded: 90,
        failed: 10,
        dropped: 7,
    };
    assert_eq!(load.totals, totals);
}

#[test]
fn a_report_is_of_the_cluster_of_its_endpoints_without_the_partition() {
    let cases = [
        ("profile", "", "profile"),
        ("profile#3", "", "profile"),
        ("alias", "profile#0", "profile"),
    ];
    for (cluster_name, service_name, cluster) in cases {
        let mut stats = mk_stats(cluster_name, "a", [1, 0, 1]);
        stats.cluster_service_name = service_name.to_owned();
        assert_eq!(cluster_of(&stats), cluster, "{cluster_name} {service_name}");
    }
}

#[test]
fn numbers_at_the_edge_neither_panic_nor_leave_anything_behind() {
    let reports = mk_reports();
    let (mut one, mut other) = (reports.reporter(), reports.reporter());
    let mut huge = mk_stats("profile", "a", [u64::MAX; 3]);
    huge.load_report_interval = None;
    one.report(&[huge.clone()]);
    huge.load_report_interval = Some(protobuf::Duration {
        seconds: -1,
        nanos: 0,
    });
    other.report(&[huge.clone(), huge]);
    drop((one, other));
    assert!(reports.find("profile").unwrap().now.is_empty());
    assert_eq!(reports.find("profile").unwrap().totals.failed, u64::MAX);
}

#[test]
fn clusters_and_localities_are_bounded() {
    let reports = mk_reports();
    let mut reporter = reports.reporter();
    let zones =
        (0..LOAD_LOCALITIES_MAX + 10).map(|zone| mk_stats("profile", &zone.to_string(), [1, 0, 1]));
    reporter.report(&zones.collect::<Vec<_>>());
    let load = reports.find("profile").unwrap();
    assert_eq!(load.now.len(), LOAD_LOCALITIES_MAX + 1);
    assert_eq!(load.now[&Locality::default()].in_progress, 10);

    let clusters = (0..LOAD_CLUSTERS_MAX + 10).map(|n| mk_stats(&n.to_string(), "a", [1, 0, 1]));
    reporter.report(&clusters.collect::<Vec<_>>());
    assert_eq!(reports.by_cluster.lock().len(), LOAD_CLUSTERS_MAX);
}
