//! Required role of every call: one row each.

use std::fmt;

use muster_model::access::Role;

use crate::service::gate::caller::Caller;

/// Minimum requirement on a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// No requirement.
    Nothing,
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
            (Self::Nothing, _) | (_, Caller::Replica) => true,
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
            Self::Nothing => formatter.write_str("nothing"),
            Self::Replica => formatter.write_str("a replica's certificate"),
            Self::Worker => formatter.write_str("a worker's certificate"),
            Self::Role(role) => write!(formatter, "role `{role}`"),
            Self::ViewerOrWorker => formatter.write_str("role `viewer`, or a worker's certificate"),
        }
    }
}

const VIEWER: Need = Need::Role(Role::Viewer);
const USER: Need = Need::Role(Role::User);
const OPERATOR: Need = Need::Role(Role::Operator);
const ADMIN: Need = Need::Role(Role::Admin);

/// Every call, by its service. Which jobs a viewer or user may see and act on is checked where the job is
/// known.
const TABLE: &[(&str, &[(&str, Need)])] = &[
    (
        "muster.v1.JobService",
        &[
            ("SubmitJob", USER),
            ("GetJob", VIEWER),
            ("ListJobs", VIEWER),
            ("CancelJob", USER),
            ("SuspendJob", USER),
            ("ResumeJob", USER),
            ("ExplainJob", VIEWER),
            ("SubmitPipeline", USER),
            ("GetPipeline", VIEWER),
            ("ListPipelines", VIEWER),
            ("StreamLogs", VIEWER),
            ("GetProgress", VIEWER),
            ("Exec", USER),
        ],
    ),
    (
        "muster.v1.ClusterService",
        &[
            ("GetStatus", VIEWER),
            ("ListHosts", VIEWER),
            ("ListGpus", VIEWER),
            ("ListQueues", VIEWER),
            ("GetTopology", VIEWER),
            // Contains the jobs of all users.
            ("ExportState", OPERATOR),
        ],
    ),
    ("muster.v1.WatchService", &[("Watch", VIEWER)]),
    (
        "muster.v1.AdminService",
        &[
            ("Block", OPERATOR),
            ("Unblock", OPERATOR),
            ("ResetBreaker", OPERATOR),
            ("GetHealth", Need::ViewerOrWorker),
            ("SetQueue", ADMIN),
            ("ConfigureQueues", ADMIN),
            ("SetTopology", ADMIN),
            ("SetHealthRules", ADMIN),
            ("TransferLeader", ADMIN),
            ("ChangeReplicas", ADMIN),
            ("TriggerSnapshot", ADMIN),
            ("SaveSnapshot", ADMIN),
            ("ReadAuditLog", ADMIN),
            ("InjectFault", ADMIN),
            ("SetLogLevel", ADMIN),
            ("GetDebugInfo", ADMIN),
            ("AddUser", ADMIN),
            ("RemoveUser", ADMIN),
            ("RotateUserToken", ADMIN),
            ("ListUsers", ADMIN),
            ("AddJoinToken", ADMIN),
            ("RevokeJoinToken", ADMIN),
            ("ListJoinTokens", ADMIN),
        ],
    ),
    (
        "muster.v1.WorkerService",
        &[("Session", Need::Worker), ("Exec", Need::Worker)],
    ),
    (
        "muster.v1.JoinService",
        &[
            // Access is checked where the object is known.
            ("GetAuthorities", Need::Nothing),
            ("Join", Need::Nothing),
            ("RenewCertificate", Need::Worker),
        ],
    ),
    (
        "muster.v1.PeerService",
        &[
            ("ForwardWrites", Need::Replica),
            ("ForwardLogs", Need::Replica),
            ("ForwardProgress", Need::Replica),
            ("ForwardExec", Need::Replica),
            ("ShadowBeats", Need::Replica),
            ("GetShadows", Need::Replica),
        ],
    ),
    (
        "muster.raft.v1.RaftService",
        &[("Call", Need::Replica), ("Append", Need::Replica)],
    ),
    (
        "grpc.health.v1.Health",
        &[("Check", Need::Nothing), ("Watch", Need::Nothing)],
    ),
    (
        "grpc.reflection.v1.ServerReflection",
        &[("ServerReflectionInfo", VIEWER)],
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
    row(path).map_or(ADMIN, |(_, _, need)| need)
}

/// Service and method of a call from the table; `None` without a row.
pub(super) fn name(path: &str) -> Option<(&'static str, &'static str)> {
    row(path).map(|(service, method, _)| (service, method))
}

/// Service and method of every call that users make.
pub(super) fn of_users() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = { TABLE.iter() }.flat_map(|(service, methods)| {
        let needs = |(method, need): &(&'static str, Need)| (*service, *method, *need);
        methods.iter().map(needs)
    });
    rows.filter(|(_, _, need)| matches!(need, Need::Role(_) | Need::ViewerOrWorker))
        .map(|(service, method, _)| (service, method))
}

fn row(path: &str) -> Option<(&'static str, &'static str, Need)> {
    let (service, method) = path.trim_start_matches('/').split_once('/')?;
    let (service, methods) = TABLE.iter().find(|(name, _)| *name == service)?;
    let (method, need) = methods.iter().find(|(name, _)| *name == method)?;
    Some((service, method, *need))
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
        for (service, methods) in TABLE {
            for (method, _) in *methods {
                assert!(
                    rows.insert(((*service).to_owned(), (*method).to_owned())),
                    "{service}/{method} twice"
                );
            }
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
    fn roles_reach_up_to_their_own_and_certificates_no_further_than_what_they_are_for() {
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
            assert!(!need(path).is_met_by(&Caller::Nobody, None), "{path}");
            assert!(need(path).is_met_by(&Caller::Replica, None), "{path}");
        }
        assert!(!VIEWER.is_met_by(&user, None), "a user removed meanwhile");
        assert!(need("/grpc.health.v1.Health/Check").is_met_by(&Caller::Nobody, None));
    }
}
