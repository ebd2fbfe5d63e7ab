//! Figures: medians, ratios, and a line of the table. Must not know what was measured.

use std::fmt;
use std::time::Duration;

/// One figure.
pub(crate) struct Line {
    name: &'static str,
    what: String,
    value: f64,
    most: Option<f64>,
    note: String,
}

impl Line {
    pub(crate) fn new(name: &'static str, what: impl Into<String>, value: f64) -> Self {
        Self { name, what: what.into(), value, most: None, note: String::new() }
    }

    /// The target: it may not be more.
    pub(crate) fn at_most(self, most: f64) -> Self {
        Self { most: Some(most), ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    pub(crate) fn is_met(&self) -> bool {
        self.most.is_none_or(|most| self.value <= most)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.most {
            Some(most) if self.is_met() => format!("≤ {most}"),
            Some(most) => format!("≤ {most} MISSED"),
            None => String::new(),
        };
        let Self { name, what, value, note, .. } = self;
        write!(f, "{name:<12} {what:<58} {value:>10.2}  {verdict:<14} {note}")
    }
}

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    values.get(middle).copied().unwrap_or(f64::NAN)
}

/// Pairs of a measurement and its reference, taken one after the other.
#[derive(Default)]
pub(crate) struct Pairs(Vec<(Duration, Duration)>);

impl Pairs {
    pub(crate) fn push(&mut self, measured: Duration, reference: Duration) {
        self.0.push((measured, reference));
    }

    /// The median of the ratios: what disturbs both disturbs neither.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.0.iter().map(|(one, other)| one.as_secs_f64() / other.as_secs_f64()))
    }

    /// Both medians, and the spread of the ratios.
    pub(crate) fn note(&self) -> String {
        let mut ratios: Vec<f64> =
            self.0.iter().map(|(one, other)| one.as_secs_f64() / other.as_secs_f64()).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |part: usize| ratios[(ratios.len() - 1) * part / 10];
        let ms = |of: fn(&(Duration, Duration)) -> Duration| {
            median(self.0.iter().map(|pair| of(pair).as_secs_f64() * 1e3))
        };
        let (one, other) = (ms(|pair| pair.0), ms(|pair| pair.1));
        format!("{one:.3} ms to {other:.3} ms; 80 % of ratios in {:.2}–{:.2}", at(1), at(9))
    }
}
