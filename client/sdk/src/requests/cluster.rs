//! Reads of replicas, hosts, GPUs and queues.

use muster_model::ids::Revision;
use muster_proto::v1;

use crate::client::{Client, cluster};
use crate::error::ClientError;
use crate::requests::jobs::PAGE_ROWS;

impl Client {
    /// Reads the leader, the state of the replicas, and counts of all objects.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn status(
        &self,
        consistency: v1::Consistency,
    ) -> Result<v1::GetStatusResponse, ClientError> {
        let request = v1::GetStatusRequest {
            consistency: consistency.into(),
        };
        self.call(
            self.operation("read the cluster's status"),
            |channel| async move { cluster(channel).get_status(request).await },
        )
        .await
    }

    /// Lists all matching hosts, page by page, with the revision of the first page.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn list_hosts(
        &self,
        mut request: v1::ListHostsRequest,
    ) -> Result<(Revision, Vec<v1::Host>), ClientError> {
        let mut rows = Vec::new();
        let mut revision = None;
        request.page_size = PAGE_ROWS;
        request.at_revision = self.at_revision();
        let operation = self.operation("list hosts");
        loop {
            let page = self
                .call(operation, |channel| {
                    let request = request.clone();
                    async move { cluster(channel).list_hosts(request).await }
                })
                .await?;
            self.check_revision(operation.name, page.revision)?;
            let first = *revision.get_or_insert(Revision(page.revision));
            rows.extend(page.hosts);
            if page.next_page_token.is_empty() {
                return Ok((first, rows));
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Lists all matching GPUs, page by page, with the revision of the first page.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn list_gpus(
        &self,
        mut request: v1::ListGpusRequest,
    ) -> Result<(Revision, Vec<v1::Gpu>), ClientError> {
        let mut rows = Vec::new();
        let mut revision = None;
        request.page_size = PAGE_ROWS;
        request.at_revision = self.at_revision();
        let operation = self.operation("list GPUs");
        loop {
            let page = self
                .call(operation, |channel| {
                    let request = request.clone();
                    async move { cluster(channel).list_gpus(request).await }
                })
                .await?;
            self.check_revision(operation.name, page.revision)?;
            let first = *revision.get_or_insert(Revision(page.revision));
            rows.extend(page.gpus);
            if page.next_page_token.is_empty() {
                return Ok((first, rows));
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Lists all queues with their configuration and usage, with the revision of the first page.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn list_queues(
        &self,
        consistency: v1::Consistency,
    ) -> Result<(Revision, Vec<v1::Queue>), ClientError> {
        let mut rows = Vec::new();
        let mut revision = None;
        let mut request = v1::ListQueuesRequest {
            consistency: consistency.into(),
            page_size: PAGE_ROWS,
            page_token: String::new(),
            at_revision: self.at_revision(),
        };
        let operation = self.operation("list queues");
        loop {
            let page = self
                .call(operation, |channel| {
                    let request = request.clone();
                    async move { cluster(channel).list_queues(request).await }
                })
                .await?;
            self.check_revision(operation.name, page.revision)?;
            let first = *revision.get_or_insert(Revision(page.revision));
            rows.extend(page.queues);
            if page.next_page_token.is_empty() {
                return Ok((first, rows));
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Reads the whole configuration of queues, in the form that [`Client::configure_queues`] accepts.
    /// Retired queues are not included.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn queue_tree(
        &self,
        consistency: v1::Consistency,
    ) -> Result<(Revision, v1::QueueTree), ClientError> {
        let mut tree = v1::QueueTree::default();
        let mut revision = None;
        let mut request = v1::ListQueuesRequest {
            consistency: consistency.into(),
            page_size: PAGE_ROWS,
            page_token: String::new(),
            at_revision: self.at_revision(),
        };
        let operation = self.operation("read the queues");
        loop {
            let page = self
                .call(operation, |channel| {
                    let request = request.clone();
                    async move { cluster(channel).list_queues(request).await }
                })
                .await?;
            self.check_revision(operation.name, page.revision)?;
            let first = *revision.get_or_insert(Revision(page.revision));
            tree.history_half_life_ms = page.history_half_life_ms;
            tree.defragment = page.defragment;
            let queues = page.queues.into_iter().filter(|queue| !queue.retired);
            tree.queues
                .extend(queues.map(|queue| (queue.name, queue.config.unwrap_or_default())));
            if page.next_page_token.is_empty() {
                return Ok((first, tree));
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Reads the topology, with its revision.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn topology(
        &self,
        consistency: v1::Consistency,
    ) -> Result<(Revision, v1::Topology), ClientError> {
        let request = v1::GetTopologyRequest {
            consistency: consistency.into(),
            at_revision: self.at_revision(),
        };
        let operation = self.operation("read the topology");
        let answer = self
            .call(operation, |channel| async move {
                cluster(channel).get_topology(request).await
            })
            .await?;
        self.check_revision(operation.name, answer.revision)?;
        let topology = answer.topology.unwrap_or_default();
        Ok((Revision(answer.revision), topology))
    }
}
