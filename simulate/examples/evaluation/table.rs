//! Markdown tables and number formats.

use muster_text::Table;

/// A table: the first column names the rows, the others are numbers.
pub(super) fn markdown(titles: &[&'static str], rows: &[Vec<String>]) -> String {
    let table = Table::of_numbers(titles).with_rows(rows.iter().cloned());
    table.markdown()
}

/// Seconds as hours, to about three digits.
pub(super) fn hours(seconds: f64) -> String {
    digits(seconds / 3_600.0)
}

/// A number to about three digits.
pub(super) fn digits(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        large if large >= 100.0 => format!("{number:.0}"),
        middle if middle >= 10.0 => format!("{number:.1}"),
        small if small >= 0.1 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// A fraction as a percentage; a dash for `None`.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Median of several runs' values, with minimum and maximum in brackets; no brackets if all are shown
/// alike.
pub(super) fn of_several(mut values: Vec<f64>, text: fn(f64) -> String) -> String {
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first(), values.last()) else {
        return "-".to_owned();
    };
    let (median, least, most) = (text(values[values.len() / 2]), text(*least), text(*most));
    if least == most {
        median
    } else {
        format!("{median} ({least}..{most})")
    }
}
