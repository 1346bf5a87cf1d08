//! Membership changes: one at a time, in steps that are safe if the leader crashes between any two of them.
//!
//! 1. The current replicas are recorded in the log, when a change is requested and after each one: a later
//!    leader then knows which ids were ever used, and events show who joined and left.
//! 2. Before voters change, a majority of the future voters is sent all heartbeat times, and from then on no
//!    heartbeat is acknowledged that they have not stored. Otherwise a later leader, which asks only them,
//!    could consider a lease expired that an acknowledgement has extended.
//! 3. The change is proposed: two memberships, of which the first, joint one needs majorities of both sets of
//!    voters.
//!
//! A leader that dies before the third step leaves nothing behind but a learner. One that dies within it
//! leaves a joint membership, which the next leader finishes.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use muster_engine::state::State;
use muster_model::command::{Command, ReplicaRecord};
use muster_model::ids::ReplicaId;
use muster_raft_store::{ChangePlan, Handle, MemberChange, MembershipError, Peer, Status};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::leader::batch::CommandBatch;
use crate::leader::session::{ChangeError, ReplicaChange, ReplicasChanged, ToWorker};
use crate::leader::term::Term;
use crate::leader::{Clock, PeerLinks, telemetry};

/// Longest time for the future voters to store the heartbeat times, in milliseconds.
pub const CHANGE_MS_MAX: u64 = 2_000;
/// Pause before another attempt to finish a change that an earlier leader began.
const FINISH_REST: Duration = Duration::from_millis(100);

type Reply = oneshot::Sender<Result<ReplicasChanged, ChangeError>>;

/// The change of the replicas in progress; at most one.
pub(super) struct MembershipChange {
    work: Option<PendingChange>,
    /// Time of the next check whether an earlier leader, or a proposal with an unknown outcome, left a change
    /// unfinished; `None` if that is known.
    check_at: Option<Instant>,
    /// Whether the replicas may differ from those recorded in the log.
    is_unrecorded: bool,
}

impl Default for MembershipChange {
    /// A new leader has to check for an unfinished change.
    fn default() -> Self {
        Self {
            work: None,
            check_at: Some(Instant::now()),
            is_unrecorded: true,
        }
    }
}

struct PendingChange {
    /// Description for messages.
    what: String,
    change: Option<(MemberChange, ChangePlan)>,
    /// Recipients of the result, including callers that repeated the request.
    replies: Vec<Reply>,
    stage: Stage,
}

enum Stage {
    /// The current replicas are not recorded yet.
    Recording,
    /// The future voters have not stored all heartbeat times yet.
    CatchingUp { until: Instant },
    /// The change is proposed.
    Committing(BoxFuture<'static, Result<(), MembershipError>>),
}

impl MembershipChange {
    /// Resolves with the result of a proposal; pends forever if none is outstanding.
    pub(super) async fn committed(&mut self) -> Result<(), MembershipError> {
        match self.work.as_mut().map(|work| &mut work.stage) {
            Some(Stage::Committing(answer)) => answer.await,
            _ => std::future::pending().await,
        }
    }

    /// Time of the next action without input.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.work.as_ref().map(|work| &work.stage) {
            Some(Stage::CatchingUp { until }) => Some(*until),
            Some(_) => None,
            None => self.check_at,
        }
    }

    fn is_recording(&self) -> bool {
        matches!(&self.work, Some(work) if matches!(work.stage, Stage::Recording))
    }
}

impl PendingChange {
    fn reply(self, result: Result<ReplicasChanged, ChangeError>) {
        telemetry::replicas_changed(result.is_ok());
        match &result {
            Ok(_) => tracing::info!(what = self.what, "membership changed"),
            Err(error) => tracing::warn!(what = self.what, %error, "membership change failed"),
        }
        for reply in self.replies {
            // The caller may be gone; a repeated request gets the result.
            drop(reply.send(result.clone()));
        }
    }

    fn succeeded(self) {
        let warning = self.change.as_ref().and_then(|(_, plan)| plan.warning());
        self.reply(Ok(ReplicasChanged {
            changed: true,
            warning,
        }));
    }
}

impl<P: PeerLinks, C: Clock> Term<'_, P, C> {
    /// Begins a change requested by an admin, or refuses it.
    pub(super) fn begin_change(&mut self, state: &State, requested: ReplicaChange) {
        let ReplicaChange {
            change,
            force,
            reply,
        } = requested;
        if let Some(work) = &mut self.membership_change.work
            && matches!(&work.change, Some((known, _)) if *known == change)
        {
            work.replies.push(reply);
            return;
        }
        let planned = match &self.membership_change.work {
            Some(work) => Err(ChangeError::Busy {
                under_way: work.what.clone(),
            }),
            None => check_id(state, &self.parts.handle.status(), &change)
                .and_then(|()| Ok(self.parts.handle.plan_change(&change, force)?)),
        };
        let nothing_to_do = match planned {
            Ok(plan) if !plan.is_done => {
                tracing::info!(%change, voters = ?plan.voters, "membership change started");
                self.membership_change.is_unrecorded = true;
                self.membership_change.work = Some(PendingChange {
                    what: change.to_string(),
                    change: Some((change, plan)),
                    replies: vec![reply],
                    stage: Stage::Recording,
                });
                return;
            }
            Ok(_) => Ok(()),
            Err(error) if is_already_removed(state, &change, &error) => Ok(()),
            Err(error) => Err(error),
        };
        let answer = nothing_to_do.map(|()| ReplicasChanged {
            changed: false,
            warning: None,
        });
        // The caller may be gone.
        drop(reply.send(answer));
    }

    /// Records the current replicas in the log, if requested and if they differ from the recorded ones.
    pub(super) fn record_replicas(&mut self, state: &State, batch: &mut CommandBatch) {
        let is_wanted = !state.replicas.is_empty() || self.membership_change.is_recording();
        if !is_wanted || !self.membership_change.is_unrecorded {
            return;
        }
        let status = self.parts.handle.status();
        if !is_settled(&status) {
            return;
        }
        let present = records(&status);
        if present == state.replicas.present {
            self.membership_change.is_unrecorded = false;
            return;
        }
        batch.extend(vec![Command::RecordReplicas {
            leader: self.fence.epoch,
            replicas: present,
        }]);
        self.sessions
            .send_all(|| ToWorker::Replicas(addresses(&status)));
    }

    /// Addresses of all replicas.
    pub(super) fn replica_addresses(&self) -> Vec<String> {
        addresses(&self.parts.handle.status())
    }

    /// Continues the change in progress, or one that an earlier leader left unfinished.
    pub(super) fn continue_change(&mut self) {
        let Some(mut work) = self.membership_change.work.take() else {
            return self.finish_interrupted_change();
        };
        let outcome = match work.stage {
            Stage::Recording => self.recorded(&mut work),
            Stage::CatchingUp { until } => self.propose_if_caught_up(&mut work, until),
            Stage::Committing(_) => Ok(()),
        };
        match outcome {
            Ok(()) => self.membership_change.work = Some(work),
            Err(error) => {
                self.rounds.drop_future_voters();
                work.reply(Err(error));
            }
        }
    }

    fn finish_interrupted_change(&mut self) {
        let now = Instant::now();
        if self.membership_change.check_at.is_none_or(|at| at > now) {
            return;
        }
        self.membership_change.check_at = Some(now + FINISH_REST);
        let status = self.parts.handle.status();
        if !is_committed(&status) {
            return;
        }
        if !status.membership_is_changing {
            // If the change was proposed, it shows in the membership by now.
            self.rounds.drop_future_voters();
            self.membership_change.check_at = None;
            return;
        }
        let handle = self.parts.handle.clone();
        self.membership_change.work = Some(PendingChange {
            what: "finishing an earlier leader's membership change".to_owned(),
            change: None,
            replies: Vec::new(),
            stage: Stage::Committing(async move { handle.finish_change().await }.boxed()),
        });
    }

    /// Continues once the current replicas are recorded.
    fn recorded(&mut self, work: &mut PendingChange) -> Result<(), ChangeError> {
        let status = self.parts.handle.status();
        let present = records(&status);
        let handle = &self.parts.handle;
        let Some((change, plan)) = &work.change else {
            return Ok(());
        };
        if !handle.with_state(|state| state.replicas.present == present) {
            return Ok(());
        }
        work.stage = if plan.moves_voters {
            let voters = plan.voters.iter().copied().map(ReplicaId);
            self.rounds.include_future_voters(voters.collect());
            Stage::CatchingUp {
                until: Instant::now() + Duration::from_millis(CHANGE_MS_MAX),
            }
        } else {
            Stage::Committing(commit(handle.clone(), change.clone(), plan.voters.clone()))
        };
        Ok(())
    }

    /// Proposes the change once the future voters have stored all heartbeat times.
    fn propose_if_caught_up(
        &mut self,
        work: &mut PendingChange,
        until: Instant,
    ) -> Result<(), ChangeError> {
        let Some((change, plan)) = &work.change else {
            return Ok(());
        };
        let newcomer = match change {
            MemberChange::Promote(id) | MemberChange::Replace { new: id, .. } => Some(*id),
            MemberChange::Add(_) | MemberChange::Remove(_) => None,
        };
        let has_reported = |id| self.rounds.format_of(ReplicaId(id)).is_some();
        if !self.rounds.future_voters_caught_up() || !newcomer.is_none_or(has_reported) {
            let limit_ms = CHANGE_MS_MAX;
            return if Instant::now() < until {
                Ok(())
            } else {
                Err(ChangeError::NotTakenOver { limit_ms })
            };
        }
        if let Some(id) = newcomer {
            self.check_build(id)?;
        }
        let handle = self.parts.handle.clone();
        work.stage = Stage::Committing(commit(handle, change.clone(), plan.voters.clone()));
        Ok(())
    }

    /// A voter must be able to read what the others write.
    fn check_build(&self, id: u64) -> Result<(), ChangeError> {
        let needed = self.rounds.level();
        match self.rounds.format_of(ReplicaId(id)) {
            Some(reads) if reads < needed => Err(ChangeError::OldBuild { id, reads, needed }),
            _ => Ok(()),
        }
    }

    /// Handles the result of a proposal of this leader.
    pub(super) fn change_concluded(&mut self, result: Result<(), MembershipError>) {
        let Some(work) = self.membership_change.work.take() else {
            return;
        };
        self.membership_change.is_unrecorded = true;
        match result {
            Ok(()) => {
                self.rounds.drop_future_voters();
                work.succeeded();
            }
            Err(error) => {
                // It is unknown whether the change was proposed: the membership will show it.
                self.membership_change.check_at = Some(Instant::now() + FINISH_REST);
                work.reply(Err(error.into()));
            }
        }
    }
}

fn commit(
    handle: Handle<State>,
    change: MemberChange,
    voters: BTreeSet<u64>,
) -> BoxFuture<'static, Result<(), MembershipError>> {
    let is_learner = |id| handle.status().learners.iter().any(|peer| peer.id == id);
    match change {
        MemberChange::Add(peer) => async move { handle.add_learner(peer).await }.boxed(),
        MemberChange::Remove(id) if is_learner(id) => {
            async move { handle.remove_member(id).await }.boxed()
        }
        _ => async move { handle.change_members(voters).await }.boxed(),
    }
}

/// Refuses an id of an earlier replica: it would count among the voters of old memberships, which a replica
/// passes through when it reads the log.
fn check_id(state: &State, status: &Status, change: &MemberChange) -> Result<(), ChangeError> {
    let MemberChange::Add(peer) = change else {
        return Ok(());
    };
    let members = status.voters.iter().chain(&status.learners);
    let newest = members.map(|member| member.id).max().unwrap_or_default();
    let highest = newest.max(state.replicas.highest.get());
    if status.member(peer.id).is_none() && peer.id <= highest {
        return Err(ChangeError::UsedId {
            id: peer.id,
            highest,
        });
    }
    Ok(())
}

/// Whether the replica to be removed was a member earlier and is gone already.
fn is_already_removed(state: &State, change: &MemberChange, error: &ChangeError) -> bool {
    let MemberChange::Remove(id) = change else {
        return false;
    };
    let is_unknown = matches!(
        error,
        ChangeError::Membership(MembershipError::UnknownMember { .. })
    );
    is_unknown && *id <= state.replicas.highest.get()
}

fn is_committed(status: &Status) -> bool {
    status.is_leader && status.membership_is_committed
}

fn is_settled(status: &Status) -> bool {
    is_committed(status) && !status.membership_is_changing
}

fn addresses(status: &Status) -> Vec<String> {
    let members = status.voters.iter().chain(&status.learners);
    members.map(|peer| peer.address.clone()).collect()
}

/// All replicas, ascending by id.
fn records(status: &Status) -> Vec<ReplicaRecord> {
    let record = |(peer, votes): (&Peer, bool)| ReplicaRecord {
        id: ReplicaId(peer.id),
        address: peer.address.clone(),
        votes,
    };
    let voters = status.voters.iter().map(|peer| (peer, true));
    let learners = status.learners.iter().map(|peer| (peer, false));
    let mut records: Vec<_> = voters.chain(learners).map(record).collect();
    records.sort_by_key(|record| record.id);
    records
}
