//! Effect of a changed file on a running role.

use crate::settings::Settings;
use crate::settings::load::Loaded;
use crate::settings::option::options;

/// Options that differ between the running and the newly read settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that take effect at once.
    pub reloaded: Vec<String>,
    /// Those that take effect after a restart of the role.
    pub need_restart: Vec<String>,
}

/// Compares newly read settings with those of a running role.
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
