//! Figures as people and programs read them: medians with the least and the most, ratios pair by pair,
//! bars and whether they are met.

use comfy_table::Table;
use serde::Serialize;

use crate::machine::Machine;
use crate::scenario::{Bar, Bound, Figure, Scenario, Size, Surroundings, Values};
use crate::server::{Role, Side};

/// Above this share of its core the load may have been the limit.
const LOAD_CORE_MAX: f64 = 0.9;

/// Others that took more than this, in cores, had a part in the figures.
const OTHERS_MAX: f64 = 0.12;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    is_short: bool,
    is_met: bool,
    scenarios: Vec<Outcome>,
}

/// What one scenario gave.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    name: &'static str,
    what: &'static str,
    figures: Vec<FigureOutcome>,
    surroundings: Vec<SideSurroundings>,
    is_met: bool,
}

/// One side's runs.
#[derive(Debug)]
pub(crate) struct SideRuns {
    name: String,
    role: Role,
    runs: Vec<Values>,
}

/// A figure, our side first.
#[derive(Debug, Serialize)]
struct FigureOutcome {
    name: &'static str,
    unit: &'static str,
    sides: Vec<SideFigure>,
    /// The better peer's as measured when the bars were set, where none ran now.
    reference: Option<f64>,
    /// The bar in words.
    bar: String,
    verdict: Verdict,
}

#[derive(Debug, Serialize)]
struct SideFigure {
    name: String,
    #[serde(skip)]
    role: Role,
    values: Spread,
    /// Ours divided by this side's, run by run; none for ours.
    ratio: Option<Spread>,
}

/// Values of several runs.
#[derive(Clone, Debug, Serialize)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
    runs: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct SideSurroundings {
    name: String,
    runs: Vec<Surroundings>,
}

/// Whether what was asked of a figure was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Verdict {
    /// Nothing was asked.
    None,
    Met,
    Missed,
    /// For the reader, does not fail the command.
    ShownMet,
    ShownMissed,
}

impl Report {
    pub(crate) fn new(machine: Machine, is_short: bool) -> Self {
        Self {
            machine,
            is_short,
            is_met: true,
            scenarios: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.is_met &= outcome.is_met;
        self.scenarios.push(outcome);
    }

    /// Whether every judged bar was met.
    pub(crate) fn is_met(&self) -> bool {
        self.is_met
    }

    /// What comes after the tables.
    pub(crate) fn closing_lines(&self) -> String {
        let missed = self.scenarios.iter().filter(|outcome| !outcome.is_met);
        let missed: Vec<&str> = missed.map(|outcome| outcome.name).collect();
        let verdict = match (self.is_short, missed.is_empty()) {
            (true, _) => "short: everything ran, nothing was judged".to_owned(),
            (false, true) => "every judged bar is met".to_owned(),
            (false, false) => format!("missed: {}", missed.join(", ")),
        };
        format!("{}\n{verdict}", self.machine.one_line())
    }
}

impl SideRuns {
    pub(crate) fn new(side: &Side) -> Self {
        Self {
            name: side.name.clone(),
            role: side.role,
            runs: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, values: Values) {
        self.runs.push(values);
    }

    fn values_of(&self, figure: &Figure) -> Vec<f64> {
        let runs = self.runs.iter();
        runs.filter_map(|run| run.find(figure.name)).collect()
    }
}

impl Outcome {
    /// Judges what runs gave; `sides[0]` is ours.
    pub(crate) fn new(scenario: &Scenario, sides: Vec<SideRuns>, size: Size) -> Self {
        let figures = scenario.figures.iter();
        let figures: Vec<FigureOutcome> = figures
            .map(|figure| FigureOutcome::new(figure, &sides, size))
            .collect();
        let surroundings = sides.iter().map(|side| SideSurroundings {
            name: side.name.clone(),
            runs: side.runs.iter().map(|run| run.surroundings).collect(),
        });
        Self {
            name: scenario.name,
            what: scenario.what,
            is_met: figures.iter().all(|one| one.verdict != Verdict::Missed),
            surroundings: surroundings.collect(),
            figures,
        }
    }

    /// For people.
    pub(crate) fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::ASCII_MARKDOWN);
        let sides = self.figures.first().map_or(&[][..], |one| &one.sides);
        let mut header = vec![self.name.to_owned()];
        for (index, side) in sides.iter().enumerate() {
            header.push(side.name.clone());
            if index > 0 {
                header.push("ratio".to_owned());
            }
        }
        if sides.len() < 2 {
            header.push("peer, earlier".to_owned());
        }
        header.extend(["bar".to_owned(), String::new()]);
        table.set_header(header);
        for figure in &self.figures {
            table.add_row(figure.to_row());
        }
        let warnings = self.warnings().concat();
        format!("\n{}: {}\n{table}\n{warnings}", self.name, self.what)
    }

    /// What a reader must know before believing the figures.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for side in &self.surroundings {
            let most = |of: fn(&Surroundings) -> f64| side.runs.iter().map(of).fold(0.0, f64::max);
            let [load, others, stolen] = [
                most(|run| run.load),
                most(|run| run.others),
                most(|run| run.stolen),
            ];
            if load > LOAD_CORE_MAX {
                warnings.push(format!(
                    "{}: the load used {:.0} % of its core and may have been the limit\n",
                    side.name,
                    100.0 * load
                ));
            }
            if others + stolen > OTHERS_MAX {
                warnings.push(format!(
                    "{}: others used {:.0} %, the hypervisor took {:.0} % of a core meanwhile\n",
                    side.name,
                    100.0 * others,
                    100.0 * stolen
                ));
            }
        }
        warnings
    }
}

impl FigureOutcome {
    fn new(figure: &Figure, sides: &[SideRuns], size: Size) -> Self {
        let ours = sides.first().map(|side| side.values_of(figure));
        let ours = ours.unwrap_or_default();
        let of_side = |(index, side): (usize, &SideRuns)| {
            let values = side.values_of(figure);
            let ratio = || ours.iter().zip(&values).map(|(our, theirs)| our / theirs);
            SideFigure {
                name: side.name.clone(),
                role: side.role,
                ratio: (index > 0).then(|| Spread::of(ratio().collect())),
                values: Spread::of(values),
            }
        };
        let mut outcome = Self {
            name: figure.name,
            unit: figure.unit,
            sides: sides.iter().enumerate().map(of_side).collect(),
            reference: figure.reference.filter(|_| sides.len() < 2),
            bar: bar_in_words(figure, sides),
            verdict: Verdict::None,
        };
        if size == Size::Full {
            outcome.verdict = outcome.judge(figure);
        }
        outcome
    }

    fn judge(&self, figure: &Figure) -> Verdict {
        let Some((ours, others)) = self.sides.split_first() else {
            return Verdict::None;
        };
        // Every peer's, so the better one's too.
        let bounds = others.iter().filter_map(|other| {
            let bound = find_bound_of_ratio(figure, other.role)?;
            Some((bound, other.ratio.as_ref()?.median))
        });
        let bounds: Vec<(Bound, f64)> = bounds.collect();
        if bounds.iter().any(|(bound, ratio)| !bound.holds(*ratio)) {
            return Verdict::Missed;
        }
        match figure.bar {
            Bar::Judged(bound) if bound.holds(ours.values.median) => Verdict::Met,
            Bar::Judged(_) => Verdict::Missed,
            Bar::Shown(bound) if !bound.holds(ours.values.median) => Verdict::ShownMissed,
            Bar::Shown(_) => Verdict::ShownMet,
            Bar::None if !bounds.is_empty() => Verdict::Met,
            Bar::None => Verdict::None,
        }
    }

    fn to_row(&self) -> Vec<String> {
        let mut row = vec![format!("{}, {}", self.name, self.unit)];
        for side in &self.sides {
            row.push(side.values.in_words());
            row.extend(side.ratio.as_ref().map(Spread::in_words));
        }
        if self.sides.len() < 2 {
            row.push(self.reference.map_or_else(String::new, number));
        }
        row.push(self.bar.clone());
        row.push(self.verdict.in_words().to_owned());
        row
    }
}

impl Spread {
    fn of(runs: Vec<f64>) -> Self {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        Self {
            median: f64::midpoint(at(low), at(high)),
            least: at(0),
            most: at(sorted.len().saturating_sub(1)),
            runs,
        }
    }

    fn in_words(&self) -> String {
        if self.runs.len() < 2 {
            return number(self.median);
        }
        let [median, least, most] = [self.median, self.least, self.most].map(number);
        format!("{median} [{least} to {most}]")
    }
}

impl Verdict {
    fn in_words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::ShownMet => "(met)",
            Self::ShownMissed => "(missed)",
        }
    }
}

impl Values {
    /// One run, for whoever waits.
    pub(crate) fn one_line(&self, scenario: &Scenario) -> String {
        let figures = scenario.figures.iter();
        let parts: Vec<String> = figures
            .filter_map(|figure| Some((figure, self.find(figure.name)?)))
            .map(|(figure, value)| format!("{} {} {}", figure.name, number(value), figure.unit))
            .collect();
        format!(
            "{}; cores: server {:.2}, load {:.2}, others {:.2}, stolen {:.2}",
            parts.join("; "),
            self.surroundings.server,
            self.surroundings.load,
            self.surroundings.others,
            self.surroundings.stolen
        )
    }
}

/// What our figure divided by another side's must be.
fn find_bound_of_ratio(figure: &Figure, other: Role) -> Option<Bound> {
    match other {
        Role::Ours => None,
        Role::Peer => figure.ratio,
        Role::OursOnCores(_) => Some(figure.unit_cost?.bound_on_more_cores()),
    }
}

fn bar_in_words(figure: &Figure, sides: &[SideRuns]) -> String {
    let bound = |bound| match bound {
        Bound::AtLeast(least) => format!("at least {}", number(least)),
        Bound::AtMost(most) => format!("at most {}", number(most)),
    };
    let own = match figure.bar {
        Bar::None => None,
        Bar::Judged(own) => Some(bound(own)),
        Bar::Shown(own) => Some(format!("({})", bound(own))),
    };
    let other = sides.get(1).map_or(Role::Peer, |side| side.role);
    let ratio = find_bound_of_ratio(figure, other).map(|ratio| format!("ratio {}", bound(ratio)));
    let parts: Vec<String> = own.into_iter().chain(ratio).collect();
    parts.join(", ")
}

/// Three digits that count, thousands apart.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && digit.is_ascii_digit() && !grouped.ends_with('-')
        {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
