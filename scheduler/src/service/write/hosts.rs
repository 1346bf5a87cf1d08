//! Blocks of hosts and GPUs.

use muster_model::access::Role;
use muster_model::command::Command;
use muster_proto::convert::{block_command, unblock_command};
use muster_proto::v1::block_target::Target;
use muster_proto::{status, v1};
use tokio::time::Instant;
use tonic::Status;

use crate::audit_log::Record;
use crate::service::context::Context;
use crate::service::gate::Method;
use crate::service::write::impact;
use crate::service::write::propose::{Proposal, commit};
use crate::service::write::request::{Reply, WriteRequest, plain_write};

impl WriteRequest for v1::BlockRequest {
    const METHOD: Method = Method::of_admin("Block", Role::Operator);

    type Order = Proposal;

    fn authors(&mut self) -> Vec<&mut String> {
        vec![&mut self.author]
    }

    fn record(&self) -> Record {
        Record {
            why: self.reason.clone(),
            dry_run: self.dry_run,
            ..Record::about(&self.request_id, subject(self.target.as_ref()))
        }
    }

    fn order(self) -> Result<Proposal, Status> {
        Proposal::new(self.dry_run, block_command(self))
    }

    async fn execute(order: Proposal, context: &Context, _: Instant) -> Reply<Self> {
        let command = order.command;
        let Command::Block { target, block, .. } = &command else {
            return Err(Status::internal("unexpected block command"));
        };
        let state = context.fork();
        let impact = impact::of_block(&state, target, block.planned.is_some());
        let impact = impact.map_err(|error| status::status_of(&error))?;
        if order.is_dry_run {
            return Ok(v1::BlockResponse {
                revision: state.revision.get(),
                impact: Some(impact),
            });
        }
        Ok(v1::BlockResponse {
            revision: commit(context, command).await?,
            impact: Some(impact),
        })
    }

    fn complete(record: Record, response: &v1::BlockResponse) -> Record {
        record.at_revision(response.revision)
    }
}

plain_write! {
    UnblockRequest => UnblockResponse, Method::of_admin("Unblock", Role::Operator),
    unblock_command, by [author],
    record |it| Record::about(&it.request_id, subject(it.target.as_ref())),
}

fn subject(target: Option<&v1::BlockTarget>) -> String {
    match target.and_then(|target| target.target.as_ref()) {
        Some(Target::Host(host)) => format!("host {host}"),
        Some(Target::Gpu(gpu)) => format!("gpu {gpu}"),
        None => String::new(),
    }
}
