//! End-to-end proofs: the real binary, real servers and unmodified clients show that a promise holds.
//!
//! Each proof is one module, named as the proof is; `cargo xtask prove` runs it. A proof states what it
//! measured whether or not it holds, so that a failure comes with its figures.

pub mod announce_any_language;
pub mod client_d2_java;
pub mod client_d2_scripted;
pub mod client_envoy;
pub mod client_grpc;
pub mod client_rust;
pub mod clients;
pub mod clock;
pub mod conformance;
pub mod crash_loop;
mod d2_fleet;
pub mod embedded_main_job;
pub mod figures;
pub mod fleet;
pub mod kafka_faults;
pub mod kafka_main_job;
pub mod log_scenarios;
pub mod look;
pub mod mass_silence;
pub mod protocol_core;
pub mod protocol_limits;
pub mod replica_digest;
pub mod tls;

use std::pin::Pin;

use figures::Figures;
use waypost_testkit::d2_caller;

/// How much a proof does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As promised.
    Full,
    /// The same steps over less: part of every test run.
    Short,
}

impl Form {
    /// `full` or `short`, by form.
    #[must_use]
    pub fn pick<T>(self, full: T, short: T) -> T {
        match self {
            Self::Full => full,
            Self::Short => short,
        }
    }
}

/// A running proof.
pub type Running<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// One proof.
#[derive(Clone, Copy)]
pub struct Proof {
    /// What `cargo xtask prove` calls it.
    pub name: &'static str,
    /// What it shows, in one line.
    pub shows: &'static str,
    /// The real parts that it starts, beside `waypost` itself.
    pub needs: &'static str,
    /// How long it takes on two cores: full, short.
    pub takes: (&'static str, &'static str),
    /// Runs it.
    pub run: for<'a> fn(Form, &'a mut Figures) -> Running<'a>,
}

/// Every proof, in the order of the test run.
pub const PROOFS: &[Proof] = &[
    Proof {
        name: "log-scenarios",
        shows: "the log's rules under every fault, with a clock moved by hand; planted bugs are found",
        needs: "nothing",
        takes: ("10 min", "5 min"),
        run: |form, figures| Box::pin(log_scenarios::prove(form, figures)),
    },
    Proof {
        name: "protocol-core",
        shows: "every P0 rule of the xDS conformance suite, in both variants, against `waypost dev`",
        needs: "nothing",
        takes: ("1 min", "1 min"),
        run: |form, figures| Box::pin(protocol_core::prove(form, figures)),
    },
    Proof {
        name: "conformance",
        shows: "every case of the conformance suite, in its variants, with a count by rule; no rule is forgotten",
        needs: "nothing",
        takes: ("30 s", "30 s"),
        run: |form, figures| Box::pin(conformance::prove(form, figures)),
    },
    Proof {
        name: "protocol-limits",
        shows: "1,000 requests at once, 20,000 hosts through a glob, 100,000 clients that come and go",
        needs: "nothing",
        takes: ("3 min", "20 s"),
        run: |form, figures| Box::pin(protocol_limits::prove(form, figures)),
    },
    Proof {
        name: "crash-loop",
        shows: "kill -9 of `waypost dev` while announcing: nothing acknowledged is lost or comes back",
        needs: "nothing",
        takes: ("5 min", "30 s"),
        run: |form, figures| Box::pin(crash_loop::prove(form, figures)),
    },
    Proof {
        name: "embedded-main-job",
        shows: "grpcio against `waypost dev`: announce, add, weigh, drain, withdraw, crash, restart, kill",
        needs: "Python with grpcio",
        takes: ("1 min", "40 s"),
        run: |form, figures| Box::pin(embedded_main_job::prove(form, figures)),
    },
    Proof {
        name: "client-rust",
        shows: "the Rust client: instances replaced, the Observer killed, a start without one: no call fails",
        needs: "nothing",
        takes: ("1 min", "20 s"),
        run: |form, figures| Box::pin(client_rust::prove(form, figures)),
    },
    Proof {
        name: "client-tonic-xds",
        shows: "tonic-xds: instances replaced, the Observer killed, no call fails",
        needs: "nothing",
        takes: ("2 min", "20 s"),
        run: |form, figures| Box::pin(client_grpc::prove_tonic(form, figures)),
    },
    Proof {
        name: "client-envoy-sotw",
        shows: "HTTP through Envoy, state of the world: instances replaced, the Observer killed, no request fails",
        needs: "Envoy",
        takes: ("1 min", "20 s"),
        run: |form, figures| Box::pin(client_envoy::prove_sotw(form, figures)),
    },
    Proof {
        name: "client-envoy-delta",
        shows: "the same, incremental",
        needs: "Envoy",
        takes: ("1 min", "20 s"),
        run: |form, figures| Box::pin(client_envoy::prove_delta(form, figures)),
    },
    Proof {
        name: "client-envoy-per-type",
        shows: "the same over a stream for each type, in both variants",
        needs: "Envoy",
        takes: ("2 min", "40 s"),
        run: |form, figures| Box::pin(client_envoy::prove_per_type(form, figures)),
    },
    Proof {
        name: "client-grpc-python",
        shows: "grpcio, a client and an xDS-enabled server: instances replaced, the Observer killed, no call fails",
        needs: "Python with grpcio",
        takes: ("1 min", "20 s"),
        run: |form, figures| Box::pin(client_grpc::prove_python(form, figures)),
    },
    Proof {
        name: "client-grpc-go",
        shows: "the same with grpc-go",
        needs: "Go, grpc-go",
        takes: ("1 min", "20 s"),
        run: |form, figures| Box::pin(client_grpc::prove_go(form, figures)),
    },
    Proof {
        name: "client-grpc-java",
        shows: "the same with grpc-java",
        needs: "Java, grpc-java",
        takes: ("1 min", "30 s"),
        run: |form, figures| Box::pin(client_grpc::prove_java(form, figures)),
    },
    Proof {
        name: "client-d2-scripted",
        shows: "HTTP as a D2 client chooses hosts, three modes: instances replaced, the Observer killed, no request fails",
        needs: "nothing",
        takes: ("1 min", "20 s"),
        run: |form, figures| Box::pin(client_d2_scripted::prove(form, figures)),
    },
    Proof {
        name: "client-d2-java",
        shows: "the same with rest.li's own client 29.x, where WAYPOST_D2_CLASSPATH names its jars",
        needs: "the jars of a rest.li D2 client 29.x, a JDK",
        takes: ("3 min", "90 s"),
        run: |form, figures| Box::pin(client_d2_java::prove(form, figures)),
    },
    Proof {
        name: "tls",
        shows: "every gRPC, Envoy and the Rust client without TLS, by TLS and by mutual TLS; certificates are renewed, no call fails",
        needs: "Envoy, Python with grpcio, Go, Java",
        takes: ("2 min", "1 min"),
        run: |form, figures| Box::pin(tls::prove(form, figures)),
    },
    Proof {
        name: "mass-silence",
        shows: "all announcers of a cluster and of a fleet die: a part leaves, the rest is held, returns, is released",
        needs: "nothing",
        takes: ("5 min", "80 s"),
        run: |form, figures| Box::pin(mass_silence::prove(form, figures)),
    },
    Proof {
        name: "kafka-main-job",
        shows: "Kafka, two Observers behind one name, grpcio: one is killed and no call fails",
        needs: "Apache Kafka, Python with grpcio",
        takes: ("2 min", "1 min"),
        run: |form, figures| Box::pin(kafka_main_job::prove(form, figures)),
    },
    Proof {
        name: "kafka-faults",
        shows: "Observers and brokers killed and stopped, the log away, grown, made anew: no call fails",
        needs: "Apache Kafka (three brokers), kcat, Python with grpcio",
        takes: ("14 min", "3 min"),
        run: |form, figures| Box::pin(kafka_faults::prove(form, figures)),
    },
    Proof {
        name: "announce-any-language",
        shows: "the worked example of docs/announcing.md, with a Kafka client that is not ours",
        needs: "Apache Kafka, Python with kafka-python and grpcio",
        takes: ("1 min", "1 min"),
        run: |form, figures| Box::pin(announce_any_language::prove(form, figures)),
    },
    Proof {
        name: "replica-digest",
        shows: "five Observers, one late, one over a compacted log, one paused, agree; a lie is named",
        needs: "Apache Kafka",
        takes: ("11 min", "90 s"),
        run: |form, figures| Box::pin(replica_digest::prove(form, figures)),
    },
];

/// The environment variable that a proof needs and that is not set: it names a part that no registry
/// has, so that the test command cannot install it.
#[must_use]
pub fn find_missing_variable(proof: &Proof) -> Option<&'static str> {
    let needed = (proof.name == "client-d2-java").then_some(d2_caller::CLASSPATH)?;
    std::env::var_os(needed).is_none().then_some(needed)
}

/// A proof by its name.
#[must_use]
pub fn find_proof(name: &str) -> Option<&'static Proof> {
    PROOFS.iter().find(|proof| proof.name == name)
}
