//! Properties of `apply`: random sequences of mostly plausible commands against a small naive model, with an
//! audit after every step, and determinism.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::apply::{Applied, apply};
use muster_engine::audit::audit;
use muster_engine::state::{Answer, State};
use muster_harness::draw_command;
use muster_model::command::{Command, MemberSwap};
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, GpuUuid, JobId, RequestId, TaskIndex, TaskKey, UnitId};
use muster_model::lifecycle::{JobPhase, UnitPhase};
use muster_model::spec::{Dependency, JobSpec, Pipeline};
use proptest::collection::vec;
use proptest::prelude::*;

/// Knowledge of a client that only observes answers and events.
#[derive(Default)]
struct Model {
    owners: BTreeMap<GpuUuid, (AttemptEpoch, TaskIndex)>,
    acknowledged: BTreeMap<JobId, JobSpec>,
    finished: BTreeMap<JobId, JobPhase>,
    ended_units: BTreeMap<UnitId, UnitPhase>,
    newest_epoch: BTreeMap<UnitId, AttemptEpoch>,
    newest_member: BTreeMap<TaskKey, AttemptEpoch>,
    answers: BTreeMap<RequestId, Answer>,
}

impl Model {
    fn observe(&mut self, state: &State, command: &Command, applied: &Applied) {
        if let (Command::Place(placement), Ok(_)) = (command, &applied.result) {
            let epoch = AttemptEpoch(applied.revision.get());
            self.placed(
                placement.unit_id(),
                epoch,
                placement.tasks.iter().map(|task| (task.task, &task.gpus)),
            );
        }
        if let (Command::SwapMember(swap), Ok(_)) = (command, &applied.result) {
            self.swapped(swap, AttemptEpoch(applied.revision.get()));
        }
        if let (Command::SubmitJob { request, spec }, Ok(answer)) = (command, &applied.result) {
            self.accepted(state, request.id, spec, answer);
        }
        if let (Command::SubmitPipeline { request, pipeline }, Ok(answer)) =
            (command, &applied.result)
        {
            self.accepted_whole(state, request.id, pipeline, answer);
        }
        for (revision, events) in state.events.iter() {
            for event in events.iter().filter(|_| revision == applied.revision) {
                self.event(state, &event.kind);
            }
        }
        self.compare(state);
    }

    fn placed<'a>(
        &mut self,
        unit: UnitId,
        epoch: AttemptEpoch,
        tasks: impl Iterator<Item = (TaskIndex, &'a Vec<GpuUuid>)>,
    ) {
        let earlier = self.newest_epoch.insert(unit, epoch);
        assert!(earlier < Some(epoch), "epochs of {unit} increase");
        for (task, gpus) in tasks {
            let job = unit.job;
            self.begun(TaskKey { job, task }, epoch);
            self.given(epoch, task, gpus);
        }
    }

    /// Checks a member swap: the replacement has an epoch of its own, on GPUs that count as its gang's.
    fn swapped(&mut self, swap: &MemberSwap, epoch: AttemptEpoch) {
        let task = swap.task.task;
        let gang = self.newest_epoch.get(&swap.unit_id());
        assert_eq!(gang, Some(&swap.epoch), "the gang continues");
        let job = swap.job;
        self.begun(TaskKey { job, task }, epoch);
        self.given(swap.epoch, task, &swap.task.gpus);
    }

    fn begun(&mut self, task: TaskKey, epoch: AttemptEpoch) {
        let earlier = self.newest_member.insert(task, epoch);
        assert!(earlier < Some(epoch), "epochs of {task:?} increase");
    }

    fn given(&mut self, epoch: AttemptEpoch, task: TaskIndex, gpus: &[GpuUuid]) {
        let owner = (epoch, task);
        for gpu in gpus {
            let earlier = self.owners.insert(*gpu, owner);
            assert_eq!(earlier, None, "{gpu} was held when {owner:?} got it");
        }
    }

    fn accepted(&mut self, state: &State, request: RequestId, spec: &JobSpec, answer: &Answer) {
        let Answer::Job(job) = answer else {
            panic!("a submission was answered with {answer:?}");
        };
        if state.requests.get(request).map(|stored| stored.revision) == Some(state.revision) {
            self.answers.insert(request, answer.clone());
            self.acknowledged.insert(*job, spec.clone());
        } else {
            assert_eq!(self.answers.get(&request), Some(answer), "{request}");
            assert!(
                self.acknowledged.get(job).is_none_or(|first| first == spec),
                "another specification got job {job}"
            );
        }
    }

    fn accepted_whole(
        &mut self,
        state: &State,
        request: RequestId,
        pipeline: &Pipeline,
        answer: &Answer,
    ) {
        let Answer::Pipeline(id) = answer else {
            panic!("a pipeline was answered with {answer:?}");
        };
        if state.requests.get(request).map(|stored| stored.revision) != Some(state.revision) {
            assert_eq!(self.answers.get(&request), Some(answer), "{request}");
            return;
        }
        self.answers.insert(request, answer.clone());
        for (position, job) in (1..).zip(&pipeline.jobs) {
            let mut spec = job.spec.as_ref().clone();
            let after = job.after.iter().map(|dependency| Dependency {
                job: JobId(id.get() + 1 + u64::from(dependency.position)),
                when: dependency.when,
            });
            spec.lifecycle.after.extend(after);
            self.acknowledged.insert(JobId(id.get() + position), spec);
        }
        assert_eq!(state.revision.get(), id.get() + pipeline.jobs.len() as u64);
    }

    fn event(&mut self, state: &State, kind: &EventKind) {
        match kind {
            EventKind::UnitRetried { job, unit, .. } => {
                let id = UnitId::new(*job, *unit);
                let attempt = state.attempt(id);
                let attempt = attempt.expect("a unit that is restarted has an attempt");
                self.placed(
                    id,
                    attempt.epoch,
                    attempt.tasks.iter().map(|run| (run.task, &run.gpus)),
                );
            }
            EventKind::AttemptEnded { epoch, .. } => {
                self.owners.retain(|_, (owner, _)| owner != epoch);
            }
            EventKind::MemberVacated { epoch, task, .. } => {
                self.owners.retain(|_, owner| *owner != (*epoch, *task));
            }
            EventKind::JobFinished { job, phase, .. } => {
                let earlier = self.finished.insert(*job, *phase);
                assert_eq!(earlier, None, "job {job} ended twice");
            }
            EventKind::JobPruned { job } => {
                assert!(
                    self.finished.contains_key(job),
                    "job {job} was pruned while live"
                );
                self.acknowledged.remove(job);
                self.finished.remove(job);
                self.ended_units.retain(|unit, _| unit.job != *job);
            }
            _ => {}
        }
    }

    fn compare(&mut self, state: &State) {
        let held: BTreeMap<GpuUuid, (AttemptEpoch, TaskIndex)> = state
            .hosts
            .values()
            .flat_map(|host| &host.gpus)
            .filter_map(|gpu| {
                let holder = gpu.holder?;
                Some((gpu.uuid, (holder.epoch, holder.task)))
            })
            .collect();
        assert_eq!(held, self.owners);
        for (id, spec) in &self.acknowledged {
            let job = state.job(*id).expect("an acknowledged job is never lost");
            assert_eq!(*job.spec, *spec, "job {id} changed its specification");
        }
        assert_eq!(state.jobs.len(), self.acknowledged.len());
        for (id, phase) in &self.finished {
            assert_eq!(state.job(*id).map(|job| job.phase), Some(*phase));
        }
        self.compare_units(state);
    }

    fn compare_units(&mut self, state: &State) {
        for (id, phase) in &self.ended_units {
            let job = state.job(id.job);
            let now = job.and_then(|job| job.unit_phase(id.unit));
            assert_eq!(now, Some(*phase), "{id} left its final phase");
        }
        for job in state.jobs.values() {
            for (index, unit) in &job.units {
                if unit.phase.is_terminal() {
                    let id = UnitId::new(job.id, *index);
                    self.ended_units.insert(id, unit.phase);
                }
            }
        }
    }
}

/// A refused command changes only the revision, the time and what depends on the time alone.
fn assert_untouched(before: &State, after: &State) {
    let mut changed = before.parts().differing(&after.parts());
    changed.retain(|name| !["revision", "time"].contains(name));
    assert!(changed.is_empty(), "a refused command changed {changed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_sequence_of_commands_keeps_the_state_consistent(draws in vec(any::<u64>(), 1..200)) {
        let mut state = State::default();
        let mut model = Model::default();
        for entropy in draws {
            let before = state.clone();
            let hash = before.state_hash();
            let (time, command) = draw_command(&state, entropy);
            let applied = apply(&mut state, time, &command);
            prop_assert_eq!(applied.revision, state.revision);
            if !matches!(command, Command::SubmitPipeline { .. }) {
                prop_assert_eq!(applied.revision, before.revision.next());
            }
            prop_assert!(state.time >= before.time);
            let findings = audit(&state);
            prop_assert!(findings.is_empty(), "after {command:?}: {findings:#?}");
            if applied.result.is_err() {
                assert_untouched(&before, &state);
            }
            prop_assert_eq!(before.state_hash(), hash, "a clone changed with its original");
            model.observe(&state, &command, &applied);
        }
    }

    #[test]
    fn the_same_log_gives_the_same_state(draws in vec(any::<u64>(), 1..200)) {
        let mut first = State::default();
        let mut log = Vec::new();
        for entropy in draws {
            let (time, command) = draw_command(&first, entropy);
            let applied = apply(&mut first, time, &command);
            log.push((time, command, applied, first.state_hash()));
        }
        let mut second = State::default();
        for (time, command, applied, hash) in log {
            prop_assert_eq!(apply(&mut second, time, &command), applied);
            prop_assert_eq!(second.state_hash(), hash);
        }
        let differing = first.parts().differing(&second.parts());
        prop_assert!(differing.is_empty(), "{differing:?}");
        prop_assert!(first.index == second.index);
    }

    #[test]
    fn a_state_restored_from_its_parts_is_the_same(draws in vec(any::<u64>(), 1..200)) {
        let mut state = State::default();
        for entropy in draws {
            let (time, command) = draw_command(&state, entropy);
            apply(&mut state, time, &command);
        }
        let restored = State::restore(state.parts());
        let differing = state.parts().differing(&restored.parts());
        prop_assert!(differing.is_empty(), "{differing:?}");
        prop_assert_eq!(restored.state_hash(), state.state_hash());
        prop_assert!(restored.index == state.index && restored.topology == state.topology);
    }
}

#[test]
fn random_sequences_of_commands_reach_every_kind_of_end() {
    const COMMANDS: u64 = 200_000;
    /// A cluster with many permanent faults does little that is new.
    const COMMANDS_PER_CLUSTER: u64 = 20_000;
    let mut state = State::default();
    let mut seen = BTreeMap::new();
    let mut ends = BTreeSet::new();
    for entropy in 0..COMMANDS {
        if entropy.is_multiple_of(COMMANDS_PER_CLUSTER) {
            state = State::default();
        }
        let (time, command) = draw_command(&state, entropy);
        let before = state.revision;
        apply(&mut state, time, &command);
        let new_events = state
            .events
            .after(before)
            .expect("they have just been emitted");
        for event in new_events.flat_map(|(_, events)| events.iter()) {
            let text = format!("{:?}", event.kind);
            let name = text.split([' ', '{']).next().unwrap_or_default().to_owned();
            *seen.entry(name).or_insert(0) += 1;
            if let EventKind::JobFinished { phase, .. } = event.kind {
                ends.insert(phase);
            }
        }
    }
    assert!(seen.len() >= 35, "some events never happen: {seen:#?}");
    for rare in ["MemberSwapped", "BlockPlanned"] {
        assert!(seen.contains_key(rare), "{rare} never happens: {seen:#?}");
    }
    let all = [JobPhase::Succeeded, JobPhase::Failed, JobPhase::Cancelled];
    assert_eq!(ends, all.into(), "a way to end was never drawn");
}
