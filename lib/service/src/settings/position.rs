//! Positions of keys in a TOML file.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

/// Lines and columns of a file's keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Positions(BTreeMap<String, (usize, usize)>);

impl Positions {
    /// Positions in a file; empty if it is not TOML.
    pub(crate) fn of(text: &str) -> Self {
        let mut found = BTreeMap::new();
        if let Ok(document) = DeTable::parse(text) {
            collect(text, "", document.get_ref(), &mut found);
        }
        Self(found)
    }

    /// Position of a key, or of the nearest enclosing table that exists.
    pub(crate) fn find(&self, key: &str) -> Option<(usize, usize)> {
        let mut key = key;
        loop {
            if let Some(position) = self.0.get(key) {
                return Some(*position);
            }
            key = key.rsplit_once('.')?.0;
        }
    }
}

fn collect(
    text: &str,
    around: &str,
    table: &DeTable<'_>,
    found: &mut BTreeMap<String, (usize, usize)>,
) {
    for (name, value) in table {
        let key = match around {
            "" => name.get_ref().to_string(),
            around => format!("{around}.{}", name.get_ref()),
        };
        found.insert(key.clone(), position(text, name.span().start));
        if let DeValue::Table(inner) = value.get_ref() {
            collect(text, &key, inner, found);
        }
    }
}

/// Line and column of a byte, counted from 1.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_begin = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_begin..].chars().count() + 1)
}
