//! Effect of a topology on the registered hosts.

use muster_documents::TopologyEffect;

use crate::output::counted;
use crate::parse::compress;

/// Several lines of text.
pub(crate) fn render(effect: &TopologyEffect) -> String {
    let done = if effect.dry_run {
        "would be set (dry run, nothing was changed)"
    } else {
        "set"
    };
    let mut text = format!(
        "topology {done}: located hosts: {}, without location: {}; with GPU cells: {}\n",
        effect.hosts_placed, effect.hosts_unplaced, effect.hosts_with_cells
    );
    if effect.hosts_changed_total > 0 {
        text.push_str(&format!(
            "  the cells of {} change: {}\n",
            counted(effect.hosts_changed_total, "host"),
            compress(&effect.hosts_changed)
        ));
    }
    if !effect.hosts_unknown.is_empty() {
        text.push_str(&format!(
            "  not registered (yet): {}\n",
            compress(&effect.hosts_unknown)
        ));
    }
    text
}

/// Names of the hosts whose cells change, one per line.
pub(crate) fn names(effect: &TopologyEffect) -> String {
    let names = effect.hosts_changed.iter();
    names.map(|name| format!("{name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use muster_proto::v1;

    use super::*;

    #[test]
    fn hosts_are_shown_in_order_and_folded() {
        let hosts = ["node04", "node02", "node01", "node03"];
        let answer = v1::SetTopologyResponse {
            hosts_changed: hosts.map(str::to_owned).to_vec(),
            hosts_changed_total: 4,
            ..v1::SetTopologyResponse::default()
        };
        let text = render(&TopologyEffect::new(true, answer));
        assert!(
            text.contains("the cells of 4 hosts change: node[01-04]\n"),
            "{text}"
        );
    }
}
