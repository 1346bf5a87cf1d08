//! `muster user`.

use clap::{Args, Subcommand, ValueEnum};
use muster_client::Token;
use muster_documents::{ChangedName, User, UserToken};
use muster_model::access::Role;
use muster_model::ids::Revision;

use crate::connection::{Freshness, Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, note, render_document, render_rows};

/// Commands of `muster user`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Give a user a role, and print a token once
    #[command(
        after_help = "The first admin of a cluster is added with the certificate of a replica: \
MUSTER_CERT=replica-1.pem MUSTER_KEY=replica-1.key muster user add grace --role admin"
    )]
    Add(Add),
    /// Show users with their roles
    List(List),
    /// Remove a user's role; running jobs continue
    Remove(Named),
    /// Print a new token for a user; the old one becomes invalid
    Rotate(Named),
}

/// A role on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleName {
    /// May see jobs and their output
    Viewer,
    /// May submit jobs, act on its own and on those of its queues
    User,
    /// May act on all jobs, block and unblock hosts and GPUs
    Operator,
    /// May change queues, topology, rules, replicas, users and backups
    Admin,
}

/// `muster user add`
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Letters, digits and -._@
    name: String,
    /// The user's role
    #[arg(long, value_enum)]
    role: RoleName,
    /// A queue that the role is limited to, with its child queues; repeatable; for viewers and users
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
}

/// `muster user list`
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    freshness: Freshness,
}

/// `muster user remove`, `muster user rotate`
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The user
    name: String,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Viewer => Self::Viewer,
            RoleName::User => Self::User,
            RoleName::Operator => Self::Operator,
            RoleName::Admin => Self::Admin,
        }
    }
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Add(add) => add.run(options).await,
            Self::List(list) => list.run(options).await,
            Self::Remove(named) => named.remove(options).await,
            Self::Rotate(named) => named.rotate(options).await,
        }
    }
}

impl Add {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let role = self.role.into();
        let author = current_user();
        let added = client.add_user(&author, &self.name, role, self.queue);
        let (token, revision) = added.await?;
        print_token(options, &self.name, &token, revision)
    }
}

impl List {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let consistency = self.freshness.consistency();
        let answer = client.list_users(consistency).await?;
        let users: Vec<User> = answer.users.into_iter().map(User::from).collect();
        let screen = options.screen();
        screen.data(&render_rows(&screen, answer.revision, &users)?)?;
        Ok(Exit::Ok)
    }
}

impl Named {
    async fn remove(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let revision = client.remove_user(&current_user(), &self.name).await?;
        let screen = options.screen();
        screen.report(&match screen.format {
            Format::Table | Format::Wide => format!("user {} removed\n", self.name),
            Format::Name => format!("{}\n", self.name),
            format => {
                let removed = ChangedName {
                    name: self.name,
                    revision: revision.get(),
                };
                render_document(format, &removed)?
            }
        })?;
        Ok(Exit::Ok)
    }

    async fn rotate(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let author = current_user();
        let rotated = client.rotate_user_token(&author, &self.name);
        let (token, revision) = rotated.await?;
        print_token(options, &self.name, &token, revision)
    }
}

/// Only the token goes to stdout, so that it can be piped without being displayed.
fn print_token(
    options: &Options,
    name: &str,
    token: &Token,
    revision: Revision,
) -> Result<Exit, Failure> {
    let screen = options.screen();
    screen.report(&match screen.format {
        Format::Table | Format::Wide | Format::Name => format!("{}\n", token.text()),
        format => {
            let made = UserToken {
                name: name.to_owned(),
                token: token.text().to_owned(),
                revision: revision.get(),
            };
            render_document(format, &made)?
        }
    })?;
    if !screen.quiet {
        note(&format!(
            "{name}'s token is shown only once; put it into MUSTER_TOKEN, or into a file named by MUSTER_TOKEN_FILE"
        ));
    }
    Ok(Exit::Ok)
}
