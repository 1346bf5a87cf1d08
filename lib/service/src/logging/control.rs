//! Logging of this process, and its control at run time.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::settings::{BrokenRule, LogFormat, LoggingSettings};
use tokio::time::{Instant, sleep_until};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::logging::levels::{InvalidLevel, LevelChange, Levels};
use crate::logging::recent::Recent;

static CONTROL: OnceLock<LogControl> = OnceLock::new();

/// Error of logging that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] BrokenRule),
    /// Another subscriber is installed already.
    #[error("cannot start logging: {0}")]
    Started(String),
}

/// Changes log levels at run time. Clones control the same logging.
#[derive(Clone, Debug)]
pub struct LogControl(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: reload::Handle<EnvFilter, Registry>,
    levels: Mutex<Levels>,
}

/// Starts logging on stderr and keeping the newest lines; once per process.
///
/// # Errors
/// See [`StartError`].
pub fn start(settings: &LoggingSettings) -> Result<LogControl, StartError> {
    let (filter, handle) = reload::Layer::new(settings.filter()?);
    let recent = fmt::layer().json().with_writer(Recent);
    let registry = tracing_subscriber::registry().with(filter).with(recent);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let started = match settings.format {
        LogFormat::Text => {
            let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            registry.with(lines.with_ansi(is_terminal)).try_init()
        }
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
    started.map_err(|error| StartError::Started(error.to_string()))?;
    let control = LogControl(Arc::new(Inner {
        handle,
        levels: Mutex::new(Levels::new(settings.filter.clone())),
    }));
    Ok(CONTROL.get_or_init(|| control).clone())
}

/// Returns the control of this process's logs, if [`start`] was called.
#[must_use]
pub fn control() -> Option<&'static LogControl> {
    CONTROL.get()
}

impl LogControl {
    /// Applies new settings; temporary changes stay in effect.
    ///
    /// # Errors
    /// The filter is invalid.
    pub fn rebase(&self, settings: &LoggingSettings) -> Result<(), BrokenRule> {
        settings.filter()?;
        self.edit(|levels| {
            levels.rebase(settings.filter.clone());
            Ok(())
        })
        .map(drop)
        .map_err(|error| BrokenRule {
            key: "logging.filter".to_owned(),
            rule: error.to_string(),
        })
    }

    /// Changes the level of a module for a while; afterwards it reverts by itself. Returns the resulting
    /// filter.
    ///
    /// # Errors
    /// See [`InvalidLevel`].
    pub fn change(&self, change: &LevelChange, span: Duration) -> Result<String, InvalidLevel> {
        let now = Instant::now();
        let filter = self.edit(|levels| levels.change(change, now, span))?;
        tracing::info!(filter, seconds = span.as_secs(), "log levels changed");
        let control = self.clone();
        tokio::spawn(async move {
            sleep_until(now + span).await;
            control.expire();
        });
        Ok(filter)
    }

    /// Returns the current filter.
    #[must_use]
    pub fn filter(&self) -> String {
        self.lock().filter()
    }

    fn expire(&self) {
        let now = Instant::now();
        let mut expired = false;
        let edited = self.edit(|levels| {
            expired = levels.expire(now);
            Ok(())
        });
        match edited {
            Ok(filter) if expired => tracing::info!(filter, "the log's levels are as before"),
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "cannot restore the log's levels"),
        }
    }

    /// Changes the levels and applies them.
    fn edit(
        &self,
        edit: impl FnOnce(&mut Levels) -> Result<(), InvalidLevel>,
    ) -> Result<String, InvalidLevel> {
        let mut levels = self.lock();
        edit(&mut levels)?;
        let filter = levels.filter();
        let fixed = |error: &dyn std::error::Error| InvalidLevel::Fixed(error.to_string());
        let read = EnvFilter::try_new(&filter).map_err(|error| fixed(&error))?;
        self.0.handle.reload(read).map_err(|error| fixed(&error))?;
        Ok(filter)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Levels> {
        self.0.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
