//! Checker: nothing is placed on a host blocked by the run until the block is lifted. Based on the
//! watchers' events of all jobs, since a short task leaves no trace on the host.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::BlockTarget;
use muster_model::event::EventKind;
use muster_model::ids::HostId;

use crate::run::checkers::{Invariant, Violation};
use crate::run::external::Tag;
use crate::run::replay::ReplayedLog;

/// Blocks of a run and violations of them.
#[derive(Default)]
pub(super) struct BlockChecker {
    /// Number of blocks of hosts.
    pub(super) blocks: usize,
    /// Placements on a blocked host.
    pub(super) violations: Vec<Violation>,
    /// Names of the currently blocked hosts.
    closed: BTreeSet<String>,
}

impl BlockChecker {
    /// Checks all received events. `names`: the hosts that the run may have blocked.
    pub(super) fn of(truth: &ReplayedLog, names: &BTreeMap<HostId, String>, tag: &Tag) -> Self {
        let mut blocked = Self::default();
        for event in truth.events.values().flatten() {
            // Event kinds unknown to this build are not checked here.
            if let Ok(kind) = EventKind::try_from(event.clone()) {
                blocked.apply(&kind, names, tag);
            }
        }
        blocked
    }

    fn apply(&mut self, kind: &EventKind, names: &BTreeMap<HostId, String>, tag: &Tag) {
        match kind {
            EventKind::Blocked {
                target: BlockTarget::Host(name),
                block,
            } => {
                if tag.has_written(&block.author, &block.reason) {
                    self.blocks += 1;
                    self.closed.insert(name.clone());
                } else {
                    // From here on the block belongs to another user.
                    self.closed.remove(name);
                }
            }
            EventKind::Unblocked {
                target: BlockTarget::Host(name),
                ..
            } => {
                self.closed.remove(name);
            }
            EventKind::AttemptPlaced {
                job, epoch, hosts, ..
            } => {
                let what = format!("attempt {epoch} of job {job}");
                for host in hosts {
                    self.came(&what, *host, names);
                }
            }
            EventKind::MemberSwapped {
                job, member, host, ..
            } => self.came(&format!("member {member} of job {job}"), *host, names),
            _ => {}
        }
    }

    fn came(&mut self, what: &str, host: HostId, names: &BTreeMap<HostId, String>) {
        let name = names.get(&host).filter(|name| self.closed.contains(*name));
        if let Some(name) = name {
            self.violations.push(Violation {
                invariant: Invariant::Progress,
                text: format!("{what} was placed on {name} while the run had blocked it"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_model::command::Block;
    use muster_model::ids::{AttemptEpoch, JobId, Revision, UnitIndex};
    use muster_model::time::TimeMs;
    use muster_proto::v1;

    use super::*;

    const NAME: &str = "node01";

    fn put(author: &str, reason: String) -> EventKind {
        EventKind::Blocked {
            target: BlockTarget::Host(NAME.to_owned()),
            block: Block {
                reason,
                author: author.to_owned(),
                evidence: String::new(),
                since: TimeMs(0),
                expires_at: None,
                drain_deadline: None,
                planned: None,
            },
        }
    }

    fn lifted() -> EventKind {
        EventKind::Unblocked {
            target: BlockTarget::Host(NAME.to_owned()),
            author: "ada".to_owned(),
        }
    }

    fn placed(hosts: &[u32]) -> EventKind {
        EventKind::AttemptPlaced {
            job: JobId(3),
            unit: UnitIndex(0),
            epoch: AttemptEpoch(4),
            number: 1,
            hosts: hosts.iter().copied().map(HostId).collect(),
            gpus: 1,
            resumes_step: None,
        }
    }

    /// Number of blocks and of violations.
    fn counts(tag: &Tag, kinds: &[EventKind]) -> (usize, usize) {
        let events = (1..).zip(kinds);
        let events = events.map(|(at, kind)| (Revision(at), vec![v1::Event::from(kind)]));
        let truth = ReplayedLog {
            events: events.collect(),
            ..ReplayedLog::default()
        };
        let names = BTreeMap::from([(HostId(1), NAME.to_owned())]);
        let blocked = BlockChecker::of(&truth, &names, tag);
        (blocked.blocks, blocked.violations.len())
    }

    #[test]
    fn a_placement_on_a_blocked_host_is_a_violation_however_short_the_block() {
        let tag = Tag::new("ada", None);
        let ours = || put("ada", tag.reason());
        let well = [
            placed(&[1]),
            ours(),
            placed(&[2]),
            lifted(),
            placed(&[2, 1]),
        ];
        assert_eq!(counts(&tag, &well), (1, 0));
        let badly = [ours(), placed(&[2, 1]), lifted()];
        assert_eq!(counts(&tag, &badly), (1, 1));
    }

    #[test]
    fn only_blocks_of_the_run_are_judged() {
        let tag = Tag::new("ada", None);
        let theirs = || put("bob", "driver 580".to_owned());
        assert_eq!(counts(&tag, &[theirs(), placed(&[1])]), (0, 0));
        let replaced = [put("ada", tag.reason()), theirs(), placed(&[1])];
        assert_eq!(counts(&tag, &replaced), (1, 0));
    }
}
