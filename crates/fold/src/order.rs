//! Who wins within a key (docs/announcement-log.md, "Order within a key"). Pure comparisons; what
//! has become of time is told by the caller.

use waypost_core::{Headers, Timestamp};

use crate::event::{Life, RefusalReason, RejectReason};
use crate::limits::BIRTH_AHEAD_MAX;

/// Whether what stands has been silent for its time-to-live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It was announced within its time-to-live.
    Speaks,
    /// Its last accepted announcement is a time-to-live or more of log time old.
    Silent,
}

/// Whether a withdrawal still keeps out what is older than it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// Less than two time-to-live of log time have passed.
    Up,
    /// It is only remembered.
    Down,
}

/// Whose announcement this is. Without headers it is a life of its own, born when it was appended.
pub(crate) fn life_of_announcement(
    headers: &Headers,
    append_time: Timestamp,
) -> Result<Life, RejectReason> {
    let Some(id) = headers.id else {
        if headers.birth.is_some() || headers.age_ms.is_some() || headers.seq.is_some() {
            let reason = "order data without waypost-id; send all of it or none";
            return Err(RejectReason::Form(reason));
        }
        return Ok(Life {
            id: None,
            birth: Some(append_time),
            seq: 0,
        });
    };
    let born = Timestamp(append_time.0.saturating_sub(headers.age_ms.unwrap_or(0)));
    Ok(Life {
        id: Some(id),
        birth: believed(headers.birth.unwrap_or(born), append_time),
        seq: headers.seq.unwrap_or(0),
    })
}

/// Whose withdrawal this is. An age gives no birth here: without one a withdrawal acts on its own
/// life only.
pub(crate) fn life_of_withdrawal(
    headers: &Headers,
    append_time: Timestamp,
) -> Result<Life, RejectReason> {
    match (headers.id, headers.seq) {
        (Some(id), Some(seq)) => Ok(Life {
            id: Some(id),
            birth: headers.birth.and_then(|birth| believed(birth, append_time)),
            seq,
        }),
        _ => Err(RejectReason::Form(
            "a withdrawal needs waypost-id and waypost-seq",
        )),
    }
}

/// Nobody is born after what it writes was appended. A birth far ahead counts as none, which is before
/// every birth: whoever states one must not win for ever. It is judged record by record, so that who
/// reads only the last one of a key comes to the same.
fn believed(birth: Timestamp, append_time: Timestamp) -> Option<Timestamp> {
    (birth.minus(BIRTH_AHEAD_MAX) <= append_time).then_some(birth)
}

/// Whether an announcement is accepted while another stands.
pub(crate) fn announce_on_live(
    standing: Life,
    silence: Silence,
    arriving: Life,
) -> Result<(), RefusalReason> {
    if arriving.id == standing.id {
        return if arriving.seq >= standing.seq {
            Ok(())
        } else {
            Err(RefusalReason::EarlierChange)
        };
    }
    if is_later(arriving, standing) || silence == Silence::Silent {
        Ok(())
    } else {
        Err(RefusalReason::Older)
    }
}

/// Whether an announcement is accepted after a withdrawal.
pub(crate) fn announce_on_gone(gone: Life, bar: Bar, arriving: Life) -> Result<(), RefusalReason> {
    let barred = if arriving.id == gone.id {
        arriving.seq <= gone.seq
    } else {
        arriving.birth < gone.birth
    };
    if barred && bar == Bar::Up {
        Err(RefusalReason::Withdrawn)
    } else {
        Ok(())
    }
}

/// Whether a withdrawal ends what lives.
pub(crate) fn withdraw_on_live(standing: Life, leaving: Life) -> Result<(), RefusalReason> {
    let later_birth = leaving.birth.is_some() && leaving.birth > standing.birth;
    if leaving.id == standing.id {
        return if leaving.seq > standing.seq || later_birth {
            Ok(())
        } else {
            Err(RefusalReason::EarlierChange)
        };
    }
    if later_birth {
        Ok(())
    } else {
        Err(RefusalReason::Older)
    }
}

/// Whether a burial may end what lives: the order of the withdrawal that it repeats, which also
/// covers an announcement of its own life with the same count.
pub(crate) fn bury_on_live(standing: Life, buried: Life) -> bool {
    let same_life = buried.id == standing.id && buried.seq >= standing.seq;
    same_life || withdraw_on_live(standing, buried).is_ok()
}

/// Whether a withdrawal says more than the one that is remembered.
pub(crate) fn updates_gone(gone: Life, leaving: Life) -> bool {
    let higher = leaving.id == gone.id && leaving.seq > gone.seq;
    higher || leaving.birth > gone.birth
}

/// Later born; of two born at once the larger id. No birth is before every birth.
pub(crate) fn is_later(a: Life, b: Life) -> bool {
    (a.birth, a.id) > (b.birth, b.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_core::LifeId;

    fn life(id: u64, birth: i64, seq: u64) -> Life {
        Life {
            id: Some(LifeId(id)),
            birth: Some(Timestamp(birth)),
            seq,
        }
    }

    fn unborn(id: u64, seq: u64) -> Life {
        Life {
            birth: None,
            ..life(id, 0, seq)
        }
    }

    #[test]
    fn an_announcement_meets_one_that_stands() {
        use RefusalReason::{EarlierChange, Older};
        use Silence::{Silent, Speaks};
        let standing = life(5, 100, 3);
        let cases = [
            (Speaks, life(5, 100, 3), Ok(()), "its heartbeat"),
            (Speaks, life(5, 100, 4), Ok(()), "its next change"),
            (Speaks, life(5, 90, 3), Ok(()), "its birth learned late"),
            (Speaks, life(5, 100, 2), Err(EarlierChange), "delayed"),
            (Silent, life(5, 100, 2), Err(EarlierChange), "delayed long"),
            (Speaks, life(1, 101, 0), Ok(()), "later born"),
            (Speaks, life(6, 100, 0), Ok(()), "tie, larger id"),
            (Speaks, life(4, 100, 9), Err(Older), "tie, smaller id"),
            (Speaks, life(9, 99, 9), Err(Older), "earlier born"),
            (Silent, life(9, 99, 0), Ok(()), "the standing one is silent"),
        ];
        for (silence, arriving, expected, what) in cases {
            assert_eq!(
                announce_on_live(standing, silence, arriving),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn an_announcement_meets_a_withdrawal() {
        let refused = Err(RefusalReason::Withdrawn);
        let gone = life(5, 100, 3);
        let cases = [
            (Bar::Up, life(5, 100, 3), refused, "its late heartbeat"),
            (Bar::Up, life(5, 100, 4), Ok(()), "it is back"),
            (Bar::Up, life(9, 99, 9), refused, "an older life"),
            (Bar::Up, life(1, 100, 0), Ok(()), "born at once"),
            (Bar::Up, life(1, 101, 0), Ok(()), "a later life"),
            (Bar::Down, life(9, 99, 9), Ok(()), "after the bar"),
        ];
        for (bar, arriving, expected, what) in cases {
            assert_eq!(announce_on_gone(gone, bar, arriving), expected, "{what}");
        }
        let gone = unborn(5, 3);
        assert_eq!(announce_on_gone(gone, Bar::Up, life(9, 1, 0)), Ok(()));
        assert_eq!(announce_on_gone(gone, Bar::Up, life(5, 1, 3)), refused);
    }

    #[test]
    fn a_withdrawal_meets_one_that_stands() {
        use RefusalReason::{EarlierChange, Older};
        let standing = life(5, 100, 3);
        let cases = [
            (life(5, 100, 4), Ok(()), "its own"),
            (life(5, 100, 3), Err(EarlierChange), "a number it has used"),
            (unborn(5, 4), Ok(()), "its own without a birth"),
            (life(9, 99, 9), Err(Older), "of an older life"),
            (life(9, 100, 9), Err(Older), "of one born at once"),
            (life(1, 101, 1), Ok(()), "of a later life"),
            (unborn(9, 9), Err(Older), "another's without a birth"),
        ];
        for (leaving, expected, what) in cases {
            assert_eq!(withdraw_on_live(standing, leaving), expected, "{what}");
        }
        assert!(bury_on_live(standing, life(5, 100, 3)), "its own count");
        assert!(!bury_on_live(standing, life(9, 99, 9)));
    }

    #[test]
    fn a_withdrawal_meets_another() {
        let gone = life(5, 100, 3);
        let cases = [
            (life(5, 100, 4), true),
            (life(5, 100, 3), false),
            (life(1, 101, 0), true),
            (life(9, 99, 9), false),
            (unborn(9, 9), false),
            (unborn(5, 4), true),
        ];
        for (leaving, expected) in cases {
            assert_eq!(updates_gone(gone, leaving), expected, "{leaving:?}");
        }
    }

    #[test]
    fn who_says_that_it_is_born_far_ahead_is_older_than_everybody() {
        let now = Timestamp(1_000_000_000);
        let ahead = |by: i64| Headers {
            id: Some(LifeId(1)),
            birth: Some(Timestamp(now.0.saturating_add(by))),
            seq: Some(1),
            ..Headers::default()
        };
        let minute = i64::try_from(BIRTH_AHEAD_MAX.as_millis()).unwrap();
        for (by, is_believed) in [
            (0, true),
            (minute, true),
            (minute + 1, false),
            (i64::MAX, false),
        ] {
            let announced = life_of_announcement(&ahead(by), now).unwrap();
            assert_eq!(announced.birth.is_some(), is_believed, "{by} ms ahead");
            let withdrawn = life_of_withdrawal(&ahead(by), now).unwrap();
            assert_eq!(withdrawn, announced, "{by} ms ahead");
        }
        let aged = Headers {
            birth: None,
            age_ms: Some(-2 * minute),
            ..ahead(0)
        };
        assert_eq!(life_of_announcement(&aged, now).unwrap().birth, None);
        let far = life_of_announcement(&ahead(i64::MAX), now).unwrap();
        let other = life(2, 1, 0);
        assert_eq!(announce_on_live(far, Silence::Speaks, other), Ok(()));
        let refused = Err(RefusalReason::Older);
        assert_eq!(announce_on_live(other, Silence::Speaks, far), refused);
        assert_eq!(withdraw_on_live(other, far), refused);
        assert_eq!(announce_on_gone(far, Bar::Up, other), Ok(()));
    }

    #[test]
    fn an_announcement_without_order_data_is_born_when_it_is_appended() {
        let now = Timestamp(500);
        let read = |headers| life_of_announcement(&headers, now).map(|l| (l.birth, l.seq));
        let bare = Headers::default();
        let id = Some(LifeId(1));
        assert_eq!(read(bare), Ok((Some(now), 0)));
        let aged = Headers {
            id,
            age_ms: Some(200),
            ..bare
        };
        assert_eq!(read(aged), Ok((Some(Timestamp(300)), 0)));
        let born = Headers {
            id,
            birth: Some(Timestamp(7)),
            seq: Some(2),
            ..bare
        };
        assert_eq!(read(born), Ok((Some(Timestamp(7)), 2)));
        let nameless = Headers {
            birth: Some(now),
            ..bare
        };
        assert!(read(nameless).is_err());
    }
}
