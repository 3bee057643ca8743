//! Streams: loss, return, timers, several servers.

use super::*;
use crate::limits::{BACKOFF_FIRST, CONFIRMED_AFTER, MUTE_MAX, OPEN_MAX, RESOURCE_TIMER};
use crate::policy::{FallBack, KnownVersions, RetryAfterResponse, ServerOrder};

#[test]
fn a_lost_stream_takes_nothing_away_and_the_next_one_gets_only_what_differs() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a", "b", "c"]);
    client.answer(EDS, "n1", &["a=1:x", "b=1:y", "c=1:z"]);
    client.events();
    client.lose();
    assert_eq!(client.events(), ["ended 0: broken"]);
    for name in ["a", "b", "c"] {
        assert_eq!(client.mark(EDS, name), Some(Mark::Stale), "{name}");
    }
    client.connect();
    assert_eq!(client.requests(), ["eds node +a +b +c a@1 b@1 c@1"]);
    client.answer(EDS, "m1", &["a=2:new", "b=1:y", "-c"]);
    assert_eq!(
        client.events(),
        [
            "answered 0",
            "a is new @2",
            "b confirmed",
            "c absent Stated LastGood"
        ]
    );
}

#[test]
fn what_was_gone_is_asked_for_without_a_version_so_that_it_comes_when_it_is_back() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a", "b"]);
    client.answer(EDS, "n1", &["a=1:x", "b=1:y"]);
    client.answer(EDS, "n2", &["-a"]);
    client.lose();
    client.connect();
    assert_eq!(client.mark(EDS, "a"), Some(Mark::Gone), "still kept");
    assert_eq!(client.requests(), ["eds node +a +b b@1"]);
    client.answer(EDS, "n1", &["a=1:x"]);
    assert_eq!(client.mark(EDS, "a"), Some(Mark::Fresh));
}

#[test]
fn silence_confirms_what_the_server_was_told() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a"]);
    client.answer(EDS, "n1", &["a=1:x"]);
    client.lose();
    client.connect();
    client.requests();
    client.now += CONFIRMED_AFTER - Duration::from_millis(1);
    client.machine.tick(client.now);
    assert_eq!(client.mark(EDS, "a"), Some(Mark::Stale));
    client.now = client.machine.deadline().unwrap();
    client.machine.tick(client.now);
    assert_eq!(client.mark(EDS, "a"), Some(Mark::Fresh));
    assert_eq!(client.events(), ["a confirmed"]);

    let policy = Policy {
        known_versions: KnownVersions::Omitted,
        ..Policy::waypost()
    };
    let mut client = Client::watching(policy, EDS, &["a"]);
    client.answer(EDS, "n1", &["a=1:x"]);
    client.lose();
    client.connect();
    client.requests();
    client.wait(10);
    assert_eq!(
        client.mark(EDS, "a"),
        Some(Mark::Stale),
        "it was told nothing"
    );
}

#[test]
fn the_resource_timer_runs_only_while_the_stream_is_up_and_asked() {
    let mut client = Client::disconnected(Policy::waypost(), 1);
    client.watch(EDS, &["a", "b"]);
    client.open();
    client.requests();
    client.now += OPEN_MAX / 2;
    client.machine.tick(client.now);
    client.machine.up(client.link, client.now);
    client.events();
    let up_at = client.now;
    client.answer(EDS, "n1", &["b=1:y"]);
    client.events();
    client.now = up_at + RESOURCE_TIMER - Duration::from_millis(1);
    client.machine.tick(client.now);
    assert!(client.events().is_empty(), "not before");
    client.now = client.machine.deadline().unwrap();
    assert_eq!(client.now, up_at + RESOURCE_TIMER);
    client.machine.tick(client.now);
    assert_eq!(client.events(), ["a absent Silence Nothing"], "b is here");
    // Late is not never.
    client.answer(EDS, "n2", &["a=1:x"]);
    assert_eq!(client.events(), ["a is x @1"]);
}

#[test]
fn what_is_held_is_not_taken_for_missing_after_a_reconnect() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a", "b"]);
    client.requests();
    client.answer(EDS, "n1", &["a=1:x"]);
    client.wait(20);
    client.lose();
    client.connect();
    client.requests();
    client.answer(EDS, "n1", &[]);
    client.events();
    client.wait(30);
    let told = client.events();
    assert_eq!(told, ["b absent Silence Nothing", "a confirmed"]);
}

#[test]
fn nothing_is_opened_before_anything_is_watched() {
    let mut client = Client::disconnected(Policy::waypost(), 1);
    assert_eq!(client.machine.poll_action(client.now), None);
    assert_eq!(client.machine.deadline(), None);
    client.watch(EDS, &["a"]);
    assert_eq!(client.open(), 0);
}

#[test]
fn each_server_of_a_round_is_tried_at_once_and_a_failed_round_costs_a_pause() {
    let mut client = Client::disconnected(as_listed(), 3);
    client.watch(EDS, &["a"]);
    for server in 0..3 {
        assert_eq!(client.open(), server);
        assert_eq!(client.now, Duration::ZERO);
        client.lose();
    }
    assert_eq!(client.open(), 0);
    assert!(client.now >= BACKOFF_FIRST / 2, "{:?}", client.now);
    assert_eq!(client.machine.counters().streams_failed, 3);
}

#[test]
fn a_server_that_does_not_accept_or_does_not_answer_is_left() {
    let mut client = Client::disconnected(as_listed(), 3);
    client.watch(EDS, &["a"]);
    assert_eq!(client.open(), 0);
    client.now += OPEN_MAX;
    client.machine.tick(client.now);
    let deaf = "ended 0: the server did not accept the stream within 10 s";
    assert_eq!(client.events(), ["opening 0", deaf]);
    assert_eq!(client.open(), 1);
    client.machine.up(client.link, client.now);
    client.requests();
    client.events();
    client.now += MUTE_MAX;
    client.machine.tick(client.now);
    let mute = "ended 1: the server answered nothing within 20 s";
    assert_eq!(client.events(), [mute]);
    assert_eq!(client.open(), 2);
    assert_eq!(client.machine.counters().streams_failed, 2);
}

#[test]
fn a_client_returns_to_the_preferred_server_once_that_answers_and_not_before() {
    let every = Duration::from_secs(60);
    let policy = Policy {
        fall_back: FallBack::ToFirst(every),
        retry_after_response: RetryAfterResponse::AtOnce,
        ..as_listed()
    };
    let mut client = Client::disconnected(policy, 2);
    client.watch(EDS, &["a"]);
    assert_eq!(client.open(), 0);
    client.lose();
    client.connect();
    client.requests();
    client.answer(EDS, "n1", &["a=1:x"]);
    client.requests();
    client.events();
    let second = client.link;

    // It looks, in vain: nothing changes for whoever watches.
    client.now += every * 2;
    assert_eq!(client.open(), 0);
    client.lose();
    assert!(client.events().is_empty());
    assert_eq!(client.mark(EDS, "a"), Some(Mark::Fresh));

    // It looks again, and asks for everything without versions, so that there is an answer.
    client.now += every * 2;
    assert_eq!(client.open(), 0);
    client.machine.up(client.link, client.now);
    assert_eq!(client.requests(), ["eds node +a"]);
    assert!(client.events().is_empty());
    client.answer(EDS, "m1", &["a=2:y"]);
    assert_eq!(
        client.events(),
        [
            "ended 1: the preferred server is back",
            "answered 0",
            "a is y @2"
        ]
    );
    let close = client.machine.poll_action(client.now);
    assert_eq!(close, Some(Action::Close { link: second }));
    assert_eq!(client.requests(), ["eds ack:m1"]);
    assert_eq!(client.machine.poll_action(client.now + every * 3), None);
}

#[test]
fn what_an_earlier_life_knew_is_there_at_once_and_told_to_the_server() {
    let mut client = Client::disconnected(Policy::waypost(), 1);
    client.watch(EDS, &["a"]);
    let eds = TypeUrl::from(EDS);
    client.machine.restore(&eds, "a", "7", "x".into()).unwrap();
    client.machine.restore(&eds, "z", "7", "x".into()).unwrap();
    assert_eq!(client.events(), ["a is x @7"], "z is not watched");
    assert_eq!(client.mark(EDS, "a"), Some(Mark::Stale));
    let older = client.machine.restore(&eds, "a", "6", "bad".into());
    assert!(older.is_ok(), "newer is held");
    client.connect();
    assert_eq!(client.requests(), ["eds node +a a@7"]);
    client.answer(EDS, "n1", &["a=7:x"]);
    assert_eq!(client.events(), ["answered 0", "a confirmed"]);
}

fn as_listed() -> Policy {
    Policy {
        server_order: ServerOrder::AsListed,
        ..Policy::waypost()
    }
}
