//! Connections grow old: clients spread over the Observers that there are.

use std::time::Duration;

use waypost_conformance::engine::EngineTarget;
use waypost_conformance::target::Target as _;
use waypost_core::ResourceType;
use waypost_testkit::probe::{DeltaProbe, SotwProbe, connect, mk_node};
use waypost_testkit::wait::eventually;

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_connection_that_is_old_is_sent_away_with_all_of_its_streams() {
    let with = [("connection_age_max_ms".to_owned(), "300".to_owned())];
    let target = EngineTarget::start(&with).unwrap();
    let node = ResourceType::D2Node.type_url();
    target.set(ResourceType::D2Node, "a", "v", 0).unwrap();
    let channel = connect(&target.address()).await.unwrap();
    let mut delta = DeltaProbe::open(channel.clone(), mk_node("probe"))
        .await
        .unwrap();
    let mut sotw = SotwProbe::open(channel, mk_node("probe")).await.unwrap();
    delta.subscribe(node, &["a"]).await.unwrap();
    sotw.subscribe(node, &["a"]).await.unwrap();
    delta.expect_update(node, "a").await.unwrap();
    sotw.receive(DEADLINE).await.unwrap();
    for end in [
        delta.expect_end().await.unwrap(),
        sotw.expect_end().await.unwrap(),
    ] {
        assert_eq!(end.code(), tonic::Code::Ok, "{end}");
    }
    eventually("old connections are closed", DEADLINE, || async {
        let open = target.connections();
        anyhow::ensure!(open == 0, "{open} are open");
        Ok(())
    })
    .await
    .unwrap();
    // Whoever comes back is welcome.
    delta.reconnect(None, false).await.unwrap();
}
