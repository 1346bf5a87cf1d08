//! What marks things as ours in a cluster that others use.

use muster_model::ids::RequestId;
use muster_model::limits::PRIORITY_MAX;
use muster_proto::v1;

/// Label with the run that a job is of.
const RUN_LABEL: &str = "muster-chaos-run";
/// Label with the request that a job is the answer to.
const REQUEST_LABEL: &str = "muster-chaos-request";
/// Time that tasks get to stop, in milliseconds: they save nothing.
const STOP_GRACE_MS: u64 = 1_000;

/// A run's mark. Two runs never have the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) struct Tag {
    /// Names the run.
    pub(super) run: String,
    /// Who submits, blocks and cancels: as the cluster has it, once it has said so.
    pub(in crate::run) user: String,
    /// Where jobs wait; the cluster's default if none is named.
    queue: Option<String>,
    salt: u128,
}

impl Tag {
    /// A new one.
    pub(super) fn new(user: &str, queue: Option<&str>) -> Self {
        let salt = uuid::Uuid::new_v4();
        let run = salt.simple().to_string();
        Self {
            run: run[..RUN_DIGITS].to_owned(),
            user: user.to_owned(),
            queue: queue.map(str::to_owned),
            salt: salt.as_u128(),
        }
    }

    /// A request id that no other run draws, whatever its seed: the cluster remembers them for a day.
    pub(in crate::run) fn salt(&self, drawn: RequestId) -> RequestId {
        RequestId(drawn.0 ^ self.salt)
    }

    /// The job of a request, marked. It is of the lowest priority: whoever else wants its place comes first.
    pub(in crate::run) fn mark(&self, request: RequestId, spec: v1::JobSpec) -> v1::JobSpec {
        let labels = [
            (RUN_LABEL.to_owned(), self.run.clone()),
            (REQUEST_LABEL.to_owned(), request.to_string()),
        ];
        v1::JobSpec {
            name: format!("{}-{}", self.name(), spec.name),
            user: self.user.clone(),
            queue: self.queue.clone(),
            priority: -PRIORITY_MAX,
            labels: labels.into(),
            partition_grace_ms: None,
            stop_grace_ms: Some(STOP_GRACE_MS),
            ..spec
        }
    }

    /// What the names of our jobs begin with.
    pub(super) fn name(&self) -> String {
        format!("chaos-{}", self.run)
    }

    /// Whether a job is of this run. A name proves nothing.
    pub(in crate::run) fn owns(&self, job: &v1::Job) -> bool {
        let labels = job.spec.as_ref().map(|spec| &spec.labels);
        labels.is_some_and(|labels| labels.get(RUN_LABEL) == Some(&self.run))
    }

    /// The request that a job of ours is the answer to.
    pub(super) fn request_of(job: &v1::Job) -> Option<RequestId> {
        job.spec.as_ref()?.labels.get(REQUEST_LABEL)?.parse().ok()
    }

    /// Why something is blocked, for those who meet it.
    pub(super) fn reason(&self) -> String {
        format!("chaos run {}: it is lifted within a minute", self.run)
    }

    /// Whether a block was put by this run.
    pub(super) fn has_put(&self, block: &v1::Block) -> bool {
        self.has_written(&block.author, &block.reason)
    }

    /// Whether it is this run that gives such a reason.
    pub(super) fn has_written(&self, author: &str, reason: &str) -> bool {
        author == self.user && reason == self.reason()
    }
}

/// Digits of a run's name.
const RUN_DIGITS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: v1::JobSpec) -> v1::Job {
        v1::Job {
            spec: Some(spec),
            ..v1::Job::default()
        }
    }

    #[test]
    fn only_what_this_run_marked_is_its_own() {
        let (ours, others) = (Tag::new("ada", None), Tag::new("ada", None));
        let marked = ours.mark(RequestId(7), v1::JobSpec::default());
        assert!(ours.owns(&job(marked.clone())));
        assert!(!others.owns(&job(marked.clone())));
        assert_eq!(Tag::request_of(&job(marked.clone())), Some(RequestId(7)));
        // Somebody else's job of that name.
        let alike = v1::JobSpec {
            name: marked.name,
            user: marked.user,
            ..v1::JobSpec::default()
        };
        assert!(!ours.owns(&job(alike)));
        assert!(!ours.owns(&v1::Job::default()));
        assert_ne!(ours.salt(RequestId(7)), others.salt(RequestId(7)));
    }

    #[test]
    fn a_block_is_ours_by_its_author_and_its_reason() {
        let tag = Tag::new("ada", None);
        let block = |author: &str, reason: String| v1::Block {
            author: author.to_owned(),
            reason,
            ..v1::Block::default()
        };
        assert!(tag.has_put(&block("ada", tag.reason())));
        assert!(!tag.has_put(&block("bob", tag.reason())));
        assert!(!tag.has_put(&block("ada", "driver 580".to_owned())));
    }
}
