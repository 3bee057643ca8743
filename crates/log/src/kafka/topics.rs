//! The three topics as they must be: created with every setting, and checked for each.
//!
//! The settings and their reasons are in [`rules`]; `docs/announcement-log.md`, "Topic settings",
//! says what the rules of the log need of them.

mod advice;
mod identity;
pub mod rules;

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use waypost_core::port::LogError;
use waypost_core::record::{LogIdentity, Topic};

use self::advice::Advice;
use self::rules::Rule;
use super::KafkaLog;
use super::client::{self, Complaints};
use super::limits::{ANSWER_MAX, CREATE_MAX, RECORD_TIMEOUT};
use super::settings::KafkaSettings;

/// How many copies of the log there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Survives the loss of a broker: this many copies (3 or more), of which all but one must have
    /// a record before it is acknowledged.
    Replicated(u32),
    /// One copy, acknowledged by the one broker that has it. For development and tests.
    Development,
}

/// What `topics create` makes and `topics check` expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicsSpec {
    /// Partitions of `PREFIX.announcements`; the other two have one. Used by [`create`] only.
    pub announcement_partitions: u32,
    /// Copies of every topic.
    pub durability: Durability,
}

impl Default for TopicsSpec {
    fn default() -> Self {
        Self {
            announcement_partitions: 8,
            durability: Durability::Replicated(3),
        }
    }
}

impl TopicsSpec {
    /// One copy of everything.
    #[must_use]
    pub fn development() -> Self {
        Self {
            durability: Durability::Development,
            ..Self::default()
        }
    }

    fn partitions(self, topic: Topic) -> u32 {
        match topic {
            Topic::Announcements => self.announcement_partitions.max(1),
            Topic::Config | Topic::Control => 1,
        }
    }
}

/// What [`create`] did about one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The topic's full name.
    pub topic: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// Whether it was there before.
    pub outcome: Outcome,
    /// Which log it is, as its partition 0 says.
    pub identity: LogIdentity,
    /// Each setting that it was created with, and why; empty for a topic that existed, which is left
    /// as it is: [`check`] says what is wrong with it.
    pub settings: Vec<Rule>,
}

/// Whether a topic was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was created now.
    Created,
    /// It existed.
    Existed,
}

/// One mistake in the topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The topic's full name.
    pub topic: String,
    /// Which setting, by Kafka's name; `topic` for one that does not exist, `partitions` and
    /// `replication.factor` for what is not a setting.
    pub setting: String,
    /// What it is.
    pub actual: String,
    /// What it must be.
    pub expected: String,
    /// Why.
    pub reason: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The command that mends it.
    pub command: String,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The rules of the log do not hold: an Observer must not start.
    Breaks,
    /// The rules hold until a broker is lost: worth a warning.
    Risks,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            topic,
            setting,
            actual,
            expected,
            reason,
            command,
            ..
        } = self;
        write!(
            f,
            "{topic}: {setting} is {actual}, must be {expected}: {reason}; run `{command}`"
        )
    }
}

/// Creates the topics that are missing and gives each log its identity.
///
/// # Errors
/// `Unavailable`; `Refused` with Kafka's reason (too few brokers for the copies, no permission).
pub async fn create(settings: &KafkaSettings, spec: &TopicsSpec) -> Result<Vec<Report>, LogError> {
    let admin = Admin::connect(settings)?;
    let log = KafkaLog::open(settings.clone())?;
    let mut reports = Vec::new();
    for topic in Topic::ALL {
        reports.push(admin.create(&log, topic, *spec).await?);
    }
    Ok(reports)
}

/// Compares every setting of every topic with what it must be. An empty list: all is well.
///
/// An Observer asks with [`TopicsSpec::development`] and refuses to start on [`Severity::Breaks`]:
/// how many copies there are is for the operator to decide.
///
/// # Errors
/// `Unavailable`; `Refused` where this client may not look.
pub async fn check(settings: &KafkaSettings, spec: &TopicsSpec) -> Result<Vec<Finding>, LogError> {
    let admin = Admin::connect(settings)?;
    let metadata = admin.metadata().await?;
    let advice = Advice::new(settings, &metadata);
    let mut findings = Vec::new();
    for topic in Topic::ALL {
        let name = settings.topic_name(topic);
        let Some(partitions) = replicas_by_partition(&metadata, &name) else {
            findings.push(advice.missing(topic, *spec));
            continue;
        };
        findings.extend(advice.partitions(topic, &partitions));
        findings.extend(advice.copies(topic, &partitions, *spec));
        let config = admin.describe(&name).await?;
        findings.extend(rules::of(topic, spec.durability).iter().filter_map(|rule| {
            let actual = config
                .get(rule.setting)
                .and_then(|entry| entry.value.as_deref());
            advice.setting(topic, rule, actual.unwrap_or("not set"))
        }));
        let insync = config
            .get("min.insync.replicas")
            .and_then(|entry| entry.value.as_deref());
        findings.extend(advice.insync(topic, &partitions, insync));
    }
    Ok(findings)
}

/// Replicas of each partition of a topic; `None`: there is no such topic.
fn replicas_by_partition(metadata: &Metadata, name: &str) -> Option<Vec<Vec<i32>>> {
    let topic = metadata
        .topics()
        .iter()
        .find(|topic| topic.name() == name)?;
    let partitions = topic.partitions();
    let replicas = partitions
        .iter()
        .map(|partition| partition.replicas().to_vec());
    (!partitions.is_empty()).then(|| replicas.collect())
}

#[derive(Debug, Default)]
struct AdminContext {
    complaints: Complaints,
}

impl ClientContext for AdminContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.complaints.note(&error, reason);
    }
}

struct Admin<'a> {
    settings: &'a KafkaSettings,
    client: std::sync::Arc<AdminClient<AdminContext>>,
}

impl<'a> Admin<'a> {
    fn connect(settings: &'a KafkaSettings) -> Result<Self, LogError> {
        let client = settings
            .producer(RECORD_TIMEOUT)
            .create_with_context(AdminContext::default())
            .map_err(|e| client::bad_client(&e))?;
        Ok(Self {
            settings,
            client: std::sync::Arc::new(client),
        })
    }

    async fn create(
        &self,
        log: &KafkaLog,
        topic: Topic,
        spec: TopicsSpec,
    ) -> Result<Report, LogError> {
        let name = self.settings.topic_name(topic);
        let partitions = spec.partitions(topic);
        let rules = rules::of(topic, spec.durability);
        let mut new = NewTopic::new(
            &name,
            i32::try_from(partitions).unwrap_or(i32::MAX),
            TopicReplication::Fixed(rules::copies(spec.durability)),
        );
        for rule in &rules {
            new = new.set(rule.setting, &rule.value);
        }
        let options = AdminOptions::new()
            .operation_timeout(Some(CREATE_MAX))
            .request_timeout(Some(CREATE_MAX));
        let made = self.client.create_topics([&new], &options).await;
        let made = made.map_err(|e| self.failed("create topics", &e))?;
        let outcome = match made.into_iter().next() {
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Outcome::Existed,
            Some(Err((_, code))) => return Err(self.not_created(&name, code)),
            Some(Ok(_)) | None => Outcome::Created,
        };
        let partitions = self.wait_until_seen(topic).await?;
        let identity = identity::establish(log, topic).await?;
        let settings = if outcome == Outcome::Created {
            rules
        } else {
            Vec::new()
        };
        Ok(Report {
            topic: name,
            partitions,
            outcome,
            identity,
            settings,
        })
    }

    /// Brokers hear of a new topic one after another.
    async fn wait_until_seen(&self, topic: Topic) -> Result<u32, LogError> {
        let settings = self.settings.clone();
        self.blocking(move |client, complaints| {
            let give_up = tokio::time::Instant::now() + CREATE_MAX;
            loop {
                match client::ask_partition_count(client, &settings, topic, ANSWER_MAX) {
                    Ok(count) => return Ok(count),
                    Err(e) if tokio::time::Instant::now() > give_up => {
                        return Err(e.to_log_error(&settings, topic, complaints));
                    }
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
                }
            }
        })
        .await
    }

    async fn metadata(&self) -> Result<Metadata, LogError> {
        let settings = self.settings.clone();
        self.blocking(move |client, complaints| {
            client
                .fetch_metadata(None, ANSWER_MAX)
                .map_err(|_| LogError::Unavailable(complaints.unreachable(&settings)))
        })
        .await
    }

    async fn describe(&self, name: &str) -> Result<ConfigResource, LogError> {
        let options = AdminOptions::new().request_timeout(Some(ANSWER_MAX));
        let asked = self
            .client
            .describe_configs([&ResourceSpecifier::Topic(name)], &options)
            .await;
        let mut answers = asked.map_err(|e| self.failed("read the settings of topics", &e))?;
        match answers.pop() {
            Some(Ok(config)) => Ok(config),
            Some(Err(code)) => {
                Err(self.failed("read the settings of topics", &KafkaError::AdminOp(code)))
            }
            None => Err(LogError::Unavailable(format!(
                "Kafka says nothing of topic {name}"
            ))),
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Client<AdminContext>, &Complaints) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let client = std::sync::Arc::clone(&self.client);
        tokio::task::spawn_blocking(move || {
            let client = client.inner();
            work(client, &client.context().complaints)
        })
        .await
        .unwrap_or(Err(LogError::Closed))
    }

    fn failed(&self, what: &str, error: &KafkaError) -> LogError {
        let brokers = self.settings.brokers();
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed,
            ) => LogError::Refused(format!(
                "Kafka at {brokers} does not let this client {what}"
            )),
            Some(
                RDKafkaErrorCode::OperationTimedOut | RDKafkaErrorCode::BrokerTransportFailure,
            ) => LogError::Unavailable(
                self.client
                    .inner()
                    .context()
                    .complaints
                    .unreachable(self.settings),
            ),
            _ => LogError::Unavailable(format!("Kafka at {brokers}, to {what}: {error}")),
        }
    }

    fn not_created(&self, name: &str, code: RDKafkaErrorCode) -> LogError {
        let brokers = self.settings.brokers();
        let hint = match code {
            RDKafkaErrorCode::InvalidReplicationFactor => {
                ": the cluster has fewer brokers than copies were asked for; for development use \
                 --development"
            }
            _ => "",
        };
        LogError::Refused(format!(
            "Kafka at {brokers} does not create topic {name}: {code}{hint}"
        ))
    }
}
