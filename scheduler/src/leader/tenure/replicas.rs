//! Changing the replicas: one change at a time, in steps that a crash between any two of them leaves safe.
//!
//! 1. Which replicas there are is written down in the log, once a change is asked for and after each one: a later leader
//!    knows which ids were ever used, and everybody sees who came and went.
//! 2. Before voters change, a majority of the voters to come is told when every host was heard, and from then on no beat is
//!    acknowledged that they do not remember. Else a later leader, that asks only them, could take a lease for over that
//!    an acknowledgement has prolonged.
//! 3. The change is proposed: two memberships, of which the first, joint one needs majorities of both sets of voters.
//!
//! A leader that dies before the third step leaves nothing behind but a learner. One that dies within it leaves a joint
//! membership, which the next leader finishes.

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
use crate::leader::feature_level::lowered;
use crate::leader::session::{ChangeError, ReplicaChange, ReplicasChanged, ToWorker};
use crate::leader::tenure::Tenure;
use crate::leader::{Clock, PeerLinks, telemetry};

/// Longest that the voters to come may take to take over when hosts were heard, in milliseconds.
pub const CHANGE_MS_MAX: u64 = 2_000;
/// Rest before a change that a lost leader began is tried to be finished again.
const FINISH_REST: Duration = Duration::from_millis(100);

type Reply = oneshot::Sender<Result<ReplicasChanged, ChangeError>>;

/// The change of the replicas that is in work; at most one.
pub(super) struct Reform {
    work: Option<Work>,
    /// When to look whether an earlier leader, or a proposal whose outcome is not known, left a change half done; none if
    /// that is known.
    look_at: Option<Instant>,
    /// Whether others may be replicas than those that are written down.
    is_unrecorded: bool,
}

impl Default for Reform {
    /// A new leader knows nothing of what was left.
    fn default() -> Self {
        Self {
            work: None,
            look_at: Some(Instant::now()),
            is_unrecorded: true,
        }
    }
}

struct Work {
    /// What is done, for people.
    what: String,
    change: Option<(MemberChange, ChangePlan)>,
    /// Who waits for it: whoever repeats the request, too.
    replies: Vec<Reply>,
    stage: Stage,
}

enum Stage {
    /// Which replicas there are is not written down yet.
    Recording,
    /// Voters to come do not remember yet what this leader knows.
    Widening { until: Instant },
    /// It is proposed.
    Committing(BoxFuture<'static, Result<(), MembershipError>>),
}

impl Reform {
    /// What became of a proposal; never, if none is awaited.
    pub(super) async fn committed(&mut self) -> Result<(), MembershipError> {
        match self.work.as_mut().map(|work| &mut work.stage) {
            Some(Stage::Committing(answer)) => answer.await,
            _ => std::future::pending().await,
        }
    }

    /// When something is to be done here though nothing comes in.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.work.as_ref().map(|work| &work.stage) {
            Some(Stage::Widening { until }) => Some(*until),
            Some(_) => None,
            None => self.look_at,
        }
    }

    fn is_recording(&self) -> bool {
        matches!(&self.work, Some(work) if matches!(work.stage, Stage::Recording))
    }
}

impl Work {
    fn tell(self, result: Result<ReplicasChanged, ChangeError>) {
        telemetry::replicas_changed(result.is_ok());
        match &result {
            Ok(_) => tracing::info!(what = self.what, "the replicas have changed"),
            Err(error) => tracing::warn!(what = self.what, %error, "the replicas are not changed"),
        }
        for reply in self.replies {
            // Whoever asked may have gone; asking again tells.
            drop(reply.send(result.clone()));
        }
    }

    fn succeeded(self) {
        let warning = self.change.as_ref().and_then(|(_, plan)| plan.warning());
        self.tell(Ok(ReplicasChanged {
            changed: true,
            warning,
        }));
    }
}

impl<P: PeerLinks, C: Clock> Tenure<'_, P, C> {
    /// Begins a change that an admin asks for, or says why not.
    pub(super) fn take_change(&mut self, state: &State, asked: ReplicaChange) {
        let ReplicaChange {
            change,
            force,
            reply,
        } = asked;
        if let Some(work) = &mut self.reform.work
            && matches!(&work.change, Some((known, _)) if *known == change)
        {
            work.replies.push(reply);
            return;
        }
        let planned = match &self.reform.work {
            Some(work) => Err(ChangeError::Busy {
                under_way: work.what.clone(),
            }),
            None => check_id(state, &self.parts.handle.status(), &change)
                .and_then(|()| Ok(self.parts.handle.plan_change(&change, force)?)),
        };
        let planned = planned.and_then(|plan| {
            let is_readable = plan.is_done || !self.record(Vec::new()).is_empty();
            is_readable.then_some(plan).ok_or(ChangeError::NotYet)
        });
        let answer = match planned {
            Ok(plan) if !plan.is_done => {
                tracing::info!(%change, voters = ?plan.voters, "the replicas are being changed");
                self.reform.is_unrecorded = true;
                self.reform.work = Some(Work {
                    what: change.to_string(),
                    change: Some((change, plan)),
                    replies: vec![reply],
                    stage: Stage::Recording,
                });
                return;
            }
            Ok(_) => Ok(()),
            Err(error) if is_gone_already(state, &change, &error) => Ok(()),
            Err(error) => Err(error),
        };
        let answer = answer.map(|()| ReplicasChanged {
            changed: false,
            warning: None,
        });
        // Whoever asked may have gone.
        drop(reply.send(answer));
    }

    /// Writes down which replicas there are, if that is wanted and they are others than those that are written down.
    pub(super) fn record_replicas(&mut self, state: &State, batch: &mut CommandBatch) {
        let is_wanted = !state.replicas.is_empty() || self.reform.is_recording();
        if !is_wanted || !self.reform.is_unrecorded {
            return;
        }
        let status = self.parts.handle.status();
        if !is_settled(&status) {
            return;
        }
        let present = records(&status);
        if present == state.replicas.present {
            self.reform.is_unrecorded = false;
            return;
        }
        batch.extend(self.record(present));
        self.sessions
            .send_all(|| ToWorker::Replicas(addresses(&status)));
    }

    /// Where all replicas are.
    pub(super) fn replica_addresses(&self) -> Vec<String> {
        addresses(&self.parts.handle.status())
    }

    /// Goes on with the change in work, or with one that an earlier leader left half done.
    pub(super) fn go_on_reforming(&mut self) {
        let Some(mut work) = self.reform.work.take() else {
            return self.finish_what_was_left();
        };
        let outcome = match work.stage {
            Stage::Recording => self.recorded(&mut work),
            Stage::Widening { until } => self.widened(&mut work, until),
            Stage::Committing(_) => Ok(()),
        };
        match outcome {
            Ok(()) => self.reform.work = Some(work),
            Err(error) => {
                self.rounds.narrow();
                work.tell(Err(error));
            }
        }
    }

    fn finish_what_was_left(&mut self) {
        let now = Instant::now();
        if self.reform.look_at.is_none_or(|at| at > now) {
            return;
        }
        self.reform.look_at = Some(now + FINISH_REST);
        let status = self.parts.handle.status();
        if !is_committed(&status) {
            return;
        }
        if !status.membership_is_changing {
            // What was proposed shows in the membership by now, if it was.
            self.rounds.narrow();
            self.reform.look_at = None;
            return;
        }
        let handle = self.parts.handle.clone();
        self.reform.work = Some(Work {
            what: "finishing a change that an earlier leader began".to_owned(),
            change: None,
            replies: Vec::new(),
            stage: Stage::Committing(async move { handle.finish_change().await }.boxed()),
        });
    }

    /// Goes on once it is written down which replicas there are.
    fn recorded(&mut self, work: &mut Work) -> Result<(), ChangeError> {
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
            self.rounds.widen(voters.collect());
            Stage::Widening {
                until: Instant::now() + Duration::from_millis(CHANGE_MS_MAX),
            }
        } else {
            Stage::Committing(commit(handle.clone(), change.clone(), plan.voters.clone()))
        };
        Ok(())
    }

    /// Proposes the change once the voters to come remember what this leader knows.
    fn widened(&mut self, work: &mut Work, until: Instant) -> Result<(), ChangeError> {
        let Some((change, plan)) = &work.change else {
            return Ok(());
        };
        let newcomer = match change {
            MemberChange::Promote(id) | MemberChange::Replace { new: id, .. } => Some(*id),
            MemberChange::Add(_) | MemberChange::Remove(_) => None,
        };
        let has_said = |id| self.rounds.format_of(ReplicaId(id)).is_some();
        if !self.rounds.is_wide() || !newcomer.is_none_or(has_said) {
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

    /// A voter must read what the others write.
    fn check_build(&self, id: u64) -> Result<(), ChangeError> {
        let needed = self.rounds.level();
        match self.rounds.format_of(ReplicaId(id)) {
            Some(reads) if reads < needed => Err(ChangeError::OldBuild { id, reads, needed }),
            _ => Ok(()),
        }
    }

    /// A proposal of this leader's has come to an end.
    pub(super) fn reformed(&mut self, result: Result<(), MembershipError>) {
        let Some(work) = self.reform.work.take() else {
            return;
        };
        self.reform.is_unrecorded = true;
        match result {
            Ok(()) => {
                self.rounds.narrow();
                work.succeeded();
            }
            Err(error) => {
                // Whether it was proposed is not known: the membership will tell.
                self.reform.look_at = Some(Instant::now() + FINISH_REST);
                work.tell(Err(error.into()));
            }
        }
    }

    fn record(&self, replicas: Vec<ReplicaRecord>) -> Vec<Command> {
        let command = Command::RecordReplicas {
            leader: self.fence.epoch,
            replicas,
        };
        lowered(vec![command], self.rounds.level())
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

/// An id that was another replica's would count among the voters of memberships of that time, which a replica passes
/// through when it reads the log.
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

/// Whether somebody is to be removed who was a member once.
fn is_gone_already(state: &State, change: &MemberChange, error: &ChangeError) -> bool {
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
