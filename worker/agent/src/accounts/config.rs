//! Whom a host's tasks run as, as its settings say.

use std::collections::BTreeMap;

use muster_service::settings::{BrokenRule, misspelt};
use muster_supervisor::Account;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Numbers below it are the system's own accounts, on most systems (`UID_MIN` in `/etc/login.defs`).
pub(super) const USERS_BEGIN: u32 = 1_000;

/// Words of `tasks.run_as` that are no accounts' names.
const KEYWORDS: [&str; 3] = ["auto", "submitter", "agent"];

/// Whom a host's tasks run as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TasksConfig {
    /// Whom tasks run as: `submitter` (the account of this host that has the name of the job's user), `agent` (the worker's own user),
    /// the name of an account that all of them share, or `auto`: the submitter where the worker is root and has certificates, so that
    /// users have proven who they are, else the worker's own user. As root only with `allow_root`: without it the worker does not start.
    #[schemars(with = "String")]
    pub run_as: RunAs,
    /// Whether tasks may run as root: as the own user of a worker that is root, as an account with the number 0, or in a container as a
    /// user of the job's choice.
    pub allow_root: bool,
    /// Lowest number (uid) of an account that tasks may run as: those below are the system's own.
    pub min_uid: u32,
    /// Accounts of users who have another name here, by the users' names: `{ "alice@example.org" = "asmith" }`.
    pub users: BTreeMap<String, String>,
}

impl Default for TasksConfig {
    fn default() -> Self {
        Self {
            run_as: RunAs::Auto,
            allow_root: false,
            min_uid: USERS_BEGIN,
            users: BTreeMap::new(),
        }
    }
}

/// Whom tasks run as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RunAs {
    /// Their job's user where users have proven who they are and the worker can; else the worker's own user.
    #[default]
    Auto,
    /// The account of their job's user.
    Submitter,
    /// The worker's own user.
    Agent,
    /// One account.
    Account(String),
}

impl From<String> for RunAs {
    /// Reads `auto`, `submitter`, `agent`, or else an account's name.
    fn from(word: String) -> Self {
        match &*word {
            "auto" => Self::Auto,
            "submitter" => Self::Submitter,
            "agent" => Self::Agent,
            _ => Self::Account(word),
        }
    }
}

impl From<RunAs> for String {
    fn from(run_as: RunAs) -> Self {
        match run_as {
            RunAs::Auto => "auto".to_owned(),
            RunAs::Submitter => "submitter".to_owned(),
            RunAs::Agent => "agent".to_owned(),
            RunAs::Account(name) => name,
        }
    }
}

impl TasksConfig {
    /// Checks the rules that need nothing but the settings: whether an account is there, its host alone knows. A name that is nearly a
    /// word of ours is a slip, though, unless there is such an account where this is checked.
    pub(crate) fn validate(&self) -> Result<(), BrokenRule> {
        let broken = |key: &str, rule: &str| {
            Err(BrokenRule {
                key: key.to_owned(),
                rule: rule.to_owned(),
            })
        };
        if let RunAs::Account(name) = &self.run_as
            && let Some(keyword) = misspelt(name, &KEYWORDS)
            && matches!(Account::find(name), Ok(None))
        {
            let rule = format!(
                "there is no account `{name}` here; did you mean `{keyword}`? If an account has that name, check this where it is"
            );
            return broken("tasks.run_as", &rule);
        }
        if self.run_as == RunAs::Account(String::new()) {
            return broken(
                "tasks.run_as",
                "must be `auto`, `submitter`, `agent` or the name of an account",
            );
        }
        if { self.users.iter() }.any(|(user, account)| user.is_empty() || account.is_empty()) {
            return broken(
                "tasks.users",
                "must name a user and an account in each entry",
            );
        }
        let has_users = !self.users.is_empty();
        if has_users && matches!(self.run_as, RunAs::Agent | RunAs::Account(_)) {
            return broken(
                "tasks.users",
                "must be empty unless `tasks.run_as` is `submitter` or `auto`: nobody's name is looked at",
            );
        }
        if self.min_uid == 0 && !self.allow_root {
            return broken(
                "tasks.min_uid",
                "must be at least 1 unless `tasks.allow_root` is set: 0 is root",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_settings_are_named() {
        assert_eq!(TasksConfig::default().validate(), Ok(()));
        let users = BTreeMap::from([("alice".to_owned(), "asmith".to_owned())]);
        let of = |run_as: &str, users: &BTreeMap<String, String>, min_uid| TasksConfig {
            run_as: RunAs::from(run_as.to_owned()),
            users: users.clone(),
            min_uid,
            ..TasksConfig::default()
        };
        assert_eq!(of("submitter", &users, 500).validate(), Ok(()));
        let nameless = BTreeMap::from([("alice".to_owned(), String::new())]);
        for (bad, key) in [
            (of("", &BTreeMap::new(), 1_000), "tasks.run_as"),
            (of("submiter", &BTreeMap::new(), 1_000), "tasks.run_as"),
            (of("Agent", &users, 1_000), "tasks.run_as"),
            (of("nobody", &users, 1_000), "tasks.users"),
            (of("auto", &nameless, 1_000), "tasks.users"),
            (of("auto", &users, 0), "tasks.min_uid"),
        ] {
            let found = bad.validate().map_err(|broken| broken.key);
            assert_eq!(found, Err(key.to_owned()));
        }
        // What is like no word of ours is an account's name, which its host knows.
        assert_eq!(
            of("muster-tasks", &BTreeMap::new(), 1_000).validate(),
            Ok(())
        );
        let slip = of("submiter", &BTreeMap::new(), 1_000).validate();
        let rule = slip.map_err(|broken| broken.rule);
        assert!(
            matches!(&rule, Err(rule) if rule.contains("did you mean `submitter`?")),
            "{rule:?}"
        );
    }

    #[test]
    fn whom_tasks_run_as_is_written_as_it_is_read() {
        for word in ["auto", "submitter", "agent", "nobody"] {
            assert_eq!(String::from(RunAs::from(word.to_owned())), word);
        }
    }
}
