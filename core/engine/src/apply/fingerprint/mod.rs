//! Fingerprints of users' requests, which distinguish a repetition from another request under the same id.
//!
//! They are stored in snapshots, which outlive builds, so they are folded field by field and frozen by a
//! test: a new field of a request is folded only where it differs from its default.

mod configuration;
mod execution;
mod lifecycle;
mod pipeline;

use std::collections::BTreeMap;

use muster_model::access::{JoinGrant, TokenHash, User};
use muster_model::command::{Block, BlockTarget};
use muster_model::ids::JobId;
use muster_model::quota::QueueTree;
use muster_model::spec::{Execution, JobSpec, Layout, Lifecycle, Pipeline, Scheduling, TaskGroup};
use muster_model::time::TimeMs;
use muster_model::topology::Topology;
use xxhash_rust::xxh3::xxh3_64;

/// Prefix of pipeline fingerprints: the number of the command in the log.
const PIPELINE: u64 = 27;

/// The fingerprinted contents of a request.
pub(super) enum Request<'a> {
    Submit(&'a JobSpec),
    SubmitPipeline(&'a Pipeline),
    Cancel(JobId, &'a str, &'a str),
    Suspend(JobId, &'a str, &'a str),
    Resume(JobId, &'a str, &'a str),
    Block(&'a BlockTarget, &'a Block),
    /// The flag tells whether a planned block is cancelled.
    Unblock(&'a BlockTarget, &'a str, bool),
    SetQueue(&'a str, u64),
    ConfigureQueues(&'a str, &'a QueueTree),
    SetTopology(&'a str, &'a Topology),
    SetHealthRules(&'a str, &'a str, Option<u32>),
    ResetBreaker(&'a str, &'a str),
    AddUser(&'a str, &'a str, &'a User),
    RemoveUser(&'a str, &'a str),
    RotateToken(&'a str, &'a str, TokenHash),
    AddJoinToken(&'a str, &'a str, &'a JoinGrant),
    RevokeJoinToken(&'a str, &'a str),
    UseJoinToken(&'a str, &'a str, TokenHash),
}

impl Request<'_> {
    /// Returns the fingerprint of the request.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut fold = Fold(Vec::with_capacity(512));
        match self {
            Self::Submit(spec) => {
                fold.number(1);
                fold.spec(spec);
            }
            Self::SubmitPipeline(pipeline) => {
                fold.number(PIPELINE);
                fold.pipeline(pipeline);
            }
            Self::Cancel(job, author, reason) => fold.about(2, *job, [author, reason]),
            Self::Suspend(job, author, reason) => fold.about(8, *job, [author, reason]),
            Self::Resume(job, author, reason) => fold.about(9, *job, [author, reason]),
            Self::Block(target, block) => {
                fold.number(3);
                fold.target(target);
                fold.text(&block.reason);
                fold.text(&block.author);
                fold.text(&block.evidence);
                fold.option(block.expires_at.map(|TimeMs(time)| time));
                fold.option(block.drain_deadline.map(|TimeMs(time)| time));
                // Nothing is folded without a plan: requests of older builds keep their fingerprint.
                if let Some(planned) = &block.planned {
                    fold.number(planned.at.0);
                    fold.number(planned.notice_ms);
                }
            }
            Self::Unblock(target, author, planned) => {
                fold.number(if *planned { 12 } else { 4 });
                fold.target(target);
                fold.text(author);
            }
            Self::SetQueue(name, live_jobs_max) => {
                fold.number(5);
                fold.text(name);
                fold.number(*live_jobs_max);
            }
            Self::ConfigureQueues(author, tree) => {
                fold.number(6);
                fold.text(author);
                fold.tree(tree);
            }
            // The version of the shipped file depends on the leader and is not folded.
            Self::SetHealthRules(author, text, None) => fold.plain(10, [author, text]),
            Self::SetHealthRules(author, _, Some(_)) => fold.plain(10, [author, ""]),
            Self::ResetBreaker(author, pool) => fold.plain(11, [author, pool]),
            Self::AddUser(author, name, user) => fold.new_user([author, name], user),
            Self::RemoveUser(author, name) => fold.plain(14, [author, name]),
            Self::RotateToken(author, name, token) => {
                fold.plain(15, [author, name]);
                fold.0.extend_from_slice(&token.0);
            }
            Self::AddJoinToken(author, id, grant) => fold.new_join_token([author, id], grant),
            Self::RevokeJoinToken(author, id) => fold.plain(17, [author, id]),
            Self::UseJoinToken(id, host, token) => {
                fold.plain(18, [id, host]);
                fold.0.extend_from_slice(&token.0);
            }
            Self::SetTopology(author, topology) => {
                fold.number(7);
                fold.text(author);
                fold.topology(topology);
            }
        }
        xxh3_64(&fold.0)
    }
}

/// Fields in a fixed order: numbers as 8 little-endian bytes, variable-length values after their length, so
/// that no two requests fold alike.
struct Fold(Vec<u8>);

impl Fold {
    /// Folds a request that consists of texts only.
    fn plain(&mut self, kind: u64, texts: [&str; 2]) {
        self.number(kind);
        for text in texts {
            self.text(text);
        }
    }

    /// Folds a request about a job, with author and reason.
    fn about(&mut self, kind: u64, job: JobId, texts: [&str; 2]) {
        self.number(kind);
        self.number(job.get());
        for text in texts {
            self.text(text);
        }
    }

    fn new_user(&mut self, texts: [&str; 2], user: &User) {
        self.plain(13, texts);
        self.text(user.role.name());
        self.texts(user.queues.iter().collect::<Vec<_>>().into_iter());
        self.number(u64::from(user.token.is_some()));
        let hash = user.token.map_or([0; 32], |token| token.0);
        self.0.extend_from_slice(&hash);
    }

    fn new_join_token(&mut self, texts: [&str; 2], grant: &JoinGrant) {
        self.plain(16, texts);
        self.0.extend_from_slice(&grant.hash.0);
        self.number(grant.ttl_ms);
        self.number(u64::from(grant.uses_max));
        self.texts(grant.host_pattern.iter().collect::<Vec<_>>().into_iter());
    }

    fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn option(&mut self, value: Option<u64>) {
        self.number(u64::from(value.is_some()));
        self.number(value.unwrap_or(0));
    }

    fn texts<'a>(&mut self, texts: impl ExactSizeIterator<Item = &'a String>) {
        self.number(texts.len() as u64);
        for text in texts {
            self.text(text);
        }
    }

    fn map(&mut self, map: &BTreeMap<String, String>) {
        self.texts(map.keys());
        self.texts(map.values());
    }

    fn target(&mut self, target: &BlockTarget) {
        match target {
            BlockTarget::Host(name) => {
                self.number(0);
                self.text(name);
            }
            BlockTarget::Gpu(uuid) => {
                self.number(1);
                self.0.extend_from_slice(&uuid.0.to_le_bytes());
            }
        }
    }

    fn spec(&mut self, spec: &JobSpec) {
        self.text(&spec.name);
        self.text(&spec.user);
        self.text(&spec.queue);
        self.0
            .extend_from_slice(&i64::from(spec.priority).to_le_bytes());
        self.number(u64::from(spec.gang));
        self.number(u64::from(spec.retry.retries_max));
        self.number(spec.retry.backoff_ms);
        self.number(spec.partition_grace_ms);
        self.number(spec.stop_grace_ms);
        self.map(&spec.labels);
        self.number(spec.groups.len() as u64);
        for group in &spec.groups {
            self.group(group);
        }
        if spec.scheduling != Scheduling::default() {
            self.scheduling(&spec.scheduling);
        }
        if spec.lifecycle != Lifecycle::default() {
            self.lifecycle(&spec.lifecycle);
        }
    }

    fn group(&mut self, group: &TaskGroup) {
        self.text(&group.name);
        self.number(u64::from(group.count));
        self.number(u64::from(group.resources.gpus));
        self.texts(group.resources.gpu_models.iter());
        self.number(u64::from(group.resources.cpus_milli));
        self.number(group.resources.memory_mib);
        self.texts(group.command.iter());
        self.map(&group.environment);
        self.number(u64::from(group.working_directory.is_some()));
        self.text(group.working_directory.as_deref().unwrap_or(""));
        self.option(group.tasks_per_host_max.map(u64::from));
        if group.layout != Layout::default() {
            self.layout(&group.layout);
        }
        if group.execution != Execution::default() {
            self.execution(&group.execution);
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_model::command::Planned;
    use muster_model::ids::GpuUuid;
    use muster_model::quota::{
        Amounts, CellQuota, Guarantee, Limits, PinnedCell, QueueConfig, QueueOrder,
    };
    use muster_model::spec::{Packing, Within};
    use muster_model::testing::{gang, single};
    use muster_model::topology::{CellGroup, CellPlace, HostShape};

    use super::*;

    /// Snapshots of released versions hold these numbers: a change here breaks idempotency across an
    /// upgrade.
    #[test]
    fn fingerprints_are_frozen() {
        let mut spec = gang("train", 4, 2);
        spec.labels.insert("team".to_owned(), "vision".to_owned());
        spec.groups[0].working_directory = Some("/data".to_owned());
        spec.groups[0].tasks_per_host_max = Some(2);
        let host = BlockTarget::Host("node-0001".to_owned());
        let gpu = BlockTarget::Gpu(GpuUuid(7));
        let block = Block {
            reason: "fan noise".to_owned(),
            author: "grace".to_owned(),
            evidence: String::new(),
            since: TimeMs(0),
            expires_at: Some(TimeMs(60_000)),
            drain_deadline: None,
            planned: None,
        };
        let planned = Block {
            planned: Some(Planned {
                at: TimeMs(30_000),
                notice_ms: 5_000,
            }),
            ..block.clone()
        };
        let (tree, topology, asking) = (tree(), topology(), asking());
        let frozen = [
            (Request::Submit(&spec), 12_431_019_779_736_508_201),
            (
                Request::Submit(&single("one", 1, 0)),
                12_046_932_749_243_042_647,
            ),
            (
                Request::Cancel(JobId(7), "ada", "typo"),
                6_621_211_522_274_493_558,
            ),
            (Request::Block(&host, &block), 181_802_648_263_390_374),
            (Request::Block(&host, &planned), 679_290_011_356_500_837),
            (
                Request::Unblock(&host, "grace", true),
                5_371_555_783_106_317_877,
            ),
            (
                Request::Unblock(&gpu, "grace", false),
                7_692_321_478_948_412_085,
            ),
            (Request::SetQueue("research", 10), 5_046_152_900_565_992_767),
            (
                Request::ConfigureQueues("grace", &tree),
                2_492_274_521_848_843_306,
            ),
            (
                Request::SetTopology("grace", &topology),
                5_812_457_341_826_190_573,
            ),
            (Request::Submit(&asking), 17_422_446_276_910_869_646),
        ];
        let fingerprints: Vec<u64> = frozen.iter().map(|(it, _)| it.fingerprint()).collect();
        let expected: Vec<u64> = frozen.iter().map(|(_, number)| *number).collect();
        assert_eq!(fingerprints, expected);
    }

    /// As [`fingerprints_are_frozen`], of users and join tokens.
    #[test]
    fn fingerprints_of_access_are_frozen() {
        let user = User {
            role: muster_model::access::Role::User,
            queues: ["research".to_owned()].into(),
            token: Some(TokenHash([7; 32])),
        };
        let grant = JoinGrant {
            hash: TokenHash([7; 32]),
            ttl_ms: 60_000,
            uses_max: 20,
            host_pattern: Some("gpu-*".to_owned()),
        };
        let frozen = [
            (
                Request::AddUser("grace", "ada", &user),
                3_702_945_305_299_368_023,
            ),
            (
                Request::RemoveUser("grace", "ada"),
                1_599_501_388_863_798_001,
            ),
            (
                Request::RotateToken("grace", "ada", TokenHash([7; 32])),
                5_631_189_891_731_858_660,
            ),
            (
                Request::AddJoinToken("grace", "a1", &grant),
                6_157_743_407_220_574_735,
            ),
            (
                Request::RevokeJoinToken("grace", "a1"),
                462_799_339_060_585_414,
            ),
            (
                Request::UseJoinToken("a1", "gpu-1", TokenHash([7; 32])),
                8_385_448_079_205_335_175,
            ),
        ];
        for (request, expected) in frozen {
            assert_eq!(request.fingerprint(), expected);
        }
    }

    fn tree() -> QueueTree {
        let amounts = Amounts {
            gpus: 16,
            gpus_by_model: [("H100".to_owned(), 8)].into(),
            ..Amounts::default()
        };
        let research = QueueConfig {
            order: QueueOrder::Fair,
            guarantee: Guarantee::Amounts(amounts),
            user_limit: Limits {
                gpus: Some(8),
                ..Limits::default()
            },
            ..QueueConfig::default()
        };
        let cells = vec![CellQuota {
            level: "host".to_owned(),
            gpu_model: "H100".to_owned(),
            gpus: 8,
            count: 2,
            pinned: vec![PinnedCell {
                name: "gold".to_owned(),
                cell: "node-0001".to_owned(),
            }],
        }];
        let vc = QueueConfig {
            guarantee: Guarantee::Cells(cells),
            borrow: false,
            ..QueueConfig::default()
        };
        QueueTree {
            queues: [("research".to_owned(), research), ("vc".to_owned(), vc)].into(),
            history_half_life_ms: Some(3_600_000),
            defragment: None,
        }
    }

    fn topology() -> Topology {
        Topology {
            above: vec!["rack".to_owned()],
            inside: vec!["socket".to_owned()],
            places: vec![CellPlace {
                cell: vec!["rack-1".to_owned()],
                hosts: vec!["node-0001".to_owned()],
            }],
            shapes: vec![HostShape {
                gpus: 2,
                groups: vec![CellGroup {
                    level: "socket".to_owned(),
                    gpus: vec![0, 1],
                }],
                ..HostShape::default()
            }],
        }
    }

    fn asking() -> JobSpec {
        let mut spec = gang("train", 4, 2);
        let within = Within {
            level: "rack".to_owned(),
            required: true,
        };
        spec.scheduling = Scheduling {
            run_time_ms_max: Some(60_000),
            within: Some(within.clone()),
            packing: Packing::Spread,
            hosts_excluded: vec!["node-0002".to_owned()],
            pinned_cell: Some("gold".to_owned()),
            ..Scheduling::default()
        };
        spec.groups[0].layout = Layout {
            count_min: Some(2),
            within: Some(within),
            within_tasks: Some(2),
            gpus: vec![GpuUuid(7)],
        };
        spec
    }

    #[test]
    fn what_is_shifted_between_fields_folds_differently() {
        let of = |author, reason| Request::Cancel(JobId(1), author, reason).fingerprint();
        assert_ne!(of("ab", "c"), of("a", "bc"));
    }
}
