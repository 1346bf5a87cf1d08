//! Rust SDK: access to a Muster cluster through any of its replicas.
//!
//! ```no_run
//! # async fn example(spec: muster_proto::v1::JobSpec) -> Result<(), muster_client::ClientError> {
//! use muster_client::{Client, ClientConfig};
//!
//! let client = Client::connect(ClientConfig::new(["node1:7400", "node2:7400"])).await?;
//! let submitted = client.submit_job(spec).await?;
//! let job = client.wait_job(submitted.job).await?;
//! println!("{:?}", job.phase());
//! # Ok(())
//! # }
//! ```
//!
//! Every call has a deadline and is retried, at another replica if one is known, while the failure may be
//! temporary. That is safe for writes because a request id is created once per call, and the cluster
//! recognises a repeated request. A [`Watch`] and a [`TaskLogs`] continue, without gap or duplicate, after
//! the death of a replica interrupted them.
#![forbid(unsafe_code)]

pub mod calls;
mod client;
mod config;
mod error;
mod exec;
mod logs;
mod requests;
mod submit_span;
mod transport;
mod wait;
mod watch;
mod watch_position;

pub use client::{Client, new_request_id};
pub use config::ClientConfig;
pub use error::{ClientError, FailedAttempt, Refusal};
pub use exec::{Exec, ExecInput, ExecOptions, ExecUpdate};
pub use logs::{LogUpdate, LogsRequest, TaskLogs};
pub use muster_etcd::EtcdSettings;
pub use muster_tls::{JoinToken, TlsMismatch, TlsSettings, Token};
pub use requests::audit::AuditRecords;
pub use requests::backup::SavedSnapshot;
pub use requests::export::{Export, ExportProgress};
pub use requests::jobs::{JobDetail, Submitted};
pub use requests::join_tokens::JoinTokenOptions;
pub use requests::pipelines::{PipelineDetail, SubmittedPipeline};
pub use watch::{Watch, WatchFilter, WatchUpdate};
pub use watch_position::WatchPosition;
