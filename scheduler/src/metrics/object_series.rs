//! Metric series of single objects and queues: written from the state at each scrape, and gone with the
//! object. A recorder would keep them forever.

use std::fmt::Write as _;

use muster_engine::state::State;
use muster_model::command::Block;
use muster_model::time::TimeMs;

use crate::metrics::names::{
    BREAKERS_TRIPPED, BREAKERS_TRIPPED_HELP, GPU_BLOCKED, GPU_BLOCKED_HELP,
};
use crate::metrics::queues::queues;

/// Blocked GPUs with a series of their own: more than that indicates a failure of the whole cluster, and they
/// are only counted.
const GPUS_LISTED_MAX: usize = 4_096;
/// Prefix of the author of a block by a rule.
const RULES_AUTHOR: &str = "rule:";

/// Source of a block: a rule, by its name, or an admin.
pub(super) fn source(block: &Block) -> (&'static str, &str) {
    match block.author.strip_prefix(RULES_AUTHOR) {
        Some(rule) => ("auto", rule),
        None => ("admin", ""),
    }
}

/// Blocked GPUs, tripped breakers and queues as of `now`, in Prometheus' text format.
pub(crate) fn lists(state: &State, now: TimeMs) -> String {
    let mut page = String::new();
    let blocked = state.hosts.values().flat_map(|host| {
        host.gpus.iter().filter_map(move |gpu| {
            let block = gpu.block.as_ref().or(host.block.as_ref())?;
            Some((gpu.uuid, host.name.as_ref(), source(block)))
        })
    });
    for (uuid, host, (source, rule)) in blocked.take(GPUS_LISTED_MAX) {
        if page.is_empty() {
            page = head(GPU_BLOCKED, GPU_BLOCKED_HELP);
        }
        let (host, rule) = (escaped(host), escaped(rule));
        let _ = writeln!(
            page,
            "{GPU_BLOCKED}{{UUID=\"{uuid}\",host=\"{host}\",rule=\"{rule}\",source=\"{source}\"}} 1"
        );
    }
    page.push_str(&head(BREAKERS_TRIPPED, BREAKERS_TRIPPED_HELP));
    let rails = state.health.rails();
    for pool in state.index.pools.names() {
        let is_tripped = rails.breaker(pool).is_some_and(|it| it.is_tripped());
        let (pool, value) = (escaped(pool), u8::from(is_tripped));
        let _ = writeln!(page, "{BREAKERS_TRIPPED}{{pool=\"{pool}\"}} {value}");
    }
    page + &queues(state, now)
}

pub(super) fn head(name: &str, help: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} gauge\n")
}

/// A label's value in the text format.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\");
    text.replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_harness::{Cluster, gpu_uuid, host};
    use muster_model::command::{BlockTarget, Command};

    use super::*;

    fn by(author: &str) -> Block {
        Block {
            reason: "riser".to_owned(),
            author: author.to_owned(),
            evidence: String::new(),
            since: TimeMs(0),
            expires_at: None,
            drain_deadline: None,
            planned: None,
        }
    }

    fn block(cluster: &mut Cluster, target: BlockTarget) {
        let command = Command::Block {
            request: cluster.next_request(),
            target,
            block: by("grace"),
            spares_last: false,
        };
        cluster.apply(&command).result.unwrap();
    }

    #[test]
    fn a_blocked_gpu_has_a_series_by_its_uuid_as_long_as_it_is_blocked() {
        let mut cluster = Cluster::new();
        for number in 1..=2 {
            cluster.register(host(number, 2));
        }
        let of = |cluster: &Cluster, name: &str| -> Vec<String> {
            let page = lists(&cluster.state, cluster.now);
            let lines = page.lines().filter(|line| line.starts_with(name));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(of(&cluster, GPU_BLOCKED), Vec::<String>::new());
        block(&mut cluster, BlockTarget::Gpu(gpu_uuid(1, 1)));
        let one = format!(
            "{GPU_BLOCKED}{{UUID=\"{}\",host=\"node-0001\",rule=\"\",source=\"admin\"}} 1",
            gpu_uuid(1, 1)
        );
        assert_eq!(of(&cluster, GPU_BLOCKED), std::slice::from_ref(&one));
        block(&mut cluster, BlockTarget::Host("node-0002".to_owned()));
        assert_eq!(of(&cluster, GPU_BLOCKED).len(), 3);
        let unblock = Command::Unblock {
            request: cluster.next_request(),
            target: BlockTarget::Host("node-0002".to_owned()),
            author: "grace".to_owned(),
            planned: false,
        };
        cluster.apply(&unblock).result.unwrap();
        assert_eq!(of(&cluster, GPU_BLOCKED), [one]);
        let pools = of(&cluster, BREAKERS_TRIPPED);
        assert_eq!(pools.len(), 1);
        assert!(pools[0].ends_with("\"} 0"), "{pools:?}");
    }

    #[test]
    fn the_source_of_a_block_follows_from_its_author() {
        assert_eq!(source(&by("rule:xid")), ("auto", "xid"));
        assert_eq!(source(&by("grace")), ("admin", ""));
        assert_eq!(escaped("a\"b\\c"), "a\\\"b\\\\c");
    }
}
