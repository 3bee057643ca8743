//! Resources under names of gRPC's federation.

use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterMessage;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment as Assignment;
use envoy_types::pb::envoy::config::listener::v3::Listener as ListenerMessage;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration as Routes;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message;
use waypost_core::ResourceType::{Cluster, ClusterLoadAssignment, Listener, RouteConfiguration};
use waypost_core::{Interest, ResourceLocator as _, ResourceType, Variant};

use super::super::Locator;
use super::*;

fn name(resource_type: ResourceType, id: &str) -> String {
    let type_name = resource_type.type_url().rsplit('/').next().unwrap();
    format!("xdstp://an.authority/{type_name}/{id}")
}

fn read<M: Message + Default>(locator: &Locator, resource_type: ResourceType, name: &str) -> M {
    let found = locator.find(resource_type, name, Variant::default());
    let found = found.unwrap_or_else(|| panic!("no {name}"));
    let response = DiscoveryResponse::decode(found.sotw()).unwrap();
    M::decode(&*response.resources[0].value).unwrap()
}

#[test]
fn what_a_resource_refers_to_is_named_in_the_same_form() {
    let (locator, mut writer) = mk_locator();
    let instance = up("größe", "http://10.0.0.1:80");
    let service = define_service("greeter", Some("größe"));
    writer.apply(NOW, [service, instance]);

    let listener_name = name(Listener, "greeter");
    let listener: ListenerMessage = read(&locator, Listener, &listener_name);
    assert_eq!(listener.name, listener_name);
    let api = listener.api_listener.unwrap().api_listener.unwrap();
    let manager = HttpConnectionManager::decode(&*api.value).unwrap();
    let Some(RouteSpecifier::Rds(rds)) = manager.route_specifier else {
        panic!("no RDS")
    };

    let routes: Routes = read(&locator, RouteConfiguration, &rds.route_config_name);
    assert_eq!(routes.name, name(RouteConfiguration, "greeter"));
    let Some(Action::Route(action)) = &routes.virtual_hosts[0].routes[0].action else {
        panic!("no route")
    };
    let Some(ClusterSpecifier::Cluster(cluster_name)) = &action.cluster_specifier else {
        panic!("no cluster")
    };
    assert_eq!(*cluster_name, name(Cluster, "gr%C3%B6%C3%9Fe"));

    let cluster: ClusterMessage = read(&locator, Cluster, cluster_name);
    assert_eq!(cluster.name, *cluster_name);
    let service_name = cluster.eds_cluster_config.unwrap().service_name;
    assert_eq!(locator.endpoints_name(cluster_name), service_name);
    assert_eq!(locator.endpoints_name("größe"), "größe");
    let endpoints: Assignment = read(&locator, ClusterLoadAssignment, &service_name);
    assert_eq!(endpoints.cluster_name, service_name);
    assert_eq!(endpoints.endpoints[0].lb_endpoints.len(), 1);
}

#[test]
fn a_change_is_told_under_the_name_that_was_asked_for_and_shared_by_all_who_spell_it_so() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("c", "http://10.0.0.1:80")]);
    let asked = name(ClusterLoadAssignment, "%63");
    let before: Assignment = read(&locator, ClusterLoadAssignment, &asked);
    assert_eq!(before.cluster_name, asked);
    let marks = Arc::new(Marks::default());
    let interest = Interest::Explicit(asked.as_str().into());
    let token = locator.subscribe(ClusterLoadAssignment, &interest, marks.clone());
    writer.apply(NOW, [up("c", "http://10.0.0.2:80")]);
    assert_eq!(marks.take(), [format!("eds {asked}")]);
    let after: Assignment = read(&locator, ClusterLoadAssignment, &asked);
    assert_eq!(after.endpoints[0].lb_endpoints.len(), 2);
    let encodes = locator.encodes();
    let _: Assignment = read(&locator, ClusterLoadAssignment, &asked);
    assert_eq!(locator.encodes(), encodes, "encoded again");

    locator.unsubscribe(ClusterLoadAssignment, &interest, token);
    writer.apply(NOW, [up("c", "http://10.0.0.3:80")]);
    assert!(marks.0.lock().is_empty());
    let absent = locator.find(Cluster, &name(Cluster, "nowhere"), Variant::default());
    assert!(absent.is_none());
}
