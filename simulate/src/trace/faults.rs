//! Outages of hosts and single GPUs: one per line, with start and end on the file's own clock.

use std::collections::BTreeMap;
use std::path::Path;

use crate::trace::TraceError;
use crate::trace::table::{Column, Table};

const SCHEMA: [Column; 7] = [
    Column::required("node"),
    Column::required("start_s"),
    Column::required("end_s"),
    Column::optional("gpu"),
    Column::optional("level"),
    Column::optional("class"),
    Column::optional("desc"),
];

/// A span during which a node, or one GPU of it, is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The node's name in the file.
    pub node: String,
    /// The index of the affected GPU; the whole node if `None`.
    pub gpu: Option<u32>,
    /// Start in milliseconds on the file's clock.
    pub start_ms: u64,
    /// End in milliseconds on the file's clock.
    pub end_ms: u64,
    /// Class and description, as text for users.
    pub cause: String,
}

/// Reads a file of outages, sorted by start, then node.
///
/// # Errors
/// [`TraceError`] names the file, the line and the column.
pub fn read_outages(path: &Path) -> Result<Vec<Outage>, TraceError> {
    let mut outages = Vec::new();
    for row in Table::open(path, &SCHEMA)? {
        let row = row?;
        let (start_ms, end_ms) = (row.seconds_ms("start_s")?, row.seconds_ms("end_s")?);
        if end_ms < start_ms {
            return Err(row.wrong("end_s", "is before start_s"));
        }
        outages.push(Outage {
            node: row.name("node")?,
            gpu: row.optional_number("gpu")?,
            start_ms,
            end_ms,
            cause: cause(row.text("class"), row.text("desc")),
        });
    }
    outages.sort_by(|a, b| (a.start_ms, &a.node, a.gpu).cmp(&(b.start_ms, &b.node, b.gpu)));
    Ok(outages)
}

fn cause(class: &str, description: &str) -> String {
    match (class, description) {
        ("", text) | (text, "") => text.to_owned(),
        _ => format!("{class}: {description}"),
    }
}

/// The host that represents each node of the file, as positions in `hosts`.
///
/// Nodes with a host's name map to that host; if no node has one, the first node by name maps to the first
/// host and so on, and nodes beyond the last host map to none.
pub(crate) fn hosts_of_nodes(outages: &[Outage], hosts: &[&str]) -> BTreeMap<String, usize> {
    let mut nodes: Vec<&str> = outages.iter().map(|outage| outage.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let positions: BTreeMap<&str, usize> = hosts.iter().copied().zip(0..).collect();
    let by_name: BTreeMap<String, usize> = nodes
        .iter()
        .filter_map(|node| Some(((*node).to_owned(), *positions.get(node)?)))
        .collect();
    if !by_name.is_empty() {
        return by_name;
    }
    let in_order = nodes.into_iter().zip(0..hosts.len());
    in_order
        .map(|(node, position)| (node.to_owned(), position))
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn outages_are_sorted_by_start_and_must_not_end_before() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "node,start_s,end_s,level,class,desc").unwrap();
        writeln!(file, "n002,20,30,Hardware Failure,GPU,DBE").unwrap();
        writeln!(file, "n001,10,30,Other Failure,,").unwrap();
        let outages = read_outages(file.path()).unwrap();
        let nodes: Vec<&str> = outages.iter().map(|outage| outage.node.as_str()).collect();
        assert_eq!(nodes, ["n001", "n002"]);
        assert_eq!(outages[1].cause, "GPU: DBE");
        writeln!(file, "n003,20,10,,,").unwrap();
        let text = read_outages(file.path()).unwrap_err().to_string();
        assert!(
            text.ends_with("line 4: end_s: `10` is before start_s"),
            "{text}"
        );
    }

    #[test]
    fn nodes_stand_for_hosts_by_name_or_else_in_order() {
        let outage = |node: &str| Outage {
            node: node.to_owned(),
            gpu: None,
            start_ms: 0,
            end_ms: 1,
            cause: String::new(),
        };
        let outages = [outage("n2"), outage("n1"), outage("n3")];
        let by_name = hosts_of_nodes(&outages, &["n3", "other"]);
        assert_eq!(by_name, BTreeMap::from([("n3".to_owned(), 0)]));
        let in_order = hosts_of_nodes(&outages, &["a", "b"]);
        assert_eq!(
            in_order,
            BTreeMap::from([("n1".to_owned(), 0), ("n2".to_owned(), 1)])
        );
    }
}
