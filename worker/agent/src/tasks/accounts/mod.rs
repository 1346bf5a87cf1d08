//! Accounts that this host's tasks run as, and the checks that refuse an account.

mod config;
mod permissions;
mod refusal;

use std::collections::BTreeMap;
use std::io;

use muster_supervisor::{Account, TaskIdentity};
use rustix::process::geteuid;

pub use config::{RunAs, TasksConfig};
pub(crate) use permissions::{PermissionError, open_to_accounts};
pub(crate) use refusal::Reason;
use refusal::Refusal;

use crate::metrics;

/// The host label that shows the account of tasks.
pub(crate) const LABEL: &str = "muster.run-as";

/// Reasons why a worker that runs tasks as other accounts does not start.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// The worker is not root.
    #[error(
        "`tasks.run_as` is `{0}`, but this worker is not root: only root can run tasks as others; \
         start it as root, or set `tasks.run_as = \"agent\"`"
    )]
    NotRoot(String),
    /// The worker is root and would run tasks as root.
    #[error(
        "`tasks.run_as` is `agent`, and this worker is root: tasks may run as root only with \
         `tasks.allow_root`; choose `submitter` or an account"
    )]
    Root,
    /// The worker is root and users are not authenticated.
    #[error(
        "this worker is root and has no certificates: any client that reaches \
         the replicas could run tasks as root. Configure certificates (`tls`), an account for tasks \
         (`tasks.run_as`) or another user for the worker, or set `tasks.allow_root = true`"
    )]
    Unproven,
    /// An account in the settings is not one that tasks may run as.
    #[error("`{key}`: {reason}")]
    Account {
        /// The setting that names it.
        key: String,
        /// The problem with it.
        reason: String,
    },
    /// Tasks cannot reach what they need in the data directory.
    #[error(transparent)]
    Permission(#[from] PermissionError),
}

/// Accounts that this host's tasks run as.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    whose: AccountSource,
    allow_root: bool,
    min_uid: u32,
    /// Why no task can start, if what tasks need is not accessible to them.
    closed: Option<Refusal>,
}

#[derive(Clone, Debug)]
enum AccountSource {
    /// The agent's account.
    Agent,
    /// One account, as it was when the agent started.
    One(Account),
    /// The account of each job's user; the map holds users whose account has another name.
    Submitters(BTreeMap<String, String>),
}

impl Accounts {
    /// Runs all tasks as the agent's user.
    #[cfg(test)]
    pub(crate) const fn agents() -> Self {
        Self {
            whose: AccountSource::Agent,
            allow_root: false,
            min_uid: config::USERS_BEGIN,
            closed: None,
        }
    }

    /// Applies the settings. `has_proof`: replicas and workers have certificates, so users are
    /// authenticated.
    ///
    /// # Errors
    /// If the settings cannot be applied on this host.
    pub(crate) fn open(config: &TasksConfig, has_proof: bool) -> Result<Self, AccountsError> {
        let is_root = geteuid().is_root();
        let mut accounts = Self {
            whose: AccountSource::Agent,
            allow_root: config.allow_root,
            min_uid: config.min_uid,
            closed: None,
        };
        match &config.run_as {
            RunAs::Auto if !is_root => return Ok(accounts),
            RunAs::Auto if !has_proof && !config.allow_root => return Err(AccountsError::Unproven),
            RunAs::Auto if !has_proof => {
                tracing::warn!(
                    "this worker is root and has no certificates: any client that reaches the replicas \
                     can run tasks as root (`tasks.allow_root`)"
                );
                return Ok(accounts);
            }
            RunAs::Agent if is_root && !config.allow_root => return Err(AccountsError::Root),
            RunAs::Agent => return Ok(accounts),
            named if !is_root => return Err(AccountsError::NotRoot(named.clone().into())),
            RunAs::Account(name) => {
                if let Some(account) = accounts.named("tasks.run_as", name)? {
                    accounts.whose = AccountSource::One(account);
                }
            }
            RunAs::Submitter | RunAs::Auto => {
                for (user, name) in &config.users {
                    accounts.named(&format!("tasks.users.{user}"), name)?;
                }
                accounts.whose = AccountSource::Submitters(config.users.clone());
            }
        }
        Ok(accounts)
    }

    /// The account that a setting names; none if it is root and root is allowed.
    fn named(&self, key: &str, name: &str) -> Result<Option<Account>, AccountsError> {
        let found = self.find(name).map_err(|refusal| AccountsError::Account {
            key: key.to_owned(),
            reason: refusal.message,
        })?;
        tracing::info!(
            account = name,
            uid = found.uid,
            "tasks may run as this account"
        );
        Ok((found.uid != 0).then_some(found))
    }

    /// Whether tasks run as accounts other than the agent's.
    pub(crate) const fn are_others(&self) -> bool {
        !matches!(self.whose, AccountSource::Agent)
    }

    /// Value of the host's label; none if tasks run as the agent.
    pub(crate) fn label(&self) -> Option<String> {
        match &self.whose {
            AccountSource::Agent => None,
            AccountSource::One(account) => Some(account.name.clone()),
            AccountSource::Submitters(_) => Some(String::from(RunAs::Submitter)),
        }
    }

    /// Refuses every new task because of `error`. Running tasks continue; they would not if the agent did
    /// not start.
    pub(crate) fn close(&mut self, error: &PermissionError) {
        tracing::error!(%error, "this host starts no tasks");
        self.closed = Some(Refusal::new(Reason::Closed, error.to_string()));
    }

    /// The account of a user's task on this host. The user database may be remote, so it is queried off the
    /// runtime's threads.
    pub(crate) async fn identity_of(&self, user: &str) -> TaskIdentity {
        let found = if matches!(self.whose, AccountSource::Submitters(_)) {
            let (accounts, user) = (self.clone(), user.to_owned());
            let found = tokio::task::spawn_blocking(move || accounts.look_up(&user)).await;
            found.unwrap_or_else(|error| {
                let message = format!("account lookup aborted: {error}");
                Err(Refusal::new(Reason::Lookup, message))
            })
        } else {
            self.look_up(user)
        };
        let (account, refusal) = match found {
            Ok(account) => (account, None),
            Err(refusal) => {
                metrics::task_refused(refusal.reason);
                (None, Some(refusal.message()))
            }
        };
        let any_container_user = self.allow_root && self.are_others();
        TaskIdentity {
            account,
            refusal,
            any_container_user,
        }
    }

    /// The account; none if it is the agent's.
    fn look_up(&self, user: &str) -> Result<Option<Account>, Refusal> {
        if let Some(refusal) = &self.closed {
            return Err(refusal.clone());
        }
        let account = match &self.whose {
            AccountSource::Agent => return Ok(None),
            AccountSource::One(account) => account.clone(),
            AccountSource::Submitters(names) => self.of_submitter(names, user)?,
        };
        // A task of root runs as the agent, which is root.
        Ok(Some(account).filter(|account| account.uid != 0))
    }

    fn of_submitter(
        &self,
        names: &BTreeMap<String, String>,
        user: &str,
    ) -> Result<Account, Refusal> {
        if user.is_empty() {
            return Err(Refusal::new(
                Reason::Unnamed,
                "tasks run as their job's user on this host (`tasks.run_as`), but the leader \
                 is of an older version and does not send the user: upgrade the replicas first",
            ));
        }
        let name = names.get(user).map_or(user, String::as_str);
        self.find(name).map_err(|Refusal { reason, message }| {
            let message = format!("tasks of the user `{user}` cannot run on this host: {message}");
            Refusal { reason, message }
        })
    }

    /// Looks up an account by name and checks whether tasks may run as it.
    ///
    /// # Errors
    /// The reason for refusal, with the way out.
    fn find(&self, name: &str) -> Result<Account, Refusal> {
        self.judge(name, Account::find(name))
    }

    fn judge(&self, name: &str, found: io::Result<Option<Account>>) -> Result<Account, Refusal> {
        let account = match found {
            Ok(Some(account)) => account,
            Ok(None) => {
                let message = format!(
                    "this host has no account `{name}`: create it, or configure another one (`tasks.users` or \
                     `tasks.run_as` of the worker)"
                );
                return Err(Refusal::new(Reason::Missing, message));
            }
            Err(error) => {
                let message = format!("looking up the account `{name}` failed: {error}");
                return Err(Refusal::new(Reason::Lookup, message));
            }
        };
        let uid = account.uid;
        if uid == 0 && !self.allow_root {
            let message = format!(
                "the account `{name}` is root (uid 0): tasks may run as root only if the worker sets \
                 `tasks.allow_root`"
            );
            return Err(Refusal::new(Reason::Forbidden, message));
        }
        if uid != 0 && uid < self.min_uid {
            let message = format!(
                "the account `{name}` has uid {uid}; those below {} are system accounts (`tasks.min_uid` of \
                 the worker)",
                self.min_uid
            );
            return Err(Refusal::new(Reason::Forbidden, message));
        }
        Ok(account)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn submitters(allow_root: bool, names: &[(&str, &str)]) -> Accounts {
        let names = names
            .iter()
            .map(|(user, name)| ((*user).to_owned(), (*name).to_owned()));
        Accounts {
            whose: AccountSource::Submitters(names.collect()),
            allow_root,
            min_uid: 1_000,
            closed: None,
        }
    }

    fn refusal(accounts: &Accounts, user: &str) -> (&'static str, String) {
        let refusal = accounts.look_up(user).unwrap_err();
        (refusal.reason.label(), refusal.message())
    }

    #[test]
    fn a_submitter_is_the_account_of_that_name_or_the_one_that_the_host_names() {
        let accounts = submitters(false, &[("ada@example.org", "nobody")]);
        for user in ["nobody", "ada@example.org"] {
            let account = accounts.look_up(user).unwrap();
            assert_eq!(account, Account::find("nobody").unwrap(), "{user}");
        }
    }

    #[test]
    fn a_user_without_an_account_or_with_a_system_account_is_refused_with_a_remedy() {
        let accounts = submitters(false, &[("eve", "root")]);
        for (user, account, kind, way_out) in [
            ("no-such-user", "`no-such-user`", "missing", "tasks.users"),
            ("root", "`root`", "forbidden", "tasks.allow_root"),
            ("eve", "`root`", "forbidden", "tasks.allow_root"),
            ("daemon", "`daemon`", "forbidden", "tasks.min_uid"),
            ("0", "`0`", "missing", "tasks.users"),
            ("", "job's user", "unnamed", "upgrade the replicas"),
        ] {
            let (reason, why) = refusal(&accounts, user);
            assert_eq!(reason, kind, "{why}");
            assert!(
                why.starts_with("NO_ACCOUNT: ") && why.contains(account),
                "{why}"
            );
            assert!(why.contains(way_out), "{why}");
        }
    }

    #[test]
    fn an_unavailable_user_database_is_distinguished_from_a_missing_account() {
        let failed = Err(io::Error::from(io::ErrorKind::TimedOut));
        let refusal = submitters(false, &[]).judge("ada", failed).unwrap_err();
        assert_eq!(refusal.reason, Reason::Lookup);
        assert!(refusal.message().starts_with("ACCOUNT_LOOKUP: "));
    }

    #[tokio::test]
    async fn a_refusal_goes_to_the_supervisor_and_is_counted() {
        let exporter = muster_service::exporter::install().unwrap();
        let mut accounts = submitters(true, &[]);
        let identity = accounts.identity_of("nobody").await;
        assert_eq!(identity.account, Account::find("nobody").unwrap());
        assert_eq!(identity.refusal, None);
        assert!(identity.any_container_user);
        accounts.closed = Some(Refusal::new(Reason::Closed, "/data is not open"));
        let identity = accounts.identity_of("nobody").await;
        assert_eq!(identity.account, None);
        assert_eq!(
            identity.refusal.as_deref(),
            Some("NO_ACCOUNT: /data is not open")
        );
        let counted = "muster_worker_tasks_refused_total{reason=\"closed\"} 1";
        let page = exporter.render();
        assert!(page.contains(counted), "{page}");
    }

    #[test]
    fn root_is_itself_where_the_host_allows_it() {
        assert_eq!(submitters(true, &[]).look_up("root"), Ok(None));
    }

    #[test]
    fn a_worker_that_is_root_runs_tasks_as_root_only_if_its_settings_allow_that() {
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
        // Without certificates users are not authenticated; `auto` alone does not allow root.
        let error = open("auto", false, false).unwrap_err();
        assert!(matches!(error, AccountsError::Unproven), "{error}");
        assert!(error.to_string().contains("tasks.allow_root"), "{error}");
        assert_eq!(open("auto", true, false).unwrap().label(), None);
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
