//! World in a file: its cluster and its faults as of the time of writing. Draws from seeds change with every
//! release; a minimized failure is replayed from its file nevertheless, as far as the draws of users, tasks
//! and network are unchanged.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sim::faults::plan::{FaultSelection, Plan};
use crate::sim::mutant::Mutant;
use crate::sim::scale::{Scale, Tempo};
use crate::sim::world::WorldOptions;

/// Version of the file format.
const FORMAT: u32 = 1;

/// A world in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    format: u32,
    /// Description of the failure that it shows.
    pub shows: String,
    seed: u64,
    faults_seconds: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mutant: Option<Mutant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jobs: Option<u32>,
    #[serde(default)]
    tempo: Tempo,
    /// The cluster and its faults.
    pub plan: Plan,
}

/// A file that is not a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It cannot be parsed.
    #[error("not a simulation script")]
    Malformed(#[from] serde_json::Error),
    /// A newer build wrote it.
    #[error("unsupported format {0}; this build reads format {FORMAT}")]
    Format(u32),
}

impl Script {
    /// The script of a world.
    #[must_use]
    pub fn of(options: &WorldOptions, shows: String) -> Self {
        Self {
            format: FORMAT,
            shows,
            seed: options.seed,
            faults_seconds: options.faults_s,
            mutant: options.mutant,
            jobs: options.jobs,
            tempo: options.scale.tempo,
            plan: options.plan(),
        }
    }

    /// Parses a script.
    ///
    /// # Errors
    /// [`ScriptError`] if it is not a script, or has another format.
    pub fn read(text: &str) -> Result<Self, ScriptError> {
        let script: Self = serde_json::from_str(text)?;
        if script.format != FORMAT {
            return Err(ScriptError::Format(script.format));
        }
        Ok(script)
    }

    /// The script as text.
    ///
    /// # Errors
    /// Never in practice: everything in it can be written as JSON.
    pub fn write(&self) -> Result<String, ScriptError> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// Options of the world that it describes.
    #[must_use]
    pub fn options(&self) -> WorldOptions {
        WorldOptions {
            seed: self.seed,
            faults_s: self.faults_seconds,
            mutant: self.mutant,
            faults: FaultSelection::Script(Arc::new(self.plan.clone())),
            jobs: self.jobs,
            scale: Scale {
                hosts: None,
                tempo: self.tempo,
            },
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_written_script_is_read_again_and_other_files_are_refused() {
        let options = WorldOptions {
            seed: 9,
            faults_s: 30,
            mutant: Some(Mutant::LongLease),
            ..WorldOptions::default()
        };
        let script = Script::of(&options, "exclusivity".to_owned());
        let text = script.write().unwrap();
        let read = Script::read(&text).unwrap();
        assert_eq!(read, script);
        let again = read.options();
        assert_eq!(again.plan(), options.plan());
        assert!(matches!(
            Script::read(&text.replace("\"format\": 1", "\"format\": 2")),
            Err(ScriptError::Format(2))
        ));
        assert!(Script::read("{}").is_err());
    }
}
