//! Settings for the accounts that a host's tasks run as.

use std::collections::BTreeMap;

use muster_service::settings::BrokenRule;
use muster_supervisor::Account;
use muster_text::misspelt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// First uid of ordinary users; lower ones are system accounts on most systems (`UID_MIN` in
/// `/etc/login.defs`).
pub(super) const USERS_BEGIN: u32 = 1_000;

/// Values of `tasks.run_as` that are not account names.
const KEYWORDS: [&str; 3] = ["auto", "submitter", "agent"];

/// Accounts that a host's tasks run as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TasksConfig {
    /// Account that tasks run as: `submitter` (the account of this host with the name of the job's user),
    /// `agent` (the worker's own user), the name of one account for all tasks, or `auto`: `submitter` if
    /// the worker is root and has certificates, so that users are authenticated, else `agent`. Running
    /// tasks as root needs `allow_root`: without it the worker does not start.
    #[schemars(with = "String")]
    pub run_as: RunAs,
    /// Allows tasks to run as root: as the own user of a worker that is root, as an account with uid 0, or
    /// in a container as a user that the job chooses.
    pub allow_root: bool,
    /// Lowest uid of an account that tasks may run as; lower ones are system accounts.
    pub min_uid: u32,
    /// Accounts of users whose account has another name on this host, by user name:
    /// `{ "alice@example.org" = "asmith" }`.
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

/// Account that tasks run as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RunAs {
    /// The job's user if users are authenticated and the worker is root; else the worker's own user.
    #[default]
    Auto,
    /// The account of the job's user.
    Submitter,
    /// The worker's own user.
    Agent,
    /// One account for all tasks.
    Account(String),
}

impl From<String> for RunAs {
    /// Parses `auto`, `submitter` or `agent`; any other text is an account name.
    fn from(text: String) -> Self {
        match &*text {
            "auto" => Self::Auto,
            "submitter" => Self::Submitter,
            "agent" => Self::Agent,
            _ => Self::Account(text),
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
    /// Checks the rules that need only the settings; whether an account exists is known only on its host. A
    /// name that is close to a keyword is rejected as a typing error unless such an account exists here.
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
                "no account `{name}` on this machine; did you mean `{keyword}`? \
                 If the account exists on the worker's host, check the settings there"
            );
            return broken("tasks.run_as", &rule);
        }
        if self.run_as == RunAs::Account(String::new()) {
            return broken(
                "tasks.run_as",
                "must be `auto`, `submitter`, `agent` or the name of an account",
            );
        }
        if self
            .users
            .iter()
            .any(|(user, account)| user.is_empty() || account.is_empty())
        {
            return broken(
                "tasks.users",
                "must name a user and an account in each entry",
            );
        }
        let has_users = !self.users.is_empty();
        if has_users && matches!(self.run_as, RunAs::Agent | RunAs::Account(_)) {
            return broken(
                "tasks.users",
                "must be empty unless `tasks.run_as` is `submitter` or `auto`: user names are not used",
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
        // A name unlike any keyword is an account name, which only its host can check.
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
    fn the_account_of_tasks_is_written_as_it_is_read() {
        for text in ["auto", "submitter", "agent", "nobody"] {
            assert_eq!(String::from(RunAs::from(text.to_owned())), text);
        }
    }
}
