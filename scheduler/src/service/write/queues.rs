//! Changes of queues.

use muster_engine::effects::queue_effects;
use muster_model::access::Role;
use muster_proto::convert::{configure_queues_command, set_queue_command};
use muster_proto::v1;
use tokio::time::Instant;
use tonic::Status;

use crate::audit_log::Record;
use crate::service::context::Context;
use crate::service::gate::Method;
use crate::service::write::propose::{Proposal, carry_out};
use crate::service::write::request::{WriteRequest, plain_write};

plain_write! {
    SetQueueRequest => SetQueueResponse, Method::of_admin("SetQueue", Role::Admin), set_queue_command {
        fn record(&self) -> Record {
            Record::about(&self.request_id, format!("queue {}", self.name))
        }
    }
}

impl WriteRequest for v1::ConfigureQueuesRequest {
    const METHOD: Method = Method::of_admin("ConfigureQueues", Role::Admin);

    type Order = Proposal;

    fn authors(&mut self) -> Vec<&mut String> {
        vec![&mut self.author]
    }

    fn record(&self) -> Record {
        Record {
            dry_run: self.dry_run,
            ..Record::about(&self.request_id, "queues".to_owned())
        }
    }

    fn order(self) -> Result<Proposal, Status> {
        let is_dry_run = self.dry_run;
        Proposal::new(configure_queues_command(self), is_dry_run)
    }

    async fn execute(
        order: Proposal,
        context: &Context,
        _: Instant,
    ) -> Result<v1::ConfigureQueuesResponse, Status> {
        let carried_out = carry_out(context, order).await?;
        let changes = queue_effects(&carried_out.before, &carried_out.after).into_iter();
        Ok(v1::ConfigureQueuesResponse {
            revision: carried_out.revision,
            changes: changes.map(Into::into).collect(),
        })
    }

    fn complete(record: Record, response: &v1::ConfigureQueuesResponse) -> Record {
        record.at_revision(response.revision)
    }
}
