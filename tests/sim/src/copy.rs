//! A copy of the sources of which the scenarios are made, to plant bugs in and to build otherwise than
//! the tree. It is kept beside the build: a second run compiles only what has changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

/// What the scenarios are made of: the rest of the tree is not copied.
const MEMBERS: [&str; 5] = [
    "crates/core",
    "crates/proto",
    "crates/fold",
    "crates/log",
    "tests/sim",
];

/// Files of the root that a build looks at.
const ROOT_FILES: [&str; 2] = ["Cargo.lock", "rust-toolchain.toml"];

/// How long a build may take: everything, on a busy machine.
const BUILD_MAX: Duration = Duration::from_secs(1200);

/// How long all scenarios may take, on a busy machine.
const PLAY_ALL_MAX: Duration = Duration::from_secs(1200);

/// How long a few of them may take. A bug with which they do not end is found.
const PLAY_SOME_MAX: Duration = Duration::from_secs(300);

/// How long a hundred thousand cases may take.
const PROPERTY_MAX: Duration = Duration::from_secs(3600);

/// How often a running program is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The copy.
#[derive(Clone, Debug)]
pub struct TreeCopy {
    folder: PathBuf,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With success.
    Well,
    /// Without.
    Failed,
    /// Not in time.
    Late,
}

/// What became of scenarios.
#[derive(Clone, Debug)]
pub struct Played {
    /// As a whole.
    pub ended: Ended,
    /// The names of those that passed.
    pub passed: Vec<String>,
    /// The names of those that failed.
    pub failed: Vec<String>,
}

impl TreeCopy {
    /// Makes `folder` what the tree at `root` is. A file that has not changed keeps its time, so that
    /// cargo leaves alone what was built of it.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn make(root: &Path, folder: &Path) -> anyhow::Result<Self> {
        let copy = Self {
            folder: folder.to_owned(),
        };
        for name in ROOT_FILES {
            copy.write(name, &read(&root.join(name))?)?;
        }
        let manifest = read(&root.join("Cargo.toml"))?;
        copy.write("Cargo.toml", &workspace(&manifest))?;
        for member in MEMBERS {
            copy.copy_member(root, member)?;
        }
        Ok(copy)
    }

    /// The text of a file, by its path from the root of the tree.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, file: &str) -> anyhow::Result<String> {
        read(&self.folder.join(file))
    }

    /// Puts other text into a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        write(&self.folder.join(file), text)
    }

    /// Builds the scenarios and gives the program that plays them.
    ///
    /// # Errors
    /// They do not compile.
    pub fn build(&self) -> anyhow::Result<PathBuf> {
        let mut command = self.cargo();
        command.args(["test", "--offline", "--no-run"]);
        command.args(["-p", "waypost-sim", "--test", "scenarios"]);
        let told = self.build_with(&mut command)?;
        // `Executable tests/scenarios/main.rs (/…/target/debug/deps/scenarios-1234)`
        let mut lines = told.lines().filter(|line| line.contains("Executable"));
        let program = lines.find_map(|line| Some(line.split_once('(')?.1.trim_end_matches(')')));
        let program = program.context("cargo names no program that plays the scenarios")?;
        Ok(self.folder.join(program))
    }

    /// Runs the scenarios of `program` whose names contain one of `names`; all, if there are none.
    ///
    /// # Errors
    /// No scenario has such a name.
    pub fn play(&self, program: &Path, names: &[&str]) -> anyhow::Result<Played> {
        let mut command = Command::new(program);
        command.args(names).env("RUST_BACKTRACE", "0");
        let file = self.folder.join("scenarios.txt");
        let at_most = if names.is_empty() {
            PLAY_ALL_MAX
        } else {
            PLAY_SOME_MAX
        };
        let ended = run_to_end(&mut command, &file, at_most)?;
        let text = read(&file)?;
        let lines = text.lines().filter_map(|line| line.strip_prefix("test "));
        let outcomes: Vec<_> = lines.filter_map(|line| line.split_once(" ... ")).collect();
        if ended != Ended::Late && outcomes.is_empty() {
            bail!("no scenario has such a name: {}", names.join(", "));
        }
        let named = |wanted: &str| {
            let outcomes = outcomes.iter().filter(|(_, outcome)| *outcome == wanted);
            outcomes.map(|(name, _)| (*name).to_owned()).collect()
        };
        Ok(Played {
            ended,
            passed: named("ok"),
            failed: named("FAILED"),
        })
    }

    /// Builds the property test to run fast, plays `cases` of it from the seed `first` on, and gives its
    /// last line.
    ///
    /// # Errors
    /// It does not compile, or a case does not hold: its seed and what is left of it.
    pub fn play_property(&self, first: u64, cases: u64) -> anyhow::Result<String> {
        let mut command = self.cargo();
        command.args([
            "build",
            "--offline",
            "--profile",
            "sim",
            "-p",
            "waypost-sim",
        ]);
        self.build_with(&mut command)?;
        let mut command = Command::new(self.folder.join("target/sim/waypost-sim"));
        command.arg("property");
        command.args(["--cases", &cases.to_string(), "--seed", &first.to_string()]);
        let file = self.folder.join("property.txt");
        let ended = run_to_end(&mut command, &file, PROPERTY_MAX)?;
        let text = read(&file)?;
        if ended != Ended::Well {
            bail!("{}", text.trim_end());
        }
        Ok(text.lines().last().unwrap_or_default().to_owned())
    }

    /// What cargo says, once it has built.
    fn build_with(&self, command: &mut Command) -> anyhow::Result<String> {
        let file = self.folder.join("build.txt");
        let ended = run_to_end(command, &file, BUILD_MAX)?;
        let text = read(&file)?;
        if ended == Ended::Well {
            return Ok(text);
        }
        let errors = text.lines().filter(|line| line.starts_with("error"));
        let first = errors.take(3).collect::<Vec<_>>().join("; ");
        bail!(
            "it does not compile: {first} (all of it: {})",
            file.display()
        );
    }

    /// Cargo in the copy. Everything from registries was fetched for the tree itself.
    fn cargo(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", self.folder.join("target"));
        command
    }

    fn copy_member(&self, root: &Path, member: &str) -> anyhow::Result<()> {
        let mut wanted = BTreeSet::new();
        for file in files_of(&root.join(member))? {
            let path = file.strip_prefix(root)?.to_owned();
            let text = read(&file)?;
            let is_manifest = path.ends_with("Cargo.toml");
            let text = if is_manifest {
                without_dev_dependencies(&text)
            } else {
                text
            };
            write(&self.folder.join(&path), &text)?;
            wanted.insert(path);
        }
        for file in files_of(&self.folder.join(member))? {
            if !wanted.contains(file.strip_prefix(&self.folder)?) {
                fs::remove_file(&file)?;
            }
        }
        Ok(())
    }
}

/// The tree's workspace with the members that are there, and without what debuggers need.
fn workspace(manifest: &str) -> String {
    let members = MEMBERS.map(|member| format!("{member:?}")).join(", ");
    let lines = manifest.lines().filter_map(|line| {
        if line.starts_with("members = ") {
            Some(format!("members = [{members}]\n"))
        } else if line.starts_with("default-members") {
            None
        } else if line.starts_with("debug = ") {
            Some("debug = false\n".to_owned())
        } else {
            Some(format!("{line}\n"))
        }
    });
    lines.collect()
}

/// What a package needs for its own tests is not there.
fn without_dev_dependencies(manifest: &str) -> String {
    let sections = manifest.split("\n[");
    let kept = sections.filter(|section| !section.starts_with("dev-dependencies]"));
    kept.collect::<Vec<_>>().join("\n[")
}

fn run_to_end(command: &mut Command, file: &Path, at_most: Duration) -> anyhow::Result<Ended> {
    let output = File::create(file).with_context(|| format!("{}", file.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    wait(&mut child, at_most)
}

fn wait(child: &mut Child, at_most: Duration) -> anyhow::Result<Ended> {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(status) = child.try_wait()? {
            let is_well = status.success();
            return Ok(if is_well { Ended::Well } else { Ended::Failed });
        }
        if waited > at_most {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::Late);
        }
        std::thread::sleep(POLL_INTERVAL);
        waited += POLL_INTERVAL;
    }
}

fn files_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("{}", file.display()))
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    if fs::read_to_string(file).is_ok_and(|there| there == text) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text).with_context(|| format!("{}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_a_workspace_of_its_own() {
        let text = workspace("[workspace]\nmembers = [\"a\"]\ndefault-members = [\"a\"]\n");
        assert!(text.contains("\"tests/sim\"]"), "{text}");
        assert!(!text.contains("default-members"), "{text}");
        let manifest =
            "[package]\nname = \"x\"\n\n[dev-dependencies]\ny = \"1\"\n\n[[test]]\nname = \"z\"\n";
        assert_eq!(
            without_dev_dependencies(manifest),
            "[package]\nname = \"x\"\n\n[[test]]\nname = \"z\"\n"
        );
    }
}
