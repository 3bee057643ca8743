//! HTTP servers that D2 clients call, and the definitions by which they find them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use waypost_announcer::{Announcer, AnnouncerPool};
use waypost_testkit::caller::Load;
use waypost_testkit::http::HttpServer;
use waypost_testkit::waypost::cli;

use crate::fleet::{CLUSTER, announcement};

/// A bound on everything that should take a moment.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Services that are defined: their requests may take long, as on a machine that does many other things.
pub(crate) const DEFINED: [&str; 2] = ["greeterReads", "greeterWrites"];

/// A service that is defined, and one that nobody defined.
pub(crate) const DEFINED_OR_NOT: [&str; 2] = ["greeterReads", CLUSTER];

/// Requests of one client.
pub(crate) const LOAD: Load = Load {
    rate: 60.0,
    concurrency: 4,
};

/// What the clients start with.
pub(crate) const DEFINITIONS: &str = "\
kind: Service
name: greeterReads
cluster: greeter
path: /reads
properties:
  prioritizedSchemes: [https, http]
  transportClientProperties:
    http.requestTimeout: '15000'
---
kind: Service
name: greeterWrites
cluster: greeter
path: /writes
properties:
  transportClientProperties:
    http.requestTimeout: '15000'
";

/// Changes the documents of service and cluster.
pub(crate) const DEFINITIONS_CHANGED: &str = "\
kind: Cluster
name: greeter
properties:
  partitionProperties:
    partitionType: RANGE
    partitionKeyRegex: 'key=([0-9]+)'
    keyRangeStart: 0
    partitionSize: 100
    partitionCount: 1
---
kind: Service
name: greeterReads
cluster: greeter
path: /reads/v2
properties:
  prioritizedSchemes: [http]
  transportClientProperties:
    http.requestTimeout: '16000'
";

/// A server that is announced.
pub(crate) struct Instance {
    pub(crate) server: HttpServer,
    pub(crate) announcer: Announcer,
}

impl Instance {
    /// Starts a server and announces it; returns once the log has it.
    pub(crate) async fn announce(pool: &AnnouncerPool) -> anyhow::Result<Self> {
        let server = HttpServer::start().await?;
        let uri = format!("http://{}", server.address());
        let announcer = pool.announce(announcement(&uri)?)?;
        announcer.settled().await?;
        Ok(Self { server, announcer })
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// What it answers with.
    pub(crate) fn name(&self) -> String {
        self.server.address().to_string()
    }
}

/// What a client requests of a service.
pub(crate) fn url(service: &str) -> String {
    format!("d2://{service}/hello?key=7")
}

/// Applies definitions.
pub(crate) async fn define(
    definitions: &str,
    observer: SocketAddr,
    folder: &Path,
) -> anyhow::Result<()> {
    let file = folder.join("definitions.yaml");
    std::fs::write(&file, definitions)?;
    let (file, to) = (file.display().to_string(), observer.to_string());
    let done = cli(&["apply", "-f", &file, "--to", &to]).await?;
    ensure!(done.code() == 0, "waypost apply: {}", done.stderr);
    Ok(())
}
