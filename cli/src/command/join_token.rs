//! `muster worker token`.

use std::time::Duration;

use clap::{Args, Subcommand};
use muster_client::JoinTokenOptions;
use serde_json::json;

use crate::connection::{Freshness, Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, note, render_document, render_rows};
use crate::parse;
use crate::view::JoinTokenView;

/// Commands of `muster worker` for administrators. The client build has no others.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerVerb {
    /// Tokens by which workers without a certificate join
    Token(Token),
}

/// `muster worker token`
#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    verb: Verb,
    // The option of every command ends where the worker has one of its own.
    /// Endpoints of an etcd in which the replicas publish themselves, comma separated: counts where no address is given
    /// [env: MUSTER_ETCD]
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
    /// Make a token by which workers without a certificate join, and print it once
    #[command(
        after_help = "On the new host: muster worker --schedulers node1:7400 --join-token-file token, or --etcd etcd1:2379 in the \
place of --schedulers where replicas publish themselves in etcd. The worker makes its own key and \
is given a certificate by a replica that has the authority's key (`tls.ca_key`). docs/security.md tells the rest."
    )]
    Create(Create),
    /// Show join tokens, with whom they let in and until when
    List(List),
    /// Let nobody in by a token any more; whoever came in stays
    Revoke(Revoke),
}

/// `muster worker token create`
#[derive(Debug, Args)]
struct Create {
    /// How long it counts: 30m, 1h, 7d; 30 days at most
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse::duration)]
    ttl: Duration,
    /// How many workers it lets in
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    uses: u32,
    /// Names of the hosts that it lets in, with * for any letters; without it, every name
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
    /// The token's name, as `muster worker token list` shows it
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
    /// The token alone goes to stdout, so that it can be put where it belongs without being read.
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
        screen.tell(&match screen.format {
            Format::Table | Format::Wide | Format::Name => format!("{}\n", token.text()),
            format => {
                let made = json!({"id": id, "token": token.text(), "revision": revision});
                render_document(format, &made)?
            }
        })?;
        if !screen.quiet {
            note(&format!(
                "this is the only time that join token {id} is shown; it goes into a file that the worker's --join-token-file names, or \
                 MUSTER_JOIN_TOKEN"
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
        let tokens: Vec<JoinTokenView> = { answer.tokens.into_iter() }
            .map(JoinTokenView::from)
            .collect();
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
        screen.tell(&match screen.format {
            Format::Table | Format::Wide => format!("join token {} revoked\n", self.id),
            Format::Name => format!("{}\n", self.id),
            format => render_document(format, &json!({"id": self.id, "revision": revision}))?,
        })?;
        Ok(Exit::Ok)
    }
}
