//! The rules of flags, variables and the file.

use std::path::Path;

use super::*;

fn parse(text: &str) -> Result<ConfigFile, String> {
    ConfigFile::parse(Path::new("w.toml"), text, &command()).map_err(|e| e.to_string())
}

fn matches(text: &str, words: &[&str]) -> ArgMatches {
    let file = parse(text).unwrap();
    with_file(command(), &file)
        .try_get_matches_from(words)
        .unwrap()
}

#[test]
fn the_command_line_is_well_formed() {
    command().debug_assert();
}

#[test]
fn every_flag_has_a_variable_and_says_its_default() {
    for sub in command().get_subcommands() {
        for arg in sub.get_arguments().filter(|a| a.get_long().is_some()) {
            let long = arg.get_long().unwrap();
            if is_clap_own(long) {
                continue;
            }
            let place = format!("{} --{long}", sub.get_name());
            let variable = arg.get_env().and_then(|v| v.to_str()).unwrap_or_default();
            let expected = match is_stated(sub.get_name(), arg) {
                true => String::new(),
                false => format!("WAYPOST_{}", long.to_uppercase().replace('-', "_")),
            };
            assert_eq!(variable, expected, "{place}");
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let shows_default = !arg.get_default_values().is_empty()
                && !arg.is_hide_default_value_set()
                && !matches!(arg.get_action(), ArgAction::SetTrue);
            assert!(
                shows_default || help.contains("[default:"),
                "{place} says no default: {help}"
            );
        }
    }
}

#[test]
fn what_an_operator_states_comes_from_the_command_line_alone() {
    let words = [
        "waypost",
        "set",
        "c",
        "http://h:1",
        "--clear",
        "--reason",
        "r",
    ];
    let found = matches("drain = '5s'\nweight = ['1']\n", &words);
    let (_, set) = found.subcommand().unwrap();
    assert!(!set.get_flag("drain") && set.get_flag("clear"));
    assert!(!set.contains_id("weight"));
    let error = parse("[set]\ndrain = true\n").unwrap_err();
    assert!(error.contains(":2: unknown key \"drain\""), "{error}");
    assert!(parse("reason = 'r'\n").is_err());
}

#[test]
fn a_key_is_for_every_command_that_has_the_flag_and_a_table_is_for_one() {
    let text =
        "kafka = 'k:1'\ntopic-prefix = 'all'\n[observer]\ntopic-prefix = 'one'\nread-only = true\n";
    let found = matches(text, &["waypost", "observer"]);
    let (_, observer) = found.subcommand().unwrap();
    assert_eq!(observer.get_one::<String>("kafka").unwrap(), "k:1");
    assert_eq!(observer.get_one::<String>("topic_prefix").unwrap(), "one");
    assert!(observer.get_flag("read_only"));
    let found = matches(
        text,
        &[
            "waypost",
            "announce",
            "--cluster",
            "c",
            "--uri",
            "grpc://h:1",
        ],
    );
    let (_, announce) = found.subcommand().unwrap();
    assert_eq!(announce.get_one::<String>("topic_prefix").unwrap(), "all");
}

#[test]
fn a_flag_wins_over_the_file() {
    let text =
        "[announce]\ncluster = 'c'\nuri = 'grpc://h:1'\nweight = [2, '3=0.5']\nttl = '60s'\n";
    let found = matches(text, &["waypost", "announce", "--ttl", "40s"]);
    let (_, announce) = found.subcommand().unwrap();
    assert_eq!(
        announce
            .get_one::<std::time::Duration>("ttl")
            .unwrap()
            .as_secs(),
        40
    );
    assert_eq!(
        announce
            .get_many::<crate::values::WeightArg>("weight")
            .unwrap()
            .count(),
        2
    );
}

#[test]
fn mistakes_are_named_with_their_line() {
    let cases = [
        (
            "\nkafkaa = 'k:1'\n",
            "w.toml:2: unknown key \"kafkaa\"; expected one of",
        ),
        (
            "[observer]\nheartbeat = '1s'\n",
            "w.toml:2: unknown key \"heartbeat\"",
        ),
        (
            "[observe]\n",
            "w.toml:1: unknown table \"observe\"; expected one of announce,",
        ),
        ("kafka = ['a', 'b']\n", "w.toml:1: kafka takes one value"),
        ("kafka = 2020-01-01\n", "w.toml:1: kafka must be a text"),
        (
            "[observer]\n\nread-only = 3\n",
            "w.toml:3: read-only must be true or false",
        ),
        ("config = 'x'\n", "w.toml:1: unknown key \"config\""),
        ("help = true\n", "w.toml:1: unknown key \"help\""),
        ("a = 'x'\nb = \n", "w.toml:2: "),
    ];
    for (text, expected) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(expected), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn the_config_flag_is_found_ahead_of_everything_else() {
    let find = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        find_config_path(&words).map(|p| p.display().to_string())
    };
    assert_eq!(
        find(&["waypost", "dev", "--config", "a"]).as_deref(),
        Some("a")
    );
    assert_eq!(
        find(&["waypost", "--config=b", "dev"]).as_deref(),
        Some("b")
    );
    assert_eq!(find(&["waypost", "announce", "--", "--config", "c"]), None);
    assert_eq!(find(&["waypost", "dev", "--config"]), None);
}

#[test]
fn records_go_where_it_was_said_most_plainly() {
    let cases: [(&str, &[&str], Option<bool>); 5] = [
        ("", &[], Some(true)),
        ("kafka = 'k:1'", &[], Some(false)),
        ("kafka = 'k:1'", &["--to", "h:1"], Some(true)),
        ("to = 'h:1'", &["--kafka", "k:1"], Some(false)),
        ("", &["--kafka", "k:1", "--to", "h:1"], None),
    ];
    for (text, extra, expected) in cases {
        let words = [&["waypost", "delete", "service", "s"], extra].concat();
        let found = matches(text, &words);
        let (_, delete) = found.subcommand().unwrap();
        assert_eq!(prefers_gateway(delete), expected, "{text} {extra:?}");
    }
}
