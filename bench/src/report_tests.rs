//! How figures are judged and spelled.

use super::*;
use crate::scenario::{Peers, UnitCost};

const FIGURE: Figure = Figure::new("speed", "/s");

fn outcome(figures: &'static [Figure], ours: &[f64], theirs: &[f64], size: Size) -> Outcome {
    compared(figures, ours, (Role::Peer, theirs), size)
}

fn compared(
    figures: &'static [Figure],
    ours: &[f64],
    (role, theirs): (Role, &[f64]),
    size: Size,
) -> Outcome {
    let scenario = Scenario {
        name: "made-up",
        what: "nothing",
        peers: Peers::Compared,
        figures,
        run: |_| Ok(Values::default()),
    };
    let side = |role: Role, values: &[f64]| {
        let mut side = SideRuns::new(&Side {
            name: format!("{role:?}"),
            command: Vec::new(),
            role,
        });
        for value in values {
            let mut run = Values::default();
            run.set(FIGURE.name, *value);
            side.add(run);
        }
        side
    };
    let mut sides = vec![side(Role::Ours, ours)];
    if !theirs.is_empty() {
        sides.push(side(role, theirs));
    }
    Outcome::new(&scenario, sides, size)
}

const LEAST: &[Figure] = &[FIGURE.judged(Bound::AtLeast(10.0))];
const SHOWN: &[Figure] = &[FIGURE.shown(Bound::AtLeast(10.0))];
const RATIO: &[Figure] = &[FIGURE
    .shown(Bound::AtMost(20.0))
    .against_peer(Bound::AtMost(0.1))];

#[test]
fn what_is_judged_fails_and_what_is_shown_does_not() {
    type Case = (&'static [Figure], &'static [f64], &'static [f64], Verdict);
    let cases: &[Case] = &[
        (LEAST, &[10.0], &[], Verdict::Met),
        (LEAST, &[9.9], &[], Verdict::Missed),
        // The median counts.
        (LEAST, &[1.0, 11.0, 12.0], &[], Verdict::Met),
        (LEAST, &[1.0, 9.0, 12.0], &[], Verdict::Missed),
        (SHOWN, &[9.0], &[], Verdict::ShownMissed),
        (SHOWN, &[11.0], &[], Verdict::ShownMet),
        // No peer, no ratio.
        (RATIO, &[15.0], &[], Verdict::ShownMet),
        (RATIO, &[15.0], &[150.0], Verdict::ShownMet),
        (RATIO, &[15.0], &[149.0], Verdict::Missed),
        (RATIO, &[25.0], &[500.0], Verdict::ShownMissed),
        // Ratios are of pairs: 0.05, 0.2, 0.05.
        (
            RATIO,
            &[1.0, 2.0, 3.0],
            &[20.0, 10.0, 60.0],
            Verdict::ShownMet,
        ),
        // A figure that a run did not give is not met.
        (LEAST, &[], &[], Verdict::Missed),
    ];
    for (figures, ours, theirs, verdict) in cases {
        let outcome = outcome(figures, ours, theirs, Size::Full);
        assert_eq!(outcome.figures[0].verdict, *verdict, "{ours:?} {theirs:?}");
        assert_eq!(outcome.is_met, *verdict != Verdict::Missed);
    }
}

#[test]
fn a_unit_of_work_may_hardly_cost_more_on_more_cores() {
    const SPEED: &[Figure] = &[FIGURE
        .against_peer(Bound::AtMost(0.1))
        .unit_cost(UnitCost::PerCpuSecond)];
    const TIME: &[Figure] = &[FIGURE.unit_cost(UnitCost::CpuTime)];
    let cases: &[(&'static [Figure], f64, f64, Verdict)] = &[
        (SPEED, 100.0, 87.0, Verdict::Met),
        (SPEED, 100.0, 86.0, Verdict::Missed),
        (SPEED, 100.0, 150.0, Verdict::Met),
        (TIME, 1.0, 1.14, Verdict::Met),
        (TIME, 1.0, 1.16, Verdict::Missed),
        (TIME, 1.0, 0.5, Verdict::Met),
        // It does not say what a unit costs.
        (&[FIGURE], 1.0, 9.0, Verdict::None),
    ];
    for (figures, one, two, verdict) in cases {
        let two_cores = (Role::OursOnCores(2), &[*two][..]);
        let outcome = compared(figures, &[*one], two_cores, Size::Full);
        assert_eq!(outcome.figures[0].verdict, *verdict, "{one} {two}");
    }
}

#[test]
fn a_short_run_is_not_judged() {
    assert!(outcome(LEAST, &[1.0], &[], Size::Short).is_met);
}

#[test]
fn numbers_are_grouped_and_rounded() {
    let cases = [
        (0.0, "0.00"),
        (0.256, "0.26"),
        (12.34, "12.3"),
        (999.6, "1,000"),
        (27_000.0, "27,000"),
        (1_234_567.0, "1,234,567"),
        (-1_500.0, "-1,500"),
        (f64::NAN, "-"),
    ];
    for (value, text) in cases {
        assert_eq!(number(value), text);
    }
}

#[test]
fn medians_are_of_all_runs() {
    let spread = Spread::of(vec![3.0, 1.0, 2.0, 10.0]);
    assert_eq!((spread.median, spread.least, spread.most), (2.5, 1.0, 10.0));
    assert_eq!(spread.in_words(), "2.50 [1.00 to 10.0]");
}
