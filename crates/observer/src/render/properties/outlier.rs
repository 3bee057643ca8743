//! Ejection of instances that fail: `outlierDetectionConfig`, which D2 carries for others and which has
//! the fields of Envoy's `OutlierDetection`.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::OutlierDetection;
use envoy_types::pb::google::protobuf::{self, UInt32Value};

use super::read::{Reader, count, duration, flag, object};
use crate::render::envoy::to_wire;

const POINTER: &str = "/outlierDetectionConfig";

/// How long an instance is out at first where nothing is said (Envoy and gRPC alike).
const BASE_EJECTION_TIME: Duration = Duration::from_secs(30);

/// Reads it. One that is there and empty means Envoy's defaults.
pub(super) fn read(reader: &mut Reader) -> Option<OutlierDetection> {
    reader.read(POINTER, object)?;
    let base = time(reader, "baseEjectionTime");
    let max = longest(reader, base);
    Some(OutlierDetection {
        interval: time(reader, "interval").map(to_wire),
        base_ejection_time: base.map(to_wire),
        max_ejection_time: max.map(to_wire),
        max_ejection_time_jitter: time(reader, "maxEjectionTimeJitter").map(to_wire),
        max_ejection_percent: percent(reader, "maxEjectionPercent"),
        consecutive_5xx: number(reader, "consecutive5xx"),
        enforcing_consecutive_5xx: percent(reader, "enforcingConsecutive5xx"),
        consecutive_gateway_failure: number(reader, "consecutiveGatewayFailure"),
        enforcing_consecutive_gateway_failure: percent(
            reader,
            "enforcingConsecutiveGatewayFailure",
        ),
        split_external_local_origin_errors: reader
            .read_member(POINTER, "splitExternalLocalOriginErrors", flag)
            .unwrap_or(false),
        consecutive_local_origin_failure: number(reader, "consecutiveLocalOriginFailure"),
        enforcing_consecutive_local_origin_failure: percent(
            reader,
            "enforcingConsecutiveLocalOriginFailure",
        ),
        enforcing_local_origin_success_rate: percent(reader, "enforcingLocalOriginSuccessRate"),
        enforcing_success_rate: percent(reader, "enforcingSuccessRate"),
        success_rate_minimum_hosts: number(reader, "successRateMinimumHosts"),
        success_rate_request_volume: number(reader, "successRateRequestVolume"),
        success_rate_stdev_factor: number(reader, "successRateStdevFactor"),
        failure_percentage_threshold: percent(reader, "failurePercentageThreshold"),
        enforcing_failure_percentage: percent(reader, "enforcingFailurePercentage"),
        enforcing_failure_percentage_local_origin: percent(
            reader,
            "enforcingFailurePercentageLocalOrigin",
        ),
        failure_percentage_minimum_hosts: number(reader, "failurePercentageMinimumHosts"),
        failure_percentage_request_volume: number(reader, "failurePercentageRequestVolume"),
        always_eject_one_host: reader
            .read_member(POINTER, "alwaysEjectOneHost", flag)
            .map(|value| protobuf::BoolValue { value }),
        ..OutlierDetection::default()
    })
}

/// What gRPC honours of it (gRFC A50): ejection by success rate and by share of failures.
pub(crate) fn for_grpc(all: &OutlierDetection) -> OutlierDetection {
    OutlierDetection {
        interval: all.interval,
        base_ejection_time: all.base_ejection_time,
        max_ejection_time: all.max_ejection_time,
        max_ejection_percent: all.max_ejection_percent,
        enforcing_success_rate: all.enforcing_success_rate,
        success_rate_minimum_hosts: all.success_rate_minimum_hosts,
        success_rate_request_volume: all.success_rate_request_volume,
        success_rate_stdev_factor: all.success_rate_stdev_factor,
        failure_percentage_threshold: all.failure_percentage_threshold,
        enforcing_failure_percentage: all.enforcing_failure_percentage,
        failure_percentage_minimum_hosts: all.failure_percentage_minimum_hosts,
        failure_percentage_request_volume: all.failure_percentage_request_volume,
        ..OutlierDetection::default()
    }
}

/// Clients refuse one that is shorter than the first.
fn longest(reader: &mut Reader, base: Option<Duration>) -> Option<Duration> {
    let max = time(reader, "maxEjectionTime")?;
    if max < base.unwrap_or(BASE_EJECTION_TIME) {
        let pointer = format!("{POINTER}/maxEjectionTime");
        reader.leave_out(&pointer, "shorter than baseEjectionTime (default 30s)");
        return None;
    }
    Some(max)
}

fn time(reader: &mut Reader, member: &str) -> Option<Duration> {
    reader.read_member(POINTER, member, duration)
}

fn percent(reader: &mut Reader, member: &str) -> Option<UInt32Value> {
    let value = reader.read_member(POINTER, member, count(0..=100))?;
    Some(UInt32Value { value })
}

fn number(reader: &mut Reader, member: &str) -> Option<UInt32Value> {
    let value = reader.read_member(POINTER, member, count(0..=u32::MAX))?;
    Some(UInt32Value { value })
}
