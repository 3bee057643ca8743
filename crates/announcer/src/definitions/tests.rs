//! What a definition may say, and the document that is made of it.

use super::*;

fn mk_message(kind: pb::definition_input::Kind, name: &str, json: &str) -> pb::DefinitionInput {
    let is_service = kind == pb::definition_input::Kind::Service;
    pb::DefinitionInput {
        kind: kind.into(),
        name: name.to_owned(),
        cluster: if is_service { "profile" } else { "" }.to_owned(),
        path: if is_service { "/profile" } else { "" }.to_owned(),
        properties_json: json.to_owned(),
        services: Vec::new(),
    }
}

fn mk_cluster(json: &str) -> pb::DefinitionInput {
    mk_message(pb::definition_input::Kind::Cluster, "profile", json)
}

fn mk_service(json: &str) -> pb::DefinitionInput {
    mk_message(pb::definition_input::Kind::Service, "profileReads", json)
}

fn document(message: pb::DefinitionInput) -> String {
    let inputs = read_request(&[message]).unwrap();
    String::from_utf8(document::to_document(&inputs[0]).to_vec()).unwrap()
}

#[test]
fn a_document_has_its_names_first_then_the_properties_as_they_were_written() {
    let cases = [
        (mk_cluster(""), r#"{"clusterName":"profile"}"#),
        (
            mk_cluster(r#"{"z":1.0,"a":9007199254740993,"b":1e400,"gone":null}"#),
            r#"{"clusterName":"profile","z":1.0,"a":9007199254740993,"b":1e400}"#,
        ),
        (
            mk_cluster(r#"{"delegated":true,"clusterName":"profile"}"#),
            r#"{"clusterName":"profile","delegated":true}"#,
        ),
        (
            mk_service(r#"{"prioritizedSchemes":["grpc"]}"#),
            r#"{"serviceName":"profileReads","clusterName":"profile","path":"/profile","prioritizedSchemes":["grpc"],"loadBalancerStrategyList":["relative","degrader"]}"#,
        ),
        (
            mk_service(r#"{"loadBalancerStrategyList":["random"]}"#),
            r#"{"serviceName":"profileReads","clusterName":"profile","path":"/profile","loadBalancerStrategyList":["random"],"prioritizedSchemes":["https","http"]}"#,
        ),
    ];
    for (message, expected) in cases {
        let text = document(message);
        // serde_json normalises the spelling of exponents (1e400 becomes 1e+400): the same number.
        assert_eq!(text.replace("1e+400", "1e400"), expected);
    }
}

/// JSON properties of a cluster, and the field that is wrong in it.
const BAD_CLUSTERS: &[(&str, &str)] = &[
    ("[1]", "properties"),
    ("{", "properties"),
    (r#"{"clusterName":"other"}"#, "properties.clusterName"),
    (r#"{"bannedUris":["a",1]}"#, "properties.bannedUris[1]"),
    (
        r#"{"properties":{"masterColo":1}}"#,
        "properties.properties.masterColo",
    ),
    (
        r#"{"minClusterSubsetSize":"5"}"#,
        "properties.minClusterSubsetSize",
    ),
    (
        r#"{"partitionProperties":{"partitionType":"shard"}}"#,
        "properties.partitionProperties.partitionType",
    ),
    (
        r#"{"partitionProperties":{"partitionType":"hash","partitionKeyRegex":"x","partitionCount":"4","hashAlgorithm":"MD5"}}"#,
        "properties.partitionProperties.partitionCount",
    ),
    (
        r#"{"partitionProperties":{"partitionType":"hash","partitionKeyRegex":"x","partitionCount":4,"hashAlgorithm":"SHA"}}"#,
        "properties.partitionProperties.hashAlgorithm",
    ),
    (
        r#"{"slowStartProperties":{"disabled":false,"windowDurationSeconds":30,"aggression":1,"minWeightPercent":10.0}}"#,
        "properties.slowStartProperties.aggression",
    ),
    (
        r#"{"connectionOptions":{"connectionJitterSeconds":1}}"#,
        "properties.connectionOptions.maxDelayedConnectionRatio",
    ),
];

/// The same for a service.
const BAD_SERVICES: &[(&str, &str)] = &[
    (
        r#"{"prioritizedSchemes":[]}"#,
        "properties.prioritizedSchemes",
    ),
    (
        r#"{"transportClientProperties":"x"}"#,
        "properties.transportClientProperties",
    ),
    (r#"{"path":"/other"}"#, "properties.path"),
];

#[test]
fn what_a_d2_client_would_throw_away_is_named_by_field() {
    let clusters = BAD_CLUSTERS.iter().map(|(j, f)| (mk_cluster(j), *f));
    let services = BAD_SERVICES.iter().map(|(j, f)| (mk_service(j), *f));
    for (message, field) in clusters.chain(services) {
        expect_mistake(message, field);
    }
}

#[test]
fn names_kinds_and_paths_are_checked() {
    let spoil = |base: pb::DefinitionInput, spoil: fn(&mut pb::DefinitionInput)| {
        let mut message = base;
        spoil(&mut message);
        message
    };
    let cases = [
        (
            spoil(mk_service(""), |m| m.cluster = "a/b".into()),
            "cluster",
        ),
        (spoil(mk_service(""), |m| m.path = "profile".into()), "path"),
        (
            spoil(mk_cluster(""), |m| m.path = "/profile".into()),
            "path",
        ),
        (spoil(mk_cluster(""), |m| m.cluster = "x".into()), "cluster"),
        (spoil(mk_cluster(""), |m| m.kind = 0), "kind"),
        (spoil(mk_cluster(""), |m| m.name = String::new()), "name"),
    ];
    for (message, field) in cases {
        expect_mistake(message, field);
    }
}

fn expect_mistake(message: pb::DefinitionInput, field: &str) {
    let text = format!("{message:?}");
    match read_request(&[
        mk_message(pb::definition_input::Kind::Cluster, "good", ""),
        message,
    ]) {
        Err(DefinitionsError::Mistakes(mistakes)) => {
            let found: Vec<_> = mistakes
                .iter()
                .map(|m| (m.index, m.field.as_str()))
                .collect();
            assert_eq!(found, [(1, field)], "{text}");
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn all_mistakes_of_a_request_are_reported_and_doubles_are_one_of_them() {
    let messages = [mk_cluster(r#"{"delegated":1}"#), mk_cluster("{}")];
    let Err(DefinitionsError::Mistakes(mistakes)) = read_request(&messages) else {
        panic!("accepted")
    };
    let text: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "definition 1 (profile): properties.delegated: is a whole number; expected true or false",
            "definition 2 (profile): name: is defined twice in this request; keep one of them",
        ]
    );
}

#[test]
fn a_definition_survives_the_way_through_a_message() {
    for message in [mk_cluster(r#"{"n":1.10}"#), mk_service(r#"{"n":[1,2.0]}"#)] {
        let input = read_request(&[message]).unwrap().remove(0);
        let again = pb::DefinitionInput::from(&input);
        assert_eq!(read_request(&[again]).unwrap(), [input]);
    }
}

fn mk_symlink(name: &str, target: &str) -> pb::DefinitionInput {
    pb::DefinitionInput {
        cluster: target.to_owned(),
        ..mk_message(pb::definition_input::Kind::Symlink, name, "")
    }
}

#[test]
fn a_symlink_is_the_path_of_its_cluster_and_says_that_it_is_one() {
    let message = mk_symlink("$profileMaster", "profile-east");
    let inputs = read_request(std::slice::from_ref(&message)).unwrap();
    assert_eq!(document(message.clone()), "/d2/clusters/profile-east");
    assert_eq!(pb::DefinitionInput::from(&inputs[0]), message);
}

#[test]
fn a_symlink_that_no_d2_client_could_follow_is_refused() {
    let with = |change: fn(&mut pb::DefinitionInput)| {
        let mut message = mk_symlink("$a", "a");
        change(&mut message);
        message
    };
    let cluster = |name: &str| mk_message(pb::definition_input::Kind::Cluster, name, "");
    let cases = [
        (
            mk_symlink("a", "b"),
            "name: is \"a\"; a symlink begins with $",
        ),
        (mk_symlink("$", "b"), "name: is nothing but $"),
        (mk_symlink("$a", ""), "cluster: cluster name is empty"),
        (mk_symlink("$a", "/d2/clusters/b"), "cluster: cluster name"),
        (mk_symlink("$a", "$b"), "cluster: is a symlink itself"),
        (with(|m| m.path = "/p".into()), "path: belongs to a service"),
        (
            with(|m| m.properties_json = "{}".into()),
            "properties: belongs to a service or a cluster, not to a symlink",
        ),
        (
            with(|m| m.services = vec!["s".into()]),
            "services: belongs to callees, not to a symlink",
        ),
        (
            cluster("$a"),
            "name: is \"$a\"; what begins with $ is a Symlink",
        ),
        (cluster("a$b"), "name: holds a $"),
    ];
    for (message, expected) in cases {
        let error = read_request(std::slice::from_ref(&message)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{message:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn of_two_symlinks_to_one_cluster_each_is_named() {
    let both = [mk_symlink("$a", "c"), mk_symlink("$b", "c")];
    let text = read_request(&both).unwrap_err().to_string();
    let expected = [
        "definition 1 ($a): cluster: is c, where $b leads too; D2 clients follow only one symlink to a cluster",
        "definition 2 ($b): cluster: is c, where $a leads too; D2 clients follow only one symlink to a cluster",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

fn mk_callees(name: &str, services: &[&str]) -> pb::DefinitionInput {
    pb::DefinitionInput {
        services: services.iter().map(ToString::to_string).collect(),
        ..mk_message(pb::definition_input::Kind::Callees, name, "")
    }
}

#[test]
fn callees_are_services_in_the_order_in_which_they_were_written() {
    for message in [mk_callees("app", &["b", "a"]), mk_callees("app", &[])] {
        let inputs = read_request(std::slice::from_ref(&message)).unwrap();
        assert_eq!(pb::DefinitionInput::from(&inputs[0]), message);
    }
}

#[test]
fn what_is_wrong_with_callees_is_named_by_its_place() {
    let many: Vec<String> = (0..=1000).map(|i| format!("s{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let cases = [
        (mk_callees("", &[]), "name: application name is empty"),
        (mk_callees("app:i001", &[]), "name: holds a :"),
        (
            mk_callees("app", &["a", "b/c"]),
            "services[1]: service name",
        ),
        (
            mk_callees("app", &["a", "b", "a"]),
            "services[2]: is a, which is there already",
        ),
        (mk_callees("app", &many), "services: has 1001 services"),
    ];
    for (message, expected) in cases {
        let text = read_request(&[message]).unwrap_err().to_string();
        assert!(text.contains(expected), "{expected}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
