//! What the account that a task runs as means for its container: no process of it may be more on the host than that account is.

use std::fs;
use std::io;

use muster_core::spec::Container;

use crate::account::Account;
use crate::spec::TaskIdentity;

/// The only way of mapping users that leaves nobody of the host inside, whoever the container's users are.
const MAPPED: &str = "auto";

/// Whether a container may be what its job asks for.
///
/// # Errors
/// What it may not be, in words for the user, with the way out.
pub(crate) fn may_run(container: &Container, identity: &TaskIdentity) -> Result<(), String> {
    let Some(account) = &identity.account else {
        return Ok(());
    };
    for mount in &container.mounts {
        // The engine is root, and would go where the account may not.
        let seen = account.acting(|| fs::metadata(&mount.source));
        seen.map_err(|error| unseen(account, &mount.source, &error))?;
    }
    if identity.any_container_user {
        return Ok(());
    }
    let userns = container.userns.as_deref();
    if userns == Some(MAPPED) {
        return Ok(());
    }
    let user = container.user.as_deref();
    let asked = match (userns, user) {
        (Some(userns), _) => format!("`userns = \"{userns}\"`"),
        (None, Some(user)) if !is_account(user, account) => format!("`user = \"{user}\"`"),
        _ => return Ok(()),
    };
    Err(format!(
        "CONTAINER_USER_REFUSED: its container is to have {asked}, by which it could be root on this host, where it runs as the account \
         `{}`: leave that out, or have the host allow it (`tasks.allow_root`)",
        account.name
    ))
}

fn unseen(account: &Account, source: &str, error: &io::Error) -> String {
    let name = &account.name;
    format!("its mount `{source}` is not open to the account `{name}` that it runs as: {error}")
}

/// Whether a container's user is the account, said in numbers: names are the image's own.
fn is_account(user: &str, account: &Account) -> bool {
    let (user, group) = user.split_once(':').unwrap_or((user, ""));
    let is = |text: &str, number| text.parse() == Ok(number);
    let has = |text: &str| text.is_empty() || account.groups.iter().any(|group| is(text, *group));
    is(user, account.uid) && has(group)
}

/// The user and the groups of a container's processes, where these are the task's account's; none if they are the job's or the
/// image's choice.
pub(super) fn chosen<'a>(container: &Container, identity: &'a TaskIdentity) -> Option<&'a Account> {
    let is_free = container.user.is_none() && container.userns.is_none();
    identity.account.as_ref().filter(|_| is_free)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use muster_core::spec::Mount;
    use rustix::process::geteuid;

    use super::*;

    fn identity() -> TaskIdentity {
        TaskIdentity {
            account: Account::find("nobody").unwrap(),
            ..TaskIdentity::default()
        }
    }

    #[test]
    fn a_container_is_nobody_that_its_account_is_not() {
        let account = identity().account.unwrap();
        let own = account.uid.to_string();
        let with = |user: Option<&str>, userns: Option<&str>| Container {
            user: user.map(ToOwned::to_owned),
            userns: userns.map(ToOwned::to_owned),
            ..Container::default()
        };
        let both = format!("{own}:{}", account.gid);
        for allowed in [
            with(None, None),
            with(Some(&own), None),
            with(Some(&both), None),
            with(Some("0"), Some("auto")),
        ] {
            assert_eq!(may_run(&allowed, &identity()), Ok(()), "{allowed:?}");
        }
        let foreign_group = format!("{own}:0");
        for refused in [
            with(Some("0"), None),
            with(Some("root"), None),
            // The image says who that is.
            with(Some("nobody"), None),
            with(Some(&foreign_group), None),
            with(None, Some("host")),
            with(None, Some("auto:uidmapping=0:0:1")),
        ] {
            let why = may_run(&refused, &identity()).unwrap_err();
            assert!(why.contains("`nobody`") && why.contains("tasks.allow_root"));
            let free = TaskIdentity {
                any_container_user: true,
                ..identity()
            };
            assert_eq!(may_run(&refused, &free), Ok(()));
            assert_eq!(may_run(&refused, &TaskIdentity::default()), Ok(()));
        }
    }

    #[test]
    fn a_mount_is_refused_that_the_account_could_not_come_to() {
        if !geteuid().is_root() {
            crate::output::complain("skipped: only root can look with others' eyes");
            return;
        }
        // A folder of root's alone.
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let inside = home.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let container = Container {
            mounts: vec![Mount {
                source: inside.to_str().unwrap().to_owned(),
                target: "/inside".to_owned(),
                read_only: true,
            }],
            ..Container::default()
        };
        let why = may_run(&container, &identity()).unwrap_err();
        assert!(why.contains("is not open to the account `nobody`"), "{why}");
    }
}
