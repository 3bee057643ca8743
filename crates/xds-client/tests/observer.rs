//! The engine against an Observer in this process, as each of the clients that it can be.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

#[path = "../../client/tests/common/world.rs"]
mod world;

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::Node;
use waypost_core::ResourceType;
use waypost_xds_client::{
    Absence, Driver, Event, Kept, KnownVersions, Machine, Mark, Policy, RawCodec, StreamEvent,
    Subscription, TypeUrl,
};
use world::{World, soon};

/// A driver and what it said so far.
struct Client {
    driver: Driver<RawCodec>,
    policy: &'static str,
}

impl Client {
    fn new(name: &'static str, policy: Policy, servers: &[String]) -> Self {
        let user_agent_name = if name == "d2" { "rest.li" } else { "engine" };
        let node = Node {
            id: name.to_owned(),
            user_agent_name: user_agent_name.to_owned(),
            ..Node::default()
        };
        let machine = Machine::new(policy, node, RawCodec, servers.len(), 1);
        Self {
            driver: Driver::new(machine, servers).unwrap(),
            policy: name,
        }
    }

    fn watch(&mut self, resource_type: ResourceType, name: &str) {
        let machine = self.driver.machine_mut();
        machine
            .watch(&resource_type.into(), &Subscription::new(name))
            .unwrap();
    }

    /// Drives until an event is as wanted.
    async fn until(&mut self, what: &str, is_it: impl Fn(&Event<bytes::Bytes>) -> bool) {
        let what = format!("{}: {what}", self.policy);
        let found = async { while !is_it(&self.driver.next().await) {} };
        soon(&what, found).await;
    }

    async fn until_changed(&mut self, name: &str) {
        let what = format!("{name} changes");
        let is_it =
            |event: &Event<_>| matches!(event, Event::Changed { name: n, .. } if **n == *name);
        self.until(&what, is_it).await;
    }

    fn marks(&self, resource_type: ResourceType) -> BTreeMap<String, Mark> {
        let type_url = TypeUrl::from(resource_type);
        let held = self.driver.machine().held(&type_url);
        held.map(|(name, held)| (name.to_string(), held.mark))
            .collect()
    }
}

fn policies() -> [(&'static str, Policy); 3] {
    [
        ("waypost", Policy::waypost()),
        ("grpc", Policy::grpc()),
        ("d2", Policy::d2(KnownVersions::Told)),
    ]
}

#[tokio::test]
async fn each_client_is_told_of_changes_and_holds_what_it_knew_while_the_observer_is_away() {
    for (name, policy) in policies() {
        let world = World::new();
        world.announce("greeter", 1001).await;
        let observer = world.observer().await;
        let address = observer.grpc_address();
        let mut client = Client::new(name, policy, &[address.to_string()]);
        client.watch(ResourceType::Cluster, "greeter");
        client.watch(ResourceType::ClusterLoadAssignment, "greeter");
        let answered =
            |event: &Event<_>| matches!(event, Event::Stream(StreamEvent::Answered { .. }));
        client.until("an answer", answered).await;
        client.until_changed("greeter").await;
        client.until_changed("greeter").await;
        world.announce("greeter", 1002).await;
        client.until_changed("greeter").await;

        observer.shutdown().await;
        let ended = |event: &Event<_>| matches!(event, Event::Stream(StreamEvent::Ended { .. }));
        client.until("the end", ended).await;
        let stale = BTreeMap::from([("greeter".to_owned(), Mark::Stale)]);
        assert_eq!(client.marks(ResourceType::ClusterLoadAssignment), stale);

        let observer = world.observer_at(Some(address)).await;
        let type_url = TypeUrl::from(ResourceType::ClusterLoadAssignment);
        let confirmed = |event: &Event<_>| matches!(event, Event::Confirmed { type_url: t, .. } if *t == type_url);
        client.until("it is confirmed", confirmed).await;
        world.announce("greeter", 1003).await;
        client.until_changed("greeter").await;
        assert_eq!(client.driver.machine().counters().nacks, 0, "{name}");
        observer.shutdown().await;
    }
}

#[tokio::test]
async fn collections_are_told_whole_member_by_member_and_to_their_end() {
    const GLOB: &str = "xdstp:///indis.D2URI/greeter/*";
    let member =
        |port: u16| format!("xdstp:///indis.D2URI/greeter/grpc%3A%2F%2F127.0.0.1%3A{port}");
    for (name, policy) in [
        ("waypost", Policy::waypost()),
        ("d2", Policy::d2(KnownVersions::Omitted)),
    ] {
        let world = World::new();
        world.announce("greeter", 1001).await;
        let observer = world.observer().await;
        let mut client = Client::new(name, policy, &[observer.grpc_address().to_string()]);
        client.watch(ResourceType::D2Uri, GLOB);
        client.watch(ResourceType::D2ClusterOrServiceName, "*");
        for _ in 0..2 {
            let whole = |event: &Event<_>| matches!(event, Event::Complete { .. });
            client.until("a collection is whole", whole).await;
        }
        let members = client.marks(ResourceType::D2Uri);
        assert_eq!(members.into_keys().collect::<Vec<_>>(), [member(1001)]);
        let directory = client.marks(ResourceType::D2ClusterOrServiceName);
        let names: Vec<_> = directory.into_keys().collect();
        assert_eq!(names, ["/d2/clusters/greeter", "/d2/services/greeter"]);

        world.withdraw("greeter", 1001).await;
        let emptied = |event: &Event<_>| matches!(event, Event::Absent { name, kept: Kept::Nothing, .. } if **name == *GLOB);
        client.until("the collection is empty", emptied).await;
        assert!(client.marks(ResourceType::D2Uri).is_empty());
        world.announce("greeter", 1002).await;
        client.until_changed(&member(1002)).await;
        assert_eq!(client.driver.machine().counters().nacks, 0, "{name}");
        observer.shutdown().await;
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_in_delta_and_told_when_it_comes() {
    let world = World::new();
    let observer = world.observer().await;
    let server = observer.grpc_address().to_string();
    let mut client = Client::new("waypost", Policy::waypost(), &[server]);
    client.watch(ResourceType::D2Node, "/d2/clusters/NonExistentCluster");
    client.watch(ResourceType::ClusterLoadAssignment, "later");
    for _ in 0..2 {
        let absent = |event: &Event<_>| {
            matches!(
                event,
                Event::Absent {
                    why: Absence::Stated,
                    kept: Kept::Nothing,
                    ..
                }
            )
        };
        client.until("it is absent", absent).await;
    }
    world.announce("later", 1001).await;
    client.until_changed("later").await;
    observer.shutdown().await;
}
