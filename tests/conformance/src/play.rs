//! Plays a case against a target.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tonic::transport::Channel;
use waypost_core::ClientKind;
use waypost_testkit::probe::{RESPONSE_MAX, connect, remaining_chunks};

use crate::case::{Case, Step, Variant};
use crate::client::{Client, RawRequest, Received};
use crate::engine::type_named;
use crate::target::Target;

/// How long nothing may come where a case says `quiet`.
const QUIET: Duration = Duration::from_millis(300);

/// A version that no server gives.
const OLD_VERSION: &str = "0000000000000001";

/// Plays every step of a case.
///
/// # Errors
/// A step did not hold; the error names it.
pub async fn play(case: &Case, variant: Variant, target: &dyn Target) -> anyhow::Result<()> {
    let mut player = Player {
        variant,
        target,
        channel: None,
        clients: BTreeMap::new(),
        current: "1".to_owned(),
        nonces: Vec::new(),
        last: Received::default(),
        batch: Vec::new(),
        kept: BTreeMap::new(),
        syncs: 0,
    };
    for step in &case.steps {
        if step.only.is_some_and(|only| only != variant) {
            continue;
        }
        let played = player.play(step).await;
        played.with_context(|| format!("{}: {}", step.place, step.text))?;
    }
    Ok(())
}

struct Player<'a> {
    variant: Variant,
    target: &'a dyn Target,
    channel: Option<Channel>,
    clients: BTreeMap<String, Client>,
    /// The stream that steps are about.
    current: String,
    /// Nonces received on any stream, the newest last.
    nonces: Vec<String>,
    last: Received,
    /// Nonces received since the last `expect` began.
    batch: Vec<String>,
    kept: BTreeMap<String, BTreeMap<String, String>>,
    syncs: usize,
}

/// What a response should hold.
#[derive(Debug, Default)]
struct Expected {
    type_url: String,
    /// Value by name; `None`: any.
    resources: BTreeMap<String, Option<String>>,
    removed: BTreeSet<String>,
}

impl Player<'_> {
    async fn play(&mut self, step: &Step) -> anyhow::Result<()> {
        let words: Vec<&str> = step.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [
                "set" | "set-for" | "endpoints-name" | "remove" | "touch" | "forget-removed"
                | "not-loaded" | "loaded",
                ..,
            ] => self.serve(&words),
            ["stream", name, agent @ ..] => self.switch(name, agent.first().copied()).await,
            ["subscribe", of, names @ ..] => {
                let type_url = type_url(of);
                self.client().await?.subscribe(&type_url, names).await
            }
            ["unsubscribe", of, names @ ..] => {
                let type_url = type_url(of);
                self.client().await?.unsubscribe(&type_url, names).await
            }
            ["request", of, fields @ ..] => self.request(of, fields).await,
            ["expect", of, items @ ..] => self.expect(&expected(of, items)).await,
            ["receive", of, items @ ..] => self.receive_one(&expected(of, items)).await,
            ["ack"] => self.client().await?.ack().await,
            ["nack", text @ ..] => self.client().await?.nack(&text.join(" ")).await,
            ["quiet"] => self.client().await?.expect_quiet(QUIET).await,
            ["quiet", millis] => {
                let window = Duration::from_millis(millis.parse()?);
                self.client().await?.expect_quiet(window).await
            }
            ["sync"] => self.sync().await,
            ["reconnect"] => self.client().await?.reconnect(false).await,
            ["reconnect", "versions"] => self.client().await?.reconnect(true).await,
            ["reopen"] => self.client().await?.reopen().await,
            ["end", code, text @ ..] => {
                let status = self.client().await?.expect_end().await?;
                check_status(&status, code, &text.join(" "))
            }
            ["refused", code, text @ ..] => self.refused(code, &text.join(" ")).await,
            ["chunks", ..] | ["version-is", ..] | ["keep-version", ..] => self.check(&words),
            _ => bail!("not a step"),
        }
    }

    /// Steps of the server.
    fn serve(&self, words: &[&str]) -> anyhow::Result<()> {
        match *words {
            ["set", of, name, value] => self.target.set(type_named(of)?, name, value, 0),
            ["set", of, name, value, bytes] => {
                self.target
                    .set(type_named(of)?, name, value, bytes.parse()?)
            }
            ["set-for", kind, of, name, value] => {
                let client = match kind {
                    "envoy" => ClientKind::Envoy,
                    "rest.li" => ClientKind::D2,
                    other => bail!("{other:?} is no kind of client"),
                };
                self.target.set_for(client, type_named(of)?, name, value)
            }
            ["endpoints-name", cluster, name] => self.target.set_endpoints_name(cluster, name),
            ["remove", of, name] => self.target.remove(type_named(of)?, name),
            ["touch", of, name] => self.target.touch(type_named(of)?, name),
            ["forget-removed"] => self.target.forget_removed(),
            ["not-loaded", ref why @ ..] => self.target.set_not_loaded(Some(&why.join(" "))),
            ["loaded"] => self.target.set_not_loaded(None),
            _ => bail!("not a step of the server"),
        }
    }

    /// Steps that look at what came.
    fn check(&mut self, words: &[&str]) -> anyhow::Result<()> {
        match *words {
            ["chunks", count] => {
                let remaining: anyhow::Result<Vec<u32>> = self
                    .batch
                    .iter()
                    .map(|nonce| remaining_chunks(nonce))
                    .collect();
                let wanted: Vec<u32> = (0..count.parse()?).rev().collect();
                let remaining = remaining?;
                ensure!(remaining == wanted, "chunks to come: {remaining:?}");
            }
            ["keep-version", name] => {
                let versions = self.last.versions.clone();
                self.kept.insert(name.to_owned(), versions);
            }
            ["version-is", relation, name] => {
                let kept = self.kept.get(name).context("no version was kept so")?;
                let same = *kept == self.last.versions;
                let wanted = relation == "same";
                ensure!(
                    same == wanted,
                    "versions {kept:?} and {:?}",
                    self.last.versions
                );
            }
            _ => bail!("not a step"),
        }
        Ok(())
    }

    async fn client(&mut self) -> anyhow::Result<&mut Client> {
        if !self.clients.contains_key(&self.current) {
            let client = Client::open(self.variant, self.channel().await?, "probe").await?;
            self.clients.insert(self.current.clone(), client);
        }
        let client = self.clients.get_mut(&self.current);
        client.context("the stream was not opened")
    }

    async fn channel(&mut self) -> anyhow::Result<Channel> {
        if let Some(channel) = &self.channel {
            return Ok(channel.clone());
        }
        let channel = connect(&self.target.address()).await?;
        self.channel = Some(channel.clone());
        Ok(channel)
    }

    async fn switch(&mut self, name: &str, agent: Option<&str>) -> anyhow::Result<()> {
        name.clone_into(&mut self.current);
        if let Some(agent) = agent {
            let client = Client::open(self.variant, self.channel().await?, agent).await?;
            self.clients.insert(name.to_owned(), client);
        }
        self.client().await.map(drop)
    }

    async fn refused(&mut self, code: &str, text: &str) -> anyhow::Result<()> {
        let channel = self.channel().await?;
        let opened =
            tokio::time::timeout(RESPONSE_MAX, Client::open(self.variant, channel, "probe"));
        match opened.await.context("neither opened nor refused")? {
            Ok(_) => bail!("the stream was opened"),
            Err(error) => {
                let status = error.downcast_ref::<tonic::Status>();
                check_status(status.context("no status")?, code, text)
            }
        }
    }

    async fn request(&mut self, of: &str, fields: &[&str]) -> anyhow::Result<()> {
        let mut raw = RawRequest {
            type_url: type_url(of),
            nonce: String::new(),
            ..RawRequest::default()
        };
        for field in fields {
            let (name, value) = field.split_once('=').context("expected NAME=VALUE")?;
            let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
            match name {
                "sub" | "names" => raw.names = list(),
                "unsub" => raw.unsubscribe = list(),
                "nonce" => raw.nonce = self.nonce(value)?,
                "version" => raw.version = self.version(&raw.type_url, "", value).await?,
                "error" => raw.error = Some(value.to_owned()),
                "irv" => {
                    for entry in list() {
                        let (name, version) = entry.split_once('@').context("NAME@VERSION")?;
                        let version = self.version(&raw.type_url, name, version).await?;
                        raw.initial_versions.insert(name.to_owned(), version);
                    }
                }
                _ => bail!("{name} is no field of a request"),
            }
        }
        self.client().await?.send(raw).await
    }

    fn nonce(&self, word: &str) -> anyhow::Result<String> {
        let from_end = match word {
            "none" => return Ok(String::new()),
            "last" => 1,
            "previous" => 2,
            text => return Ok(text.to_owned()),
        };
        let index = self.nonces.len().checked_sub(from_end);
        let nonce = index.and_then(|index| self.nonces.get(index));
        nonce.cloned().context("no such nonce was received")
    }

    async fn version(&mut self, type_url: &str, name: &str, word: &str) -> anyhow::Result<String> {
        Ok(match word {
            "held" => self.client().await?.held_version(type_url, name),
            "old" => OLD_VERSION.to_owned(),
            text => text.to_owned(),
        })
    }

    /// Waits until the server has applied every request so far: they are applied in order, and it
    /// answers one for a type that it does not serve.
    async fn sync(&mut self) -> anyhow::Result<()> {
        self.syncs += 1;
        let type_url = format!("type.googleapis.com/waypost.Sync{}", self.syncs);
        let raw = RawRequest {
            type_url: type_url.clone(),
            names: vec!["sync".to_owned()],
            ..RawRequest::default()
        };
        self.client().await?.send(raw).await?;
        let target = self.target;
        let received = self.client().await?.receive(target, RESPONSE_MAX).await?;
        ensure!(received.type_url == type_url, "a response of {received:?}");
        Ok(())
    }

    async fn expect(&mut self, expected: &Expected) -> anyhow::Result<()> {
        self.batch.clear();
        let mut left = self.relevant(expected);
        let whole = ["Cluster", "Listener"]
            .iter()
            .any(|t| left.type_url.ends_with(t));
        let is_whole = whole && self.variant == Variant::Sotw;
        if self.variant == Variant::Sotw
            && !is_whole
            && left.resources.is_empty()
            && !expected.removed.is_empty()
        {
            // Removals of these types are not said in this variant.
            return Ok(());
        }
        loop {
            let received = self.receive().await?;
            self.client().await?.ack().await?;
            strike(&mut left, &received)?;
            if left.resources.is_empty() && left.removed.is_empty() {
                return Ok(());
            }
            ensure!(!is_whole, "missing in the set: {left:?}");
        }
    }

    async fn receive_one(&mut self, expected: &Expected) -> anyhow::Result<()> {
        self.batch.clear();
        let mut left = self.relevant(expected);
        let received = self.receive().await?;
        strike(&mut left, &received)?;
        let complete = left.resources.is_empty() && left.removed.is_empty();
        ensure!(complete, "missing: {left:?}");
        Ok(())
    }

    fn relevant(&self, expected: &Expected) -> Expected {
        Expected {
            type_url: expected.type_url.clone(),
            resources: expected.resources.clone(),
            removed: match self.variant {
                Variant::Delta => expected.removed.clone(),
                Variant::Sotw => BTreeSet::new(),
            },
        }
    }

    async fn receive(&mut self) -> anyhow::Result<Received> {
        let target = self.target;
        let received = self.client().await?.receive(target, RESPONSE_MAX).await?;
        self.nonces.push(received.nonce.clone());
        self.batch.push(received.nonce.clone());
        self.last = received.clone();
        Ok(received)
    }
}

/// Takes what a response holds from what is expected; anything else in it is wrong.
fn strike(left: &mut Expected, received: &Received) -> anyhow::Result<()> {
    ensure!(
        received.type_url == left.type_url,
        "a response of {received:?}"
    );
    for (name, value) in &received.resources {
        let wanted = left.resources.remove(name);
        let wanted = wanted.with_context(|| format!("{name} was not expected: {received:?}"))?;
        let right = wanted.as_ref().is_none_or(|wanted| wanted == value);
        ensure!(right, "{name} is {value:?}, not {wanted:?}");
    }
    for name in &received.removed {
        let wanted = left.removed.remove(name);
        ensure!(wanted, "removal of {name} was not expected: {received:?}");
    }
    Ok(())
}

fn expected(of: &str, items: &[&str]) -> Expected {
    let mut expected = Expected {
        type_url: type_url(of),
        ..Expected::default()
    };
    for item in items {
        if let Some(name) = item.strip_prefix('-') {
            expected.removed.insert(name.to_owned());
            continue;
        }
        let (name, value) = match item.rsplit_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (*item, None),
        };
        expected.resources.insert(name.to_owned(), value);
    }
    expected
}

fn type_url(word: &str) -> String {
    if word == "none" {
        return String::new();
    }
    type_named(word).map_or_else(|_| word.to_owned(), |t| t.type_url().to_owned())
}

fn check_status(status: &tonic::Status, code: &str, text: &str) -> anyhow::Result<()> {
    let is_right = format!("{:?}", status.code()).eq_ignore_ascii_case(&code.replace('_', ""))
        && status.message().contains(text);
    ensure!(is_right, "the status is {status:?}");
    Ok(())
}
