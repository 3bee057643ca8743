//! Every `waypost` command in a document is one that the binary takes, with these flags.

use std::collections::BTreeMap;
use std::path::Path;

use waypost_testkit::parts::source_root;
use waypost_testkit::waypost::cli;

/// Pages with commands for a person to type.
const PAGES: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/cli.md",
    "docs/announcing.md",
    "docs/resources.md",
    "docs/d2-properties.md",
];

#[tokio::test]
async fn every_command_in_a_document_exists_with_its_flags() {
    let mut help_by_command: BTreeMap<String, String> = BTreeMap::new();
    let mut complaints = Vec::new();
    let mut seen = 0;
    for page in PAGES {
        let text = std::fs::read_to_string(source_root().join(page)).unwrap();
        for command in commands(&text) {
            seen += 1;
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let path = subcommand(&words);
            let key = path.join(" ");
            if !help_by_command.contains_key(&key) {
                let done = cli(&[&path[..], &["--help"]].concat()).await.unwrap();
                let help = if done.code() == 0 {
                    done.stdout
                } else {
                    String::new()
                };
                help_by_command.insert(key.clone(), help);
            }
            let help = &help_by_command[&key];
            if help.is_empty() {
                complaints.push(format!("{page}: there is no `waypost {key}`"));
            }
            let own = words.split(|word| *word == "--").next().unwrap_or_default();
            let flags = own.iter().filter(|word| word.starts_with("--"));
            let unknown = flags.map(|flag| flag.split('=').next().unwrap_or(flag));
            let unknown = unknown.filter(|flag| !help.contains(*flag));
            complaints
                .extend(unknown.map(|flag| format!("{page}: `waypost {key}` takes no {flag}")));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(
        seen >= 8,
        "only {seen} commands found: is the search broken?"
    );
}

/// The commands in the shell blocks of a page, each as its words after `waypost`.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut inside = false;
    let mut whole = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside && ["```sh", "```bash", "```console"].contains(&line.trim_end());
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(start) = line.strip_suffix('\\') {
            whole.push_str(start);
            continue;
        }
        whole.push_str(line);
        commands.extend(command(&std::mem::take(&mut whole)));
    }
    commands
}

/// The words after `waypost`, or after what runs it from the tree.
fn command(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start_matches("$ ").split(" #").next()?;
    let rest = ["waypost ", "cargo run --release -- ", "cargo run -- "]
        .iter()
        .find_map(|start| line.trim_start().strip_prefix(start))?;
    let end = rest.find([';', '&', '|', '>']).unwrap_or(rest.len());
    Some(rest[..end].split_whitespace().map(str::to_owned).collect())
}

/// The words that name the command: `get uris` takes its noun as an argument, `topics create` is a
/// command of its own.
fn subcommand<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let nested = ["topics", "bootstrap", "config"];
    let depth = if words.first().is_some_and(|word| nested.contains(word)) {
        2
    } else {
        1
    };
    words.iter().take(depth).copied().collect()
}

#[test]
fn commands_are_found_in_shell_blocks_only() {
    let page = "`waypost no`\n```sh\nwaypost a --b \\\n   c -- d   # why\ncargo run --release -- dev\n```\n";
    let found = commands(page);
    assert_eq!(found, [vec!["a", "--b", "c", "--", "d"], vec!["dev"]]);
    assert!(Path::new(&source_root().join("README.md")).exists());
}
