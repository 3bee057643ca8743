//! `waypost status --compare` as a process, against admin ports that say what a case wants.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};

use serde_json::{Value, json};
use waypost_admin_api::{
    BucketDigests, BucketKeys, DIGEST_BUCKETS, DigestedKey, Digests, PartitionDigests, TickDigest,
    path,
};

/// An Observer with one partition, one tick and one bucket that has keys.
#[derive(Clone)]
struct Fake {
    digests: Digests,
    keys: Vec<DigestedKey>,
}

impl Fake {
    /// Announcements of one cluster, as URI and content.
    fn new(keys: &[(&str, &str)]) -> Self {
        let keys: Vec<_> = keys
            .iter()
            .map(|(uri, content)| key(uri, content))
            .collect();
        let digest = keys.iter().map(|k| k.content.as_str()).collect::<String>();
        Self {
            digests: Digests {
                identity: Some("00000000000000aa".to_owned()),
                loaded: true,
                partitions: vec![PartitionDigests {
                    partition: 0,
                    position: 50,
                    ticks: vec![TickDigest { offset: 40, digest }],
                }],
            },
            keys,
        }
    }

    fn changed(mut self, change: impl FnOnce(&mut Digests)) -> Self {
        change(&mut self.digests);
        self
    }

    /// Answers for as long as the test runs.
    fn serve(&self) -> SocketAddr {
        let mut buckets = vec!["0".repeat(16); DIGEST_BUCKETS];
        self.digests.partitions[0].ticks[0]
            .digest
            .clone_into(&mut buckets[7]);
        let answers = HashMap::from([
            (path::digests(), json!(self.digests)),
            (
                path::bucket_digests(0, 40),
                json!(BucketDigests {
                    partition: 0,
                    offset: 40,
                    buckets
                }),
            ),
            (
                path::bucket_keys(0, 7, None),
                json!(BucketKeys {
                    position: 50,
                    items: self.keys.clone(),
                    next: None
                }),
            ),
        ]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap();
                let head = String::from_utf8_lossy(&request[..read]).into_owned();
                let asked = head.split(' ').nth(1).unwrap_or_default();
                let body = answers[asked].to_string();
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                )
                .unwrap();
            }
        });
        address
    }
}

fn key(uri: &str, content: &str) -> DigestedKey {
    DigestedKey {
        cluster: "greeter".to_owned(),
        uri: uri.to_owned(),
        life_id: Some("00000000000000ff".to_owned()),
        born_at_ms: Some(1_700_000_000_000),
        seq: 1,
        content: content.to_owned(),
        offset: 30,
    }
}

fn compare(here: SocketAddr, others: &[SocketAddr], format: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    command.args(["status", "--server", &here.to_string(), "-o", format]);
    command.arg("--compare");
    command.args(others.iter().map(ToString::to_string));
    command.output().unwrap()
}

#[test]
fn equal_exits_0_and_anything_else_1_with_the_reason() {
    let same = [("grpc://a:1", "01"), ("grpc://b:1", "02")];
    let here = Fake::new(&same);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let cases: [(SocketAddr, i32, &[&str]); 6] = [
        (Fake::new(&same).serve(), 0, &["equal, 1 partition(s)"]),
        (
            Fake::new(&[("grpc://a:1", "01")]).serve(),
            1,
            &[
                "different, 1 of 1 partition(s)",
                "partition 0: greeter grpc://b:1 is here and is missing there",
                "here: content 02, life 00000000000000ff, born 2023-11-14T22:13:20.000Z, change 1, announced at offset 30",
            ],
        ),
        (
            Fake::new(&[("grpc://a:1", "01"), ("grpc://b:1", "99")]).serve(),
            1,
            &["greeter grpc://b:1 differs in content", "there: content 99"],
        ),
        (
            Fake::new(&same)
                .changed(|d| d.identity = Some("00000000000000bb".to_owned()))
                .serve(),
            1,
            &[
                "cannot be compared",
                "identity 00000000000000bb, this one 00000000000000aa",
            ],
        ),
        (
            Fake::new(&same)
                .changed(|d| d.partitions[0].ticks[0].offset = 39)
                .serve(),
            1,
            &["partition 0: no tick that both remember: it stands at 50, this one at 50"],
        ),
        (nobody.unwrap(), 1, &["unreachable: no Observer answers at"]),
    ];
    for (other, code, texts) in cases {
        let output = compare(here.serve(), &[other], "table");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        for expected in texts {
            assert!(text.contains(expected), "no {expected:?} in {text}");
        }
    }
}

#[test]
fn json_names_each_of_several_and_the_first_key_that_differs() {
    let here = Fake::new(&[("grpc://a:1", "01")]);
    let others = [here.serve(), Fake::new(&[]).serve()];
    let output = compare(here.serve(), &others, "json");
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["identity"], "00000000000000aa");
    let [equal, different] = &told["others"].as_array().unwrap()[..] else {
        panic!("{told}");
    };
    assert_eq!(equal["verdict"], "equal");
    assert_eq!(
        equal["partitions"],
        json!([{"partition": 0, "offset": 40, "verdict": "equal", "reason": null}])
    );
    assert_eq!(different["verdict"], "different");
    let difference = &different["first_difference"];
    assert_eq!(difference["partition"], 0);
    assert_eq!(difference["uri"], "grpc://a:1");
    assert_eq!(difference["what"], "missing_there");
    assert_eq!(difference["here"]["content"], "01");
    assert_eq!(difference["there"], Value::Null);
}
