//! Looking at a server through its admin port, as the command line does.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::http_get;

/// One answer of the admin API.
///
/// # Errors
/// Nobody answers, or not with 200 and JSON.
pub async fn api(admin: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let (status, body) = http_get(admin, &format!("/api/v1/{path}")).await?;
    ensure!(status == 200, "{path}: HTTP {status}: {body}");
    serde_json::from_str(&body).with_context(|| format!("{path}: no JSON: {body}"))
}

/// Every item of a list, all of its pages.
///
/// # Errors
/// As [`api`].
pub async fn all(admin: SocketAddr, path: &str) -> anyhow::Result<Vec<Value>> {
    let mut items = Vec::new();
    let mut page = api(admin, path).await?;
    loop {
        items.extend(page["items"].as_array().into_iter().flatten().cloned());
        let Some(cursor) = page["next"].as_str().map(encoded) else {
            return Ok(items);
        };
        page = api(admin, &format!("{path}?after={cursor}")).await?;
    }
}

/// Refusals (NACKs) that an Observer read of a kind of client (`grpc`, `envoy`, `d2`) on the streams that are
/// open. Waits until so many of its streams have acknowledged something: of nobody there is nothing to refuse.
///
/// # Errors
/// They have not, in time.
pub async fn refused(
    admin: SocketAddr,
    client: &str,
    streams_min: usize,
    deadline: Duration,
) -> anyhow::Result<usize> {
    let what = format!("{streams_min} streams of {client} acknowledge something");
    let refused = eventually(&what, deadline, || async {
        let streams = all(admin, "streams").await?;
        let of_kind = streams.iter().filter(|stream| stream["client"] == client);
        let types = of_kind.filter_map(|stream| stream["types"].as_array());
        let acked = types.filter(|types| types.iter().any(|t| t["nonce_acked"].is_string()));
        let acked: Vec<_> = acked.collect();
        ensure!(acked.len() >= streams_min, "{}", acked.len());
        let refusals = acked
            .into_iter()
            .flatten()
            .filter_map(|t| t["nacks"].as_u64());
        Ok(refusals.sum::<u64>())
    });
    Ok(usize::try_from(refused.await?)?)
}

/// The instances of a cluster; none when the server does not know the cluster.
///
/// # Errors
/// Nobody answers, or not as documented.
pub async fn uris(admin: SocketAddr, cluster: &str) -> anyhow::Result<Vec<Value>> {
    let path = format!("uris/{cluster}");
    let (status, _) = http_get(admin, &format!("/api/v1/{path}")).await?;
    if status == 404 {
        return Ok(Vec::new());
    }
    all(admin, &path).await
}

/// Waits until a cluster has this many instances.
///
/// # Errors
/// It has not, in time.
pub async fn instances(
    admin: SocketAddr,
    cluster: &str,
    count: usize,
    deadline: Duration,
) -> anyhow::Result<()> {
    eventually(
        &format!("{count} instances of {cluster} at {admin}"),
        deadline,
        || async {
            let found = uris(admin, cluster).await?.len();
            ensure!(found == count, "{found}");
            Ok(())
        },
    )
    .await
}

/// Waits until one instance of a cluster is as wanted.
///
/// # Errors
/// It is not, in time.
pub async fn instance(
    admin: SocketAddr,
    cluster: &str,
    uri: &str,
    deadline: Duration,
    wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    eventually(
        &format!("{uri} of {cluster} at {admin}"),
        deadline,
        || async {
            let found = uris(admin, cluster)
                .await?
                .into_iter()
                .find(|item| item["uri"] == uri);
            let item = found.context("it is not there")?;
            ensure!(wanted(&item), "{item}");
            Ok(item)
        },
    )
    .await
}

/// The versions of the resources made from a cluster, by type.
///
/// # Errors
/// Nobody answers, or none.
pub async fn versions(admin: SocketAddr, cluster: &str) -> anyhow::Result<Value> {
    let view = api(admin, &format!("clusters/{cluster}")).await?;
    let versions = view["versions"].clone();
    ensure!(
        versions.as_object().is_some_and(|map| !map.is_empty()),
        "no versions: {view}"
    );
    Ok(versions)
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
