//! Checks of source files, line by line.

use super::TextFile;

/// A file longer than this does more than one thing.
const LINES_MAX: usize = 500;

/// Files that are longer for now, with their length: it may fall, never rise, and a file that falls
/// below the bound leaves the list.
const LONGER_FOR_NOW: &[(&str, usize)] = &[];

/// Text that must not be in a Rust file, and what to do instead. Written in halves, so that this
/// file is not its own first complaint.
const UNDONE: &[(&str, &str, &str)] = &[
    ("todo", "!(", "finish it or leave it out"),
    ("unimplemented", "!(", "finish it or leave it out"),
    (
        "#[igno",
        "re",
        "a test that is never run shows nothing: mend it or delete it",
    ),
    ("#[all", "ow(", "use #[expect(.., reason = ..)]"),
    ("#![all", "ow(", "use #[expect(.., reason = ..)]"),
];

/// Places of one machine or workplace, which mean nothing on the next.
const PLACES: &[(&str, &str)] = &[
    ("/wor", "k/"),
    ("/ro", "ot/"),
    ("/tm", "p/"),
    ("/ho", "me/"),
    ("pypi", ".org"),
    ("index.crates", ".io"),
    ("repo.maven", ".apache.org"),
    ("registry.npmjs", ".org"),
    ("proxy.golang", ".org"),
];

/// Every module starts with what it is.
pub(super) fn modules_are_documented(files: &[TextFile]) -> Vec<String> {
    let undocumented = rust(files).filter(|file| !file.text.starts_with("//!"));
    undocumented
        .map(|file| format!("{}:1: start with //! and what it is", file.path))
        .collect()
}

/// Files keep below [`LINES_MAX`]. (Functions are clippy's.)
pub(super) fn files_are_short(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in rust(files) {
        let lines = file.text.lines().count();
        let longer = LONGER_FOR_NOW.iter().find(|(path, _)| *path == file.path);
        match longer {
            None if lines > LINES_MAX => {
                complaints.push(format!(
                    "{}: {lines} lines, {LINES_MAX} at most: cut it",
                    file.path
                ));
            }
            Some((_, most)) if lines > *most => {
                complaints.push(format!("{}: {lines} lines, was {most}: cut it", file.path));
            }
            Some(_) if lines <= LINES_MAX => {
                complaints.push(format!("{}: is short now: take it off the list", file.path));
            }
            _ => {}
        }
    }
    complaints
}

/// Nothing is left undone, skipped or silenced.
pub(super) fn nothing_is_left_undone(files: &[TextFile]) -> Vec<String> {
    let needles: Vec<(String, &str)> = UNDONE
        .iter()
        .map(|(head, tail, instead)| (format!("{head}{tail}"), *instead))
        .collect();
    let mut complaints = Vec::new();
    for file in rust(files) {
        for (number, line) in file.text.lines().enumerate() {
            let found = needles
                .iter()
                .filter(|(needle, _)| line.contains(needle.as_str()));
            complaints.extend(found.map(|(needle, instead)| {
                format!("{}:{}: {needle}: {instead}", file.path, number + 1)
            }));
        }
    }
    complaints
}

/// No file names a place that exists on one machine only, or a registry's host.
pub(super) fn no_machine_places(files: &[TextFile]) -> Vec<String> {
    let needles: Vec<String> = PLACES
        .iter()
        .map(|(head, tail)| format!("{head}{tail}"))
        .collect();
    let mut complaints = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            let found = needles.iter().filter(|needle| names_place(line, needle));
            complaints
                .extend(found.map(|needle| format!("{}:{}: {needle}", file.path, number + 1)));
        }
    }
    complaints
}

/// Whether `needle` stands in `line` as the start of a path, not inside a longer one.
fn names_place(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !(needle.starts_with('/')
            && before.is_some_and(|c| c.is_alphanumeric() || "._}".contains(c)))
    })
}

fn rust(files: &[TextFile]) -> impl Iterator<Item = &TextFile> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> [TextFile; 1] {
        [TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }]
    }

    #[test]
    fn each_check_finds_what_it_looks_for_and_nothing_else() {
        let inside = format!("crates{}{}x", "/wor", "k/");
        let text = format!("//! Fine.\n\n/// See {inside}.\nfn f() {{}}\n");
        let fine = file("a.rs", &text);
        for check in [
            modules_are_documented,
            files_are_short,
            nothing_is_left_undone,
            no_machine_places,
        ] {
            assert_eq!(check(&fine), Vec::<String>::new());
        }
        let long = "//! Long.\n".repeat(LINES_MAX + 1);
        let undone = format!("{}{}", "todo", "!()");
        let place = format!("see {}{}x", "/wor", "k/");
        assert_eq!(modules_are_documented(&file("a.rs", "fn f() {}")).len(), 1);
        assert_eq!(files_are_short(&file("a.rs", &long)).len(), 1);
        assert_eq!(nothing_is_left_undone(&file("a.rs", &undone)).len(), 1);
        assert_eq!(no_machine_places(&file("a.md", &place)).len(), 1);
    }
}
