//! Running programs and talking to whoever typed the command.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// How often a program with a deadline is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The root of the source tree.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// One line for the reader.
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// One line about what went wrong.
pub(crate) fn complain(line: &str) {
    eprintln!("{line}");
}

/// A stopwatch. The only place of this crate that reads a clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "a task runner has no paused clock, nor tokio"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Runs a program in the root of the tree with its output shown; its failure is an error.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    say(&format!("$ {}", describe(command)));
    run_unannounced(command)
}

/// As [`run`], where nothing but the program's own output may be on standard output.
pub(crate) fn run_unannounced(command: &mut Command) -> anyhow::Result<()> {
    let what = describe(command);
    let status = command
        .current_dir(root())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{what}`"))?;
    if !status.success() {
        bail!("`{what}` failed ({status})");
    }
    Ok(())
}

/// Whether a program runs and ends well; its output is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// What a program writes to standard output; its standard error is shown, its failure is an error.
pub(crate) fn stdout_of(command: &mut Command) -> anyhow::Result<String> {
    let what = describe(command);
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{what}`"))?;
    if !done.status.success() {
        bail!("`{what}` failed ({})", done.status);
    }
    String::from_utf8(done.stdout).with_context(|| format!("`{what}` printed no UTF-8"))
}

/// Both output streams of a program, as one text, and whether it ended well within `deadline`.
pub(crate) struct Captured {
    pub(crate) text: String,
    pub(crate) outcome: Result<(), String>,
}

/// Runs a program with its output kept in `file` (both streams in order) and read back.
pub(crate) fn capture(
    command: &mut Command,
    file: &Path,
    deadline: Duration,
) -> anyhow::Result<Captured> {
    let what = describe(command);
    let output = std::fs::File::create(file).with_context(|| format!("{}", file.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start `{what}`"))?;
    let outcome = wait(&mut child, deadline)?;
    let text = String::from_utf8_lossy(&std::fs::read(file)?).into_owned();
    Ok(Captured { text, outcome })
}

fn wait(child: &mut Child, deadline: Duration) -> anyhow::Result<Result<(), String>> {
    let watch = Stopwatch::start();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() {
                Ok(())
            } else {
                Err(status.to_string())
            });
        }
        if watch.elapsed() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(Err(format!(
                "killed: not done within {} s",
                deadline.as_secs()
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A command as one would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
