//! Every command and flag. The words here are what `--help` prints; a test holds them to the rules
//! (each flag says its default and unit, has a variable and a key in the file).

mod bootstrap;
mod operator;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use waypost_core::{ClusterName, InstanceUri};

use crate::announce::HealthCheck;
use crate::values::{
    MetadataArg, WeightArg, parse_brokers, parse_duration, parse_gateway, parse_host_port,
    parse_metadata, parse_topic_prefix, parse_weight,
};

pub(crate) use bootstrap::{BootstrapArgs, ClientArg, FamiliesArg, ProtocolArg};
pub(crate) use operator::{AuthorArgs, ConfigAction, ConfigArgs, EvictArgs, ReleaseArgs, SetArgs};
pub(crate) use tls::{ConnectTlsArgs, ListenTlsArgs, is_tls};

/// The address of an Observer's gateway where nobody names one.
pub(crate) const LISTEN_DEFAULT: &str = "127.0.0.1:18000";
/// The address of an Observer's admin port where nobody names one.
pub(crate) const ADMIN_DEFAULT: &str = "127.0.0.1:18001";

/// Service discovery: servers announce where they are, clients are told at once.
///
/// Every flag can also be set by a variable (`--topic-prefix`: WAYPOST_TOPIC_PREFIX) and by a key in
/// a file (`topic-prefix = "…"`, see --config). A flag wins over a variable, a variable over the file.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage; `status` also 3: ready but stale or holding.
#[derive(Debug, Parser)]
#[command(
    name = "waypost",
    version,
    max_term_width = 100,
    subcommand_required = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct GlobalArgs {
    /// A TOML file of flags: `KEY = VALUE` for every command that has the flag, `[COMMAND]` tables
    /// for one. An unknown key is an error. [default: no file]
    #[arg(long, global = true, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// What is logged on standard error: error, warn, info, debug, trace, or a filter like
    /// info,waypost_xds=debug. [default: info for dev and observer, else error]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// The form of log lines.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormatArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormatArg {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Everything on one machine: embedded log, Observer, gateway, admin port
    Dev(DevArgs),
    /// One Observer of a fleet
    Observer(ObserverArgs),
    /// Announce one instance while it lives
    Announce(Box<AnnounceArgs>),
    /// Write service and cluster definitions
    Apply(ApplyArgs),
    /// Delete a service or cluster definition
    Delete(DeleteArgs),
    /// List what an Observer holds
    Get(GetArgs),
    /// Show all that is known of one thing
    Describe(DescribeArgs),
    /// Follow the changes of a cluster as a client sees them
    Watch(WatchArgs),
    /// Set what is served of one instance above what it announces
    Set(SetArgs),
    /// Remove one instance until it announces itself again
    Evict(EvictArgs),
    /// Let expiries go that are held
    Release(ReleaseArgs),
    /// Restore or forget records that a log lost and an Observer kept
    Config(ConfigArgs),
    /// Create or check the Kafka topics
    Topics(TopicsArgs),
    /// Sources, lag, readiness, streams, held expiries
    Status(StatusArgs),
    /// Print a client configuration for one name that resolves to all Observers
    Bootstrap(BootstrapArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// Where xDS, the gateway, health and reflection are served.
    #[arg(long, value_name = "ADDR", default_value = LISTEN_DEFAULT)]
    pub(crate) listen: SocketAddr,
    /// Where metrics, readiness and the JSON API are served.
    #[arg(long, value_name = "ADDR", default_value = ADMIN_DEFAULT)]
    pub(crate) admin: SocketAddr,
    #[command(flatten)]
    pub(crate) tls: ListenTlsArgs,
}

/// Where an Observer, an instance or a client runs.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The fabric (data centre) that it runs in. [default: none]
    #[arg(
        long,
        value_name = "FABRIC",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) fabric: String,
    /// The zone within the fabric. [default: none]
    #[arg(
        long,
        value_name = "ZONE",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) zone: String,
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// The directory of the log. It is made if missing; one process at a time may use it.
    #[arg(long, value_name = "DIR", default_value = "./waypost-data")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    /// If the log is damaged: keep the file under another name and go on with every intact record.
    /// [default: refuse to start]
    #[arg(long)]
    pub(crate) salvage: bool,
    #[command(flatten)]
    pub(crate) expiry: ExpiryArgs,
}

/// For tests: what is promised to hold over minutes is shown in seconds.
#[derive(Debug, Args)]
pub(crate) struct ExpiryArgs {
    /// For how long an expire counts against what may expire at once. The same in every Observer.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration, hide = true)]
    pub(crate) expiry_window: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct TopicPrefixArgs {
    /// The topics are PREFIX.announcements, PREFIX.config and PREFIX.control.
    #[arg(long, value_name = "PREFIX", default_value = "waypost", value_parser = parse_topic_prefix)]
    pub(crate) topic_prefix: String,
    /// A file of librdkafka properties (TLS, SASL), one `name=value` a line. [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) kafka_config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ObserverArgs {
    /// Brokers to ask for the rest of the Kafka cluster. [default: none, must be given]
    #[arg(long, value_name = "HOST:PORT,…", value_parser = parse_brokers)]
    pub(crate) kafka: String,
    #[command(flatten)]
    pub(crate) topics: TopicPrefixArgs,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Write nothing to the log on its own account: for another fabric's log. [default: off]
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Over how long clients are sent to other Observers when this one is told to stop.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) drain: Duration,
    /// Age at which a connection is sent to whatever Observer it finds, give or take a tenth; 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) connection_age_max: Duration,
    /// A log younger than this is not answered from: running announcers need a heartbeat to be in it.
    #[arg(long, value_name = "DURATION", default_value = "110s", value_parser = parse_duration)]
    pub(crate) newborn_grace: Duration,
    #[command(flatten)]
    pub(crate) expiry: ExpiryArgs,
    /// Where what is served is kept for a start while Kafka is away. [default: none, it is not kept]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// How often what is served is written to the directory.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) snapshot_interval: Duration,
    /// After how long without Kafka what the directory holds is served.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) serve_snapshot_after: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct WriteToArgs {
    /// Brokers of the Kafka cluster to write to. [default: none, the gateway is used]
    #[arg(long, value_name = "HOST:PORT,…", value_parser = parse_brokers)]
    pub(crate) kafka: Option<String>,
    #[command(flatten)]
    pub(crate) topics: TopicPrefixArgs,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
}

/// Whose gateways to go through.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// The gateways of Observers to go through, HOST:PORT or https://HOST:PORT; the next one is tried when one
    /// does not answer.
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', default_value = LISTEN_DEFAULT, value_parser = parse_gateway)]
    pub(crate) to: Vec<String>,
    #[command(flatten)]
    pub(crate) tls: ConnectTlsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AnnounceArgs {
    /// The cluster that the instance belongs to. [default: none, must be given]
    #[arg(long, value_name = "CLUSTER", value_parser = ClusterName::parse)]
    pub(crate) cluster: ClusterName,
    /// Where the instance is reached, for example grpc://10.0.0.7:8080. [default: none, must be given]
    #[arg(long, value_name = "URI", value_parser = InstanceUri::parse)]
    pub(crate) uri: InstanceUri,
    /// The application that it belongs to. [default: none]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) application: String,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Its address; once for IPv4, once for IPv6. [default: the host of the URI, looked up if it is
    /// a name]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub(crate) address: Vec<IpAddr>,
    /// Its weight, at least 0, for D2 partition 0 or the one named. [default: 1]
    #[arg(long, value_name = "[PARTITION=]WEIGHT", value_delimiter = ',', value_parser = parse_weight)]
    pub(crate) weight: Vec<WeightArg>,
    /// Free metadata that clients see. [default: none]
    #[arg(long, value_name = "KEY=JSON", value_parser = parse_metadata)]
    pub(crate) metadata: Vec<MetadataArg>,
    /// How often it says that it lives. At most a third of --ttl.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) heartbeat: Duration,
    /// After how much silence it may be taken for dead, 10s to 300s.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,
    /// What tells that it can take calls: tcp://HOST:PORT, http://HOST:PORT/PATH or
    /// grpc://HOST:PORT[/SERVICE]. It is announced once this succeeds. [default: none, announced at
    /// once]
    #[arg(long, value_name = "URL", value_parser = HealthCheck::parse)]
    pub(crate) health_check: Option<HealthCheck>,
    /// How often the health check is made.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(crate) health_interval: Duration,
    /// How many checks in a row must fail before it is announced as unhealthy.
    #[arg(long, value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) health_failures: u32,
    /// How long after the withdrawal COMMAND is told to stop.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub(crate) drain: Duration,
    #[command(flatten)]
    pub(crate) to: WriteToArgs,
    /// The server to start. It is withdrawn when COMMAND ends; the exit code is COMMAND's.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Files of definitions, YAML or JSON, several documents each; - reads standard input.
    /// [default: none, must be given]
    #[arg(short = 'f', long, value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) file: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) to: WriteToArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// What kind of definition.
    pub(crate) kind: DefinitionKindArg,
    /// Its name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) to: WriteToArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DefinitionKindArg {
    Service,
    Cluster,
    Symlink,
    /// What an application calls.
    Callees,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// The form of the output; json and yaml are stable.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The admin port of the Observer to ask.
    #[arg(long, value_name = "ADDR", default_value = ADMIN_DEFAULT, value_parser = parse_host_port)]
    pub(crate) server: String,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to list.
    pub(crate) what: ListArg,
    /// Only this one: a cluster, a service, an application (callees), the cluster whose URIs (overrides, journal) are meant, or
    /// the number of a stream.
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListArg {
    Clusters,
    Services,
    Uris,
    Streams,
    /// What applications call.
    Callees,
    /// What operators set above announcements.
    Overrides,
    /// What operators did, and conflicts between them.
    Journal,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// What kind of thing.
    pub(crate) what: DescribeArg,
    /// Its name: of a cluster, of a service, of an application, of a URI's cluster, or the number of a stream.
    pub(crate) name: String,
    /// The URI, for `describe uri CLUSTER URI`.
    pub(crate) uri: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DescribeArg {
    Cluster,
    Service,
    Uri,
    Stream,
    /// What an application calls.
    Callees,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The cluster to follow.
    #[arg(value_parser = ClusterName::parse)]
    pub(crate) cluster: ClusterName,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The form of the output: a line of text or a JSON object for each change.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: WatchFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WatchFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Compare it with the Observers at these admin ports instead: whether they have made the same of
    /// the log, and if not, which partition and key shows it. [default: none]
    #[arg(long, value_name = "ADDR", num_args = 1.., value_delimiter = ',', value_parser = parse_host_port)]
    pub(crate) compare: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TopicsArgs {
    /// What to do.
    pub(crate) action: TopicsAction,
    /// Brokers to ask for the rest of the Kafka cluster. [default: none, must be given]
    #[arg(long, value_name = "HOST:PORT,…", value_parser = parse_brokers)]
    pub(crate) kafka: String,
    #[command(flatten)]
    pub(crate) topics: TopicPrefixArgs,
    /// Partitions of PREFIX.announcements (create); the other topics have one.
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) partitions: u32,
    /// Copies of every topic, at least 3; 1 means --development.
    #[arg(long, value_name = "COUNT", default_value = "3", value_parser = parse_replication)]
    pub(crate) replication: u32,
    /// One copy of everything, for development and tests. [default: off]
    #[arg(long)]
    pub(crate) development: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopicsAction {
    /// Create the topics that are missing.
    Create,
    /// Compare every setting with what it must be.
    Check,
}

fn parse_replication(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(2) => Err(
            "two copies cannot lose a broker and still be written; use 3, or 1 for development"
                .to_owned(),
        ),
        Ok(count) if (1..=32).contains(&count) => Ok(count),
        _ => Err("expected 3 to 32, or 1 for development".to_owned()),
    }
}
