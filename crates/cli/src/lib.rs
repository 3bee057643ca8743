//! The command line of Waypost: one binary, one command for each thing that a person does.
//!
//! What every command takes, prints and exits with is a contract: `docs/cli.md`.

mod admin;
mod announce;
mod args;
mod bootstrap;
mod config;
mod definitions;
mod exit;
mod gateway;
mod kafka;
mod limits;
mod look;
mod operator;
mod output;
mod serve;
mod topics;
mod values;

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches as _};

use args::{Cli, Command, LogFormatArg};
use exit::{Exit, Failure};

/// Reads the command line of this process, runs the command and says how it ended.
#[must_use]
pub fn main() -> ExitCode {
    match config::read_command_line(std::env::args_os().collect()) {
        Ok(matches) => match Cli::from_arg_matches(&matches) {
            Ok(cli) => run(cli, matches.subcommand().map(|(_, sub)| sub)),
            Err(error) => exit::usage_error(&error),
        },
        Err(config::CommandLineError::Usage(error)) => exit::usage_error(&error),
        Err(config::CommandLineError::File(error)) => {
            exit::report(Err(Failure::usage(error.to_string())))
        }
    }
}

fn run(mut cli: Cli, matches: Option<&ArgMatches>) -> ExitCode {
    let prepared = start_log(&cli).and_then(|()| choose_target(&mut cli.command, matches));
    if let Err(error) = prepared {
        return exit::report(Err(error));
    }
    let serves = matches!(cli.command, Command::Dev(_) | Command::Observer(_));
    let runtime = if serves {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
    } else {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(run_command(cli.command));
            // A read of standard input or a slow name lookup must not keep the process.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::failed(format!("cannot start: {error}"))),
    };
    exit::report(result)
}

/// Servers say what they do; other commands only what goes wrong.
fn start_log(cli: &Cli) -> Result<(), Failure> {
    let default = match cli.command {
        Command::Dev(_) | Command::Observer(_) => "info",
        _ => "error",
    };
    let filter = cli.global.log_level.as_deref().unwrap_or(default);
    let format = match cli.global.log_format {
        LogFormatArg::Text => waypost_runtime::LogFormat::Text,
        LogFormatArg::Json => waypost_runtime::LogFormat::Json,
    };
    waypost_runtime::telemetry::init(format, filter).map_err(|e| Failure::usage(e.to_string()))
}

/// Leaves one of `--kafka` and `--to` standing where a command takes either.
fn choose_target(command: &mut Command, matches: Option<&ArgMatches>) -> Result<(), Failure> {
    let target = match command {
        Command::Announce(args) => &mut args.to,
        Command::Apply(args) => &mut args.to,
        Command::Delete(args) => &mut args.to,
        Command::Set(args) => &mut args.to,
        Command::Evict(args) => &mut args.to,
        Command::Release(args) => &mut args.to,
        _ => return Ok(()),
    };
    match matches.and_then(config::prefers_gateway) {
        Some(true) => target.kafka = None,
        Some(false) => {}
        None => {
            return Err(Failure::usage(
                "--kafka and --to cannot both be given: records go to Kafka or through a gateway",
            ));
        }
    }
    Ok(())
}

async fn run_command(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Dev(args) => serve::dev::run(args).await,
        Command::Observer(args) => serve::observer::run(args).await,
        Command::Announce(args) => announce::run(*args).await,
        Command::Apply(args) => definitions::apply(args).await,
        Command::Delete(args) => definitions::delete(args).await,
        Command::Get(args) => look::get::run(args).await,
        Command::Describe(args) => look::describe::run(args).await,
        Command::Watch(args) => look::watch::run(args).await,
        Command::Set(args) => operator::set(args).await,
        Command::Evict(args) => operator::evict(args).await,
        Command::Release(args) => operator::release(args).await,
        Command::Config(args) => operator::config(args).await,
        Command::Topics(args) => topics::run(args).await,
        Command::Status(args) => look::status::run(args).await,
        Command::Bootstrap(args) => bootstrap::run(&args),
    }
}
