//! Aligned columns without borders, coloured if the terminal supports it.

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr as _;

/// Spaces between two columns.
const GAP: &str = "  ";

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    wide: bool,
}

impl Column {
    /// A column that is always shown.
    pub(crate) const fn new(title: &'static str) -> Self {
        Self { title, wide: false }
    }

    /// A column shown only by `-o wide`.
    pub(crate) const fn wide(title: &'static str) -> Self {
        Self { title, wide: true }
    }
}

/// Meaning of a cell, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Neutral.
    #[default]
    Plain,
    /// Healthy.
    Good,
    /// Transient, or to be monitored.
    Waiting,
    /// Faulty.
    Bad,
    /// Unimportant.
    Faint,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell with a tone; control characters are replaced, so that no name can forge output.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        let text: String = text.into();
        let text = if text.chars().any(char::is_control) {
            text.replace(char::is_control, "\u{fffd}")
        } else {
            text
        };
        Self { text, tone }
    }

    /// Display width: Chinese, Japanese and Korean characters take two columns.
    fn width(&self) -> usize {
        self.text.width()
    }

    fn paint(&self) -> String {
        paint(&self.text, self.tone)
    }
}

impl<Text: Into<String>> From<Text> for Cell {
    fn from(text: Text) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// A text in the colour of a tone. Colours are removed again if the output does not support them.
pub(crate) fn paint(text: &str, tone: Tone) -> String {
    let style = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Waiting => AnsiColor::Yellow.on_default(),
        Tone::Bad => AnsiColor::Red.on_default(),
        Tone::Faint => Style::new().dimmed(),
    };
    format!("{style}{text}{style:#}")
}

/// Rows collected before the widths are known.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(usize, Column)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table of the columns to show.
    pub(crate) fn new(columns: &[Column], wide: bool) -> Self {
        let columns = columns.iter().copied().enumerate();
        Self {
            columns: columns.filter(|(_, column)| wide || !column.wide).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with a cell for every column, shown or not.
    pub(crate) fn push(&mut self, mut cells: Vec<Cell>) {
        let shown = self.columns.iter();
        let row = shown.map(|(position, _)| {
            cells
                .get_mut(*position)
                .map(std::mem::take)
                .unwrap_or_default()
        });
        let row = row.collect();
        self.rows.push(row);
    }

    /// The table as text: one line per row, without trailing spaces.
    pub(crate) fn render(&self, headers: bool) -> String {
        let titles: Vec<Cell> = self
            .columns
            .iter()
            .map(|(_, column)| Cell::toned(column.title, Tone::Faint))
            .collect();
        let head = headers.then_some(&titles);
        let lines: Vec<&Vec<Cell>> = head.into_iter().chain(&self.rows).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|position| {
                let widths = lines.iter().map(|cells| cells[position].width());
                widths.max().unwrap_or(0)
            })
            .collect();
        let lines: Vec<String> = lines.iter().map(|cells| line(cells, &widths)).collect();
        lines.concat()
    }
}

fn line(cells: &[Cell], widths: &[usize]) -> String {
    let mut text = String::new();
    let last = cells.iter().rposition(|cell| !cell.text.is_empty());
    for (position, cell) in cells
        .iter()
        .enumerate()
        .take(last.map_or(0, |last| last + 1))
    {
        text.push_str(&cell.paint());
        if Some(position) != last {
            let padding = widths[position] - cell.width();
            text.push_str(&" ".repeat(padding));
            text.push_str(GAP);
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::new("NAME"),
        Column::wide("EXTRA"),
        Column::new("PHASE"),
        Column::new("NOTE"),
    ];

    fn table(wide: bool) -> Table {
        let mut table = Table::new(COLUMNS, wide);
        table.push(vec![
            "a".into(),
            "x".into(),
            Cell::toned("running", Tone::Good),
            "".into(),
        ]);
        table.push(vec![
            "längster".into(),
            "y".into(),
            "up".into(),
            "why\nnot".into(),
        ]);
        table
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let expected = "NAME      PHASE    NOTE\n\
                        a         running\n\
                        längster  up       why\u{fffd}not\n";
        assert_eq!(plain(&table(false).render(true)), expected);
    }

    #[test]
    fn letters_of_two_columns_are_counted_as_such() {
        let mut table = Table::new(COLUMNS, false);
        table.push(vec!["訓練".into(), "".into(), "up".into(), "".into()]);
        table.push(vec!["train".into(), "".into(), "up".into(), "".into()]);
        assert_eq!(plain(&table.render(false)), "訓練   up\ntrain  up\n");
    }

    #[test]
    fn wide_tables_show_more_and_headers_can_be_left_out() {
        let expected = "a         x  running\nlängster  y  up       why\u{fffd}not\n";
        assert_eq!(plain(&table(true).render(false)), expected);
    }

    #[test]
    fn colours_do_not_disturb_the_alignment() {
        let text = table(false).render(false);
        assert!(text.contains("\u{1b}[32mrunning\u{1b}[0m"), "{text:?}");
    }

    #[test]
    fn an_empty_table_is_its_headers() {
        assert_eq!(
            plain(&Table::new(COLUMNS, false).render(true)),
            "NAME  PHASE  NOTE\n"
        );
    }
}
