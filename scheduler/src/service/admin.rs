//! `AdminService`.

use muster_proto::convert::{health_to_wire, users_to_wire};
use muster_proto::v1;
use muster_proto::v1::admin_service_server::AdminService;
use muster_proto::v1::write::Kind;
use muster_proto::v1::write_result::Kind as Outcome;
use tonic::{Request, Response, Status};

use crate::audit_log::Record;
use crate::service::audit::{self, Records};
use crate::service::backup::{self, Saved, require_admin};
use crate::service::context::Context;
use crate::service::deadline;
use crate::service::gate::caller_of;
use crate::service::jobs::mismatched;
use crate::service::local_write::membership_status;
use crate::service::read;
use crate::service::write::write;

/// `AdminService` of one replica.
pub(crate) struct Admin(pub(crate) Context);

/// Carries out one kind of write and takes the answer of that kind.
macro_rules! write {
    ($self:ident, $request:ident, $kind:ident) => {{
        let _place = $self.0.admit()?;
        let limit_ms = $self.0.request_ms_default();
        let deadline = deadline::of($request.metadata(), limit_ms);
        let caller = (deadline, $request.remote_addr(), caller_of(&$request));
        match write(&$self.0, Kind::$kind($request.into_inner()), caller).await? {
            Outcome::$kind(response) => Ok(Response::new(response)),
            _ => Err(mismatched()),
        }
    }};
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn block(
        &self,
        request: Request<v1::BlockRequest>,
    ) -> Result<Response<v1::BlockResponse>, Status> {
        write!(self, request, Block)
    }

    async fn unblock(
        &self,
        request: Request<v1::UnblockRequest>,
    ) -> Result<Response<v1::UnblockResponse>, Status> {
        write!(self, request, Unblock)
    }

    async fn set_queue(
        &self,
        request: Request<v1::SetQueueRequest>,
    ) -> Result<Response<v1::SetQueueResponse>, Status> {
        write!(self, request, SetQueue)
    }

    async fn configure_queues(
        &self,
        request: Request<v1::ConfigureQueuesRequest>,
    ) -> Result<Response<v1::ConfigureQueuesResponse>, Status> {
        write!(self, request, ConfigureQueues)
    }

    async fn set_topology(
        &self,
        request: Request<v1::SetTopologyRequest>,
    ) -> Result<Response<v1::SetTopologyResponse>, Status> {
        write!(self, request, SetTopology)
    }

    async fn get_health(
        &self,
        request: Request<v1::GetHealthRequest>,
    ) -> Result<Response<v1::GetHealthResponse>, Status> {
        let _place = self.0.admit()?;
        let deadline = deadline::of(request.metadata(), self.0.request_ms_default());
        let state = read::state(&self.0, request.into_inner().consistency, deadline).await?;
        Ok(Response::new(health_to_wire(&state)))
    }

    async fn set_health_rules(
        &self,
        request: Request<v1::SetHealthRulesRequest>,
    ) -> Result<Response<v1::SetHealthRulesResponse>, Status> {
        write!(self, request, SetHealthRules)
    }

    async fn reset_breaker(
        &self,
        request: Request<v1::ResetBreakerRequest>,
    ) -> Result<Response<v1::ResetBreakerResponse>, Status> {
        write!(self, request, ResetBreaker)
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderResponse>, Status> {
        write!(self, request, TransferLeader)
    }

    async fn change_replicas(
        &self,
        request: Request<v1::ChangeReplicasRequest>,
    ) -> Result<Response<v1::ChangeReplicasResponse>, Status> {
        write!(self, request, ChangeReplicas)
    }

    async fn trigger_snapshot(
        &self,
        request: Request<v1::TriggerSnapshotRequest>,
    ) -> Result<Response<v1::TriggerSnapshotResponse>, Status> {
        let _place = self.0.admit()?;
        let revision = self.0.handle.with_state(|state| state.revision);
        let triggered = self.0.handle.trigger_snapshot().await;
        let triggered = triggered.map_err(|error| membership_status(&error));
        let record = Record::told(
            "TriggerSnapshot",
            (&caller_of(&request).author(String::new()), String::new()),
            request.remote_addr(),
        );
        self.0
            .note(record.answered_with(triggered.as_ref().err()))
            .await;
        triggered?;
        Ok(Response::new(v1::TriggerSnapshotResponse {
            replica_id: self.0.config.replica_id.get(),
            revision: revision.get(),
        }))
    }

    type SaveSnapshotStream = Saved;

    async fn save_snapshot(
        &self,
        request: Request<v1::SaveSnapshotRequest>,
    ) -> Result<Response<Self::SaveSnapshotStream>, Status> {
        let places = [self.0.admit()?, self.0.admit_export()?];
        let deadline = deadline::of(request.metadata(), self.0.request_ms_default());
        let (from, caller) = (request.remote_addr(), caller_of(&request));
        let author = caller.author(request.into_inner().author);
        let allowed = require_admin(
            &self.0,
            (&caller, &author),
            "save the cluster's state, which holds everybody's secrets",
        );
        let record = Record::told(
            "SaveSnapshot",
            (&author, "the whole state".to_owned()),
            from,
        );
        self.0
            .note(record.answered_with(allowed.as_ref().err()))
            .await;
        allowed?;
        read::state(&self.0, v1::Consistency::Linearizable.into(), deadline).await?;
        Ok(Response::new(backup::stream(&self.0, places)))
    }

    type ReadAuditLogStream = Records;

    async fn read_audit_log(
        &self,
        request: Request<v1::ReadAuditLogRequest>,
    ) -> Result<Response<Self::ReadAuditLogStream>, Status> {
        let place = self.0.admit_export()?;
        let caller = caller_of(&request);
        let request = request.into_inner();
        require_admin(&self.0, (&caller, &request.author), "read the audit log")?;
        Ok(Response::new(audit::stream(&self.0, request, place).await))
    }

    async fn add_user(
        &self,
        request: Request<v1::AddUserRequest>,
    ) -> Result<Response<v1::AddUserResponse>, Status> {
        write!(self, request, AddUser)
    }

    async fn remove_user(
        &self,
        request: Request<v1::RemoveUserRequest>,
    ) -> Result<Response<v1::RemoveUserResponse>, Status> {
        write!(self, request, RemoveUser)
    }

    async fn rotate_user_token(
        &self,
        request: Request<v1::RotateUserTokenRequest>,
    ) -> Result<Response<v1::RotateUserTokenResponse>, Status> {
        write!(self, request, RotateUserToken)
    }

    async fn list_users(
        &self,
        request: Request<v1::ListUsersRequest>,
    ) -> Result<Response<v1::ListUsersResponse>, Status> {
        let _place = self.0.admit()?;
        let deadline = deadline::of(request.metadata(), self.0.request_ms_default());
        let state = read::state(&self.0, request.into_inner().consistency, deadline).await?;
        Ok(Response::new(users_to_wire(&state)))
    }

    async fn inject_fault(
        &self,
        request: Request<v1::InjectFaultRequest>,
    ) -> Result<Response<v1::InjectFaultResponse>, Status> {
        write!(self, request, InjectFault)
    }
}
