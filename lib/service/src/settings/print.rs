//! Options as documents: a default settings file, and the table of the documentation.

use muster_text::{Column, Table};
use serde_json::Value;

use crate::settings::Settings;
use crate::settings::option::{Kind, SettingsOption, options};

/// Titles of the table of the documentation.
const TITLES: [&str; 4] = ["option", "default", "since", "meaning"];
/// Width of comment lines in characters.
const COMMENT_WIDTH: usize = 100;

/// Returns a settings file in TOML with every option at its default, with text and version.
#[must_use]
pub fn default_file<S: Settings>() -> String {
    let role = S::ROLE;
    let mut text = format!(
        "# Settings of `muster {role}`: every option at its default. docs/configuration.md has them as a table.\n"
    );
    let mut table = "";
    let options = in_order(options::<S>());
    for option in &options {
        let (around, name) = option.key.rsplit_once('.').unwrap_or(("", &option.key));
        if around != table {
            table = around;
            line(&mut text, &format!("\n[{table}]"));
        }
        line(&mut text, "");
        for comment_line in wrap(&comment(option)) {
            line(&mut text, &format!("# {comment_line}"));
        }
        match as_toml(&option.default) {
            Some(value) => line(&mut text, &format!("{name} = {value}")),
            None => line(&mut text, &format!("# {name} =")),
        }
    }
    text
}

/// A Markdown table with all options of a role.
#[must_use]
pub fn reference<S: Settings>() -> String {
    let rows = in_order(options::<S>()).into_iter().map(|option| {
        let default = as_toml(&option.default)
            .map_or_else(|| "not set".to_owned(), |value| format!("`{value}`"));
        let meaning = meaning(&option);
        vec![format!("`{}`", option.key), default, option.since, meaning]
    });
    let table = Table::new(&TITLES.map(Column::new), false).with_rows(rows);
    table.markdown()
}

/// Options outside tables first, as TOML requires it; otherwise by name.
fn in_order(mut options: Vec<SettingsOption>) -> Vec<SettingsOption> {
    options.sort_by(|left, right| {
        let around = |option: &SettingsOption| {
            option
                .key
                .rsplit_once('.')
                .map(|(around, _)| around.to_owned())
        };
        (around(left), &left.key).cmp(&(around(right), &right.key))
    });
    options
}

/// An option's text for readers, with everything that does not follow from its key.
fn meaning(option: &SettingsOption) -> String {
    let mut text = option.text.clone();
    if let Kind::Keyword(keywords) = &option.kind {
        let quoted: Vec<String> = keywords.iter().map(|it| format!("`{it}`")).collect();
        text.push_str(&format!(" One of {}.", quoted.join(", ")));
    }
    if option.reloads {
        text.push_str(" *Reloads.*");
    }
    text
}

fn comment(option: &SettingsOption) -> String {
    let reloads = if option.reloads {
        " Reloads on SIGHUP."
    } else {
        ""
    };
    let kind = option.kind.description();
    format!("{} ({kind}; since {}.){reloads}", option.text, option.since)
}

/// Formats a value in TOML syntax; none for one that is unset.
fn as_toml(value: &Value) -> Option<String> {
    // Unset values within a value are left out.
    let value: toml::Value = serde_json::from_value(without_nulls(value)?).ok()?;
    Some(value.to_string())
}

fn without_nulls(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) => Some(items.iter().filter_map(without_nulls).collect()),
        Value::Object(entries) => {
            let entries = entries
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), without_nulls(value)?)));
            Some(Value::Object(entries.collect()))
        }
        other => Some(other.clone()),
    }
}

fn wrap(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full = lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.len() + word.len() >= COMMENT_WIDTH);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
