//! Debug information and log level of this worker.

use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::debug_answer::What as Answer;
use muster_proto::v1::debug_order::What as Question;
use muster_service::logging::{LevelChange, LogControl};

use crate::config::WorkerConfig;

/// Answers a request that the leader passes on from an admin.
pub(super) fn answer(order: v1::DebugOrder, settings: &WorkerConfig) -> v1::DebugAnswer {
    let answered = match order.what {
        Some(Question::SetLogLevel(request)) => set_level(&request).map(Answer::LogLevel),
        Some(Question::Tell(_)) => info(settings).map(Answer::Info),
        None => Err("the worker is of an older version and does not know this request".to_owned()),
    };
    v1::DebugAnswer {
        id: order.id,
        what: Some(answered.unwrap_or_else(Answer::Error)),
    }
}

fn set_level(request: &v1::SetLogLevelRequest) -> Result<v1::SetLogLevelResponse, String> {
    let control =
        muster_service::logging::control().ok_or("this process does not log by itself")?;
    let change: Result<LevelChange, _> = request.change.parse();
    let filter = change
        .and_then(|change| control.change(&change, Duration::from_millis(request.for_ms)))
        .map_err(|error| error.to_string())?;
    Ok(v1::SetLogLevelResponse { filter })
}

fn info(settings: &WorkerConfig) -> Result<v1::GetDebugInfoResponse, String> {
    let written = serde_json::to_value(settings).map_err(|error| error.to_string())?;
    let metrics = match settings.metrics_listen {
        Some(_) => muster_service::exporter::install()?.render(),
        // Nothing is measured.
        None => String::new(),
    };
    Ok(v1::GetDebugInfoResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: muster_service::logging::redact_value(written).to_string(),
        log_filter: muster_service::logging::control().map_or_else(String::new, LogControl::filter),
        log_lines: muster_service::logging::recent_lines(),
        metrics: muster_service::logging::redact(&metrics),
    })
}
