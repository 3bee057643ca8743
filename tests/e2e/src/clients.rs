//! Unmodified gRPC clients that find [`CLUSTER`] through Observers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_testkit::caller::{Caller, Calls, Load};
use waypost_testkit::dns::DnsServer;
use waypost_testkit::grpc::Language;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::write_bootstrap;

use crate::fleet::CLUSTER;

/// The bootstrap file that `waypost bootstrap grpc` prints for one Observer.
///
/// # Errors
/// The command fails.
pub async fn bootstrap(observer: SocketAddr, folder: &Path) -> anyhow::Result<PathBuf> {
    let file = folder.join("bootstrap.json");
    write_bootstrap("grpc", &["--to", &observer.to_string()], &file).await
}

/// The bootstrap file that `waypost bootstrap grpc` prints for one name of all Observers. The client
/// is sent to `dns` for the name, since the machine's own resolver does not know it.
///
/// # Errors
/// The command fails, or prints no target of the form `dns:///NAME:PORT`.
pub async fn bootstrap_by_name(
    name: &str,
    port: u16,
    dns: &DnsServer,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let file = folder.join("bootstrap.json");
    write_bootstrap("grpc", &["--to", &format!("{name}:{port}")], &file).await?;
    let text = std::fs::read_to_string(&file)?;
    let by_resolver = format!("dns:///{name}");
    ensure!(text.contains(&by_resolver), "no {by_resolver} in {text}");
    let by_us = format!("dns://{}/{name}", dns.address());
    std::fs::write(&file, text.replace(&by_resolver, &by_us))?;
    Ok(file)
}

/// Clients under a steady load.
#[derive(Debug)]
pub struct Clients {
    callers: Vec<Caller>,
    load: Load,
}

impl Clients {
    /// Starts `count` clients of grpcio and waits for the first answer of each.
    ///
    /// # Errors
    /// One is not answered.
    pub async fn start(
        count: usize,
        load: Load,
        bootstrap: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        Self::start_in(Language::Python, count, load, bootstrap, folder).await
    }

    /// As [`Clients::start`], in any language.
    ///
    /// # Errors
    /// As there.
    pub async fn start_in(
        language: Language,
        count: usize,
        load: Load,
        bootstrap: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let target = format!("xds:///{CLUSTER}");
        let mut callers = Vec::new();
        for number in 0..count {
            let out = folder.join(format!("calls-{number}.jsonl"));
            callers.push(Caller::start(language, &target, bootstrap, &out, load).await?);
        }
        Ok(Self { callers, load })
    }

    /// Calls in flight at most, over all clients.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        self.callers.len() * usize::try_from(self.load.concurrency).unwrap_or(usize::MAX)
    }

    /// All calls so far, over all clients.
    ///
    /// # Errors
    /// A client wrote something else.
    pub fn calls(&self) -> anyhow::Result<Calls> {
        let each: Vec<Calls> = self
            .callers
            .iter()
            .map(Caller::calls)
            .collect::<Result<_, _>>()?;
        Ok(Calls(each.into_iter().flat_map(|calls| calls.0).collect()))
    }

    /// Waits until every client was answered by `name` in a call that began after `since`; gives the
    /// start of the last client's first such call.
    ///
    /// # Errors
    /// One was not, in time.
    pub async fn all_reach(
        &self,
        name: &str,
        since: f64,
        deadline: Duration,
    ) -> anyhow::Result<f64> {
        eventually(&format!("every client calls {name}"), deadline, || async {
            let mut last = since;
            for caller in &self.callers {
                let first = |calls: &Calls| {
                    let call = calls.find_first_answer(name, since);
                    call.map(|call| call.start)
                };
                last = last.max(caller.look(first)?.context("one does not")?);
            }
            Ok(last)
        })
        .await
    }

    /// Waits until every client has made some calls that began after `since`.
    ///
    /// # Errors
    /// One has not, in time.
    pub async fn all_call_on(
        &self,
        since: f64,
        calls: usize,
        deadline: Duration,
    ) -> anyhow::Result<()> {
        eventually(
            &format!("every client makes {calls} more calls"),
            deadline,
            || async {
                for caller in &self.callers {
                    let made = caller.look(|calls| calls.count_since(since))?;
                    ensure!(made >= calls, "one made {made}");
                }
                Ok(())
            },
        )
        .await
    }

    /// Waits until every client has made `calls` calls that began after the last one that `name`
    /// answered, if it answered any after `since`; gives the start of that one, else `since`.
    ///
    /// # Errors
    /// One has not, in time.
    pub async fn all_leave(
        &self,
        name: &str,
        since: f64,
        calls: usize,
        deadline: Duration,
    ) -> anyhow::Result<f64> {
        eventually(
            &format!("every client makes {calls} calls without {name}"),
            deadline,
            || async {
                let mut latest = since;
                for caller in &self.callers {
                    let (last, made) = caller.look(|calls| {
                        let last = calls.last_answer(name, since);
                        (last, calls.count_since(last))
                    })?;
                    ensure!(made >= calls, "one made {made}");
                    latest = latest.max(last);
                }
                Ok(latest)
            },
        )
        .await
    }

    /// The last start of a call that `name` answered after `since`; `since` when it answered none.
    ///
    /// # Errors
    /// A client wrote something else.
    pub fn last_answer(&self, name: &str, since: f64) -> anyhow::Result<f64> {
        Ok(self.calls()?.last_answer(name, since))
    }

    /// Ends all clients and gives all calls.
    ///
    /// # Errors
    /// One does not end well.
    pub async fn finish(self) -> anyhow::Result<Calls> {
        let mut calls = Vec::new();
        for caller in self.callers {
            calls.extend(caller.finish().await?.0);
        }
        Ok(Calls(calls))
    }
}
