//! Records and their headers.

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Headers, HeaderError> {
    Headers::read(pairs.iter().map(|(n, v)| (*n, v.as_bytes())))
}

#[test]
fn headers_survive_a_round_trip() {
    let headers = Headers {
        kind: RecordKind::Tick,
        id: Some(LifeId(7)),
        birth: Some(Timestamp(1_700_000_000_000)),
        age_ms: Some(12),
        seq: Some(3),
        evidence: Some(Evidence::At(Offset(9))),
        log: Some(LogIdentity(u64::MAX)),
        follows: Some(LogIdentity(1)),
        prev: Some(TickRef {
            offset: Offset(4),
            append_time: Timestamp(5),
        }),
        time: Some(LogTime(6)),
        keeper: Some(KeeperId(8)),
        replaces: Some(Replaces::Nothing),
    };
    let pairs = headers.to_pairs();
    let pairs: Vec<_> = pairs.iter().map(|(n, v)| (*n, v.as_str())).collect();
    assert_eq!(read(&pairs), Ok(headers));
}

#[test]
fn unusual_spellings_of_numbers_are_read_as_ever() {
    let usual = read(&[
        ("waypost-id", "000000000000002a"),
        ("waypost-birth", "7"),
        ("waypost-seq", "3"),
    ]);
    let unusual = read(&[
        ("waypost-id", "2A"),
        ("waypost-birth", "+7"),
        ("waypost-seq", "00000000000000000000003"),
    ]);
    assert_eq!(usual, unusual);
    let largest = read(&[("waypost-seq", "18446744073709551615")]);
    assert_eq!(largest.map(|headers| headers.seq), Ok(Some(u64::MAX)));
    assert!(read(&[("waypost-birth", "99999999999999999999")]).is_err());
    assert!(read(&[("waypost-id", "000000000000002x")]).is_err());
}

#[test]
fn an_announcement_does_not_say_that_it_is_one() {
    let headers = |kind| Headers {
        kind,
        id: Some(LifeId(7)),
        birth: Some(Timestamp(5)),
        seq: Some(3),
        ..Headers::default()
    };
    let names = |kind| {
        let pairs = headers(kind).to_pairs().into_iter();
        pairs.map(|(name, _)| name).collect::<Vec<_>>()
    };
    let order = ["waypost-id", "waypost-birth", "waypost-seq"];
    assert_eq!(names(RecordKind::Announce), order);
    assert_eq!(names(RecordKind::Withdraw)[0], "waypost-kind");
    let pairs = headers(RecordKind::Announce).to_pairs();
    let pairs: Vec<_> = pairs.iter().map(|(n, v)| (*n, v.as_str())).collect();
    assert_eq!(read(&pairs), Ok(headers(RecordKind::Announce)));
}

#[test]
fn no_headers_is_the_simple_contract() {
    assert_eq!(read(&[]), Ok(Headers::default()));
    assert!(Headers::default().to_pairs().is_empty());
}

#[test]
fn a_header_of_the_wrong_form_says_which_and_what_is_expected() {
    let cases = [
        ("waypost-kind", "shout"),
        ("waypost-id", "xyz"),
        ("waypost-birth", "-1"),
        ("waypost-age", "1.5"),
        ("waypost-seq", ""),
        ("waypost-evidence", "some"),
        ("waypost-prev", "5"),
        ("waypost-time", "now"),
        ("waypost-replaces", "-1"),
    ];
    for (name, value) in cases {
        let error = read(&[(name, value)]).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!(read(&[("other", "shout")]), Ok(Headers::default()));
}
