//! What no compiler checks. Each check gives its complaints, one line each: file, line, what to do.

mod docs;
mod layers;
mod sources;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::counts::Counts;
use crate::sh;

/// One file of the tree.
pub(crate) struct TextFile {
    /// Its path from the root of the tree, with `/`.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) text: String,
}

/// Folders that hold what we write. Others (builds, data, caches) are nobody's business here.
const FOLDERS: [&str; 7] = ["crates", "tests", "bench", "xtask", "docs", ".ci", ".cargo"];

/// Names of files that are looked at.
const EXTENSIONS: [&str; 10] = [
    "rs", "md", "toml", "py", "proto", "xml", "yaml", "json", "txt", "case",
];

/// Runs every check and fails on any complaint.
pub(crate) fn run() -> anyhow::Result<()> {
    let counts = check()?;
    sh::say(&format!("tidy: {counts}"));
    if counts.failed > 0 {
        bail!("the tree is not tidy");
    }
    Ok(())
}

/// Runs every check, prints the complaints, and counts the checks.
pub(crate) fn check() -> anyhow::Result<Counts> {
    let files = read_tree(&sh::root())?;
    let checks = [
        (
            "a crate imports only lower layers",
            layers::check(&crate::cargo::metadata()?),
        ),
        (
            "every module says what it is",
            sources::modules_are_documented(&files),
        ),
        ("files are short", sources::files_are_short(&files)),
        (
            "nothing is left undone or skipped",
            sources::nothing_is_left_undone(&files),
        ),
        (
            "no file names a machine's own places",
            sources::no_machine_places(&files),
        ),
        (
            "links in documents lead somewhere",
            docs::links_lead_somewhere(&files, &sh::root()),
        ),
        (
            "ARCHITECTURE.md is short",
            docs::architecture_is_short(&files),
        ),
        ("commands in documents exist", docs::commands_exist(&files)),
    ];
    let mut counts = Counts::default();
    for (name, complaints) in checks {
        for complaint in &complaints {
            sh::complain(&format!("tidy: {name}: {complaint}"));
        }
        counts += Counts::one(complaints.is_empty());
    }
    Ok(counts)
}

fn read_tree(root: &Path) -> anyhow::Result<Vec<TextFile>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    for folder in FOLDERS
        .iter()
        .map(|folder| root.join(folder))
        .filter(|path| path.is_dir())
    {
        collect(&folder, &mut paths)?;
    }
    paths.sort();
    let is_text = |path: &&PathBuf| {
        let extension = path
            .extension()
            .map(|name| name.to_string_lossy().into_owned());
        extension.is_none_or(|name| EXTENSIONS.contains(&name.as_str()))
    };
    paths
        .iter()
        .filter(is_text)
        .map(|path| read(root, path))
        .collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_built = path.ends_with("target") || path.ends_with("__pycache__");
        if path.is_dir() && !is_built {
            collect(&path, paths)?;
        } else if path.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

fn read(root: &Path, path: &Path) -> anyhow::Result<TextFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let path = path
        .strip_prefix(root)?
        .to_string_lossy()
        .replace('\\', "/");
    Ok(TextFile { path, text })
}
