//! The file of a snapshot.

use waypost_core::record::LogIdentity;
use waypost_core::{InstanceKey, LifeId, Offset};
use waypost_fold::{Confirmation, InstanceSnapshot, Life, TopicSnapshot};

use super::*;

fn mk_taken() -> Taken {
    let topic = |positions: &[i64]| TopicSnapshot {
        identity: Some(LogIdentity(7)),
        positions: positions.iter().copied().map(Offset).collect(),
    };
    let instance = |uri: &str, confirmation| InstanceSnapshot {
        key: InstanceKey {
            cluster: waypost_core::ClusterName::parse("greeter").unwrap(),
            uri: waypost_core::InstanceUri::parse(uri).unwrap(),
        },
        life: Life {
            id: Some(LifeId(3)),
            birth: Some(Timestamp(9)),
            seq: 4,
        },
        ttl_ms: 30_000,
        value: Bytes::from_static(b"value"),
        confirmation,
    };
    Taken {
        snapshot: Snapshot {
            announcements: topic(&[5, 0]),
            config: topic(&[2]),
            instances: vec![
                instance("grpc://10.0.0.1:80", Confirmation::Confirmed),
                instance("grpc://10.0.0.2:80", Confirmation::Unconfirmed),
            ],
            records: Vec::new(),
        },
        at: Timestamp(1_800_000_000_000),
    }
}

#[test]
fn what_is_written_is_read_and_none_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("below").join("observer.snapshot");
    assert_eq!(read(&path).unwrap(), None);
    let taken = mk_taken();
    write(&path, &taken).unwrap();
    write(&path, &taken).unwrap();
    assert_eq!(read(&path).unwrap(), Some(taken));
    let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(files, 1, "nothing unfinished is left");
}

#[test]
fn a_cut_or_altered_file_is_damaged_at_every_byte_and_never_read_in_part() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("observer.snapshot");
    write(&path, &mk_taken()).unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.to_string().lines().count(), 1, "{length}");
    }
    for at in 0..whole.len() {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        fs::write(&path, &altered).unwrap();
        assert!(read(&path).is_err(), "byte {at}");
    }
    fs::write(&path, b"\x04\x0a\x02\x08\x09").unwrap();
    let error = read(&path).unwrap_err();
    assert!(error.to_string().contains("has form 9"), "{error}");
}
