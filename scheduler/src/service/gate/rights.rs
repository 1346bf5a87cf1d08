//! Required role of every call, declared in one place each.

use std::fmt;

use muster_model::access::Role;

use crate::service::gate::caller::Caller;
use crate::service::write::request::WRITE_METHODS;

/// Minimum requirement on a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// No requirement.
    Anyone,
    /// Another replica.
    Replica,
    /// A worker.
    Worker,
    /// A user of this role, or of a stronger one.
    Role(Role),
    /// A user of any role, or a worker.
    ViewerOrWorker,
}

impl Need {
    /// Replicas are fully trusted, as they hold the log.
    pub(super) fn is_met_by(self, caller: &Caller, role: Option<Role>) -> bool {
        match (self, caller) {
            (Self::Anyone, _) | (_, Caller::Replica) => true,
            (Self::Worker | Self::ViewerOrWorker, Caller::Worker(_)) => true,
            (Self::Role(needed), Caller::User(_) | Caller::Federated(_)) => role >= Some(needed),
            (Self::ViewerOrWorker, Caller::User(_) | Caller::Federated(_)) => role.is_some(),
            _ => false,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => formatter.write_str("nothing"),
            Self::Replica => formatter.write_str("a replica's certificate"),
            Self::Worker => formatter.write_str("a worker's certificate"),
            Self::Role(role) => write!(formatter, "role `{role}`"),
            Self::ViewerOrWorker => formatter.write_str("role `viewer`, or a worker's certificate"),
        }
    }
}

/// A method that a replica serves, with its requirement on callers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    service: &'static str,
    pub(crate) name: &'static str,
    need: Need,
}

impl Method {
    const fn new(service: &'static str, name: &'static str, need: Need) -> Self {
        Self {
            service,
            name,
            need,
        }
    }

    /// A method of `JobService` for users, who may change only some jobs.
    pub(crate) const fn of_jobs(name: &'static str) -> Self {
        Self::new(JOBS, name, USER)
    }

    /// A method of `AdminService` for users of this role.
    pub(crate) const fn of_admin(name: &'static str, role: Role) -> Self {
        Self::new(ADMINS, name, Need::Role(role))
    }

    /// A method of `JoinService` for workers without a certificate; their token is checked where it is known.
    pub(crate) const fn of_joining(name: &'static str) -> Self {
        Self::new(JOINING, name, Need::Anyone)
    }
}

const VIEWER: Need = Need::Role(Role::Viewer);
const USER: Need = Need::Role(Role::User);
const OPERATOR: Need = Need::Role(Role::Operator);
const ADMIN: Need = Need::Role(Role::Admin);

const JOBS: &str = "muster.v1.JobService";
const CLUSTER: &str = "muster.v1.ClusterService";
const ADMINS: &str = "muster.v1.AdminService";
const WORKERS: &str = "muster.v1.WorkerService";
const JOINING: &str = "muster.v1.JoinService";
const PEERS: &str = "muster.v1.PeerService";
const RAFT: &str = "muster.raft.v1.RaftService";
const HEALTH: &str = "grpc.health.v1.Health";

/// Every method that is no write; each write names its own. Which jobs a viewer or user may see and act on is
/// checked where the job is known.
const METHODS: &[Method] = &[
    Method::new(JOBS, "GetJob", VIEWER),
    Method::new(JOBS, "ListJobs", VIEWER),
    Method::new(JOBS, "ExplainJob", VIEWER),
    Method::new(JOBS, "GetPipeline", VIEWER),
    Method::new(JOBS, "ListPipelines", VIEWER),
    Method::new(JOBS, "StreamLogs", VIEWER),
    Method::new(JOBS, "GetProgress", VIEWER),
    Method::new(JOBS, "Exec", USER),
    Method::new(CLUSTER, "GetStatus", VIEWER),
    Method::new(CLUSTER, "ListHosts", VIEWER),
    Method::new(CLUSTER, "ListGpus", VIEWER),
    Method::new(CLUSTER, "ListQueues", VIEWER),
    Method::new(CLUSTER, "GetTopology", VIEWER),
    // Contains the jobs of all users.
    Method::new(CLUSTER, "ExportState", OPERATOR),
    Method::new("muster.v1.WatchService", "Watch", VIEWER),
    Method::new(ADMINS, "GetHealth", Need::ViewerOrWorker),
    Method::new(ADMINS, "TriggerSnapshot", ADMIN),
    Method::new(ADMINS, "SaveSnapshot", ADMIN),
    Method::new(ADMINS, "ReadAuditLog", ADMIN),
    Method::new(ADMINS, "SetLogLevel", ADMIN),
    Method::new(ADMINS, "GetDebugInfo", ADMIN),
    Method::new(ADMINS, "ListUsers", ADMIN),
    Method::new(ADMINS, "ListJoinTokens", ADMIN),
    Method::new(WORKERS, "Session", Need::Worker),
    Method::new(WORKERS, "Exec", Need::Worker),
    Method::new(JOINING, "GetAuthorities", Need::Anyone),
    Method::new(JOINING, "RenewCertificate", Need::Worker),
    Method::new(PEERS, "ForwardWrites", Need::Replica),
    Method::new(PEERS, "ForwardLogs", Need::Replica),
    Method::new(PEERS, "ForwardProgress", Need::Replica),
    Method::new(PEERS, "ForwardExec", Need::Replica),
    Method::new(PEERS, "PushHeartbeats", Need::Replica),
    Method::new(PEERS, "GetHeartbeats", Need::Replica),
    Method::new(RAFT, "Call", Need::Replica),
    Method::new(RAFT, "Append", Need::Replica),
    Method::new(HEALTH, "Check", Need::Anyone),
    Method::new(HEALTH, "Watch", Need::Anyone),
    Method::new(
        "grpc.reflection.v1.ServerReflection",
        "ServerReflectionInfo",
        VIEWER,
    ),
];

/// Whether a call without requirements is more than a liveness probe: unauthenticated callers are counted
/// then.
pub(super) fn is_costly(path: &str) -> bool {
    path.contains("muster.v1.JoinService/")
}

/// Requirement of a call, by its path (`/muster.v1.JobService/GetJob`). For a call without a row only an
/// admin learns that it does not exist.
pub(super) fn need(path: &str) -> Need {
    method(path).map_or(ADMIN, |method| method.need)
}

/// Service and method of a call that a replica serves.
pub(super) fn name(path: &str) -> Option<(&'static str, &'static str)> {
    method(path).map(|method| (method.service, method.name))
}

/// Service and method of every call that users make.
pub(super) fn of_users() -> impl Iterator<Item = (&'static str, &'static str)> {
    methods()
        .filter(|method| matches!(method.need, Need::Role(_) | Need::ViewerOrWorker))
        .map(|method| (method.service, method.name))
}

fn method(path: &str) -> Option<Method> {
    let (service, name) = path.trim_start_matches('/').split_once('/')?;
    methods().find(|method| method.service == service && method.name == name)
}

/// Every method that a replica serves.
fn methods() -> impl Iterator<Item = Method> {
    METHODS.iter().chain(WRITE_METHODS).copied()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use muster_proto::FILE_DESCRIPTOR_SET;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// Service and method of every call that a replica serves.
    fn served() -> BTreeSet<(String, String)> {
        let mut served = BTreeSet::new();
        for set in [FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET] {
            for file in FileDescriptorSet::decode(set).unwrap().file {
                for service in &file.service {
                    let name = format!("{}.{}", file.package(), service.name());
                    let methods = service.method.iter().map(|method| method.name().to_owned());
                    served.extend(methods.map(|method| (name.clone(), method)));
                }
            }
        }
        served
    }

    #[test]
    fn every_call_has_one_row_and_every_row_a_call() {
        let reflection = (
            "grpc.reflection.v1.ServerReflection".to_owned(),
            "ServerReflectionInfo".to_owned(),
        );
        let mut served = served();
        assert!(served.contains(&("muster.raft.v1.RaftService".to_owned(), "Append".to_owned())));
        served.insert(reflection);
        let mut rows = BTreeSet::new();
        for Method { service, name, .. } in methods() {
            assert!(
                rows.insert((service.to_owned(), name.to_owned())),
                "{service}/{name} twice"
            );
        }
        assert_eq!(rows, served);
    }

    #[test]
    fn a_call_is_named_by_the_table_or_not_at_all() {
        let known = name("/muster.v1.JobService/GetJob");
        assert_eq!(known, Some(("muster.v1.JobService", "GetJob")));
        for path in [
            "",
            "/",
            "/muster.v1.JobService",
            "/muster.v1.JobService/GetJob/1",
            "/unknown/GetJob",
        ] {
            assert_eq!(name(path), None, "{path}");
        }
    }

    #[test]
    fn roles_include_weaker_ones_and_certificates_permit_only_the_calls_of_their_purpose() {
        let user = Caller::User("ada".to_owned());
        for (at, role) in Role::ALL.into_iter().enumerate() {
            for (below, needed) in Role::ALL.into_iter().enumerate() {
                let is_met = Need::Role(needed).is_met_by(&user, Some(role));
                assert_eq!(is_met, below <= at, "{role} for {needed}");
            }
            assert!(
                !Need::Replica.is_met_by(&user, Some(role))
                    && !Need::Worker.is_met_by(&user, Some(role))
            );
        }
        let worker = Caller::Worker("gpu-1".to_owned());
        assert!(need("/muster.v1.WorkerService/Session").is_met_by(&worker, None));
        for path in [
            "/muster.raft.v1.RaftService/Append",
            "/muster.v1.JobService/GetJob",
            "/unknown/Call",
        ] {
            assert!(!need(path).is_met_by(&worker, None), "{path}");
            assert!(
                !need(path).is_met_by(&Caller::Unauthenticated, None),
                "{path}"
            );
            assert!(need(path).is_met_by(&Caller::Replica, None), "{path}");
        }
        assert!(!VIEWER.is_met_by(&user, None), "a user removed meanwhile");
        assert!(need("/grpc.health.v1.Health/Check").is_met_by(&Caller::Unauthenticated, None));
    }
}
