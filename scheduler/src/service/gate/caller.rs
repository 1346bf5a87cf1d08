//! Callers and their rights on jobs.

use std::collections::BTreeSet;
use std::fmt;

use muster_engine::rights::may_enter;
use muster_engine::state::{Job, State};
use muster_model::access::{Role, User};
use muster_model::ids::JobId;
use muster_proto::status;
use tonic::{Code, Request, Status};

use crate::service::gate::federated::Federated;
use crate::service::jobs::find;

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Authentication is off: callers are trusted in who they say they are, and may do everything.
    AuthenticationOff,
    /// Another replica, or any holder of a replica's certificate.
    Replica,
    /// The worker of the host of this name.
    Worker(String),
    /// The user of this name.
    User(String),
    /// A user authenticated by an identity provider.
    Federated(Federated),
    /// Unauthenticated.
    Unauthenticated,
}

/// Objects that a write acts on, as far as rights depend on them.
#[derive(Debug)]
pub(crate) enum Scope<'a> {
    /// Whatever the role for the method permits.
    Cluster,
    /// Submits to these queues.
    Queues(Vec<&'a str>),
    /// Acts on this job.
    Job(JobId),
}

/// The caller of a request; unauthenticated if the request did not pass the gate.
pub(crate) fn caller_of<T>(request: &Request<T>) -> Caller {
    let caller = request.extensions().get::<Caller>();
    caller.cloned().unwrap_or(Caller::Unauthenticated)
}

impl Caller {
    /// The user's role; `None` for other callers, and for users removed meanwhile.
    pub(crate) fn role(&self, state: &State) -> Option<Role> {
        self.user(state).map(|(_, user)| user.role)
    }

    fn user<'a>(&'a self, state: &'a State) -> Option<(&'a str, &'a User)> {
        match self {
            Self::User(name) => Some((name, state.users.get(name.as_str())?)),
            Self::Federated(federated) => {
                let Federated {
                    name,
                    user,
                    until_ms,
                } = federated;
                let counts = state.time.0 < *until_ms && !state.users.contains_key(name.as_str());
                counts.then_some((name, user))
            }
            _ => None,
        }
    }

    /// The authenticated name, if it is a user's.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::User(name) => Some(name),
            Self::Federated(federated) => Some(&federated.name),
            _ => None,
        }
    }

    /// Whether the caller has full access.
    const fn is_trusted(&self) -> bool {
        matches!(self, Self::AuthenticationOff | Self::Replica)
    }

    /// Whether the caller may see a job.
    pub(crate) fn can_view(&self, state: &State, job: &Job) -> bool {
        let sees = |(name, user): (&str, &User)| user.sees(name, &job.spec.user, &job.spec.queue);
        self.is_trusted() || self.user(state).is_some_and(sees)
    }

    /// Refuses to show a job that the caller may not see.
    pub(crate) fn require_view(&self, state: &State, job: &Job) -> Result<(), Status> {
        if self.can_view(state, job) {
            return Ok(());
        }
        Err(permission_denied(&format!(
            "job {} belongs to another user and to queue `{}`, which your role does not cover",
            job.id, job.spec.queue
        )))
    }

    /// Refuses to continue to show a job if the caller may no longer see it.
    pub(crate) fn require_view_still(
        &self,
        state: &State,
        now_ms: u64,
        job: JobId,
    ) -> Result<(), Status> {
        if self.is_trusted() {
            return Ok(());
        }
        self.present(state, now_ms)?;
        // A job forgotten meanwhile was visible before.
        let job = state.job(job);
        job.map_or(Ok(()), |job| self.require_view(state, job))
    }

    /// Refuses to let the caller stay in a task that it has entered.
    pub(crate) fn require_exec_still(
        &self,
        state: &State,
        now_ms: u64,
        job: JobId,
    ) -> Result<(), Status> {
        if self.is_trusted() {
            return Ok(());
        }
        let (name, user) = self.present(state, now_ms)?;
        let admin = (user.role == Role::Admin).then(|| name.to_owned());
        let admins: BTreeSet<String> = admin.into_iter().collect();
        let job = state.job(job);
        let enters = job.is_none_or(|job| may_enter(job, name, &admins));
        if user.role >= Role::User && enters {
            return Ok(());
        }
        Err(permission_denied(
            "your role no longer permits access to this task",
        ))
    }

    /// The user, if still present and valid. The state's time does not advance while nothing happens, but
    /// tokens expire nevertheless.
    fn present<'a>(&'a self, state: &'a State, now_ms: u64) -> Result<(&'a str, &'a User), Status> {
        let has_expired = matches!(self, Self::Federated(it) if it.until_ms <= now_ms);
        let found = self.user(state).filter(|_| !has_expired);
        found.ok_or_else(revoked)
    }

    /// Whether the caller is an admin where the table of rights does not decide: `None` without
    /// authentication, where the settings decide.
    pub(crate) fn is_admin(&self, state: &State) -> Option<bool> {
        match self {
            Self::AuthenticationOff => None,
            Self::Replica => Some(true),
            _ => Some(self.role(state) == Some(Role::Admin)),
        }
    }

    /// The name that counts, instead of the one in the request.
    pub(crate) fn author(&self, claimed: String) -> String {
        self.name().map_or(claimed, str::to_owned)
    }

    /// Name of the caller in the audit log: the authenticated one, or `claimed` without authentication. Names of
    /// callers that are not users contain a space, as no user's name does.
    pub(crate) fn on_record(&self, claimed: String) -> String {
        match self {
            Self::AuthenticationOff | Self::Unauthenticated => claimed,
            Self::Replica => "a replica".to_owned(),
            Self::Worker(name) => format!("worker {name}"),
            Self::User(name) | Self::Federated(Federated { name, .. }) => name.clone(),
        }
    }

    /// Overwrites author fields with the caller's name: no one acts in another user's name.
    pub(crate) fn sign<'a>(&self, authors: impl IntoIterator<Item = &'a mut String>) {
        let Some(name) = self.name() else { return };
        for author in authors {
            name.clone_into(author);
        }
    }

    /// Checks the rights on the objects of a write: the queues that the caller may submit to, the jobs that
    /// it may act on.
    ///
    /// # Errors
    /// PERMISSION_DENIED `NOT_YOURS`; NOT_FOUND for a job that does not exist.
    pub(crate) fn check(&self, state: &State, scope: &Scope<'_>) -> Result<(), Status> {
        if self.name().is_none() {
            return Ok(());
        }
        let Some((name, user)) = self.user(state) else {
            return Err(revoked());
        };
        match scope {
            Scope::Cluster => Ok(()),
            Scope::Queues(queues) => {
                let Some(queue) = queues.iter().find(|queue| !user.submits_to(queue)) else {
                    return Ok(());
                };
                let bound: Vec<&str> = user.queues.iter().map(String::as_str).collect();
                Err(permission_denied(&format!(
                    "you may submit to {}, not to queue `{queue}`",
                    bound.join(", ")
                )))
            }
            Scope::Job(id) => {
                let job = find(state, *id)?;
                if user.acts_on(name, &job.spec.user, &job.spec.queue) {
                    return Ok(());
                }
                Err(permission_denied(&format!(
                    "job {id} belongs to user `{}` and queue `{}`: only its user, users of the queue, and \
                     operators may do this",
                    job.spec.user, job.spec.queue
                )))
            }
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica => formatter.write_str("a replica"),
            Self::Worker(name) => write!(formatter, "worker `{name}`"),
            Self::User(name) | Self::Federated(Federated { name, .. }) => {
                write!(formatter, "user `{name}`")
            }
            Self::AuthenticationOff | Self::Unauthenticated => {
                formatter.write_str("an anonymous caller")
            }
        }
    }
}

fn revoked() -> Status {
    permission_denied("your user was removed, or your token has expired")
}

fn permission_denied(message: &str) -> Status {
    status::error(Code::PermissionDenied, "NOT_YOURS", message, &[])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::sync::Arc;

    use muster_harness::{Cluster, single};

    use super::*;

    fn user(role: Role) -> Arc<User> {
        Arc::new(User {
            role,
            queues: BTreeSet::new(),
            token: None,
        })
    }

    /// Whether a caller may continue to see a job of ada, and to stay in a task of it.
    fn may_continue(caller: &Caller, state: &State, now_ms: u64, job: JobId) -> (bool, bool) {
        let sees = caller.require_view_still(state, now_ms, job);
        let enters = caller.require_exec_still(state, now_ms, job);
        (sees.is_ok(), enters.is_ok())
    }

    #[test]
    fn a_removed_user_or_one_with_another_role_may_not_continue() {
        let mut cluster = Cluster::new();
        let job = cluster.submit(single("train", 1, 0));
        for (name, role) in [("ada", Role::User), ("grace", Role::Admin)] {
            cluster.state.users.insert(Arc::from(name), user(role));
        }
        let (ada, grace) = (
            Caller::User("ada".to_owned()),
            Caller::User("grace".to_owned()),
        );
        assert_eq!(may_continue(&ada, &cluster.state, 0, job), (true, true));
        assert_eq!(may_continue(&grace, &cluster.state, 0, job), (true, true));
        cluster
            .state
            .users
            .insert(Arc::from("ada"), user(Role::Viewer));
        cluster
            .state
            .users
            .insert(Arc::from("grace"), user(Role::Operator));
        assert_eq!(may_continue(&ada, &cluster.state, 0, job), (true, false));
        assert_eq!(may_continue(&grace, &cluster.state, 0, job), (true, false));
        cluster.state.users.remove("ada");
        assert_eq!(may_continue(&ada, &cluster.state, 0, job), (false, false));
        let refused = ada.require_view_still(&cluster.state, 0, job).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        // A job forgotten meanwhile was visible; without authentication the caller may continue.
        assert_eq!(
            may_continue(&grace, &cluster.state, 0, JobId(999)),
            (true, true)
        );
        for trusted in [Caller::AuthenticationOff, Caller::Replica] {
            assert_eq!(may_continue(&trusted, &cluster.state, 0, job), (true, true));
        }
    }

    #[test]
    fn a_caller_with_a_limited_token_may_continue_until_it_expires() {
        let mut cluster = Cluster::new();
        let job = cluster.submit(single("train", 1, 0));
        let until_ms = cluster.state.time.0 + 1_000;
        let ada = Caller::Federated(Federated {
            name: "ada".to_owned(),
            user: user(Role::User),
            until_ms,
        });
        let state = &cluster.state;
        assert_eq!(may_continue(&ada, state, until_ms - 1, job), (true, true));
        assert_eq!(may_continue(&ada, state, until_ms, job), (false, false));
    }
}
