//! What the tests of the library share.

pub(crate) mod world;

use std::time::Duration;

use waypost_client::{Client, Cluster, EndpointList};
use waypost_observer::RunningObserver;

pub(crate) use world::{World, soon};

/// A client of these Observers.
pub(crate) fn client(observers: &[&RunningObserver]) -> Client {
    let mut builder = Client::builder();
    for observer in observers {
        builder = builder.server(observer.grpc_address().to_string());
    }
    builder.build().unwrap()
}

/// The ports of a list, in order.
pub(crate) fn ports(list: &EndpointList) -> Vec<u16> {
    let mut ports: Vec<u16> = list
        .endpoints()
        .iter()
        .map(|e| e.address().port())
        .collect();
    ports.sort_unstable();
    ports
}

/// Waits until the cluster has exactly these ports; gives the list.
pub(crate) async fn until_ports(cluster: &Cluster, expected: &[u16]) -> EndpointList {
    let mut cluster = cluster.clone();
    let what = format!("{} has {expected:?}", cluster.name());
    let reached = async {
        loop {
            let list = cluster.endpoints();
            if ports(&list) == expected && list.version() != "" {
                return list;
            }
            cluster.changed().await;
        }
    };
    soon(&what, reached).await
}

/// Waits until `condition` gives a value.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let reached = async {
        loop {
            if let Some(value) = condition() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(what, reached).await
}
