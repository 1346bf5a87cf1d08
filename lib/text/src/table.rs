//! Tables: aligned columns without borders, Markdown, or rows of a [`Page`](crate::Page).

use std::fmt;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr as _;

/// Spaces between two columns.
const GAP: &str = "  ";

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    is_wide: bool,
    is_number: bool,
}

impl Column {
    /// A column that is always shown.
    #[must_use]
    pub const fn new(title: &'static str) -> Self {
        Self {
            title,
            is_wide: false,
            is_number: false,
        }
    }

    /// A column shown only in wide tables.
    #[must_use]
    pub const fn wide(title: &'static str) -> Self {
        Self {
            is_wide: true,
            ..Self::new(title)
        }
    }

    /// A column of numbers, which is aligned to the right.
    #[must_use]
    pub const fn number(title: &'static str) -> Self {
        Self {
            is_number: true,
            ..Self::new(title)
        }
    }
}

/// Meaning of a cell, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
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
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell with a tone; control characters are replaced, so that no name can forge output.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        let mut text: String = text.into();
        if text.chars().any(char::is_control) {
            text = text.replace(char::is_control, "\u{fffd}");
        }
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
#[must_use]
pub fn paint(text: &str, tone: Tone) -> String {
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
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(usize, Column)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table of the columns to show: all if it is wide.
    #[must_use]
    pub fn new(columns: &[Column], wide: bool) -> Self {
        let columns = columns.iter().copied().enumerate();
        Self {
            columns: columns
                .filter(|(_, column)| wide || !column.is_wide)
                .collect(),
            rows: Vec::new(),
        }
    }

    /// A table whose first column names the rows, and whose others are numbers.
    #[must_use]
    pub fn of_numbers(titles: &[&'static str]) -> Self {
        let mut columns: Vec<Column> = titles.iter().copied().map(Column::number).collect();
        if let Some(first) = columns.first_mut() {
            first.is_number = false;
        }
        Self::new(&columns, false)
    }

    /// Adds a row with a cell for every column, shown or not.
    pub fn push(&mut self, mut cells: Vec<Cell>) {
        let shown = self.columns.iter();
        let row = shown
            .map(|(position, _)| {
                cells
                    .get_mut(*position)
                    .map(std::mem::take)
                    .unwrap_or_default()
            })
            .collect();
        self.rows.push(row);
    }

    /// Adds rows of plain texts.
    #[must_use]
    pub fn with_rows(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        for row in rows {
            self.push(row.into_iter().map(Cell::from).collect());
        }
        self
    }

    pub(crate) fn titles(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|(_, column)| column.title)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<&str>> {
        let rows = self.rows.iter();
        rows.map(|cells| cells.iter().map(|cell| cell.text.as_str()).collect())
    }

    /// The table in colours: one line per row, without trailing spaces.
    #[must_use]
    pub fn render(&self, headers: bool) -> String {
        self.aligned(headers, Cell::paint)
    }

    /// The table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rule = self
            .columns
            .iter()
            .map(|(_, column)| match column.is_number {
                true => "---:".to_owned(),
                false => "---".to_owned(),
            });
        let titles = line(self.titles().map(str::to_owned).collect());
        let rows = self
            .rows()
            .map(|cells| line(cells.iter().map(|cell| cell.replace('|', "\\|")).collect()));
        titles + &line(rule.collect()) + &rows.collect::<String>()
    }

    fn aligned(&self, headers: bool, show: fn(&Cell) -> String) -> String {
        let titles: Vec<Cell> = self
            .titles()
            .map(|title| Cell::toned(title, Tone::Faint))
            .collect();
        let head = headers.then_some(&titles);
        let lines: Vec<&Vec<Cell>> = head.into_iter().chain(&self.rows).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|position| {
                let widths = lines.iter().map(|cells| cells[position].width());
                widths.max().unwrap_or(0)
            })
            .collect();
        let lines = lines.iter().map(|cells| self.line(cells, &widths, show));
        lines.collect()
    }

    fn line(&self, cells: &[Cell], widths: &[usize], show: fn(&Cell) -> String) -> String {
        let shown = cells
            .iter()
            .rposition(|cell| !cell.text.is_empty())
            .map_or(0, |last| last + 1);
        let mut text = String::new();
        for (position, cell) in cells.iter().enumerate().take(shown) {
            let (_, column) = self.columns[position];
            let padding = " ".repeat(widths[position] - cell.width());
            let is_last = position + 1 == shown;
            match column.is_number {
                true => text.extend([padding, show(cell)]),
                false if is_last => text.push_str(&show(cell)),
                false => text.extend([show(cell), padding]),
            }
            if !is_last {
                text.push_str(GAP);
            }
        }
        text.push('\n');
        text
    }
}

/// The aligned table with headers, without colours.
impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.aligned(true, |cell| cell.text.clone()))
    }
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
    fn wide_characters_count_as_two_columns() {
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
    fn numbers_are_aligned_to_the_right_and_texts_are_plain() {
        let rows = [["submit", "9"], ["a|b", "1,200"]].map(|row| row.map(str::to_owned).to_vec());
        let table = Table::of_numbers(&["what", "count"]).with_rows(rows);
        assert_eq!(
            table.to_string(),
            "what    count\nsubmit      9\na|b     1,200\n"
        );
        let markdown = "| what | count |\n| --- | ---: |\n| submit | 9 |\n| a\\|b | 1,200 |\n";
        assert_eq!(table.markdown(), markdown);
    }

    #[test]
    fn an_empty_table_is_its_headers() {
        assert_eq!(
            plain(&Table::new(COLUMNS, false).render(true)),
            "NAME  PHASE  NOTE\n"
        );
    }
}
