//! Provision of the image of a task's container, before the container is created.

use std::path::Path;

use muster_model::spec::{Container, PullPolicy};
use serde::Deserialize;

use crate::container::engine::{Engine, EngineError};
use crate::container::login::login;
use crate::container::progress::Progress;
use crate::lease::clock::boottime_ms;
use crate::output::log_error;

/// Interval between progress messages of a pull, in milliseconds.
const PROGRESS_INTERVAL_MS: u64 = 5_000;

/// Why an image is unavailable; shown to the job's owner.
#[derive(Debug, thiserror::Error)]
#[error(
    "IMAGE_UNAVAILABLE: the image `{image}` cannot be had: {why}; see that the name is right and that the engine of \
     this \
     host may fetch it, or put it on the host (pull: {})",
    policy_name(*.policy)
)]
pub(super) struct ImageUnavailable {
    image: String,
    why: String,
    policy: PullPolicy,
}

/// One progress line of a pull.
#[derive(Debug, Default, Deserialize)]
pub(super) struct PullEvent {
    /// The layer that it is about.
    #[serde(default)]
    pub(super) id: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(rename = "progressDetail", default)]
    pub(super) progress: Option<PullAmounts>,
    #[serde(default)]
    error: Option<String>,
}

/// Progress of a layer, in bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct PullAmounts {
    #[serde(default)]
    pub(super) current: u64,
    #[serde(default)]
    pub(super) total: u64,
}

/// Provides an image on this host by the container's pull policy; returns the engine's id for it. Progress
/// goes to standard error, which is the task's.
pub(super) fn obtain(
    engine: &Engine,
    container: &Container,
    auth_file: Option<&Path>,
) -> Result<String, ImageUnavailable> {
    let unavailable = |why: String| ImageUnavailable {
        image: container.image.clone(),
        why,
        policy: container.pull,
    };
    let inspect = || {
        engine
            .image(&container.image)
            .map_err(|error| unavailable(error.to_string()))
    };
    let found = match container.pull {
        PullPolicy::Always => None,
        PullPolicy::Missing | PullPolicy::Never => inspect()?,
    };
    if let Some(id) = found {
        return Ok(id);
    }
    if container.pull == PullPolicy::Never {
        return Err(unavailable("not present on the host".to_owned()));
    }
    log_error(&format!("pulling the image {}", container.image));
    let began_ms = boottime_ms();
    pull(engine, &container.image, auth_file).map_err(unavailable)?;
    let id = inspect()?;
    let took_ms = boottime_ms() - began_ms;
    log_error(&format!(
        "pulled the image {} in {took_ms} ms",
        container.image
    ));
    id.ok_or_else(|| unavailable("the engine pulled it but does not have it".to_owned()))
}

/// Pulls an image, or returns why it cannot be pulled.
fn pull(engine: &Engine, image: &str, auth_file: Option<&Path>) -> Result<(), String> {
    let login = auth_file
        .map(|file| login(file, image))
        .transpose()
        .map_err(|error| error.to_string())?
        .flatten();
    let mut exchange = engine
        .pull(image, login.as_ref())
        .map_err(|error| error.to_string())?;
    let broken = |source| {
        let operation = "pulling the image";
        EngineError::Broken { operation, source }.to_string()
    };
    let mut progress = Progress::default();
    let mut line = Vec::new();
    let mut reported_ms = boottime_ms();
    loop {
        let is_open = exchange.read().map_err(broken)?;
        line.extend(exchange.take());
        while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            let whole: Vec<u8> = line.drain(..=end).collect();
            handle_event(&whole, &mut progress)?;
        }
        if !is_open {
            return handle_event(&line, &mut progress);
        }
        if boottime_ms() >= reported_ms + PROGRESS_INTERVAL_MS {
            reported_ms = boottime_ms();
            log_error(&format!("pulling the image {image}: {progress}"));
        }
    }
}

/// Applies a progress line of a pull. Other lines are ignored.
fn handle_event(line: &[u8], progress: &mut Progress) -> Result<(), String> {
    let event: PullEvent = serde_json::from_slice(line).unwrap_or_default();
    match event.error {
        Some(error) => Err(error),
        None => {
            progress.note(event);
            Ok(())
        }
    }
}

const fn policy_name(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Missing => "missing",
        PullPolicy::Always => "always",
        PullPolicy::Never => "never",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_events_of_an_engine_are_applied_or_skipped() {
        let mut progress = Progress::default();
        let lines = [
            &br#"{"status":"Pulling fs layer","id":"a"}"#[..],
            br#"{"status":"Downloading","id":"a","progressDetail":{"current":3000000,"total":9000000}}"#,
            br#"{"status":"Pull complete","id":"b","progressDetail":{}}"#,
            br#"{"stream":"noise"}"#,
            b"\n",
            b"",
        ];
        for line in lines {
            assert_eq!(handle_event(line, &mut progress), Ok(()));
        }
        assert_eq!(progress.to_string(), "1 of 2 layers, 3 of 9 MB");
        let error = br#"{"errorDetail":{"message":"denied"},"error":"denied"}"#;
        assert_eq!(handle_event(error, &mut progress), Err("denied".to_owned()));
    }
}
