//! Waiting for phases of a job.

use muster_model::ids::JobId;
use muster_proto::v1;

use crate::client::Client;
use crate::error::ClientError;
use crate::requests::jobs::JobDetail;
use crate::watch::{WatchFilter, WatchUpdate};

impl Client {
    /// Waits until a job is finished, for any time and across changes of leadership.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`, also when the job was forgotten meanwhile.
    pub async fn wait_job(&self, job: JobId) -> Result<JobDetail, ClientError> {
        self.wait_job_until(job, JobDetail::is_finished).await
    }

    /// Waits until `reached` holds for a job, checking after each of its events.
    ///
    /// `reached` must hold for finished jobs, or the wait may never end.
    ///
    /// # Errors
    /// As [`Client::wait_job`].
    pub async fn wait_job_until(
        &self,
        job: JobId,
        reached: impl Fn(&JobDetail) -> bool,
    ) -> Result<JobDetail, ClientError> {
        const UNITS_MAX: usize = 1;
        loop {
            let detail = self
                .get_job(job, UNITS_MAX, v1::Consistency::Linearizable)
                .await?;
            if reached(&detail) {
                return Ok(detail);
            }
            let mut watch = self.watch(Some(detail.revision), WatchFilter::job(job));
            loop {
                match watch.next().await {
                    Ok(WatchUpdate::Events { .. }) | Err(ClientError::Compacted { .. }) => break,
                    Ok(WatchUpdate::Bookmark { .. } | WatchUpdate::Resumed { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
