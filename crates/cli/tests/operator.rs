//! The words of an operator's commands: what is no statement is refused before anything is tried.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up fails")]

use std::process::{Command, Output};

/// A command with nobody to write to.
fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WAYPOST_") {
            command.env_remove(name);
        }
    }
    command.args(args).output().unwrap()
}

/// Checks that wrong usage is told in one line with these words.
fn expect_usage_error(args: &[&str], words: &[&str]) {
    let output = run(args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{args:?}: no {word:?} in {text}");
    }
}

#[test]
fn a_statement_that_is_none_exits_2() {
    let reason = ["--reason", "r"];
    let cases: [(Vec<&str>, &[&str]); 6] = [
        (
            [&["set", "c", "http://h:1", "--weight", "-1"][..], &reason].concat(),
            &["-1"],
        ),
        (
            vec!["set", "c", "http://h:1", "--drain", "--reason", " "],
            &["--reason", "empty"],
        ),
        (
            [&["set", "c", "nowhere", "--drain"][..], &reason].concat(),
            &["nowhere", "scheme://host:port"],
        ),
        (
            [
                &["set", "c", "http://h:1", "--drain", "--clear"][..],
                &reason,
            ]
            .concat(),
            &["--drain", "--clear"],
        ),
        (
            [&["evict", "a/b", "http://h:1"][..], &reason].concat(),
            &["a/b"],
        ),
        (
            [&["release", "c", "--all"][..], &reason].concat(),
            &["--all"],
        ),
    ];
    for (args, words) in cases {
        expect_usage_error(&args, words);
    }
}

#[test]
fn what_must_be_stated_is_named() {
    let instance = ["c", "http://h:1"];
    let missing: [(&str, &[&str], &str); 7] = [
        ("set", &["--reason", "r"], "--weight"),
        ("set", &["--drain"], "--reason"),
        ("evict", &[], "--reason"),
        ("release", &[], "--reason"),
        ("release", &["--reason", "r"], "--all"),
        ("config", &["restore"], "--all"),
        ("config", &["forget", "--all"], "--reason"),
    ];
    for (command, args, word) in missing {
        let names = if matches!(command, "set" | "evict") {
            &instance[..]
        } else {
            &[]
        };
        expect_usage_error(&[&[command][..], names, args].concat(), &[word]);
    }
}

#[test]
fn a_variable_of_another_command_states_nothing() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    command.args(["set", "c", "http://h:1", "--reason", "r"]);
    command
        .env("WAYPOST_DRAIN", "true")
        .env("WAYPOST_WEIGHT", "0");
    assert_eq!(command.output().unwrap().status.code(), Some(2));
}
