//! Programs of `tests/interop/` that call and serve with unmodified implementations of gRPC.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::{copy_jars, dir, go, part, with_tries};
use crate::sh;

/// Where they are, from the root of the tree.
const SOURCES: &str = "tests/interop";

/// Builds the program of grpc-go: `interop-go/interop`.
pub(super) fn build_go() -> anyhow::Result<()> {
    let sources = sh::root().join(SOURCES).join("go");
    let version = sh::stdout_of(Command::new(go()?).arg("version"))?;
    let inputs = version + &contents(&sources)?;
    part(
        "grpc-go's programs",
        &dir()?.join("interop-go"),
        &inputs,
        |folder| {
            let mut build = Command::new(go()?);
            build.arg("-C").arg(&sources);
            build.args(["build", "-mod=readonly", "-trimpath", "-ldflags=-s -w"]);
            build.arg("-o").arg(folder.join("interop")).arg(".");
            // Its modules come over a network the first time, each with a checksum in go.sum.
            with_tries(&mut build)
        },
    )
}

/// Compiles the programs of grpc-java: `interop-java/classes`, beside their jars in `lib`.
pub(super) fn build_java() -> anyhow::Result<()> {
    let sources = sh::root().join(SOURCES).join("java");
    let version = sh::stdout_of(Command::new("javac").arg("-version"))?;
    let inputs = version + &contents(&sources)?;
    part(
        "grpc-java's programs",
        &dir()?.join("interop-java"),
        &inputs,
        |folder| {
            copy_jars(&sources.join("pom.xml"), &folder.join("lib"))?;
            let mut compile = Command::new("javac");
            compile.args(["-Xlint:all,-processing", "-Werror", "-proc:none"]);
            compile.arg("-cp").arg(folder.join("lib/*"));
            compile.arg("-d").arg(folder.join("classes"));
            let files = files(&sources)?.into_iter();
            compile.args(files.filter(|file| file.extension().is_some_and(|e| e == "java")));
            sh::run(&mut compile)
        },
    )
}

/// Builds the program of tonic-xds: `interop-rust/interop`. It is no part of the workspace: nothing else
/// needs what it is made of.
pub(super) fn build_rust() -> anyhow::Result<()> {
    let sources = sh::root().join(SOURCES).join("rust");
    let version = sh::stdout_of(Command::new("cargo").arg("--version"))?;
    let inputs = version + &contents(&sources)?;
    part(
        "tonic-xds's program",
        &dir()?.join("interop-rust"),
        &inputs,
        |folder| {
            let target = folder.join("target");
            let mut build = Command::new("cargo");
            build.args(["build", "--locked", "--manifest-path"]);
            build.arg(sources.join("Cargo.toml"));
            build.arg("--target-dir").arg(&target);
            // Its crates come over a network the first time, each with a checksum in Cargo.lock.
            with_tries(&mut build)?;
            let built = target.join("debug/waypost-interop");
            std::fs::rename(&built, folder.join("interop"))
                .with_context(|| format!("{}", built.display()))?;
            Ok(std::fs::remove_dir_all(&target)?)
        },
    )
}

/// All files of a folder, each after its name: equal texts, equal folders.
fn contents(folder: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    for file in files(folder)? {
        let content = std::fs::read_to_string(&file);
        let content = content.with_context(|| format!("{}", file.display()))?;
        let name = file.strip_prefix(folder).unwrap_or(&file);
        writeln!(text, "== {}\n{content}", name.display())?;
    }
    Ok(text)
}

/// The files of a folder and of those below it, in order.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_built_again_when_any_of_its_files_changes_its_name_or_content() {
        let folder =
            std::env::temp_dir().join(format!("waypost-xtask-interop-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a/b")).unwrap();
        std::fs::write(folder.join("a/b/one"), "1").unwrap();
        let first = contents(&folder).unwrap();
        assert_eq!(contents(&folder).unwrap(), first);
        std::fs::write(folder.join("a/b/one"), "2").unwrap();
        let second = contents(&folder).unwrap();
        std::fs::rename(folder.join("a/b/one"), folder.join("a/b/two")).unwrap();
        let third = contents(&folder).unwrap();
        assert!(first != second && second != third, "{third}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
