//! Parser for the subset of TOML used by rule files: tables of strings, integers and lists of strings.
//!
//! Every such file is valid TOML for any other tool. This parser accepts no more than it needs, and knows the
//! line of every value.

use crate::rules::RuleError;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// `"text"`.
    Text(String),
    /// `7`.
    Number(i64),
    /// `["text", "text"]`.
    Texts(Vec<String>),
}

/// `name = value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) value: Value,
}

/// `[name]` and its entries; the table before all others has no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) entries: Vec<Entry>,
}

/// Parses all tables in order.
pub(super) fn read(text: &str) -> Result<Vec<Table>, RuleError> {
    let mut tables = vec![Table {
        line: 0,
        name: String::new(),
        entries: Vec::new(),
    }];
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let (at, line) = (index + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name
                .strip_suffix(']')
                .map(str::trim)
                .filter(|name| is_name(name))
                .ok_or_else(|| not_understood(at, line))?;
            tables.push(Table {
                line: at,
                name: name.to_owned(),
                entries: Vec::new(),
            });
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| not_understood(at, line))?;
        let (name, mut value) = (name.trim(), without_comment(value).to_owned());
        if !is_name(name) {
            return Err(not_understood(at, line));
        }
        // A list may continue over several lines.
        let mut strings = Strings::default();
        let mut ended = !value.starts_with('[') || strings.ends_list(&value);
        while !ended {
            let Some((_, more)) = lines.next() else {
                let problem = "its list has no end";
                let error = RuleError::at(at, problem, "close it with `]`");
                return Err(error.of_field(name));
            };
            let more = without_comment(more);
            value.push(' ');
            value.push_str(more);
            // Each line is scanned once, however long the list.
            ended = strings.ends_list(" ") || strings.ends_list(more);
        }
        let rule = tables.last().map_or("", |table| table.name.as_str());
        let value = read_value(at, &value).map_err(|error| error.of_field(name).of_rule(rule))?;
        if let Some(table) = tables.last_mut() {
            table.entries.push(Entry {
                line: at,
                name: name.to_owned(),
                value,
            });
        }
    }
    Ok(tables)
}

/// Lowercase letters, digits and `_`, as in names of rules and fields.
fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_letter)
}

fn not_understood(line: usize, text: &str) -> RuleError {
    let shown: String = text.chars().take(60).collect();
    let remedy =
        "write `[rule_name]` or `field = \"text\"`, with names of small letters, digits and `_`";
    RuleError::at(line, format!("`{shown}` is not understood"), remedy)
}

/// A line's text before its comment.
fn without_comment(line: &str) -> &str {
    let mut strings = Strings::default();
    let mut letters = line.char_indices();
    let end = letters.find(|(_, letter)| strings.is_outside(*letter) && *letter == '#');
    line[..end.map_or(line.len(), |(at, _)| at)].trim()
}

/// Whether the text so far ends within a string.
#[derive(Default)]
struct Strings {
    inside: bool,
    escaped: bool,
}

impl Strings {
    /// Consumes the next character; returns whether it is outside of strings.
    fn is_outside(&mut self, letter: char) -> bool {
        let was_inside = self.inside;
        match letter {
            _ if self.escaped => self.escaped = false,
            '\\' if self.inside => self.escaped = true,
            '"' => self.inside = !self.inside,
            _ => {}
        }
        !was_inside && !self.inside
    }

    /// Whether the following text has a list's closing bracket.
    fn ends_list(&mut self, text: &str) -> bool {
        text.chars()
            .any(|letter| self.is_outside(letter) && letter == ']')
    }
}

fn read_value(line: usize, text: &str) -> Result<Value, RuleError> {
    let wrong = || {
        let remedy = "write \"text\", a whole number, or [\"text\", \"text\"]";
        RuleError::at(line, format!("`{text}` is no value"), remedy)
    };
    if text.starts_with('"') {
        let (value, rest) = read_string(text).ok_or_else(wrong)?;
        return rest
            .is_empty()
            .then_some(Value::Text(value))
            .ok_or_else(wrong);
    }
    if let Some(list) = text.strip_prefix('[') {
        let mut rest = list.trim_start();
        let mut values = Vec::new();
        while rest.starts_with('"') {
            let (value, after) = read_string(rest).ok_or_else(wrong)?;
            values.push(value);
            let after = after.trim_start();
            match after.strip_prefix(',') {
                Some(next) => rest = next.trim_start(),
                None => {
                    rest = after;
                    break;
                }
            }
        }
        let rest = rest.strip_prefix(']').ok_or_else(wrong)?;
        return rest
            .is_empty()
            .then_some(Value::Texts(values))
            .ok_or_else(wrong);
    }
    text.parse().map(Value::Number).map_err(|_| wrong())
}

/// The string at the beginning of a text, and the remaining text.
fn read_string(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut letters = inside.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &inside[at + 1..])),
            '\\' => match letters.next()?.1 {
                escaped @ ('"' | '\\') => value.push(escaped),
                _ => return None,
            },
            _ => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_span_lines_and_ends_outside_of_strings() {
        let text = "[a]\nb = [\"x]\", # ]\n  \"y\\\"]\",\n]\nc = 7\n";
        let texts = Value::Texts(vec!["x]".to_owned(), "y\"]".to_owned()]);
        let tables = read(text).unwrap_or_default();
        let values: Vec<&Value> = tables[1].entries.iter().map(|entry| &entry.value).collect();
        assert_eq!(values, [&texts, &Value::Number(7)]);
    }

    #[test]
    fn lists_are_parsed_in_linear_time() {
        // With quadratic time this would be some ten billion characters.
        let endless = format!("a = [{}", "\n".repeat(200_000));
        let error = read(&endless).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("its list has no end")));
    }
}
