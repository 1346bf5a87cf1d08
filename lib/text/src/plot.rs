//! Picture of several lines.

use crate::svg::{Axis, Legend, Picture, colour};

/// Height of the drawing area, in pixels.
const HEIGHT: f64 = 280.0;

/// Lines over one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Label of the horizontal axis.
    pub x_label: String,
    /// Label of the vertical axis, which starts at 0.
    pub y_label: String,
    /// Start of the horizontal axis.
    pub x_from: f64,
    /// The lines, each with a colour of its own.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// The picture as a file.
    #[must_use]
    pub fn draw(&self) -> String {
        let (picture, legend) = self.picture();
        picture.finish_as_file(&legend)
    }

    /// The unfinished picture, and the lines' names and colours.
    pub(crate) fn picture(&self) -> (Picture, Legend) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let right = points().map(|(x, _)| *x).fold(self.x_from, f64::max);
        let top = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let x = Axis::between(&self.x_label, (self.x_from, right));
        let y = Axis::linear(&self.y_label, top * 1.05);
        let mut picture = Picture::new(x, y, HEIGHT);
        let mut legend = Legend::new();
        for (position, line) in self.lines.iter().enumerate() {
            picture.line(&line.points, &colour(position));
            legend.push((line.name.clone(), colour(position)));
        }
        (picture, legend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_well_formed_and_names_its_lines() {
        let line = |name: &str| Line {
            name: name.to_owned(),
            points: vec![(1.0, 0.5), (1.5, 2.0)],
        };
        let plot = Plot {
            x_label: "load".to_owned(),
            y_label: "ratio".to_owned(),
            x_from: 1.0,
            lines: vec![line("a<b"), line("c")],
        };
        let svg = plot.draw();
        assert!(svg.starts_with("<svg xmlns='http://www.w3.org/2000/svg'"));
        assert!(svg.contains("a&lt;b") && svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("NaN"));
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }
}
