//! Difference between two states, record by record and line by line.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};

use muster_engine::state::State;

/// Maximum lines of a difference, or of a state, that are shown; the others are counted.
const LINES_MAX: usize = 400;
/// Maximum lines of one record that are compared pairwise; of longer records the whole middle is shown.
const COMPARED_MAX: usize = 600;
/// Lines of context around a change.
const CONTEXT: usize = 2;

/// Formats a whole state as text.
#[must_use]
pub fn describe(state: &State) -> String {
    let mut text = String::new();
    for (name, lines) in records(state) {
        line(&mut text, &name);
        for content in lines {
            line(&mut text, &format!("  {content}"));
        }
    }
    bounded(&text)
}

/// Formats the records that differ between two states, with the lines that do.
#[must_use]
pub fn difference(before: &State, after: &State) -> String {
    let (old, new) = (records(before), records(after));
    let mut text = String::new();
    let (from, to) = (before.revision, after.revision);
    line(&mut text, &format!("revision {from} to {to}"));
    for (name, lines) in &old {
        match new.get(name) {
            None => line(&mut text, &format!("- {name}")),
            Some(other) if other != lines => {
                line(&mut text, &format!("  {name}"));
                changed(lines, other, &mut text);
            }
            Some(_) => {}
        }
    }
    for (name, lines) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        line(&mut text, &format!("+ {name}"));
        for content in lines {
            line(&mut text, &format!("+   {content}"));
        }
    }
    bounded(&text)
}

/// The records of a state by name.
fn records(state: &State) -> BTreeMap<String, Vec<String>> {
    let mut records = BTreeMap::new();
    let mut add = |name: String, record: &dyn Debug| {
        let text = format!("{record:#?}");
        records.insert(name, text.lines().map(str::to_owned).collect());
    };
    add("leadership".to_owned(), &state.leadership);
    add("health".to_owned(), &state.health);
    for (id, job) in &state.jobs {
        add(format!("job {:>6}", id.get()), &**job);
    }
    for (id, host) in &state.hosts {
        add(format!("host {:>4}", id.get()), &**host);
    }
    for (name, queue) in &state.queues {
        add(format!("queue {name}"), &**queue);
    }
    for (request, stored) in state.requests.iter() {
        add(format!("request {request}"), stored);
    }
    records
}

/// Writes the lines that differ, with context.
fn changed(old: &[String], new: &[String], text: &mut String) {
    let same_first = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same_first;
    let backwards = old.iter().rev().zip(new.iter().rev()).take(rest);
    let same_last = backwards.take_while(|(a, b)| a == b).count();
    let (old_end, new_end) = (old.len() - same_last, new.len() - same_last);
    let context = old[..same_first]
        .iter()
        .skip(same_first.saturating_sub(CONTEXT));
    context.for_each(|it| line(text, &format!("    {it}")));
    let (gone, come) = (&old[same_first..old_end], &new[same_first..new_end]);
    for (mark, content) in edits(gone, come) {
        line(text, &format!("{mark}   {content}"));
    }
    let context = old[old_end..].iter().take(CONTEXT);
    context.for_each(|it| line(text, &format!("    {it}")));
}

/// Removed, added and unchanged lines, by the longest common subsequence.
fn edits<'a>(old: &'a [String], new: &'a [String]) -> Vec<(char, &'a str)> {
    if old.len() + new.len() > COMPARED_MAX {
        let gone = old.iter().map(|it| ('-', it.as_str()));
        return gone
            .chain(new.iter().map(|it| ('+', it.as_str())))
            .collect();
    }
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for (row, one) in old.iter().enumerate().rev() {
        for (column, other) in new.iter().enumerate().rev() {
            let at = row * width + column;
            common[at] = if one == other {
                common[at + width + 1] + 1
            } else {
                common[at + width].max(common[at + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut edits = Vec::new();
    while row < old.len() || column < new.len() {
        let at = row * width + column;
        if row < old.len() && column < new.len() && old[row] == new[column] {
            edits.push((' ', old[row].as_str()));
            (row, column) = (row + 1, column + 1);
        } else if column == new.len() || (row < old.len() && common[at + width] >= common[at + 1]) {
            edits.push(('-', old[row].as_str()));
            row += 1;
        } else {
            edits.push(('+', new[column].as_str()));
            column += 1;
        }
    }
    edits
}

fn line(text: &mut String, what: &str) {
    // Writing to a string cannot fail.
    let _infallible = writeln!(text, "{what}");
}

fn bounded(text: &str) -> String {
    let count = text.lines().count();
    if count <= LINES_MAX {
        return text.to_owned();
    }
    let mut shown: String = text
        .lines()
        .take(LINES_MAX)
        .fold(String::new(), |mut all, it| {
            line(&mut all, it);
            all
        });
    line(&mut shown, &format!("and {} lines more", count - LINES_MAX));
    shown
}

#[cfg(test)]
mod tests {
    use muster_harness::{Cluster, single};

    use super::*;

    #[test]
    fn a_difference_contains_only_changes() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let first = cluster.submit(single("first", 1, 1));
        let before = cluster.state.clone();
        cluster.submit(single("second", 1, 1));
        let text = difference(&before, &cluster.state);
        assert!(text.contains("+ job "), "{text}");
        assert!(
            text.contains("second") && !text.contains("\"first\""),
            "{text}"
        );
        assert!(!difference(&before, &before).contains("job"));
        assert!(describe(&before).contains(&format!("job {:>6}", first.get())));
    }

    #[test]
    fn lines_are_paired_where_they_are_the_same() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (old, new) = (lines("a b c d"), lines("a x c y d"));
        let all: String = edits(&old, &new)
            .into_iter()
            .map(|(mark, it)| format!("{mark}{it}"))
            .collect();
        assert_eq!(all, " a-b+x c+y d");
        let mut text = String::new();
        changed(&old, &new, &mut text);
        assert_eq!(text, "    a\n-   b\n+   x\n    c\n+   y\n    d\n");
    }
}
