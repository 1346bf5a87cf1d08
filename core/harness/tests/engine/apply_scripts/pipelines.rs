//! Script commands for pipelines.

use std::fmt::Write as _;
use std::sync::Arc;

use muster_harness::single;
use muster_model::command::Command;
use muster_model::ids::PipelineId;
use muster_model::spec::{Condition, Pipeline, PipelineDependency, PipelineJob};

use crate::apply_scripts::runner::{Args, Result, Runner};

impl Runner {
    /// `pipeline NAME "JOB[:after_ok=JOB+JOB][:after_any=...][:outside=JOB],..." [queue=] [gpus=]`; earlier
    /// jobs of the pipeline are referred to by name, `outside` is a job submitted before.
    pub(crate) fn pipeline(&mut self, args: &mut Args<'_>) -> Result<Command> {
        let (name, list): (String, String) = (args.positional()?, args.positional()?);
        let queue: Option<String> = args.key("queue")?;
        let gpus = args.key_or("gpus", 0)?;
        let mut jobs: Vec<PipelineJob> = Vec::new();
        for text in list.split(',') {
            let mut words = text.split(':');
            let mut spec = single(words.next().unwrap_or_default(), 1, gpus);
            spec.queue = queue.clone().unwrap_or(spec.queue);
            let mut after = Vec::new();
            for word in words {
                let (when, names) = word.split_once('=').ok_or("a condition is WHEN=JOB+JOB")?;
                for other in names.split('+') {
                    match condition(when) {
                        Some(when) => after.push(PipelineDependency {
                            position: position(&jobs, other)?,
                            when,
                        }),
                        None => spec.lifecycle.after.push(muster_model::spec::Dependency {
                            job: self.known(other)?,
                            when: Condition::Succeeded,
                        }),
                    }
                }
            }
            let spec = Arc::new(spec);
            jobs.push(PipelineJob { spec, after });
        }
        Ok(Command::SubmitPipeline {
            request: self.request(args)?,
            pipeline: Arc::new(Pipeline { name, jobs }),
        })
    }

    /// Registers the jobs of a pipeline by name.
    pub(crate) fn remember(&mut self, pipeline: PipelineId) {
        let jobs: Vec<_> = self.cluster.state.jobs_of(pipeline).collect();
        let named = jobs.iter().map(|job| (job.spec.name.clone(), job.id));
        self.jobs.extend(named.collect::<Vec<_>>());
    }

    /// Every pipeline with its jobs.
    pub(crate) fn pipelines(&self) -> String {
        let state = &self.cluster.state;
        let mut text = String::new();
        for id in state.index.pipelines.keys() {
            for job in state.jobs_of(*id) {
                let name = job.pipeline.as_ref().map_or("", |mark| &mark.name);
                let skipped = if job.is_skipped() { ", skipped" } else { "" };
                let open = state.index.open_of(job.id);
                let _ = writeln!(
                    text,
                    "pipeline {id} {name}: job {} {} {}{skipped}, waits for {open:?}",
                    job.id, job.spec.name, job.phase
                );
            }
        }
        text
    }
}

fn condition(word: &str) -> Option<Condition> {
    let all = [Condition::Succeeded, Condition::Ended, Condition::Failed];
    all.into_iter().find(|when| when.name() == word)
}

/// Returns the position of a job by its name; a script may give an invalid position as a number.
fn position(jobs: &[PipelineJob], name: &str) -> Result<u32> {
    match jobs.iter().position(|job| job.spec.name == name) {
        Some(position) => Ok(u32::try_from(position)?),
        None => Ok(name.parse()?),
    }
}
