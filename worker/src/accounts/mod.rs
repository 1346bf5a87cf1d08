//! Whom this host's tasks run as: which account, and which may not be it.

mod config;
mod places;

use std::collections::BTreeMap;
use std::io;

use muster_supervisor::{Account, TaskIdentity};
use rustix::process::geteuid;

pub use config::{RunAs, TasksConfig};
pub(crate) use places::{PlaceError, open_to_accounts};

/// The name of the host's label that says whom tasks run as.
pub(crate) const LABEL: &str = "muster.run-as";

/// Why a worker that is to run tasks as others does not start.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// It is not root.
    #[error(
        "`tasks.run_as` is `{0}`, but this worker is not root: only root runs tasks as others; start it as root, or set `tasks.run_as = \
         \"agent\"`"
    )]
    NotRoot(String),
    /// It is.
    #[error(
        "`tasks.run_as` is `agent`, and this worker is root: tasks run as root only where the host allows it (`tasks.allow_root`); let them run \
         as `submitter`, or as an account of your choice"
    )]
    Root,
    /// An account that the settings name is none that tasks may run as.
    #[error("`{key}`: {reason}")]
    Account {
        /// Where it is named.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What tasks need of the data directory is not open to them.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Whom this host's tasks run as.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    whose: Whose,
    allow_root: bool,
    min_uid: u32,
    /// Why none of them can run, if what they need is not open to them.
    closed: Option<String>,
}

#[derive(Clone, Debug)]
enum Whose {
    /// The agent's.
    Agent,
    /// One account, as it was when the agent started.
    One(Account),
    /// Of the user of each, who may have another name here.
    Submitters(BTreeMap<String, String>),
}

impl Accounts {
    /// The agent's user for all tasks.
    #[cfg(test)]
    pub(crate) const fn agents() -> Self {
        Self {
            whose: Whose::Agent,
            allow_root: false,
            min_uid: config::USERS_BEGIN,
            closed: None,
        }
    }

    /// As the settings say. `has_proof`: replicas and workers have certificates, so users have proven who they are.
    ///
    /// # Errors
    /// What cannot be so on this host.
    pub(crate) fn open(config: &TasksConfig, has_proof: bool) -> Result<Self, AccountsError> {
        let is_root = geteuid().is_root();
        let mut accounts = Self {
            whose: Whose::Agent,
            allow_root: config.allow_root,
            min_uid: config.min_uid,
            closed: None,
        };
        match &config.run_as {
            RunAs::Auto if !is_root => return Ok(accounts),
            RunAs::Auto if !has_proof => {
                tracing::warn!(
                    "this worker is root and has no certificates: tasks run as root, for whoever reaches its replicas (`tasks.run_as`)"
                );
                return Ok(accounts);
            }
            RunAs::Agent if is_root && !config.allow_root => return Err(AccountsError::Root),
            RunAs::Agent => return Ok(accounts),
            named if !is_root => return Err(AccountsError::NotRoot(named.clone().into())),
            RunAs::Account(name) => {
                if let Some(account) = accounts.named("tasks.run_as", name)? {
                    accounts.whose = Whose::One(account);
                }
            }
            RunAs::Submitter | RunAs::Auto => {
                for (user, name) in &config.users {
                    accounts.named(&format!("tasks.users.{user}"), name)?;
                }
                accounts.whose = Whose::Submitters(config.users.clone());
            }
        }
        Ok(accounts)
    }

    /// An account that the settings name; none if that is root, and may be.
    fn named(&self, key: &str, name: &str) -> Result<Option<Account>, AccountsError> {
        let found = self.find(name).map_err(|reason| AccountsError::Account {
            key: key.to_owned(),
            reason,
        })?;
        tracing::info!(account = name, uid = found.uid, "tasks may run as it");
        Ok((found.uid != 0).then_some(found))
    }

    /// Whether tasks run as others than the agent.
    pub(crate) const fn are_others(&self) -> bool {
        !matches!(self.whose, Whose::Agent)
    }

    /// What the host's label says; none where tasks run as the agent.
    pub(crate) fn label(&self) -> Option<String> {
        match &self.whose {
            Whose::Agent => None,
            Whose::One(account) => Some(account.name.clone()),
            Whose::Submitters(_) => Some(String::from(RunAs::Submitter)),
        }
    }

    /// Runs no task any more, because of this: those that run already go on, as they would not if the agent did not start.
    pub(crate) fn close(&mut self, error: &PlaceError) {
        tracing::error!(%error, "no task begins on this host");
        self.closed = Some(format!("NO_ACCOUNT: {error}"));
    }

    /// Who a task of a user is here. The user database may be on another machine, and is asked off the runtime's threads.
    pub(crate) async fn identity_of(&self, user: &str) -> TaskIdentity {
        if !matches!(self.whose, Whose::Submitters(_)) {
            return self.look_up(user);
        }
        let (accounts, user) = (self.clone(), user.to_owned());
        let found = tokio::task::spawn_blocking(move || accounts.look_up(&user)).await;
        found.unwrap_or_else(|error| TaskIdentity {
            refusal: Some(format!("looking its account up broke off: {error}")),
            ..TaskIdentity::default()
        })
    }

    fn look_up(&self, user: &str) -> TaskIdentity {
        let found = match &self.whose {
            _ if self.closed.is_some() => Err(self.closed.clone().unwrap_or_default()),
            Whose::Agent => return TaskIdentity::default(),
            Whose::One(account) => Ok(account.clone()),
            Whose::Submitters(names) => self.of_submitter(names, user),
        };
        let (account, refusal) = match found {
            // Root runs it as it is itself.
            Ok(account) => (Some(account).filter(|account| account.uid != 0), None),
            Err(why) => (None, Some(why)),
        };
        TaskIdentity {
            account,
            refusal,
            any_container_user: self.allow_root,
        }
    }

    fn of_submitter(
        &self,
        names: &BTreeMap<String, String>,
        user: &str,
    ) -> Result<Account, String> {
        if user.is_empty() {
            return Err(
                "NO_ACCOUNT: tasks run as their job's user here (`tasks.run_as`), and the leader does not say who that is: it is of an \
                 older version, upgrade the replicas first"
                    .to_owned(),
            );
        }
        let name = names.get(user).map_or(user, String::as_str);
        self.find(name)
            .map_err(|why| format!("NO_ACCOUNT: tasks of the user `{user}` do not run here: {why}"))
    }

    /// The account of a name, if tasks may run as it.
    ///
    /// # Errors
    /// Why they may not, with the way out.
    fn find(&self, name: &str) -> Result<Account, String> {
        self.judge(name, Account::find(name))
    }

    fn judge(&self, name: &str, found: io::Result<Option<Account>>) -> Result<Account, String> {
        let account = match found {
            Ok(Some(account)) => account,
            Ok(None) => {
                return Err(format!(
                    "this host has no account `{name}`: make one, or name another one (`tasks.users`, `tasks.run_as` of the worker)"
                ));
            }
            Err(error) => return Err(format!("looking the account `{name}` up failed: {error}")),
        };
        let uid = account.uid;
        if uid == 0 && !self.allow_root {
            return Err(format!(
                "the account `{name}` is root (uid 0), as which tasks run only where the host allows it (`tasks.allow_root` of the worker)"
            ));
        }
        if uid != 0 && uid < self.min_uid {
            return Err(format!(
                "the account `{name}` has the uid {uid}, and those below {} are the system's own (`tasks.min_uid` of the worker)",
                self.min_uid
            ));
        }
        Ok(account)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn submitters(allow_root: bool, names: &[(&str, &str)]) -> Accounts {
        let names = { names.iter() }.map(|(user, name)| ((*user).to_owned(), (*name).to_owned()));
        Accounts {
            whose: Whose::Submitters(names.collect()),
            allow_root,
            min_uid: 1_000,
            closed: None,
        }
    }

    fn refusal(accounts: &Accounts, user: &str) -> String {
        let identity = accounts.look_up(user);
        assert_eq!(identity.account, None);
        identity.refusal.unwrap()
    }

    #[test]
    fn a_submitter_is_the_account_of_that_name_or_the_one_that_the_host_names() {
        let accounts = submitters(false, &[("ada@example.org", "nobody")]);
        for user in ["nobody", "ada@example.org"] {
            let identity = accounts.look_up(user);
            assert_eq!(identity.account, Account::find("nobody").unwrap(), "{user}");
            assert_eq!(identity.refusal, None);
            assert!(!identity.any_container_user);
        }
    }

    #[test]
    fn who_has_no_account_or_one_of_the_system_is_refused_with_the_way_out() {
        let accounts = submitters(false, &[("eve", "root")]);
        for (user, account, way_out) in [
            ("no-such-user", "`no-such-user`", "tasks.users"),
            ("root", "`root`", "tasks.allow_root"),
            ("eve", "`root`", "tasks.allow_root"),
            ("daemon", "`daemon`", "tasks.min_uid"),
            ("0", "`0`", "tasks.users"),
            ("", "job's user", "upgrade the replicas"),
        ] {
            let why = refusal(&accounts, user);
            assert!(
                why.starts_with("NO_ACCOUNT: ") && why.contains(account),
                "{why}"
            );
            assert!(why.contains(way_out), "{why}");
        }
    }

    #[test]
    fn root_is_itself_where_the_host_allows_it() {
        let identity = submitters(true, &[]).look_up("root");
        assert_eq!((identity.account, identity.refusal), (None, None));
    }

    #[test]
    fn a_worker_that_is_root_runs_tasks_as_root_only_by_its_hosts_word() {
        let config = |run_as: &str, allow_root| TasksConfig {
            run_as: RunAs::from(run_as.to_owned()),
            allow_root,
            ..TasksConfig::default()
        };
        let open = |run_as: &str, allow_root, has_proof| {
            Accounts::open(&config(run_as, allow_root), has_proof)
        };
        if !geteuid().is_root() {
            for run_as in ["submitter", "nobody"] {
                let error = open(run_as, false, true).unwrap_err();
                assert!(matches!(error, AccountsError::NotRoot(_)), "{error}");
            }
            assert_eq!(open("auto", false, true).unwrap().label(), None);
            return;
        }
        // Without certificates nobody has proven anything: whoever reaches the replicas may do everything anyway.
        assert_eq!(open("auto", false, false).unwrap().label(), None);
        let label = |run_as| open(run_as, false, true).unwrap().label();
        assert_eq!(label("auto").as_deref(), Some("submitter"));
        assert_eq!(label("nobody").as_deref(), Some("nobody"));
        assert!(matches!(
            open("agent", false, true),
            Err(AccountsError::Root)
        ));
        assert_eq!(open("agent", true, true).unwrap().label(), None);
        for missing in ["no-such-account", "root", "daemon"] {
            let error = open(missing, false, true).unwrap_err().to_string();
            assert!(
                error.contains("tasks.run_as") && error.contains(missing),
                "{error}"
            );
        }
        let users = BTreeMap::from([("ada".to_owned(), "no-such-account".to_owned())]);
        let named = TasksConfig {
            users,
            ..config("submitter", false)
        };
        let error = Accounts::open(&named, true).unwrap_err().to_string();
        assert!(error.contains("tasks.users.ada"), "{error}");
    }
}
