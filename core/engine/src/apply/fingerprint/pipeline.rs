//! Fingerprints of pipelines.

use muster_model::spec::Pipeline;

use crate::apply::fingerprint::Fold;

impl Fold {
    pub(super) fn pipeline(&mut self, pipeline: &Pipeline) {
        self.text(&pipeline.name);
        self.number(pipeline.jobs.len() as u64);
        for job in &pipeline.jobs {
            self.number(job.after.len() as u64);
            for dependency in &job.after {
                self.number(u64::from(dependency.position));
                self.condition(dependency.when);
            }
            self.spec(&job.spec);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_model::spec::{Condition, Pipeline, PipelineDependency, PipelineJob};
    use muster_model::testing::single;

    use crate::apply::fingerprint::Request;

    fn pipeline(when: Condition) -> Pipeline {
        let job = |name: &str, after| PipelineJob {
            spec: Arc::new(single(name, 1, 0)),
            after,
        };
        let position = 0;
        Pipeline {
            name: "nightly".to_owned(),
            jobs: vec![
                job("a", Vec::new()),
                job("b", vec![PipelineDependency { position, when }]),
            ],
        }
    }

    /// Snapshots of released versions will store this number.
    #[test]
    fn the_fingerprint_is_frozen() {
        let of = |when| Request::SubmitPipeline(&pipeline(when)).fingerprint();
        assert_eq!(of(Condition::Succeeded), FROZEN);
        assert_ne!(of(Condition::Failed), FROZEN);
    }

    const FROZEN: u64 = 12_342_273_001_875_900_233;
}
