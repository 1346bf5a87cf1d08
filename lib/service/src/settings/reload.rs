//! What a changed file changes in a role that runs.

use crate::settings::Settings;
use crate::settings::load::Loaded;
use crate::settings::option::options;

/// Options that differ between what runs and what was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that take effect at once.
    pub reloaded: Vec<String>,
    /// Those that take effect when the role is started again.
    pub need_restart: Vec<String>,
}

/// Compares settings with those that a role runs with.
#[must_use]
pub fn changes<S: Settings>(running: &Loaded<S>, read: &Loaded<S>) -> Changes {
    let mut changes = Changes::default();
    for option in options::<S>() {
        if option.of(&running.tree) == option.of(&read.tree) {
            continue;
        }
        if option.reloads {
            changes.reloaded.push(option.key);
        } else {
            changes.need_restart.push(option.key);
        }
    }
    changes
}
