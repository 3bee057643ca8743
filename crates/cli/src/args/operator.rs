//! The commands of an operator's hand. What is stated (weight, drain, clear, all, reason) is said on
//! the command line alone: a variable that is there for `announce` must not drain anything.

use clap::{ArgGroup, Args, ValueEnum};
use waypost_core::config::Weight;
use waypost_core::{ClusterName, InstanceUri};

use super::{GatewayArgs, OutputArgs, WriteToArgs};
use crate::values::parse_override_weight;

#[derive(Debug, Args)]
pub(crate) struct AuthorArgs {
    /// Who says so; it is shown wherever the statement is. [default: your user name and host,
    /// USER@HOST]
    #[arg(long, value_name = "NAME")]
    pub(crate) author: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("effect").required(true).args(["weight", "drain", "clear"]))]
pub(crate) struct SetArgs {
    /// The cluster.
    #[arg(value_parser = ClusterName::parse)]
    pub(crate) cluster: ClusterName,
    /// The instance, as it announces itself. It need not exist yet.
    #[arg(value_parser = InstanceUri::parse)]
    pub(crate) uri: InstanceUri,
    /// Serve it with this weight, at least 0, on every D2 partition that it announces.
    /// [default: none, one of --weight, --drain and --clear must be given]
    #[arg(long, value_name = "WEIGHT", value_parser = parse_override_weight)]
    pub(crate) weight: Option<Weight>,
    /// Serve it as draining. [default: off]
    #[arg(long)]
    pub(crate) drain: bool,
    /// Serve again what it announces. [default: off]
    #[arg(long)]
    pub(crate) clear: bool,
    /// Why, in one line. [default: none, must be given]
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) to: WriteToArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    /// The cluster.
    #[arg(value_parser = ClusterName::parse)]
    pub(crate) cluster: ClusterName,
    /// The instance, as it announces itself.
    #[arg(value_parser = InstanceUri::parse)]
    pub(crate) uri: InstanceUri,
    /// Why, in one line. [default: none, must be given]
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) to: WriteToArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("scope").required(true).args(["cluster", "all"]))]
pub(crate) struct ReleaseArgs {
    /// The cluster whose held expiries are true.
    #[arg(value_parser = ClusterName::parse)]
    pub(crate) cluster: Option<ClusterName>,
    /// Every cluster's. [default: off, a cluster must be named]
    #[arg(long)]
    pub(crate) all: bool,
    /// Why, in one line. [default: none, must be given]
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) to: WriteToArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["name", "all"]))]
pub(crate) struct ConfigArgs {
    /// What to do with records that the log lost and an Observer kept.
    pub(crate) action: ConfigAction,
    /// Clusters and services whose orphaned records are meant.
    pub(crate) name: Vec<String>,
    /// All that is orphaned. [default: off, names must be given]
    #[arg(long)]
    pub(crate) all: bool,
    /// Why, in one line. [default: none, must be given for forget]
    #[arg(long, value_name = "TEXT", required_if_eq("action", "forget"))]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) author: AuthorArgs,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigAction {
    /// Write them again.
    Restore,
    /// Give them up.
    Forget,
}
