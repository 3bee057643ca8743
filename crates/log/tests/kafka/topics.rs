//! Topics as they must be.

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use waypost_core::port::{AnnouncementLog as _, LogError};
use waypost_core::record::Topic;
use waypost_log::kafka::topics::{self, Finding, Outcome, Severity, TopicsSpec};
use waypost_log::kafka::{KafkaLog, KafkaSettings};
use waypost_testkit::wait::eventually;

use crate::support::{DEADLINE, broker, fresh_settings};

fn admin(settings: &KafkaSettings) -> AdminClient<DefaultClientContext> {
    let mut config = rdkafka::ClientConfig::new();
    config
        .set("bootstrap.servers", settings.brokers())
        .create()
        .unwrap()
}

fn find<'a>(findings: &'a [Finding], topic: &str, setting: &str) -> &'a Finding {
    let found = findings
        .iter()
        .find(|f| f.topic.ends_with(topic) && f.setting == setting);
    found.unwrap_or_else(|| panic!("no finding for {topic} {setting} in {findings:#?}"))
}

#[tokio::test]
async fn what_create_makes_check_accepts_and_a_second_create_leaves_alone() {
    let settings = fresh_settings(broker().await);
    let spec = TopicsSpec {
        announcement_partitions: 3,
        ..TopicsSpec::development()
    };
    let first = topics::create(&settings, &spec).await.unwrap();
    assert_eq!(
        first.iter().map(|r| r.partitions).collect::<Vec<_>>(),
        [3, 1, 1]
    );
    assert!(
        first
            .iter()
            .all(|r| r.outcome == Outcome::Created && !r.settings.is_empty())
    );
    assert_eq!(topics::check(&settings, &spec).await.unwrap(), []);
    let second = topics::create(&settings, &spec).await.unwrap();
    for (first, second) in first.iter().zip(second) {
        assert_eq!(second.outcome, Outcome::Existed);
        assert_eq!(second.identity, first.identity, "a log has one identity");
    }
}

/// Topic, setting, and what Kafka makes of it unless told otherwise (or as the test made it).
const MISTAKES: [(&str, &str, &str); 11] = [
    ("announcements", "cleanup.policy", "delete"),
    ("announcements", "message.timestamp.type", "CreateTime"),
    ("announcements", "min.compaction.lag.ms", "0"),
    ("announcements", "segment.ms", "604800000"),
    ("announcements", "segment.bytes", "1073741824"),
    ("announcements", "min.cleanable.dirty.ratio", "0.5"),
    ("config", "cleanup.policy", "compact,delete"),
    ("config", "max.message.bytes", "1048588"),
    ("config", "partitions", "2"),
    ("config", "min.insync.replicas", "2"),
    ("control", "topic", "missing"),
];

/// A broker learns of a topic a moment after its controller made it.
async fn until_known(settings: &KafkaSettings, names: &[String]) {
    let known = || async {
        let client = admin(settings);
        let all = client.inner().fetch_metadata(None, DEADLINE)?;
        let is_known = |name: &String| all.topics().iter().any(|t| t.name() == name);
        anyhow::ensure!(names.iter().all(is_known), "not yet");
        Ok(())
    };
    eventually("the broker knows the topics", DEADLINE, known)
        .await
        .unwrap();
}

#[tokio::test]
async fn each_mistake_is_found_with_the_command_that_mends_it() {
    let broker = broker().await;
    let settings = fresh_settings(broker);
    let names = [Topic::Announcements, Topic::Config].map(|topic| settings.topic_name(topic));
    let kafkas_own = NewTopic::new(&names[0], 2, TopicReplication::Fixed(1));
    let wrong = NewTopic::new(&names[1], 2, TopicReplication::Fixed(1))
        .set("cleanup.policy", "compact,delete")
        .set("min.insync.replicas", "2");
    let made = admin(&settings)
        .create_topics([&kafkas_own, &wrong], &AdminOptions::new())
        .await;
    made.unwrap()
        .into_iter()
        .for_each(|topic| drop(topic.unwrap()));
    until_known(&settings, &names).await;

    let findings = topics::check(&settings, &TopicsSpec::development())
        .await
        .unwrap();
    for (topic, setting, actual) in MISTAKES {
        let finding = find(&findings, topic, setting);
        assert_eq!(finding.actual, actual, "{finding}");
        assert_eq!(finding.severity, Severity::Breaks, "{finding}");
        assert!(!finding.reason.is_empty());
    }
    assert!(
        !findings
            .iter()
            .any(|f| f.topic.ends_with("announcements") && f.setting == "topic")
    );

    let with_copies = topics::check(&settings, &TopicsSpec::default())
        .await
        .unwrap();
    let copies = find(&with_copies, "announcements", "replication.factor");
    assert_eq!(
        (copies.actual.as_str(), copies.severity),
        ("1", Severity::Risks)
    );
    // What is meant for our own command line names its flags as they are (docs/cli.md).
    let ours = format!(
        "--kafka {} --topic-prefix {}",
        settings.brokers(),
        settings.topic_prefix()
    );
    let missing = find(&with_copies, "control", "topic");
    assert_eq!(
        [&missing.command, &copies.command],
        [
            &format!("waypost topics create {ours} --replication 3"),
            &format!("waypost topics check {ours} --development  # 1 broker(s)"),
        ]
    );

    // The commands are Kafka's own, and they do mend it.
    for finding in findings.iter().filter(|f| f.topic == names[0]) {
        let mut words = finding.command.split(' ');
        assert_eq!(words.next(), Some("kafka-configs.sh"), "{finding}");
        let args: Vec<&str> = words.collect();
        broker
            .tool("org.apache.kafka.tools.ConfigCommand", &args)
            .await
            .unwrap();
    }
    let findings = topics::check(&settings, &TopicsSpec::development())
        .await
        .unwrap();
    assert!(
        !findings.iter().any(|f| f.topic == names[0]),
        "{findings:#?}"
    );
}

#[tokio::test]
async fn too_few_brokers_for_the_copies_is_refused_with_a_way_out() {
    let settings = fresh_settings(broker().await);
    let refused = topics::create(&settings, &TopicsSpec::default()).await;
    let Err(LogError::Refused(text)) = refused else {
        panic!("{refused:?}")
    };
    assert!(text.contains("--development"), "{text}");
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_named_with_the_command_that_creates_it() {
    let settings = fresh_settings(broker().await);
    let log = KafkaLog::open(settings.clone()).unwrap();
    let append = log
        .append(crate::support::mk_record("k", "v"))
        .await
        .map(|_| ());
    let read = log.read(Topic::Announcements, &[]).await.map(|_| ());
    let count = log.partition_count(Topic::Announcements).await.map(|_| ());
    for result in [append, read, count] {
        let Err(LogError::Misconfigured(text)) = result else {
            panic!("{result:?}")
        };
        assert!(
            text.contains(&settings.topic_name(Topic::Announcements)),
            "{text}"
        );
        assert!(text.contains(&settings.create_command()), "{text}");
    }
    let all = admin(&settings)
        .inner()
        .fetch_metadata(None, DEADLINE)
        .unwrap();
    let made = all
        .topics()
        .iter()
        .any(|t| t.name().starts_with(settings.topic_prefix()));
    assert!(!made, "asking for a topic must not create it");
}
