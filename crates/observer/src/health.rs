//! `grpc.health.v1` and reflection.
//!
//! While loading, health answers NOT_SERVING with status OK: rest.li's pre-check takes a failed call
//! for a dead host and a NOT_SERVING one for a host to try later (d2 `XdsClientImpl`).

use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::LoadReportingServiceServer;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryServiceServer;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use waypost_proto::v1::gateway_server::GatewayServer;

use crate::csds::ClientStatus;
use crate::gateway::{Gateway, Strict};
use crate::load_reports::LoadReporting;

/// The service that serves every xDS stream.
pub const ADS_SERVICE: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

/// The name of this release's other service.
pub const GATEWAY_SERVICE: &str = "waypost.v1.Gateway";

/// What health says of each service.
#[derive(Clone, Debug)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Everything is NOT_SERVING at first, except for the gateway, which needs nothing loaded.
    pub async fn new() -> Self {
        let health = Self {
            reporter: HealthReporter::new(),
        };
        health.set_loaded(false).await;
        let reporter = &health.reporter;
        reporter
            .set_service_status(GATEWAY_SERVICE, ServingStatus::Serving)
            .await;
        health
    }

    /// Says whether xDS streams are served now.
    pub async fn set_loaded(&self, is_loaded: bool) {
        let status = if is_loaded {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for service in ["", ADS_SERVICE] {
            self.reporter.set_service_status(service, status).await;
        }
    }

    /// The gRPC service.
    #[must_use]
    pub fn to_service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }
}

/// Everything on the gRPC port that is not xDS: the gateway, load reports, CSDS, health, reflection.
///
/// # Errors
/// The descriptors of this build cannot be read.
pub fn services(
    health: &Health,
    gateway: Gateway,
    load_reporting: LoadReporting,
    client_status: ClientStatus,
) -> Result<tonic::service::Routes, tonic_reflection::server::Error> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(waypost_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Ok(tonic::service::Routes::new(health.to_service())
        .add_service(Strict(GatewayServer::new(gateway)))
        .add_service(Strict(LoadReportingServiceServer::new(load_reporting)))
        .add_service(Strict(ClientStatusDiscoveryServiceServer::new(
            client_status,
        )))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?))
}
