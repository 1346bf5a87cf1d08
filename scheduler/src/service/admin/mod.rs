//! `AdminService`.

pub(super) mod audit;
pub(crate) mod backup;
pub(super) mod debug;

use muster_proto::v1;
use muster_proto::v1::admin_service_server::AdminService;
use tonic::{Request, Response, Status};

use crate::audit_log::Record;
use crate::service::admin::audit::Records;
use crate::service::admin::backup::{Saved, require_admin};
use crate::service::admin::debug::{Answer, Question};
use crate::service::context::Context;
use crate::service::gate::caller_of;
use crate::service::read;
use crate::service::write::replicas::membership_status;
use crate::service::write::{CallerContext, deadline, serve};
use crate::view::{health_rules_to_wire, health_to_wire, join_tokens_to_wire, users_to_wire};

/// `AdminService` of one replica.
pub(crate) struct Admin(pub(crate) Context);

#[tonic::async_trait]
impl AdminService for Admin {
    async fn block(
        &self,
        request: Request<v1::BlockRequest>,
    ) -> Result<Response<v1::BlockResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn unblock(
        &self,
        request: Request<v1::UnblockRequest>,
    ) -> Result<Response<v1::UnblockResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn set_queue(
        &self,
        request: Request<v1::SetQueueRequest>,
    ) -> Result<Response<v1::SetQueueResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn configure_queues(
        &self,
        request: Request<v1::ConfigureQueuesRequest>,
    ) -> Result<Response<v1::ConfigureQueuesResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn set_topology(
        &self,
        request: Request<v1::SetTopologyRequest>,
    ) -> Result<Response<v1::SetTopologyResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn get_health(
        &self,
        request: Request<v1::GetHealthRequest>,
    ) -> Result<Response<v1::GetHealthResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = deadline::of(request.metadata(), self.0.request_ms_default());
        let asked = request.into_inner();
        let state = read::shown(&self.0, asked.consistency, asked.at_revision, deadline).await?;
        Ok(Response::new(if asked.only_rules {
            health_rules_to_wire(&state)
        } else {
            health_to_wire(&state)
        }))
    }

    async fn set_health_rules(
        &self,
        request: Request<v1::SetHealthRulesRequest>,
    ) -> Result<Response<v1::SetHealthRulesResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn reset_breaker(
        &self,
        request: Request<v1::ResetBreakerRequest>,
    ) -> Result<Response<v1::ResetBreakerResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn change_replicas(
        &self,
        request: Request<v1::ChangeReplicasRequest>,
    ) -> Result<Response<v1::ChangeReplicasResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn trigger_snapshot(
        &self,
        request: Request<v1::TriggerSnapshotRequest>,
    ) -> Result<Response<v1::TriggerSnapshotResponse>, Status> {
        let _permit = self.0.admit()?;
        let who = caller_of(&request).on_record(String::new());
        let record = Record::of_call(
            "TriggerSnapshot",
            &who,
            String::new(),
            request.remote_addr(),
        );
        let unanswered = self.0.unanswered(record);
        let revision = self.0.handle.with_state(|state| state.revision);
        let triggered = self
            .0
            .handle
            .trigger_snapshot()
            .await
            .map_err(|error| membership_status(&error));
        let refusal = triggered.as_ref().err();
        unanswered.answer(|it| it.answered_with(refusal)).await;
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
            &caller,
            &author,
            "save the cluster's state, which contains all users' secrets",
        );
        let record = Record::of_call(
            "SaveSnapshot",
            &caller.on_record(author),
            "the whole state".to_owned(),
            from,
        );
        self.0
            .record_audit(record.answered_with(allowed.as_ref().err()))
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
        let permit = self.0.admit_export()?;
        let caller = caller_of(&request);
        let request = request.into_inner();
        require_admin(&self.0, &caller, &request.author, "read the audit log")?;
        Ok(Response::new(audit::stream(&self.0, request, permit).await))
    }

    async fn add_user(
        &self,
        request: Request<v1::AddUserRequest>,
    ) -> Result<Response<v1::AddUserResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn remove_user(
        &self,
        request: Request<v1::RemoveUserRequest>,
    ) -> Result<Response<v1::RemoveUserResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn rotate_user_token(
        &self,
        request: Request<v1::RotateUserTokenRequest>,
    ) -> Result<Response<v1::RotateUserTokenResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn list_users(
        &self,
        request: Request<v1::ListUsersRequest>,
    ) -> Result<Response<v1::ListUsersResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = deadline::of(request.metadata(), self.0.request_ms_default());
        let state = read::state(&self.0, request.into_inner().consistency, deadline).await?;
        Ok(Response::new(users_to_wire(&state)))
    }

    async fn add_join_token(
        &self,
        request: Request<v1::AddJoinTokenRequest>,
    ) -> Result<Response<v1::AddJoinTokenResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn revoke_join_token(
        &self,
        request: Request<v1::RevokeJoinTokenRequest>,
    ) -> Result<Response<v1::RevokeJoinTokenResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn list_join_tokens(
        &self,
        request: Request<v1::ListJoinTokensRequest>,
    ) -> Result<Response<v1::ListJoinTokensResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = deadline::of(request.metadata(), self.0.request_ms_default());
        let state = read::state(&self.0, request.into_inner().consistency, deadline).await?;
        Ok(Response::new(join_tokens_to_wire(&state)))
    }

    async fn inject_fault(
        &self,
        request: Request<v1::InjectFaultRequest>,
    ) -> Result<Response<v1::InjectFaultResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn set_log_level(
        &self,
        request: Request<v1::SetLogLevelRequest>,
    ) -> Result<Response<v1::SetLogLevelResponse>, Status> {
        let calling = CallerContext::of(&self.0, &request);
        let asked = request.into_inner();
        let process = debug::subject(asked.target.as_ref());
        let about = ProcessQuestion {
            author: asked.author.clone(),
            target: asked.target.clone(),
            subject: format!("{process}: {} for {} ms", asked.change, asked.for_ms),
            question: Question::SetLogLevel(asked),
        };
        match self.ask("SetLogLevel", about, calling).await? {
            Answer::LogLevel(level) => Ok(Response::new(level)),
            Answer::Info(_) => Err(debug::mismatched()),
        }
    }

    async fn get_debug_info(
        &self,
        request: Request<v1::GetDebugInfoRequest>,
    ) -> Result<Response<v1::GetDebugInfoResponse>, Status> {
        let calling = CallerContext::of(&self.0, &request);
        let asked = request.into_inner();
        let about = ProcessQuestion {
            author: asked.author,
            subject: debug::subject(asked.target.as_ref()),
            target: asked.target,
            question: Question::Info,
        };
        match self.ask("GetDebugInfo", about, calling).await? {
            Answer::Info(info) => Ok(Response::new(*info)),
            Answer::LogLevel(_) => Err(debug::mismatched()),
        }
    }
}

/// A question about a process.
struct ProcessQuestion {
    /// Name of the caller in the request.
    author: String,
    target: Option<v1::DebugTarget>,
    /// For the audit log.
    subject: String,
    question: Question,
}

impl Admin {
    /// Sends a question to a process for an admin, with an audit record.
    async fn ask(
        &self,
        method: &str,
        about: ProcessQuestion,
        calling: CallerContext,
    ) -> Result<Answer, Status> {
        let _permit = self.0.admit()?;
        let CallerContext {
            deadline,
            from,
            caller,
        } = calling;
        let author = caller.author(about.author);
        let allowed = require_admin(&self.0, &caller, &author, "inspect processes");
        let record = Record::of_call(method, &caller.on_record(author), about.subject, from);
        let unanswered = self.0.unanswered(record);
        let answer = match allowed {
            Ok(()) => debug::ask(&self.0, about.target, about.question, deadline).await,
            Err(refusal) => Err(refusal),
        };
        let refusal = answer.as_ref().err();
        unanswered.answer(|it| it.answered_with(refusal)).await;
        answer
    }
}
