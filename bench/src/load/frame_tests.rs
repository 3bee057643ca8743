//! Frames as they are on the wire, by the examples of RFC 9113 and 7541.

use super::*;

#[test]
fn a_frame_is_taken_once_all_of_it_is_there() {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, kind::DATA, flag::END_STREAM, 7, b"abc");
    put_window_update(&mut bytes, 0, 1000);
    assert_eq!(bytes[..9], [0, 0, 3, 0, 1, 0, 0, 0, 7]);
    for length in 0..HEADER_BYTES + 3 {
        let mut rest = &bytes[..length];
        assert_eq!(Frame::take(&mut rest), None);
        assert_eq!(rest.len(), length, "nothing is taken of half a frame");
    }
    let mut rest = &bytes[..];
    let data = Frame::take(&mut rest).unwrap();
    assert_eq!(
        (data.kind, data.stream, data.data()),
        (kind::DATA, 7, &b"abc"[..])
    );
    assert!(data.has(flag::END_STREAM));
    let update = Frame::take(&mut rest).unwrap();
    assert_eq!(
        (update.kind, update.window_update()),
        (kind::WINDOW_UPDATE, 1000)
    );
    assert!(rest.is_empty());
}

#[test]
fn padding_is_no_data() {
    let cases: &[(&[u8], &[u8])] = &[
        (&[2, b'a', b'b', 0, 0], b"ab"),
        (&[0, b'a'], b"a"),
        // More padding than there is: a broken peer, no panic.
        (&[9, b'a'], b""),
        (&[], b""),
    ];
    for (payload, data) in cases {
        let frame = Frame {
            kind: kind::DATA,
            flags: flag::PADDED,
            stream: 1,
            payload,
        };
        assert_eq!(frame.data(), *data, "{payload:?}");
    }
}

#[test]
fn the_window_of_a_stream_is_found_among_settings() {
    let settings = |payload| Frame {
        kind: kind::SETTINGS,
        flags: 0,
        stream: 0,
        payload,
    };
    let with = [0, 3, 0, 0, 0, 100, 0, 4, 0, 16, 0, 0];
    assert_eq!(settings(&with).initial_window(), Some(1 << 20));
    assert_eq!(settings(&with[..6]).initial_window(), None);
}

#[test]
fn a_header_block_is_four_literals_behind_two_entries_of_the_static_table() {
    let block = header_block("/p", "h:1");
    let expected: &[&[u8]] = &[
        &[0x83, 0x86],
        b"\x04\x02/p",
        b"\x01\x03h:1",
        b"\x0f\x10\x10application/grpc",
        b"\x00\x02te\x08trailers",
    ];
    assert_eq!(block, expected.concat());
}

#[test]
fn a_connection_opens_with_the_preface_its_settings_and_its_window() {
    let mut bytes = Vec::new();
    put_preface(&mut bytes, Windows::LARGE);
    let mut rest = bytes
        .strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    let settings = Frame::take(&mut rest).unwrap();
    assert_eq!(settings.initial_window(), Some(16 << 20));
    let update = Frame::take(&mut rest).unwrap();
    assert_eq!(update.window_update() + WINDOW_BYTES_DEFAULT, 1 << 30);
    assert!(rest.is_empty());
}
