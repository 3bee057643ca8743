//! `Append`: one announcement, heartbeat, withdrawal or purge.

use bytes::Bytes;
use futures::stream;
use tonic::Status;
use waypost_core::record::{Appended, Delivery};
use waypost_core::{
    ClusterName, Headers, InstanceKey, InstanceUri, LifeId, NewRecord, RecordKind, Timestamp, Topic,
};
use waypost_proto::v1 as pb;
use waypost_proto::v1::append_progress::Event;
use waypost_proto::v1::append_request::Kind;
use waypost_proto::v1::refused::Cause;

use crate::gateway::{AppendStream, Gateway, status_of};
use crate::progress::{Progress, Verdict, Wait};

/// Writes the record, then answers with its place in the log and, if asked, with what became of it.
pub(super) async fn append(
    gateway: &Gateway,
    request: pb::AppendRequest,
) -> Result<AppendStream, Status> {
    let until_served = request.until_served;
    let record = to_record(request)?;
    // Registered before the record is written: ingest may read it before the log has answered.
    let wait = if until_served {
        register(&gateway.progress, &record)?
    } else {
        None
    };
    let appended = gateway
        .log
        .append(record)
        .await
        .map_err(|error| status_of(&error))?;
    let first = progress(Event::Appended(to_message(appended)));
    Ok(match wait {
        None => Box::pin(stream::iter([Ok(first)])),
        Some(wait) => Box::pin(stream::unfold(
            Step::Appended(first, wait, appended),
            next_step,
        )),
    })
}

fn register(progress: &Progress, record: &NewRecord) -> Result<Option<Wait>, Status> {
    match progress.wait_for(record.key.clone()) {
        Ok(wait) => Ok(Some(wait)),
        // An instance must not fall silent because too many want to hear of theirs.
        Err(_) if record.delivery == Delivery::Heartbeat => Ok(None),
        Err(full) => Err(Status::resource_exhausted(full.to_string())),
    }
}

enum Step {
    Appended(pb::AppendProgress, Wait, Appended),
    Awaiting(Wait, Appended),
    Done,
}

async fn next_step(step: Step) -> Option<(Result<pb::AppendProgress, Status>, Step)> {
    match step {
        Step::Appended(first, wait, appended) => Some((Ok(first), Step::Awaiting(wait, appended))),
        Step::Awaiting(wait, appended) => {
            let verdict = wait.verdict(appended.partition, appended.offset).await;
            let event = match verdict {
                Verdict::Served => Event::Served(pb::Served {}),
                Verdict::Refused(reason) => refused(reason, Cause::Unspecified),
                Verdict::Withdrawn(reason) => refused(reason, Cause::Withdrawn),
            };
            Some((Ok(progress(event)), Step::Done))
        }
        Step::Done => None,
    }
}

fn refused(reason: String, cause: Cause) -> Event {
    let cause = cause.into();
    Event::Refused(pb::Refused { reason, cause })
}

fn progress(event: Event) -> pb::AppendProgress {
    pb::AppendProgress { event: Some(event) }
}

pub(super) fn to_message(appended: Appended) -> pb::Appended {
    pb::Appended {
        partition: appended.partition.0,
        offset: appended.offset.0,
        append_time_ms: appended.append_time.map(|time| time.0),
    }
}

/// Checks everything that the fold would reject, so that its writer hears of it; the announcement's
/// bytes are passed on as they are.
fn to_record(request: pb::AppendRequest) -> Result<NewRecord, Status> {
    let bad = |text: String| Status::invalid_argument(text);
    let kind = Kind::try_from(request.kind)
        .map_err(|_| bad(format!("unknown kind {} of append", request.kind)))?;
    let key = InstanceKey {
        cluster: ClusterName::parse(&request.cluster).map_err(|e| bad(e.to_string()))?,
        uri: InstanceUri::parse(&request.uri).map_err(|e| bad(e.to_string()))?,
    };
    let value = match kind {
        Kind::Announce | Kind::Heartbeat => Some(check_announcement(&key, &request.announcement)?),
        Kind::Withdraw | Kind::Purge if request.announcement.is_empty() => None,
        Kind::Withdraw | Kind::Purge => {
            return Err(bad(
                "a withdrawal or purge carries no announcement".to_owned()
            ));
        }
    };
    let headers = check_headers(kind, &request)?;
    Ok(NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: key.to_record_key(),
        value,
        headers,
        delivery: match kind {
            Kind::Heartbeat => Delivery::Heartbeat,
            Kind::Announce | Kind::Withdraw | Kind::Purge => Delivery::Change,
        },
    })
}

fn check_announcement(key: &InstanceKey, value: &Bytes) -> Result<Bytes, Status> {
    let announcement = waypost_proto::announcement::decode(value)
        .map_err(|e| Status::invalid_argument(format!("bad announcement: {e}")))?;
    if key.uri.parts().port == Some(0) {
        return Err(Status::invalid_argument(format!(
            "{} has port 0, which nobody can call",
            key.uri
        )));
    }
    if announcement.cluster != key.cluster || announcement.uri != key.uri {
        return Err(Status::invalid_argument(format!(
            "the announcement names {} {}, the request {} {}",
            announcement.cluster, announcement.uri, key.cluster, key.uri
        )));
    }
    Ok(value.clone())
}

fn check_headers(kind: Kind, request: &pb::AppendRequest) -> Result<Headers, Status> {
    let bad = |text: &str| Status::invalid_argument(text.to_owned());
    if kind == Kind::Purge {
        if request.id.is_some() || request.birth_ms.is_some() || request.seq.is_some() {
            return Err(bad("a purge carries no id, birth or seq"));
        }
        return Ok(Headers::default());
    }
    if kind == Kind::Withdraw && request.id.is_none() {
        return Err(bad(
            "a withdrawal needs the id of the life that it ends; use a purge to remove whatever stands",
        ));
    }
    if request.birth_ms.is_some_and(|ms| ms < 0) || request.age_ms.is_some_and(|ms| ms < 0) {
        return Err(bad("birth and age are milliseconds of at least 0"));
    }
    Ok(Headers {
        kind: match kind {
            Kind::Withdraw => RecordKind::Withdraw,
            Kind::Announce | Kind::Heartbeat | Kind::Purge => RecordKind::Announce,
        },
        id: request.id.map(LifeId),
        birth: request.birth_ms.map(Timestamp),
        age_ms: request.age_ms,
        seq: request.seq,
        ..Headers::default()
    })
}

#[cfg(test)]
mod tests {
    use waypost_core::Announcement;

    use super::*;

    fn mk_request(kind: Kind) -> pb::AppendRequest {
        let announcement = Announcement::new(
            ClusterName::parse("greeter").unwrap(),
            InstanceUri::parse("grpc://127.0.0.1:1").unwrap(),
            Timestamp(5),
        );
        let has_value = matches!(kind, Kind::Announce | Kind::Heartbeat);
        pb::AppendRequest {
            kind: kind.into(),
            cluster: "greeter".to_owned(),
            uri: "grpc://127.0.0.1:1".to_owned(),
            announcement: if has_value {
                waypost_proto::announcement::encode(&announcement)
            } else {
                Bytes::new()
            },
            id: (kind != Kind::Purge).then_some(7),
            birth_ms: None,
            age_ms: (kind != Kind::Purge).then_some(3),
            seq: (kind != Kind::Purge).then_some(1),
            until_served: false,
        }
    }

    #[test]
    fn each_kind_becomes_the_record_that_the_log_rules_name() {
        let announce = to_record(mk_request(Kind::Announce)).unwrap();
        assert_eq!(announce.headers.kind, RecordKind::Announce);
        assert_eq!(announce.headers.id, Some(LifeId(7)));
        assert_eq!(announce.headers.age_ms, Some(3));
        assert_eq!(announce.delivery, Delivery::Change);
        let beat = to_record(mk_request(Kind::Heartbeat)).unwrap();
        assert_eq!(beat.delivery, Delivery::Heartbeat);
        assert_eq!(
            (beat.key, beat.value, beat.headers),
            (announce.key, announce.value, announce.headers)
        );
        let withdraw = to_record(mk_request(Kind::Withdraw)).unwrap();
        assert_eq!(withdraw.headers.kind, RecordKind::Withdraw);
        assert_eq!(withdraw.value, None);
        let purge = to_record(mk_request(Kind::Purge)).unwrap();
        assert_eq!(purge.headers, Headers::default());
        assert_eq!(purge.value, None);
    }

    #[test]
    fn a_heartbeat_is_written_although_too_many_wait_to_hear_of_theirs() {
        let progress = Progress::default();
        let waits: Vec<_> = (0..crate::limits::WAITS_MAX)
            .map(|n| progress.wait_for(Bytes::from(n.to_string())).unwrap())
            .collect();
        let wait_of = |kind| register(&progress, &to_record(mk_request(kind)).unwrap());
        assert!(wait_of(Kind::Heartbeat).unwrap().is_none());
        let refused = wait_of(Kind::Announce).map(|wait| wait.is_some());
        assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);
        drop(waits);
        assert!(wait_of(Kind::Heartbeat).unwrap().is_some());
    }

    #[test]
    fn bytes_that_this_release_does_not_know_are_passed_on() {
        let mut request = mk_request(Kind::Announce);
        let mut value = request.announcement.to_vec();
        value.extend_from_slice(&[0xf8, 0x07, 0x2a]); // field 127, varint 42
        request.announcement = value.clone().into();
        assert_eq!(to_record(request).unwrap().value, Some(value.into()));
    }

    #[test]
    fn what_the_fold_would_reject_is_refused_with_a_reason() {
        type Spoil = fn(&mut pb::AppendRequest);
        let cases: [(Kind, Spoil, &str); 9] = [
            (Kind::Announce, |r| r.cluster = "a b".into(), "cluster name"),
            (Kind::Announce, |r| r.uri = "nowhere".into(), "bad URI"),
            (Kind::Announce, |r| r.uri = "grpc://h:0".into(), "port 0"),
            (
                Kind::Announce,
                |r| r.announcement = Bytes::from_static(b"\xff"),
                "bad announcement",
            ),
            (
                Kind::Heartbeat,
                |r| r.uri = "grpc://127.0.0.1:2".into(),
                "the announcement names",
            ),
            (
                Kind::Withdraw,
                |r| r.announcement = Bytes::from_static(b"x"),
                "no announcement",
            ),
            (Kind::Withdraw, |r| r.id = None, "needs the id"),
            (Kind::Purge, |r| r.id = Some(1), "no id"),
            (Kind::Announce, |r| r.birth_ms = Some(-1), "at least 0"),
        ];
        for (kind, spoil, expected) in cases {
            let mut request = mk_request(kind);
            spoil(&mut request);
            let status = to_record(request).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{expected}");
            assert!(status.message().contains(expected), "{status:?}");
            assert_eq!(status.message().lines().count(), 1, "{status:?}");
        }
    }
}
