//! Checks of documents: a reader who follows them gets somewhere.

use std::path::Path;

use clap::CommandFactory as _;

use super::TextFile;

/// ARCHITECTURE.md is read by everybody who comes new: longer, and it is read by nobody.
const ARCHITECTURE_LINES_MAX: usize = 300;

/// Where the proofs are listed.
const PROOFS: &str = "tests/e2e/src/lib.rs";

/// Every relative link leads to a file of the tree.
pub(super) fn links_lead_somewhere(files: &[TextFile], root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in markdown(files) {
        let folder = root.join(&file.path);
        let folder = folder.parent().unwrap_or(root);
        for (number, link) in links(&file.text) {
            let target = link.split('#').next().unwrap_or_default();
            let is_ours = !target.is_empty() && !target.contains("://");
            if is_ours && !folder.join(target).exists() {
                complaints.push(format!("{}:{number}: {link} leads nowhere", file.path));
            }
        }
    }
    complaints
}

/// ARCHITECTURE.md keeps its promise of length.
pub(super) fn architecture_is_short(files: &[TextFile]) -> Vec<String> {
    let Some(file) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
        return vec!["there is no ARCHITECTURE.md".to_owned()];
    };
    let lines = file.text.lines().count();
    if lines > ARCHITECTURE_LINES_MAX {
        return vec![format!("{lines} lines, {ARCHITECTURE_LINES_MAX} at most")];
    }
    Vec::new()
}

/// Every `cargo xtask …` that a document tells the reader to type is a task, and every proof that it
/// names is in the list. (What `waypost …` takes is checked by running it: tests/e2e.)
pub(super) fn commands_exist(files: &[TextFile]) -> Vec<String> {
    let tasks = crate::Cli::command();
    let mut complaints = Vec::new();
    for file in markdown(files) {
        for (number, words) in xtask_commands(&file.text) {
            let complaint = match &words[..] {
                [task, ..] if tasks.find_subcommand(task).is_none() => format!("no task {task:?}"),
                [task, proof, ..] if task == "prove" && is_name(proof) => {
                    let entry = format!("name: \"{proof}\"");
                    let mut lists = files.iter().filter(|file| file.path == PROOFS);
                    if lists.any(|list| list.text.contains(&entry)) {
                        continue;
                    }
                    format!("no proof {proof:?} in {PROOFS}")
                }
                _ => continue,
            };
            complaints.push(format!("{}:{number}: {complaint}", file.path));
        }
    }
    complaints
}

/// A word that stands for itself: no flag, no placeholder.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
}

fn xtask_commands(text: &str) -> impl Iterator<Item = (usize, Vec<String>)> {
    const COMMAND: &str = "cargo xtask ";
    text.lines().enumerate().flat_map(|(index, line)| {
        line.match_indices(COMMAND).filter_map(move |(at, _)| {
            let rest = &line[at + COMMAND.len()..];
            let end = rest.find(['`', '#', ')', ',', ';']).unwrap_or(rest.len());
            let words: Vec<String> = rest[..end].split_whitespace().map(str::to_owned).collect();
            words
                .first()
                .is_some_and(|word| is_name(word))
                .then_some((index + 1, words))
        })
    })
}

fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(index, line)| {
        line.split("](")
            .skip(1)
            .filter_map(move |rest| Some((index + 1, rest.split_once(')')?.0)))
    })
}

fn markdown(files: &[TextFile]) -> impl Iterator<Item = &TextFile> {
    files.iter().filter(|file| file.path.ends_with(".md"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Vec<TextFile> {
        vec![TextFile {
            path: "docs/page.md".to_owned(),
            text: text.to_owned(),
        }]
    }

    #[test]
    fn links_that_lead_nowhere_are_named_and_others_are_not() {
        let root = crate::sh::root();
        let good = page("[a](../README.md#part) [b](https://example.net/x) [c](#here)");
        assert_eq!(links_lead_somewhere(&good, &root), Vec::<String>::new());
        assert_eq!(
            links_lead_somewhere(&page("x\n[a](../NOTHING.md)"), &root).len(),
            1
        );
    }

    #[test]
    fn tasks_and_proofs_that_do_not_exist_are_named() {
        let bad = page("`cargo xtask tests` and `cargo xtask prove no-such-proof --short`");
        assert_eq!(commands_exist(&bad).len(), 2);
        let mut good = page(
            "`cargo xtask prove NAME`, `cargo xtask test --list`, `cargo xtask prove one-thing`",
        );
        good.push(TextFile {
            path: PROOFS.to_owned(),
            text: "Proof { name: \"one-thing\" }".to_owned(),
        });
        assert_eq!(commands_exist(&good), Vec::<String>::new());
    }
}
