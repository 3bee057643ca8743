//! Cargo: building, and finding what was built.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::sh;

/// A cargo command in the root of the tree, with the locked dependencies.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(sh::root()).args(args);
    command
}

/// One test executable.
#[derive(Clone, Debug)]
pub(crate) struct TestBinary {
    /// The package, for example `waypost-store`.
    pub(crate) package: String,
    /// The target, for example the name of a file in `tests/`.
    pub(crate) target: String,
    /// Where it runs: the package's folder, as with `cargo test`.
    pub(crate) folder: PathBuf,
    /// The file.
    pub(crate) executable: PathBuf,
}

/// Builds every target of the workspace in one go, so that all tiers and proofs share one build of
/// each dependency, and gives the test executables by package and target.
pub(crate) fn build_all() -> anyhow::Result<Vec<TestBinary>> {
    let args = ["build", "--locked", "--workspace", "--all-targets"];
    let format = ["--message-format", "json-render-diagnostics"];
    sh::say(&format!("$ cargo {}", args.join(" ")));
    let output = sh::stdout_of(&mut cargo(&[&args[..], &format].concat()))?;
    let mut found = Vec::new();
    for line in output.lines() {
        let message: Value = serde_json::from_str(line).context("a message of cargo build")?;
        if message["reason"] == "compiler-artifact" && message["profile"]["test"] == true {
            found.extend(test_binary(&message));
        }
    }
    found.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(found)
}

fn test_binary(message: &Value) -> Option<TestBinary> {
    let folder = PathBuf::from(message["manifest_path"].as_str()?)
        .parent()?
        .to_owned();
    // `path+file:///…/crates/store#waypost-store@0.1.0`, or `…/crates/store#0.1.0` when the folder is
    // named as the package is.
    let id = message["package_id"].as_str()?;
    let after = id.rsplit_once('#')?.1;
    let package = match after.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.file_name()?.to_string_lossy().into_owned(),
    };
    Some(TestBinary {
        package,
        target: message["target"]["name"].as_str()?.to_owned(),
        executable: PathBuf::from(message["executable"].as_str()?),
        folder,
    })
}

/// The workspace as `cargo metadata` describes it, without dependencies from registries.
pub(crate) fn metadata() -> anyhow::Result<Value> {
    let args = ["metadata", "--locked", "--no-deps", "--format-version", "1"];
    serde_json::from_str(&sh::stdout_of(&mut cargo(&args))?).context("cargo metadata")
}

/// The folder that builds of a profile (`debug`, `release`) land in.
pub(crate) fn target_dir(profile: &str) -> anyhow::Result<PathBuf> {
    let metadata = metadata()?;
    let dir = metadata["target_directory"]
        .as_str()
        .context("cargo names no target folder")?;
    Ok(PathBuf::from(dir).join(profile))
}
