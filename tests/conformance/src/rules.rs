//! The page of rules (`docs/xds-rules.md`): what is on it, and what must be.

use std::collections::BTreeSet;

/// Rules whose breach costs clients their traffic (the `xds-` ids).
pub const VITAL: &[std::ops::RangeInclusive<u32>] = &[
    5..=5,
    14..=17,
    20..=29,
    31..=32,
    35..=40,
    43..=47,
    50..=50,
    53..=57,
    60..=62,
    70..=70,
    72..=72,
    75..=75,
    77..=80,
    84..=85,
    88..=91,
    103..=105,
    139..=140,
    147..=147,
    152..=152,
];

/// Rules that matter to whoever runs many clients.
pub const OPERATIONAL: &[std::ops::RangeInclusive<u32>] = &[
    8..=8,
    10..=11,
    19..=19,
    30..=30,
    33..=34,
    59..=59,
    63..=67,
    74..=74,
    76..=76,
    81..=81,
    86..=87,
    92..=96,
    117..=133,
    146..=146,
    150..=150,
    153..=155,
];

/// What went wrong for others (the `fr-` ids) with versions, deltas, order, reconnects and slow readers.
pub const FIELD: &[std::ops::RangeInclusive<u32>] = &[
    1..=3,
    5..=7,
    9..=13,
    15..=17,
    19..=23,
    25..=27,
    29..=33,
    35..=37,
    39..=43,
    45..=47,
    49..=53,
    55..=57,
    59..=63,
    65..=67,
    69..=73,
    75..=77,
    79..=83,
    85..=87,
    89..=93,
];

/// The ids that the page must have a row for: `xds-007`.
#[must_use]
pub fn ids_required() -> Vec<String> {
    let ids_of = |kind: &'static str, rules: &'static [std::ops::RangeInclusive<u32>]| {
        let numbers = rules.iter().cloned().flatten();
        numbers.map(move |number| format!("{kind}-{number:03}"))
    };
    ids_of("xds", VITAL)
        .chain(ids_of("xds", OPERATIONAL))
        .chain(ids_of("fr", FIELD))
        .collect()
}

/// The ids that have a row on the page: the first column of its tables, without the letter that
/// tells several cases of a rule apart.
#[must_use]
pub fn ids_on(page: &str) -> BTreeSet<String> {
    let first_column = |line: &str| {
        line.strip_prefix("| ")?
            .split(' ')
            .next()
            .map(str::to_owned)
    };
    page.lines()
        .filter_map(first_column)
        .filter_map(|id| {
            let (kind, number) = id.split_once('-')?;
            let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
            (digits.len() == 3).then(|| format!("{kind}-{digits}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::ids_on;

    #[test]
    fn ids_are_read_from_the_first_column_without_their_letters() {
        let page = "| id | rule |\n|---|---|\n| xds-004b | xds-999 |\n| fr-012 | text |\nxds-001\n";
        let ids: Vec<String> = ids_on(page).into_iter().collect();
        assert_eq!(ids, ["fr-012", "xds-004"]);
    }
}
