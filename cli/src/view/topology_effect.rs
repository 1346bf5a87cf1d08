//! Effect of a topology on the registered hosts.

use muster_proto::v1;
use serde::Serialize;

use crate::output::counted;
use crate::parse::compress;

/// Effect of applying a topology, or of a dry run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TopologyEffectView {
    revision: u64,
    dry_run: bool,
    hosts_placed: u32,
    hosts_unplaced: u32,
    hosts_shaped: u32,
    hosts_unknown: Vec<String>,
    hosts_changed: Vec<String>,
    hosts_changed_total: u32,
}

impl TopologyEffectView {
    /// The cluster's answer.
    pub(crate) fn new(dry_run: bool, mut answer: v1::SetTopologyResponse) -> Self {
        // Consecutive numbers are shown as a range.
        answer.hosts_unknown.sort_unstable();
        answer.hosts_changed.sort_unstable();
        Self {
            revision: answer.revision,
            dry_run,
            hosts_placed: answer.hosts_placed,
            hosts_unplaced: answer.hosts_unplaced,
            hosts_shaped: answer.hosts_shaped,
            hosts_unknown: answer.hosts_unknown,
            hosts_changed: answer.hosts_changed,
            hosts_changed_total: answer.hosts_changed_total,
        }
    }

    /// Several lines of text.
    pub(crate) fn render(&self) -> String {
        let done = if self.dry_run {
            "would be set (dry run, nothing was changed)"
        } else {
            "set"
        };
        let mut text = format!(
            "topology {done}: located hosts: {}, without location: {}; with GPU cells: {}\n",
            self.hosts_placed, self.hosts_unplaced, self.hosts_shaped
        );
        if self.hosts_changed_total > 0 {
            text.push_str(&format!(
                "  the cells of {} change: {}\n",
                counted(self.hosts_changed_total, "host"),
                compress(&self.hosts_changed)
            ));
        }
        if !self.hosts_unknown.is_empty() {
            text.push_str(&format!(
                "  not registered (yet): {}\n",
                compress(&self.hosts_unknown)
            ));
        }
        text
    }

    /// Names of the hosts whose cells change, one per line.
    pub(crate) fn names(&self) -> String {
        let names = self.hosts_changed.iter();
        names.map(|name| format!("{name}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_shown_in_order_and_folded() {
        let hosts = ["node04", "node02", "node01", "node03"];
        let answer = v1::SetTopologyResponse {
            hosts_changed: hosts.map(str::to_owned).to_vec(),
            hosts_changed_total: 4,
            ..v1::SetTopologyResponse::default()
        };
        let text = TopologyEffectView::new(true, answer).render();
        assert!(
            text.contains("the cells of 4 hosts change: node[01-04]\n"),
            "{text}"
        );
    }
}
