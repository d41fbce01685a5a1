//! Figures: lines over a quantity, and bars with the range of what was measured. As SVG, which follows the reader's light or dark theme, and as CSV.
//!
//! A bar is the median; the line through it goes from the least to the most that was measured. Where values of a figure differ by more than
//! `LOGARITHMIC_FROM` times, its scale is logarithmic, and says so. Such a scale has no 0: where there are zeros, they have a row of their own below it.

mod curves;

use std::fmt::Write;

/// How far the largest value is above the least, where the scale is logarithmic.
const LOGARITHMIC_FROM: f64 = 60.0;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// Colours there are.
const COLOURS: usize = 8;
/// How lines are dashed that have the colour of another one: those from the ninth on, and so on.
const DASHES: [&str; 4] = ["", "7 4", "2 3", "12 3 2 3"];

/// What colours and text a figure has, by theme; for the page that has figures in it, and for each SVG that stands alone.
pub const STYLE: &str = "\
.figure{--ink:#1d2430;--faint:#5d6675;--grid:#dde2e9;--c0:#0b62c4;--c1:#c2480c;--c2:#15803d;--c3:#7e3bc4;--c4:#b4154d;--c5:#0e7490;--c6:#8a6100;--c7:#4b5563;\
font-family:system-ui,sans-serif;font-size:13px}
@media (prefers-color-scheme:dark){.figure{--ink:#e6eaf0;--faint:#a3adbb;--grid:#333b47;--c0:#6cb2ff;--c1:#ff9a5c;--c2:#5fd38a;--c3:#c79bff;--c4:#ff86a9;--c5:#5cd3ea;\
--c6:#e3b341;--c7:#b6bfcb}}
.figure text{fill:var(--ink)}.figure .faint{fill:var(--faint)}.figure .grid{stroke:var(--grid);stroke-width:1}.figure .range{stroke:var(--ink);stroke-width:1.5}
.figure .mark{stroke:var(--faint);stroke-width:1.5;stroke-dasharray:5 4}
";

/// What was measured several times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// Whether the median is more than is known: what was measured was ended when it was so much.
    pub is_at_least: bool,
}

impl Spread {
    /// Of these values; `None` where there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let whole: Vec<Bound> = values.iter().copied().map(Bound::from).collect();
        Spread::of_bounds(&whole)
    }

    /// The same of values of which some are not known further than to a bound: they are above all that are.
    pub fn of_bounds(values: &[Bound]) -> Option<Self> {
        let mut sorted: Vec<Bound> = values.iter().copied().filter(|bound| bound.value.is_finite()).collect();
        sorted.sort_unstable_by(|one, other| {
            one.is_at_least.cmp(&other.is_at_least).then(one.value.total_cmp(&other.value))
        });
        let least = sorted.iter().map(|bound| bound.value).reduce(f64::min)?;
        let most = sorted.iter().map(|bound| bound.value).reduce(f64::max)?;
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let is_at_least = low.is_at_least || high.is_at_least;
        Some(Spread { median: (low.value + high.value) / 2.0, least, most, is_at_least })
    }
}

/// A value, or what it is at least, where what was measured was ended then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// So much.
    pub value: f64,
    /// Or more.
    pub is_at_least: bool,
}

impl From<f64> for Bound {
    fn from(value: f64) -> Self {
        Bound { value, is_at_least: false }
    }
}

/// A line: its name and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Where it goes; it is broken where there is no number.
    pub points: Vec<(f64, f64)>,
}

/// Bars of one colour: their name, and one for each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Their name.
    pub name: String,
    /// One for each group; `None` where nothing was measured.
    pub values: Vec<Option<Spread>>,
}

/// What a figure shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Lines over `x`.
    Lines {
        /// What `x` is, with its unit.
        x: String,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Means with their confidence intervals, joined by lines, over values that stand at equal distances.
    Curves {
        /// What the values are, with their unit.
        x: String,
        /// The values.
        groups: Vec<String>,
        /// Mean (as the median), and both ends of the interval, of each curve at each value.
        curves: Vec<Bars>,
    },
    /// Groups of bars.
    Bars {
        /// The groups' names.
        groups: Vec<String>,
        /// One bar of each group, each.
        bars: Vec<Bars>,
        /// A limit in each group that nobody can exceed, such as the device's, and what it is.
        limit: Option<(String, Vec<Option<f64>>)>,
    },
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Names its files: letters, digits and hyphens.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What is measured, with its unit.
    pub y: String,
    /// The data.
    pub kind: Kind,
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Text within SVG and HTML.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// A number for people: three digits that count, with thousands set apart.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let magnitude = value.abs();
    let decimals = match magnitude {
        _ if magnitude >= 100.0 || magnitude == 0.0 => 0,
        _ if magnitude >= 10.0 => 1,
        _ if magnitude >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{magnitude:.decimals$}");
    let (whole, fraction) = text.split_once('.').map_or((&*text, None), |(whole, part)| (whole, Some(part)));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    let sign = if value < 0.0 { "−" } else { "" };
    match fraction {
        Some(part) => format!("{sign}{out}.{part}"),
        None => format!("{sign}{out}"),
    }
}

/// How far below a logarithmic scale its zeros are.
const ZERO_ROW: f64 = 24.0;

/// A scale from values to positions.
struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    is_logarithmic: bool,
    /// Whether a logarithmic one has zeros below it.
    has_zeros: bool,
}

impl Scale {
    /// For these values, between two positions; linear ones begin with 0.
    fn new(values: impl Iterator<Item = f64>, start: f64, end: f64, may_be_logarithmic: bool) -> Self {
        let (mut least, mut most, mut has_zeros) = (f64::INFINITY, 0.0_f64, false);
        for value in values.filter(|value| value.is_finite() && *value >= 0.0) {
            most = most.max(value);
            match value > 0.0 {
                true => least = least.min(value),
                false => has_zeros = true,
            }
        }
        if most <= 0.0 {
            (least, most) = (1.0, 1.0);
        }
        if may_be_logarithmic && most / least >= LOGARITHMIC_FROM {
            let (from, to) = (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()));
            return Scale { from, to, start, end, is_logarithmic: true, has_zeros };
        }
        let step = nice_step(most);
        let to = (most / step).ceil() * step;
        Scale { from: 0.0, to, start, end, is_logarithmic: false, has_zeros: false }
    }

    /// For these values, between two positions; linear, and with 0 in it.
    fn with_zero(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let (least, most) =
            finite.fold((0.0_f64, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        let range = if most > least { most - least } else { 1.0 };
        let step = nice_step(range);
        let (from, to) = ((least / step).floor() * step, (least + range).max(most) / step);
        Scale { from, to: to.ceil() * step, start, end, is_logarithmic: false, has_zeros: false }
    }

    fn at(&self, value: f64) -> f64 {
        if self.has_zeros && value <= 0.0 {
            return self.start;
        }
        let share = match self.is_logarithmic {
            true => (value.max(self.from) / self.from).log10() / (self.to / self.from).log10(),
            false => (value - self.from) / (self.to - self.from),
        };
        let row = if self.has_zeros { ZERO_ROW * (self.end - self.start).signum() } else { 0.0 };
        let start = self.start + row;
        start + share * (self.end - start)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let (first, last) = (self.from.log10().round() as i32, self.to.log10().round() as i32);
            let zero = self.has_zeros.then_some(0.0);
            return zero.into_iter().chain((first..=last).map(|power| 10_f64.powi(power))).collect();
        }
        let step = nice_step(self.to - self.from);
        // Within the scale, but for what rounding does.
        let (first, last) = ((self.from / step - 1e-6).ceil() as i32, (self.to / step + 1e-6).floor() as i32);
        (first..=last).map(|count| f64::from(count) * step).collect()
    }
}

/// A step of 1, 2 or 5 times a power of ten, of which there are four to eight up to `most`.
fn nice_step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let factor = [5.0, 2.0, 1.0].into_iter().find(|factor| most / (factor * power) >= 4.0).unwrap_or(1.0);
    factor * power
}

/// What an entry of the legend explains.
enum Key {
    /// The colour of what has this number.
    Of(usize),
    /// The line of the limit.
    Limit,
    /// The mark of what had to be ended.
    AtLeast,
}

/// How the line of this number is drawn: no two look alike, of as many as there are colours and dashes.
fn stroke(index: usize) -> String {
    let dash = DASHES[index / COLOURS % DASHES.len()];
    let colour = format!("stroke=\"var(--c{})\"", index % COLOURS);
    if dash.is_empty() { colour } else { format!("{colour} stroke-dasharray=\"{dash}\"") }
}

/// How bars of this number are filled: those that have the colour of others are pale, with an outline that is dashed as lines are.
fn fill(index: usize) -> String {
    let colour = format!("fill=\"var(--c{})\"", index % COLOURS);
    match index / COLOURS {
        0 => colour,
        _ => format!("{colour} fill-opacity=\".35\" stroke-width=\"1.5\" {}", stroke(index)),
    }
}

/// What the horizontal axis is about.
fn draw_x_title(out: &mut String, title: &str) {
    let _ = write!(
        out,
        "<text class=\"faint\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        escaped(title)
    );
}

impl Figure {
    /// The figure as SVG, to be put into a page that has [`STYLE`].
    pub fn svg(&self) -> String {
        self.drawn("")
    }

    /// The figure as SVG that stands alone.
    pub fn svg_alone(&self) -> String {
        self.drawn(&format!("<style>{STYLE}</style>"))
    }

    fn drawn(&self, style: &str) -> String {
        let names: Vec<&str> = match &self.kind {
            Kind::Lines { lines, .. } => lines.iter().map(|line| &*line.name).collect(),
            Kind::Curves { curves, .. } => curves.iter().map(|curve| &*curve.name).collect(),
            Kind::Bars { bars, .. } => bars.iter().map(|bars| &*bars.name).collect(),
        };
        let mut out = String::new();
        let legend = self.legend(&names);
        let height = HEIGHT + 20.0 * legend.1 as f64;
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {WIDTH} {height}\">{style}",
            escaped(&self.title)
        );
        match &self.kind {
            Kind::Lines { x, lines } => self.draw_lines(&mut out, x, lines),
            Kind::Curves { x, groups, curves } => self.draw_curves(&mut out, x, groups, curves),
            Kind::Bars { groups, bars, limit } => self.draw_bars(&mut out, groups, bars, limit.as_ref()),
        }
        out.push_str(&legend.0);
        out.push_str("</svg>");
        out
    }

    /// Whether there is a bar of what had to be ended.
    fn has_bounds(&self) -> bool {
        let Kind::Bars { bars, .. } = &self.kind else { return false };
        bars.iter().flat_map(|bars| &bars.values).flatten().any(|spread| spread.is_at_least)
    }

    /// What colours mean, below the figure, and how many rows it takes.
    fn legend(&self, names: &[&str]) -> (String, usize) {
        let mut out = String::new();
        let mut entries: Vec<(Key, &str)> =
            names.iter().enumerate().map(|(index, name)| (Key::Of(index), *name)).collect();
        if let Kind::Bars { limit: Some((name, _)), .. } = &self.kind {
            entries.push((Key::Limit, name));
        }
        if self.has_bounds() {
            entries.push((Key::AtLeast, "at least: ended then"));
        }
        let (mut x, mut row) = (LEFT, 0);
        for (key, text) in entries {
            let width = 30.0 + 7.2 * text.chars().count() as f64;
            if x + width > WIDTH && x > LEFT {
                (x, row) = (LEFT, row + 1);
            }
            let y = HEIGHT + 14.0 + 20.0 * row as f64;
            let _ = match key {
                // A dash is seen on a line only.
                Key::Of(index) if index >= COLOURS && !matches!(self.kind, Kind::Bars { .. }) => write!(
                    out,
                    "<line {} stroke-width=\"3\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>",
                    stroke(index),
                    x - 6.0,
                    x + 16.0,
                    y - 4.0,
                    y - 4.0
                ),
                Key::Of(index) => write!(
                    out,
                    "<rect x=\"{x}\" y=\"{}\" width=\"14\" height=\"10\" {}/>",
                    y - 9.0,
                    fill(index)
                ),
                Key::Limit => write!(
                    out,
                    "<line class=\"mark\" x1=\"{x}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>",
                    x + 14.0,
                    y - 4.0,
                    y - 4.0
                ),
                Key::AtLeast => write!(out, "<text x=\"{x}\" y=\"{y}\">≥</text>"),
            };
            let _ = write!(out, "<text x=\"{}\" y=\"{y}\">{}</text>", x + 20.0, escaped(text));
            x += width;
        }
        (out, row + 1)
    }

    /// The scale of what is measured, with its lines and numbers.
    fn draw_scale(&self, out: &mut String, scale: &Scale) {
        for tick in scale.ticks() {
            let y = scale.at(tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"faint\" text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                number(tick)
            );
        }
        let kind = match (scale.is_logarithmic, scale.has_zeros) {
            (true, true) => ", logarithmic above 0",
            (true, false) => ", logarithmic",
            (false, _) => "",
        };
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let _ = write!(
            out,
            "<text class=\"faint\" text-anchor=\"middle\" transform=\"translate(13 {middle}) rotate(-90)\">{}{kind}</text>",
            escaped(&self.y)
        );
    }

    fn draw_lines(&self, out: &mut String, x_title: &str, lines: &[Line]) {
        let points = || lines.iter().flat_map(|line| &line.points);
        let y = Scale::new(points().map(|point| point.1), HEIGHT - BOTTOM, TOP, true);
        let x = Scale::with_zero(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
        self.draw_scale(out, &y);
        for tick in x.ticks() {
            let at = x.at(tick);
            let _ = write!(
                out,
                "<text class=\"faint\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{}\">{}</text>",
                HEIGHT - BOTTOM + 18.0,
                number(tick)
            );
        }
        draw_x_title(out, x_title);
        for (index, line) in lines.iter().enumerate() {
            // Where there is no value the line is broken: what lies on both sides of it says nothing of what was between.
            for part in line.points.split(|point| !point.1.is_finite()).filter(|part| !part.is_empty()) {
                let place = |(at, value): &(f64, f64)| format!("{:.1},{:.1}", x.at(*at), y.at(*value));
                let mut path: Vec<String> = part.iter().map(place).collect();
                if let [alone] = &*path {
                    // A line of no length is seen by its round ends.
                    path.push(alone.clone());
                }
                let _ = write!(
                    out,
                    "<polyline fill=\"none\" {} stroke-width=\"2\" stroke-linejoin=\"round\"{} points=\"{}\"><title>{}</title></polyline>",
                    stroke(index),
                    if part.len() == 1 { " stroke-linecap=\"round\"" } else { "" },
                    path.join(" "),
                    escaped(&line.name)
                );
            }
        }
    }

    fn draw_bars(
        &self,
        out: &mut String,
        groups: &[String],
        bars: &[Bars],
        limit: Option<&(String, Vec<Option<f64>>)>,
    ) {
        let values = bars.iter().flat_map(|bars| &bars.values).flatten();
        let all = values.flat_map(|spread| [spread.median, spread.least, spread.most]);
        let limits = limit.iter().flat_map(|(_, limits)| limits.iter().flatten().copied());
        let y = Scale::new(all.chain(limits), HEIGHT - BOTTOM, TOP, true);
        self.draw_scale(out, &y);
        let group_width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
        let width = (group_width * 0.8 / bars.len().max(1) as f64).min(64.0);
        for (group, name) in groups.iter().enumerate() {
            let middle = LEFT + group_width * (group as f64 + 0.5);
            let first = middle - width * bars.len() as f64 / 2.0;
            for (index, spread) in
                bars.iter().enumerate().filter_map(|(i, b)| Some((i, b.values.get(group).copied()??)))
            {
                let (x, top) = (first + width * index as f64, y.at(spread.median));
                let center = x + width / 2.0;
                let told = match spread.is_at_least {
                    true => format!("not within {} {}", number(spread.median), self.y),
                    false => number(spread.median),
                };
                let _ = write!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" {}><title>{} {}: {}</title></rect>",
                    x + 1.0,
                    width - 2.0,
                    (y.start - top).max(0.0),
                    fill(index),
                    escaped(name),
                    escaped(&bars[index].name),
                    escaped(&told)
                );
                if spread.is_at_least {
                    let _ = write!(
                        out,
                        "<text text-anchor=\"middle\" x=\"{center:.1}\" y=\"{:.1}\">≥</text>",
                        top - 3.0
                    );
                }
                if spread.least < spread.most {
                    let _ = write!(
                        out,
                        "<line class=\"range\" x1=\"{center:.1}\" x2=\"{center:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                        y.at(spread.least),
                        y.at(spread.most)
                    );
                }
            }
            if let Some(limit) = limit.and_then(|(_, limits)| limits.get(group).copied()?) {
                let (at, half) = (y.at(limit), group_width * 0.45);
                let _ = write!(
                    out,
                    "<line class=\"mark\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                    middle - half,
                    middle + half
                );
            }
            let _ = write!(
                out,
                "<text text-anchor=\"middle\" x=\"{middle:.1}\" y=\"{}\">{}</text>",
                HEIGHT - BOTTOM + 18.0,
                escaped(name)
            );
        }
    }

    /// The data, one row for each point or bar.
    pub fn csv(&self) -> String {
        let mut out = String::new();
        match &self.kind {
            Kind::Lines { x, lines } => {
                let _ = writeln!(out, "line,{},{}", quoted(x), quoted(&self.y));
                for (line, (x, y)) in
                    lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point)))
                {
                    let y = if y.is_finite() { y.to_string() } else { String::new() };
                    let _ = writeln!(out, "{},{x},{y}", quoted(&line.name));
                }
            }
            Kind::Curves { groups, curves, .. } => self.curves_csv(&mut out, groups, curves),
            Kind::Bars { groups, bars, limit } => {
                // Where nothing had to be ended there is no column of it.
                let has_bounds = self.has_bounds();
                let _ = writeln!(
                    out,
                    "group,name,{},least,most{}",
                    quoted(&format!("median of {}", self.y)),
                    if has_bounds { ",ended" } else { "" }
                );
                for (group, name) in groups.iter().enumerate() {
                    for (bars, spread) in
                        bars.iter().filter_map(|bars| Some((bars, bars.values.get(group).copied()??)))
                    {
                        let ended = if spread.is_at_least { ",at least" } else { "," };
                        let _ = writeln!(
                            out,
                            "{},{},{},{},{}{}",
                            quoted(name),
                            quoted(&bars.name),
                            spread.median,
                            spread.least,
                            spread.most,
                            if has_bounds { ended } else { "" }
                        );
                    }
                    if let Some((what, Some(Some(value)))) =
                        limit.as_ref().map(|(what, values)| (what, values.get(group)))
                    {
                        let ended = if has_bounds { "," } else { "" };
                        let _ =
                            writeln!(out, "{},{},{value},{value},{value}{ended}", quoted(name), quoted(what));
                    }
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[&[f64]]) -> Figure {
        Figure {
            id: "x".to_owned(),
            title: "A & <B>".to_owned(),
            y: "look-ups a second".to_owned(),
            kind: Kind::Bars {
                groups: vec!["1×".to_owned(), "2×".to_owned()],
                bars: vec![
                    Bars {
                        name: "one".to_owned(),
                        values: values.iter().map(|values| Spread::of(values)).collect(),
                    },
                    Bars { name: "two \"2\"".to_owned(), values: vec![None, Spread::of(&[7.0])] },
                ],
                limit: Some(("the device".to_owned(), vec![Some(40.0), None])),
            },
        }
    }

    #[test]
    fn a_spread_is_the_median_and_its_range() {
        let spread = Spread { median: 2.0, least: 1.0, most: 3.0, is_at_least: false };
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(spread));
        assert_eq!(Spread::of(&[4.0, 1.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!((Spread::of(&[]), Spread::of(&[f64::NAN])), (None, None));
    }

    #[test]
    fn what_had_to_be_ended_is_above_all_that_had_not() {
        let of = |values: &[(f64, bool)]| {
            let bounds: Vec<Bound> =
                values.iter().map(|&(value, is_at_least)| Bound { value, is_at_least }).collect();
            Spread::of_bounds(&bounds).map(|spread| (spread.median, spread.is_at_least))
        };
        assert_eq!(of(&[(20.0, true), (25.0, false), (5.0, false)]), Some((25.0, false)));
        assert_eq!(of(&[(20.0, true), (20.0, true), (5.0, false)]), Some((20.0, true)));
        assert_eq!(of(&[(20.0, true), (10.0, false)]), Some((15.0, true)));
    }

    #[test]
    fn a_bar_of_what_had_to_be_ended_is_drawn_and_marked() {
        let mut figure = bars(&[&[10.0], &[20.0]]);
        assert!(!figure.svg().contains('≥') && !figure.csv().contains("ended"));
        let Kind::Bars { bars, .. } = &mut figure.kind else { panic!("bars") };
        bars[0].values[1] = Spread::of_bounds(&[Bound { value: 20.0, is_at_least: true }]);
        let (svg, csv) = (figure.svg(), figure.csv());
        assert!(svg.contains("2× one: not within 20.0 look-ups a second"), "{svg}");
        assert_eq!(svg.matches('≥').count(), 2);
        assert!(csv.contains(",ended\n") && csv.contains("\"2×\",\"one\",20,20,20,at least\n"), "{csv}");
        assert!(csv.contains("\"1×\",\"one\",10,10,10,\n"), "{csv}");
    }

    #[test]
    fn steps_are_round_and_numbers_readable() {
        for (most, step) in [(1.0, 0.2), (7.0, 1.0), (45.0, 10.0), (99.0, 20.0), (1500.0, 200.0)] {
            assert!((nice_step(most) - step).abs() < 1e-9, "{most}: {}", nice_step(most));
        }
        for (value, text) in
            [(0.0, "0"), (0.5, "0.500"), (12.34, "12.3"), (1234567.0, "1,234,567"), (-3.0, "−3.00")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn higher_values_stand_higher_and_what_is_far_apart_is_drawn_by_powers() {
        let linear = Scale::new([10.0, 40.0].into_iter(), 300.0, 0.0, true);
        assert!(!linear.is_logarithmic && linear.at(0.0) == 300.0 && linear.at(40.0) <= 0.5);
        let powers = Scale::new([300.0, 90_000.0].into_iter(), 300.0, 0.0, true);
        assert!(powers.is_logarithmic && (powers.at(100.0), powers.at(100_000.0)) == (300.0, 0.0));
        assert_eq!(powers.ticks(), [100.0, 1000.0, 10_000.0, 100_000.0]);
        // What is nothing is drawn below all that is something.
        let zeros = Scale::new([0.0, 300.0, 90_000.0].into_iter(), 300.0, 0.0, true);
        assert_eq!((zeros.at(0.0), zeros.at(100.0), zeros.at(100_000.0)), (300.0, 300.0 - ZERO_ROW, 0.0));
        assert_eq!(zeros.ticks()[..2], [0.0, 100.0]);
        // Nothing, and nothing but zeros, is drawn, too.
        for values in [vec![], vec![0.0]] {
            assert!(Scale::new(values.into_iter(), 300.0, 0.0, true).at(0.0).is_finite());
        }
    }

    #[test]
    fn what_was_before_zero_stands_left_of_it() {
        let scale = Scale::with_zero([-4.0, 11.0].into_iter(), 100.0, 700.0);
        assert!(scale.at(-4.0) >= 100.0 && scale.at(11.0) <= 700.0 && scale.at(-1.0) < scale.at(0.0));
        assert!(scale.ticks().contains(&0.0) && scale.ticks()[0] <= -4.0);
        assert!([15.0, 19.0, 37.0].into_iter().all(|most| {
            let scale = Scale::with_zero([-4.0, most].into_iter(), 100.0, 700.0);
            scale.ticks().into_iter().all(|tick| (99.0..701.0).contains(&scale.at(tick)))
        }));
        // As ever where nothing was.
        let scale = Scale::with_zero([1.0, 7.0].into_iter(), 100.0, 700.0);
        assert_eq!((scale.at(0.0), scale.at(7.0), scale.ticks().len()), (100.0, 700.0, 8));
        assert!(Scale::with_zero([].into_iter(), 100.0, 700.0).at(0.0).is_finite());
    }

    #[test]
    fn a_figure_has_its_bars_and_its_data() {
        let figure = bars(&[&[10.0, 12.0, 11.0], &[20.0]]);
        let svg = figure.svg();
        // Three bars and two entries of the legend; one bar has a range; one limit, and its entry.
        assert_eq!((svg.matches("<rect").count(), svg.matches("class=\"range\"").count()), (5, 1));
        assert_eq!(svg.matches("class=\"mark\"").count(), 2);
        assert!(
            svg.contains("A &amp; &lt;B&gt;")
                && !svg.contains("<style>")
                && figure.svg_alone().contains("<style>")
        );
        let csv = figure.csv();
        assert_eq!(csv.lines().count(), 5);
        assert!(
            csv.contains("\"1×\",\"one\",11,10,12\n") && csv.contains("\"2×\",\"two \"\"2\"\"\",7,7,7\n")
        );
    }

    #[test]
    fn no_two_lines_and_no_two_bars_look_alike() {
        let different = |of: fn(usize) -> String| (0..32).map(of).collect::<std::collections::HashSet<_>>();
        assert_eq!((different(stroke).len(), different(fill).len()), (32, 32));
        let lines: Vec<Line> = (0..10)
            .map(|number| Line { name: format!("line {number}"), points: vec![(0.0, 1.0), (1.0, 2.0)] })
            .collect();
        let kind = Kind::Lines { x: "seconds".to_owned(), lines };
        let figure = Figure { id: "l".to_owned(), title: "t".to_owned(), y: "y".to_owned(), kind };
        // The ninth and the tenth, each with its entry in the legend.
        assert_eq!(figure.svg().matches("stroke-dasharray=\"7 4\"").count(), 4);
        assert!((0..COLOURS).all(|colour| STYLE.matches(&format!("--c{colour}:")).count() == 2));
    }

    #[test]
    fn a_line_is_broken_where_there_is_no_value() {
        let values = [1.0, 2.0, f64::NAN, 3.0, f64::NAN, f64::NAN, 4.0, 5.0];
        let points = values.iter().enumerate().map(|(at, &value)| (at as f64, value)).collect();
        let lines = vec![Line { name: "one".to_owned(), points }];
        let kind = Kind::Lines { x: "seconds".to_owned(), lines };
        let figure = Figure { id: "l".to_owned(), title: "t".to_owned(), y: "y".to_owned(), kind };
        let svg = figure.svg();
        let paths: Vec<usize> = svg
            .split(" points=\"")
            .skip(1)
            .filter_map(|rest| Some(rest.split('"').next()?.split(' ').count()))
            .collect();
        // What stands alone is a dot.
        assert_eq!((paths, svg.matches("stroke-linecap").count()), (vec![2, 2, 2], 1), "{svg}");
        assert!(figure.csv().contains("\"one\",2,\n\"one\",3,3\n"), "{}", figure.csv());
    }

    #[test]
    fn a_figure_of_lines_goes_through_all_points() {
        let points: Vec<(f64, f64)> = (0..50).map(|at| (f64::from(at), f64::from(at * at))).collect();
        let lines = vec![Line { name: "square".to_owned(), points }];
        let kind = Kind::Lines { x: "seconds".to_owned(), lines };
        let figure = Figure { id: "l".to_owned(), title: "t".to_owned(), y: "y".to_owned(), kind };
        let svg = figure.svg();
        let path = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert_eq!(path.split(' ').count(), 50);
        assert_eq!(figure.csv().lines().count(), 51);
    }
}
