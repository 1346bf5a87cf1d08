//! Positions of fields in a document, for rules that are checked after parsing.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A document reduced to its structure, with positions.
enum Node {
    Map(Vec<(String, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Scalar,
}

/// Positions of a document's fields. The document is parsed once for any number of lookups.
pub struct Positions(Option<Spanned<Node>>);

impl Positions {
    /// Parses a document; empty if it cannot be parsed.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(serde_saphyr::from_str(text).ok())
    }

    /// Line and column, counted from 1 within the document, of the field with this path, or of its nearest
    /// existing ancestor.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<(u64, u64)> {
        let mut found = self.0.as_ref()?;
        for step in steps(path) {
            let next = match (&found.value, step) {
                (Node::Map(entries), Step::Key(key)) => {
                    let entry = entries.iter().find(|(name, _)| name == key);
                    entry.map(|(_, node)| node)
                }
                (Node::List(items), Step::Index(index)) => items.get(index),
                _ => None,
            };
            let Some(next) = next else { break };
            found = next;
        }
        Some((found.referenced.line(), found.referenced.column()))
    }
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Splits `groups[1].count` into its steps.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split(['.', '[']).filter_map(|part| {
        if part.is_empty() {
            return None;
        }
        let index = part.strip_suffix(']').map(str::parse);
        Some(match index {
            Some(Ok(index)) => Step::Index(index),
            _ => Step::Key(part),
        })
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<Source: Deserializer<'de>>(source: Source) -> Result<Self, Source::Error> {
        source.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

macro_rules! scalar {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E: serde::de::Error>(self, _: $type) -> Result<Node, E> { Ok(Node::Scalar) })*
    };
}

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("anything")
    }

    scalar!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128,
        visit_f64: f64, visit_str: &str, visit_bytes: &[u8]);

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<Source: Deserializer<'de>>(self, source: Source) -> Result<Node, Source::Error> {
        IgnoredAny::deserialize(source).map(|_| Node::Scalar)
    }

    fn visit_seq<Access: SeqAccess<'de>>(self, mut access: Access) -> Result<Node, Access::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<Access: MapAccess<'de>>(self, mut access: Access) -> Result<Node, Access::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: x\ngroups:\n  - count: 1\n    command: [a]\n  - count: 0\n";

    fn locate(text: &str, path: &str) -> Option<(u64, u64)> {
        Positions::of(text).find(path)
    }

    #[test]
    fn fields_are_found() {
        assert_eq!(locate(TEXT, "name"), Some((1, 7)));
        assert_eq!(locate(TEXT, "groups[0].command"), Some((4, 14)));
        assert_eq!(locate(TEXT, "groups[1].count"), Some((5, 12)));
    }

    #[test]
    fn an_absent_field_is_located_at_its_parent() {
        assert_eq!(locate(TEXT, "groups[1].command"), Some((5, 5)));
    }

    #[test]
    fn fields_of_json_are_found() {
        let text = "{\n  \"groups\": [\n    {\"count\": 0}\n  ]\n}\n";
        assert_eq!(locate(text, "groups[0].count"), Some((3, 15)));
    }
}
