//! Tables in Markdown, and numbers in them.

/// A table: the first column to the left, the others to the right.
pub(super) fn markdown(titles: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let rule = (0..titles.len()).map(|column| if column == 0 { "---" } else { "---:" });
    let mut text = line(titles.to_vec()) + &line(rule.collect());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// Seconds as hours, to three digits or so.
pub(super) fn hours(seconds: f64) -> String {
    digits(seconds / 3_600.0)
}

/// A number to three digits or so.
pub(super) fn digits(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        large if large >= 100.0 => format!("{number:.0}"),
        middle if middle >= 10.0 => format!("{number:.1}"),
        small if small >= 0.1 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// A share as a percentage; a dash for none.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// The median of several runs' values, and in brackets the least and the most; no brackets if all read the same.
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
