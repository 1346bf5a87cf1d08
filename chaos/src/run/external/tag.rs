//! Tag of a run's jobs and blocks in a cluster that others use.

use muster_model::ids::RequestId;
use muster_model::limits::PRIORITY_MAX;
use muster_proto::v1;

/// Label of a job with its run.
const RUN_LABEL: &str = "muster-chaos-run";
/// Label of a job with the request that created it.
const REQUEST_LABEL: &str = "muster-chaos-request";
/// Time for tasks to stop, in milliseconds: they save nothing.
const STOP_GRACE_MS: u64 = 1_000;

/// Identity of a run; no two runs share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) struct Tag {
    /// Name of the run.
    pub(super) run: String,
    /// User for submits, blocks and cancels, in the cluster's spelling once it is known.
    pub(in crate::run) user: String,
    /// Queue of the jobs; the cluster's default if `None`.
    queue: Option<String>,
    salt: u128,
}

impl Tag {
    /// Creates a unique tag.
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

    /// A request id that no other run draws, whatever its seed: the cluster stores request ids for a day.
    pub(in crate::run) fn salt(&self, drawn: RequestId) -> RequestId {
        RequestId(drawn.0 ^ self.salt)
    }

    /// The job of a request with the tag. It has the lowest priority: jobs of others are placed first.
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

    /// Prefix of the names of our jobs.
    pub(super) fn name(&self) -> String {
        format!("chaos-{}", self.run)
    }

    /// Whether a job belongs to this run. Its name alone proves nothing.
    pub(in crate::run) fn owns(&self, job: &v1::Job) -> bool {
        let labels = job.spec.as_ref().map(|spec| &spec.labels);
        labels.is_some_and(|labels| labels.get(RUN_LABEL) == Some(&self.run))
    }

    /// The request that created one of our jobs.
    pub(super) fn request_of(job: &v1::Job) -> Option<RequestId> {
        job.spec.as_ref()?.labels.get(REQUEST_LABEL)?.parse().ok()
    }

    /// Reason of a block, shown to operators.
    pub(super) fn reason(&self) -> String {
        format!("chaos run {}: it is lifted within a minute", self.run)
    }

    /// Whether a block was set by this run.
    pub(super) fn has_put(&self, block: &v1::Block) -> bool {
        self.has_written(&block.author, &block.reason)
    }

    /// Whether author and reason are those of this run.
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
        // Another user's job of that name.
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
