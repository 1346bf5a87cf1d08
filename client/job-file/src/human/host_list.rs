//! Host list expressions in the syntax of Slurm and Flux: `node[01-16,20],gpu7`.

use std::collections::BTreeSet;

use muster_model::limits::{HOSTS_MAX, NAME_BYTES_MAX, shortened};

/// Expands several host lists in the order given, without duplicates.
///
/// # Errors
/// Names the problem of the first invalid list and the expected form.
pub fn expand_all<Text: AsRef<str>>(lists: &[Text]) -> Result<Vec<String>, String> {
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for list in lists {
        let fresh = expand(list.as_ref())?.into_iter();
        names.extend(fresh.filter(|name| seen.insert(name.clone())));
    }
    Ok(names)
}

/// Expands a host list, in order.
///
/// # Errors
/// Names the problem and the expected form.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for item in split_outside_brackets(list)? {
        let Pattern { numbered, tail } = pattern(item, list)?;
        append_names(&mut String::new(), &numbered, tail, list, &mut names)?;
    }
    Ok(names)
}

/// Splits at the commas outside of brackets.
fn split_outside_brackets(list: &str) -> Result<Vec<&str>, String> {
    let mut items = Vec::new();
    let (mut depth, mut begin) = (0u32, 0usize);
    for (position, letter) in list.char_indices() {
        match letter {
            '[' if depth == 0 => depth = 1,
            ']' if depth == 1 => depth = 0,
            '[' | ']' => return Err(unusable(list, "its brackets do not match")),
            ',' if depth == 0 => {
                items.push(&list[begin..position]);
                begin = position + 1;
            }
            _ => {}
        }
    }
    if depth != 0 {
        return Err(unusable(list, "its brackets do not match"));
    }
    items.push(&list[begin..]);
    if items.iter().any(|item| item.is_empty()) {
        return Err(unusable(list, "a name is empty"));
    }
    Ok(items)
}

/// A parsed item: literal texts with the numbers that follow each, and the trailing text.
struct Pattern<'a> {
    numbered: Vec<(&'a str, Vec<Numbers>)>,
    tail: &'a str,
}

/// An inclusive range of numbers, zero-padded to a width.
struct Numbers {
    first: u64,
    last: u64,
    width: usize,
}

/// Parses an item.
fn pattern<'a>(item: &'a str, list: &str) -> Result<Pattern<'a>, String> {
    let (mut numbered, mut tail) = (Vec::new(), item);
    while let Some((text, rest)) = tail.split_once('[') {
        let (ranges, rest) = rest
            .split_once(']')
            .ok_or_else(|| unusable(list, "its brackets do not match"))?;
        let numbers = ranges.split(',').map(|range| parse_range(range, list));
        numbered.push((text, numbers.collect::<Result<_, _>>()?));
        tail = rest;
        // Each number adds at least one digit.
        if numbered.len() > NAME_BYTES_MAX {
            return Err(too_long(list));
        }
    }
    Ok(Pattern { numbered, tail })
}

/// Appends all names with this prefix that the rest of the pattern yields. `list`: the whole list, for error
/// messages.
fn append_names(
    begin: &mut String,
    numbered: &[(&str, Vec<Numbers>)],
    tail: &str,
    list: &str,
    names: &mut Vec<String>,
) -> Result<(), String> {
    let Some(((text, numbers), rest)) = numbered.split_first() else {
        if names.len() >= HOSTS_MAX {
            let why = format!("it names more than {HOSTS_MAX} hosts (HOSTS_MAX)");
            return Err(unusable(list, &why));
        }
        if begin.len() + tail.len() > NAME_BYTES_MAX {
            return Err(too_long(list));
        }
        names.push(format!("{begin}{tail}"));
        return Ok(());
    };
    let length = begin.len();
    for numbers in numbers {
        let width = numbers.width;
        for number in numbers.first..=numbers.last {
            begin.push_str(text);
            begin.push_str(&format!("{number:0width$}"));
            append_names(begin, rest, tail, list, names)?;
            begin.truncate(length);
        }
    }
    Ok(())
}

/// Parses `07` or `01-16`; leading zeros set the width.
fn parse_range(range: &str, list: &str) -> Result<Numbers, String> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (Some(low), Some(high)) = (number(first), number(last)) else {
        let why = format!("`{range}` in brackets is neither a number nor a range");
        return Err(unusable(list, &why));
    };
    if first.len() > NAME_BYTES_MAX {
        return Err(too_long(list));
    }
    if low > high {
        return Err(unusable(
            list,
            &format!("the range `{range}` runs backwards"),
        ));
    }
    let padded = first.len() > 1 && first.starts_with('0');
    Ok(Numbers {
        first: low,
        last: high,
        width: if padded { first.len() } else { 0 },
    })
}

fn too_long(list: &str) -> String {
    let why = format!("a name has over {NAME_BYTES_MAX} bytes (NAME_BYTES_MAX)");
    // A name that is too long is also too long to print in full.
    unusable(shortened(list), &why)
}

fn unusable(list: &str, why: &str) -> String {
    format!("`{list}` is not a host list: {why} (write node7, node[01-16] or node[1,3-5],other)")
}

/// Formats names as a short host list: neighbours that differ only in their last number share brackets.
pub fn compress<Text: AsRef<str>>(names: &[Text]) -> String {
    let mut parts: Vec<Run> = Vec::new();
    for name in names {
        let run = Run::of(name.as_ref());
        match parts.last_mut() {
            Some(last) if last.joins(&run) => last.ranges.extend(run.ranges),
            _ => parts.push(run),
        }
    }
    let texts: Vec<String> = parts.iter().map(Run::text).collect();
    texts.join(",")
}

/// Names with a common stem, and their numbers in order as ranges.
struct Run {
    stem: String,
    /// Width of zero-padded numbers; 0 without padding.
    width: usize,
    /// Number of digits of the last number.
    digits: usize,
    ranges: Vec<(u64, u64)>,
}

impl Run {
    fn of(name: &str) -> Self {
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let digits = &name[stem.len()..];
        let number = digits.parse::<u64>().ok().map(|number| (number, number));
        Self {
            stem: if number.is_some() { stem } else { name }.to_owned(),
            width: if digits.len() > 1 && digits.starts_with('0') {
                digits.len()
            } else {
                0
            },
            digits: digits.len(),
            ranges: number.into_iter().collect(),
        }
    }

    fn joins(&self, next: &Self) -> bool {
        let same_digits = if self.width == 0 {
            next.width == 0
        } else {
            self.width == next.digits
        };
        self.stem == next.stem && same_digits && !self.ranges.is_empty() && !next.ranges.is_empty()
    }

    fn text(&self) -> String {
        let width = self.width;
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (low, high) in &self.ranges {
            match merged.last_mut() {
                Some(last) if last.1.checked_add(1) == Some(*low) => last.1 = *high,
                _ => merged.push((*low, *high)),
            }
        }
        match merged.as_slice() {
            [] => self.stem.clone(),
            [(low, high)] if low == high => format!("{}{low:0width$}", self.stem),
            ranges => {
                let texts: Vec<String> = ranges
                    .iter()
                    .map(|(low, high)| {
                        if low == high {
                            format!("{low:0width$}")
                        } else {
                            format!("{low:0width$}-{high:0width$}")
                        }
                    })
                    .collect();
                format!("{}[{}]", self.stem, texts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_in_order() {
        let cases = [
            ("node7", "node7"),
            ("a,b", "a b"),
            ("node[08-11]", "node08 node09 node10 node11"),
            ("node[8-11]", "node8 node9 node10 node11"),
            ("n[1,3-4]x,y", "n1x n3x n4x y"),
            ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
            ("node[001]", "node001"),
        ];
        for (list, names) in cases {
            let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
            assert_eq!(expand(list), Ok(names), "{list}");
        }
    }

    #[test]
    fn an_invalid_list_is_explained() {
        let cases = [
            ("", "a name is empty"),
            ("a,,b", "a name is empty"),
            ("node[1-3", "its brackets do not match"),
            ("node1-3]", "its brackets do not match"),
            ("node[[1]]", "its brackets do not match"),
            ("node[]", "`` in brackets is neither a number nor a range"),
            (
                "node[a-b]",
                "`a-b` in brackets is neither a number nor a range",
            ),
            ("node[5-1]", "the range `5-1` runs backwards"),
            (
                "node[0-999999999]",
                "it names more than 100000 hosts (HOSTS_MAX)",
            ),
        ];
        for (list, why) in cases {
            assert_eq!(expand(list), Err(unusable(list, why)), "{list}");
        }
    }

    #[test]
    fn lists_with_too_long_names_are_rejected_at_any_depth() {
        let deep = "[1]".repeat(100_000);
        let wide = format!("n[{}1]", "0".repeat(70_000));
        let long = format!("n{}[1-2]", "x".repeat(NAME_BYTES_MAX));
        for list in [deep, wide, long] {
            assert_eq!(expand(&list), Err(too_long(&list)));
        }
        let just_right = format!("n[{}1]", "0".repeat(NAME_BYTES_MAX - 2));
        assert_eq!(
            expand(&just_right).map(|names| names[0].len()),
            Ok(NAME_BYTES_MAX)
        );
    }

    #[test]
    fn duplicate_hosts_are_dropped() {
        let names = expand_all(&["node[1-2]", "node[2-3]"]);
        let expected: Vec<String> = ["node1", "node2", "node3"].map(str::to_owned).to_vec();
        assert_eq!(names, Ok(expected));
    }

    #[test]
    fn names_are_compressed() {
        let cases = [
            ("", ""),
            ("login", "login"),
            ("node7", "node7"),
            ("node01 node02 node03", "node[01-03]"),
            ("node1 node3 node4 other", "node[1,3-4],other"),
            ("node9 node10", "node[9-10]"),
            ("node09 node10", "node[09-10]"),
            ("node9 node09", "node9,node09"),
        ];
        for (names, list) in cases {
            let names: Vec<&str> = names.split_whitespace().collect();
            assert_eq!(compress(&names), list);
        }
    }
}
