//! SVG pictures with axes, written by hand: the few elements that reports need, in colours that suit light
//! and dark.

use std::fmt::Write as _;
use std::ops::Range;

/// Margins around the drawing area, in pixels.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
/// Width of the drawing area, in pixels.
const WIDTH: f64 = 820.0;
/// Distance in pixels from the middle of a row down to the baseline of its name.
const BASELINE_DROP: f64 = 4.0;
/// Approximate number of ticks of an axis.
const TICKS: f64 = 6.0;
/// Style of text and grid in a picture that is a file of its own.
const FILE_STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#444}.grid{stroke:#ddd}";
/// Entries in a row of a file's legend, and the width and height of one, in pixels.
const LEGEND_COLUMNS: usize = 4;
const LEGEND_COLUMN: f64 = 205.0;
const LEGEND_ROW: f64 = 18.0;
/// Hue between one series' colour and the next, in degrees: the golden angle keeps neighbours apart.
const HUE_STEP: f64 = 137.508;
/// Hue of the first series.
const HUE_FIRST: f64 = 211.0;
/// Number of hues after which colours also change in lightness.
const HUES: usize = 12;

/// Names with their colours, as CSS writes them.
pub type Legend = Vec<(String, String)>;

/// The colour of the series at a position.
#[must_use]
pub fn colour(position: usize) -> String {
    let hue = (HUE_FIRST + HUE_STEP * position as f64) % 360.0;
    let lightness = 52 + 12 * ((position / HUES) % 2);
    format!("hsl({hue:.0} 58% {lightness}%)")
}

/// Range of an axis, and the scale of its values.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    from: f64,
    to: f64,
    is_logarithmic: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis from 0 on with ticks at round values.
    #[must_use]
    pub fn linear(label: &str, to: f64) -> Self {
        Self::between(label, 0.0, to)
    }

    /// An axis with ticks at round steps from its start.
    #[must_use]
    pub fn between(label: &str, from: f64, to: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        let step = round_step((to - from) / TICKS);
        let values = (0u32..).map(|tick| from + f64::from(tick) * step);
        let decimals = if step < 1.0 { 2 } else { 0 };
        Self {
            label: label.to_owned(),
            from,
            to,
            is_logarithmic: false,
            ticks: values
                .take_while(|value| *value <= to * 1.000_001)
                .map(|value| (value, format!("{value:.decimals$}")))
                .collect(),
        }
    }

    /// A logarithmic axis with ticks at given values.
    #[must_use]
    pub fn logarithmic(label: &str, from: f64, to: f64, ticks: &[(f64, &str)]) -> Self {
        let inside = ticks
            .iter()
            .filter(|(value, _)| (from..=to).contains(value));
        Self {
            label: label.to_owned(),
            from,
            to,
            is_logarithmic: true,
            ticks: inside
                .map(|(value, text)| (*value, (*text).to_owned()))
                .collect(),
        }
    }

    /// An axis without ticks.
    #[must_use]
    pub fn rows(count: usize) -> Self {
        Self {
            label: String::new(),
            from: 0.0,
            to: count as f64,
            is_logarithmic: false,
            ticks: Vec::new(),
        }
    }

    /// Relative position of a value, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        share.clamp(0.0, 1.0)
    }
}

/// The largest of 1, 2 and 5 times a power of ten that is not above the next of them after `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|candidate| *candidate >= step)
        .unwrap_or(step)
}

/// A picture being drawn.
#[derive(Clone, Debug)]
pub struct Picture {
    body: String,
    x: Axis,
    y: Axis,
    height: f64,
}

impl Picture {
    /// An empty picture; `height` is the height of the drawing area in pixels.
    #[must_use]
    pub fn new(x: Axis, y: Axis, height: f64) -> Self {
        let mut picture = Self {
            body: String::new(),
            x,
            y,
            height,
        };
        picture.draw_axes();
        picture
    }

    fn at_x(&self, value: f64) -> f64 {
        LEFT + WIDTH * self.x.share(value)
    }

    fn at_y(&self, value: f64) -> f64 {
        TOP + self.height * (1.0 - self.y.share(value))
    }

    fn write(&mut self, mark: std::fmt::Arguments<'_>) {
        self.body
            .write_fmt(mark)
            .expect("writing to a string cannot fail");
    }

    fn draw_axes(&mut self) {
        let (bottom, right) = (TOP + self.height, LEFT + WIDTH);
        for (value, text) in self.x.ticks.clone() {
            let x = self.at_x(value);
            let y = bottom + 16.0;
            self.write(format_args!(
                "<path class='grid' d='M{x:.1} {TOP}V{bottom}'/>\
                 <text x='{x:.1}' y='{y}' text-anchor='middle'>{text}</text>"
            ));
        }
        for (value, text) in self.y.ticks.clone() {
            let y = self.at_y(value);
            let (x, baseline) = (LEFT - 6.0, y + BASELINE_DROP);
            self.write(format_args!(
                "<path class='grid' d='M{LEFT} {y:.1}H{right}'/>\
                 <text x='{x}' y='{baseline:.1}' text-anchor='end'>{text}</text>"
            ));
        }
        let (middle, below) = (LEFT + WIDTH / 2.0, bottom + 34.0);
        let label = escape(&self.x.label);
        self.write(format_args!(
            "<text x='{middle}' y='{below}' text-anchor='middle'>{label}</text>"
        ));
        let (centre, label) = (TOP + self.height / 2.0, escape(&self.y.label));
        self.write(format_args!(
            "<text transform='translate(14 {centre}) rotate(-90)' text-anchor='middle'>{label}</text>"
        ));
    }

    /// A line through points.
    pub fn line(&mut self, points: &[(f64, f64)], colour: &str) {
        let path = self.path(points);
        self.write(format_args!(
            "<path d='{path}' fill='none' stroke='{colour}' stroke-width='1.5'/>"
        ));
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (position, (x, y)) in points.iter().enumerate() {
            let letter = if position == 0 { 'M' } else { 'L' };
            let (x, y) = (self.at_x(*x), self.at_y(*y));
            write!(path, "{letter}{x:.1} {y:.1}").expect("writing to a string cannot fail");
        }
        path
    }

    /// The area between two lines, each from left to right.
    pub fn area(&mut self, lower: &[(f64, f64)], upper: &[(f64, f64)], colour: &str) {
        let back = lower.iter().rev().copied();
        let outline: Vec<(f64, f64)> = upper.iter().copied().chain(back).collect();
        let path = self.path(&outline);
        self.write(format_args!("<path d='{path}Z' fill='{colour}'/>"));
    }

    /// A bar in a row, counted from the top.
    pub fn bar(&mut self, row: usize, span: Range<f64>, colour: &str, title: &str) {
        let row_height = self.height / self.y.to;
        let (x, y) = (self.at_x(span.start), TOP + row_height * row as f64);
        let width = (self.at_x(span.end) - x).max(0.1);
        let height = (row_height - 0.6).max(0.5);
        let title = escape(title);
        self.write(format_args!(
            "<rect x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height:.1}' fill='{colour}'>\
             <title>{title}</title></rect>"
        ));
    }

    /// Appends the name of a row, counted from the top.
    pub fn row_name(&mut self, row: usize, name: &str) {
        let y = TOP + self.height / self.y.to * (row as f64 + 0.5) + BASELINE_DROP;
        let (x, name) = (LEFT - 4.0, escape(name));
        self.write(format_args!(
            "<text x='{x}' y='{y:.1}' text-anchor='end'>{name}</text>"
        ));
    }

    /// Height including axes, in pixels.
    const fn height(&self) -> f64 {
        TOP + self.height + BOTTOM
    }

    /// The picture as an `svg` element.
    #[must_use]
    pub fn finish(self) -> String {
        let (width, height) = (LEFT + WIDTH + RIGHT, self.height());
        format!(
            "<svg viewBox='0 0 {width} {height}' role='img'>{}</svg>",
            self.body
        )
    }

    /// The picture as a file of its own, with its legend below.
    #[must_use]
    pub fn finish_as_file(self, legend: &[(String, String)]) -> String {
        let mut marks = String::new();
        let (mut x, mut y) = (LEFT, self.height() + 14.0);
        for (position, (name, colour)) in legend.iter().enumerate() {
            if position > 0 && position.is_multiple_of(LEGEND_COLUMNS) {
                (x, y) = (LEFT, y + LEGEND_ROW);
            }
            let (baseline, text_x, name) = (y + 9.0, x + 16.0, escape(name));
            write!(
                marks,
                "<rect x='{x:.0}' y='{y:.0}' width='10' height='10' fill='{colour}'/>\
                 <text x='{text_x:.0}' y='{baseline:.0}'>{name}</text>"
            )
            .expect("writing to a string cannot fail");
            x += LEGEND_COLUMN;
        }
        let (width, height) = (LEFT + WIDTH + RIGHT, y + LEGEND_ROW);
        let body = self.body;
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img'>\
             <style>{FILE_STYLE}</style><rect width='100%' height='100%' fill='#fff'/>{body}{marks}</svg>\n"
        )
    }
}

/// Text with markup characters escaped.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_at_round_values() {
        let ticks: Vec<String> = Axis::linear("", 129.4)
            .ticks
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(ticks, ["0", "50", "100"]);
        assert_eq!(round_step(0.16), 0.2);
    }

    #[test]
    fn names_cannot_break_out_of_the_markup() {
        let mut picture = Picture::new(Axis::linear("<x>", 1.0), Axis::rows(1), 10.0);
        picture.bar(0, 0.0..1.0, "red", "</title><script>");
        let svg = picture.finish();
        assert!(!svg.contains("<script>") && !svg.contains("<x>"), "{svg}");
    }
}
