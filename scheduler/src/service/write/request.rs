//! Properties of each write request, in one place per request.
//!
//! The files beside this one implement [`WriteRequest`] for the requests of one subject. Everything else about
//! a write is generic: admission, rights, audit log, retries, forwarding to the leader and the answer.

use std::future::Future;

use muster_proto::v1::write::Kind;
use muster_proto::v1::write_result::Kind as Outcome;
use muster_proto::{for_each_write, v1};
use tokio::time::Instant;
use tonic::Status;

use crate::audit_log::Record;
use crate::service::context::Context;
use crate::service::gate::{Method, Scope};

/// The response to a request, or its refusal.
pub(super) type Reply<R> = Result<<R as Forwarded>::Response, Status>;

/// A request that changes the cluster.
pub(crate) trait WriteRequest: Forwarded + Clone + Send + Sync + 'static {
    /// The method by which clients send it. Its name is the one in the audit log.
    const METHOD: Method;
    /// Whether it may be repeated after an unknown outcome: its request id, or its effect, identifies the
    /// repetition.
    const IS_REPEATABLE: bool = true;
    /// Whether the old leader answers it after another replica leads.
    const IS_HANDOVER: bool = false;

    /// The request with everything checked that needs no state.
    type Order: Send;

    /// The author fields, which the name of an authenticated caller replaces.
    fn authors(&mut self) -> Vec<&mut String> {
        Vec::new()
    }

    /// The objects on which the caller needs rights.
    fn scope(&self) -> Scope<'_> {
        Scope::Cluster
    }

    /// The request's part of the audit record. A user is set only if it has no author field.
    fn record(&self) -> Record;

    /// Checks everything that needs no state, on the replica that received it and again on the leader.
    ///
    /// # Errors
    /// The refusal, which names the field.
    fn order(self) -> Result<Self::Order, Status>;

    /// Carries out the order on the leader.
    ///
    /// # Errors
    /// `NOT_LEADER` if this replica does not lead; the refusal, or a status with an unknown outcome.
    fn execute(
        order: Self::Order,
        context: &Context,
        deadline: Instant,
    ) -> impl Future<Output = Reply<Self>> + Send;

    /// Adds the response to the audit record.
    fn complete(record: Record, _response: &Self::Response) -> Record {
        record
    }
}

/// A message that a follower forwards to the leader in a `v1::Write`.
pub(crate) trait Forwarded: Sized {
    /// The answer to the client.
    type Response: Send + Sync;

    fn into_kind(self) -> Kind;

    /// The response in the leader's answer, if that answers this kind of write.
    fn response(outcome: Outcome) -> Option<Self::Response>;
}

/// Checks a write and executes it here; NOT_LEADER if this replica does not lead.
pub(crate) async fn execute<R: WriteRequest>(
    context: &Context,
    request: R,
    deadline: Instant,
) -> Reply<R> {
    R::execute(request.order()?, context, deadline).await
}

macro_rules! forwarded {
    ($($kind:ident: $request:ident => $response:ident,)*) => {
        $(impl Forwarded for v1::$request {
            type Response = v1::$response;

            fn into_kind(self) -> Kind {
                Kind::$kind(self)
            }

            fn response(outcome: Outcome) -> Option<v1::$response> {
                match outcome {
                    Outcome::$kind(response) => Some(response),
                    _ => None,
                }
            }
        })*

        /// Executes a write that another replica forwarded.
        pub(crate) async fn execute_forwarded(
            context: &Context,
            write: Kind,
            deadline: Instant,
        ) -> Result<Outcome, Status> {
            match write {
                $(Kind::$kind(request) => {
                    execute(context, request, deadline).await.map(Outcome::$kind)
                })*
            }
        }

        /// The methods of all writes.
        pub(crate) const WRITE_METHODS: &[Method] = &[$(<v1::$request as WriteRequest>::METHOD),*];
    };
}
for_each_write!(forwarded);

/// Implements [`WriteRequest`] for a request that is one command, and whose response is the revision at which
/// it took effect. The author field follows after `by`, the audit record as a function of the request after
/// `record`, and the scope after `scope`, if it is not the cluster.
macro_rules! plain_write {
    (
        $request:ident => $response:ident, $method:expr, $to_command:ident, by [$($author:ident)?],
        record $record:expr $(, scope $scope:expr)? $(,)?
    ) => {
        impl $crate::service::write::request::WriteRequest for ::muster_proto::v1::$request {
            const METHOD: $crate::service::gate::Method = $method;

            type Order = ::muster_model::command::Command;

            fn authors(&mut self) -> Vec<&mut String> {
                vec![$(&mut self.$author)?]
            }

            $(fn scope(&self) -> $crate::service::gate::Scope<'_> {
                let scope: fn(&Self) -> $crate::service::gate::Scope<'_> = $scope;
                scope(self)
            })?

            fn record(&self) -> $crate::audit_log::Record {
                let record: fn(&Self) -> $crate::audit_log::Record = $record;
                record(self)
            }

            fn order(self) -> Result<Self::Order, ::tonic::Status> {
                $crate::service::write::propose::checked($to_command(self))
            }

            async fn execute(
                command: Self::Order,
                context: &$crate::service::context::Context,
                _: ::tokio::time::Instant,
            ) -> $crate::service::write::request::Reply<Self> {
                let revision = $crate::service::write::propose::commit(context, command).await?;
                Ok(::muster_proto::v1::$response { revision })
            }

            fn complete(
                record: $crate::audit_log::Record,
                response: &::muster_proto::v1::$response,
            ) -> $crate::audit_log::Record {
                record.at_revision(response.revision)
            }
        }
    };
}
pub(super) use plain_write;

/// Implements [`WriteRequest`] for a request that replaces a part of the configuration, or only reports what
/// that would change. The subject for the audit log and a function follow, which compares the states before and
/// after.
macro_rules! configuration_write {
    ($request:ident => $response:ident, $method:expr, $to_command:ident, $subject:literal, $effect:ident) => {
        impl $crate::service::write::request::WriteRequest for ::muster_proto::v1::$request {
            const METHOD: $crate::service::gate::Method = $method;

            type Order = $crate::service::write::propose::Proposal;

            fn authors(&mut self) -> Vec<&mut String> {
                vec![&mut self.author]
            }

            fn record(&self) -> $crate::audit_log::Record {
                $crate::audit_log::Record {
                    dry_run: self.dry_run,
                    ..$crate::audit_log::Record::about(&self.request_id, $subject.to_owned())
                }
            }

            fn order(self) -> Result<Self::Order, ::tonic::Status> {
                $crate::service::write::propose::Proposal::new(self.dry_run, $to_command(self))
            }

            async fn execute(
                proposal: Self::Order,
                context: &$crate::service::context::Context,
                _: ::tokio::time::Instant,
            ) -> $crate::service::write::request::Reply<Self> {
                let done = $crate::service::write::propose::carry_out(context, proposal).await?;
                Ok(::muster_proto::v1::$response {
                    revision: done.revision,
                    ..$effect(&done.before, &done.after)
                })
            }

            fn complete(
                record: $crate::audit_log::Record,
                response: &::muster_proto::v1::$response,
            ) -> $crate::audit_log::Record {
                record.at_revision(response.revision)
            }
        }
    };
}
pub(super) use configuration_write;
