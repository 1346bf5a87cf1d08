//! Lines of a picture, and the difference between two pictures.

use std::collections::BTreeMap;

/// Subject of a line: its section, its number within it, and its name.
type Key = (u8, u64, String);

/// One line of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    key: Key,
    /// The printed text.
    pub(crate) text: String,
    /// Text printed when the line disappears.
    gone: String,
}

impl Line {
    pub(crate) fn new(section: u8, name: &str, text: String) -> Self {
        Self::numbered(section, 0, name, text)
    }

    pub(crate) fn numbered(section: u8, number: u64, name: &str, text: String) -> Self {
        Self {
            key: (section, number, name.to_owned()),
            text,
            gone: format!("{name}: gone"),
        }
    }

    /// Sets another text for the line's disappearance.
    pub(crate) fn or_else(mut self, gone: String) -> Self {
        self.gone = gone;
        self
    }
}

/// New and changed lines of `after`, and a text for each line that disappeared, in order.
pub(crate) fn difference(before: &[Line], after: &[Line]) -> Vec<String> {
    let by_key = |lines: &[Line]| -> BTreeMap<Key, Line> {
        let pairs = lines.iter().map(|line| (line.key.clone(), line.clone()));
        pairs.collect()
    };
    let (before, after) = (by_key(before), by_key(after));
    let mut changed: BTreeMap<&Key, &str> = BTreeMap::new();
    for (key, line) in &before {
        if !after.contains_key(key) {
            changed.insert(key, &line.gone);
        }
    }
    for (key, line) in &after {
        if before
            .get(key)
            .is_none_or(|earlier| earlier.text != line.text)
        {
            changed.insert(key, &line.text);
        }
    }
    changed.into_values().map(str::to_owned).collect()
}
