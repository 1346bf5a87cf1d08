//! Settings that are reloaded while a service runs.

use std::convert::Infallible;

use muster_service::logging::LogControl;
use muster_service::settings::{Loaded, Origin, changes};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::settings::{Service, Source};

/// Reads a service's settings at every SIGHUP.
pub(super) struct Reloader<S> {
    source: Source<S>,
    /// The settings at startup: options that need a restart are compared with them.
    begun: Loaded<S>,
    /// The last settings passed to the service.
    newest: Loaded<S>,
    log: LogControl,
    sender: watch::Sender<S>,
}

impl<S: Service> Reloader<S> {
    /// Reloader for a service with these settings, and the channel with the newest ones.
    pub(super) fn new(
        source: Source<S>,
        begun: Loaded<S>,
        log: LogControl,
    ) -> (Self, watch::Receiver<S>) {
        let (sender, receiver) = watch::channel(begun.settings.clone());
        let reloader = Self {
            source,
            newest: begun.clone(),
            begun,
            log,
            sender,
        };
        (reloader, receiver)
    }

    /// Reloads at every signal.
    pub(super) async fn run(mut self) -> Infallible {
        match signal(SignalKind::hangup()) {
            Ok(mut hang_up) => {
                while hang_up.recv().await.is_some() {
                    self.reload();
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot install the reload signal: settings will not be reloaded")
            }
        }
        std::future::pending().await
    }

    fn reload(&mut self) {
        let read = match self.source.load() {
            Ok(read) => read,
            Err(failure) => {
                let problems = failure.text();
                tracing::error!(
                    problems,
                    "settings not reloaded: the current ones stay in force"
                );
                return;
            }
        };
        let reloaded = changes(&self.newest, &read).reloaded;
        let need_restart = changes(&self.begun, &read).need_restart;
        let overridden = read
            .origins
            .iter()
            .filter_map(|(key, origin)| match origin {
                Origin::File { .. } => None,
                origin => Some(format!("{key} ({origin})")),
            });
        let overridden = overridden.collect::<Vec<_>>().join(", ");
        tracing::info!(
            changed = reloaded.join(", "),
            overridden,
            "settings reloaded"
        );
        if !need_restart.is_empty() {
            let options = need_restart.join(", ");
            tracing::warn!(
                options,
                "changed options take effect after a restart of the service"
            );
        }
        if let Err(error) = self.log.rebase(read.settings.logging()) {
            tracing::error!(%error, "cannot change the log filter");
        }
        self.sender.send_replace(read.settings.clone());
        self.newest = read;
    }
}
