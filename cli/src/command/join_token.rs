//! `muster worker token`.

use std::time::Duration;

use clap::{Args, Subcommand};
use muster_client::JoinTokenOptions;
use muster_documents::{JoinToken, NewJoinToken, RevokedJoinToken};

use crate::connection::{Freshness, Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, note, render_document, render_rows};
use crate::parse;

/// Commands of `muster worker` for administrators. The client build has no others.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerVerb {
    /// Tokens with which workers without a certificate join
    Token(Token),
}

/// `muster worker token`
#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    verb: Verb,
    // The global option conflicts with the worker's own one.
    /// Endpoints of an etcd in which the replicas publish themselves, comma separated; used if no address is
    /// given [env: MUSTER_ETCD]
    #[arg(
        long,
        global = true,
        value_name = "ENDPOINTS",
        value_delimiter = ',',
        help_heading = "Options of every command"
    )]
    etcd: Vec<String>,
}

/// `muster worker token` VERB
#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a token with which workers without a certificate join, and print it once
    #[command(
        after_help = "On the new host: muster worker --schedulers node1:7400 --join-token-file token, or \
            --etcd etcd1:2379 in the place of --schedulers where replicas publish themselves in etcd. The \
            worker creates its own key and gets a certificate from a replica that has the authority's key \
            (`tls.ca_key`). See docs/security.md."
    )]
    Create(Create),
    /// Show join tokens with their hosts, uses and expiry
    List(List),
    /// Revoke a token; workers that have joined stay
    Revoke(Revoke),
}

/// `muster worker token create`
#[derive(Debug, Args)]
struct Create {
    /// Validity: 30m, 1h, 7d; 30 days at most
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse::duration)]
    ttl: Duration,
    /// Number of workers that may join with it
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    uses: u32,
    /// Names of the hosts that may join, with * for any letters; by default every name
    #[arg(long, value_name = "PATTERN")]
    host_name: Option<String>,
}

/// `muster worker token list`
#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    freshness: Freshness,
}

/// `muster worker token revoke`
#[derive(Debug, Args)]
struct Revoke {
    /// The token's id, as shown by `muster worker token list`
    id: String,
}

impl WorkerVerb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Token(token) => {
                let options = options.clone().with_etcd(token.etcd);
                token.verb.run(&options).await
            }
        }
    }
}

impl Verb {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Create(create) => create.run(options).await,
            Self::List(list) => list.run(options).await,
            Self::Revoke(revoke) => revoke.run(options).await,
        }
    }
}

impl Create {
    /// Only the token goes to stdout, so that it can be piped without being displayed.
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let allowed = JoinTokenOptions {
            ttl: self.ttl,
            uses_max: self.uses,
            host_pattern: self.host_name,
        };
        let (token, revision) = client.add_join_token(&current_user(), allowed).await?;
        let id = token.id().unwrap_or_default();
        let screen = options.screen();
        screen.report(&match screen.format {
            Format::Table | Format::Wide | Format::Name => format!("{}\n", token.text()),
            format => {
                let made = NewJoinToken {
                    id: id.to_owned(),
                    token: token.text().to_owned(),
                    revision: revision.get(),
                };
                render_document(format, &made)?
            }
        })?;
        if !screen.quiet {
            note(&format!(
                "join token {id} is shown only once; put it into a file for the worker's \
                 --join-token-file, or into MUSTER_JOIN_TOKEN"
            ));
        }
        Ok(Exit::Ok)
    }
}

impl List {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let consistency = self.freshness.consistency();
        let answer = client.list_join_tokens(consistency).await?;
        let tokens: Vec<JoinToken> = answer.tokens.into_iter().map(JoinToken::from).collect();
        let screen = options.screen();
        screen.data(&render_rows(&screen, answer.revision, &tokens)?)?;
        Ok(Exit::Ok)
    }
}

impl Revoke {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let author = current_user();
        let revoked = client.revoke_join_token(&author, &self.id);
        let revision = revoked.await?;
        let screen = options.screen();
        screen.report(&match screen.format {
            Format::Table | Format::Wide => format!("join token {} revoked\n", self.id),
            Format::Name => format!("{}\n", self.id),
            format => {
                let revoked = RevokedJoinToken {
                    id: self.id,
                    revision: revision.get(),
                };
                render_document(format, &revoked)?
            }
        })?;
        Ok(Exit::Ok)
    }
}
