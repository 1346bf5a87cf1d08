//! `muster cert`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use muster_documents::{Certificate, CertificateFiles};
use muster_tls::PeerRole;
use muster_tls::issue::{self, CERTIFICATE_DAYS, DAYS_MAX, IssueError, Issued};

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};

/// Commands of `muster cert`.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Example: muster cert ca; muster cert replica replica-1 --name node1 --name 10.0.0.1; \
muster cert worker gpu-1; muster cert client ada. The holder of ca.key can impersonate every user and \
machine: keep it off the cluster's machines. Existing files are never overwritten. See docs/security.md."
)]
pub(crate) enum Verb {
    /// Create an authority, ca.pem and ca.key, which signs the other certificates
    Ca(Ca),
    /// Create the certificate of a scheduler replica
    Replica(Replica),
    /// Create the certificate of a worker
    Worker(Worker),
    /// Create the certificate of a user, who still needs a role (`muster user add`)
    Client(Client),
}

/// `muster cert ca`
#[derive(Debug, Args)]
pub(crate) struct Ca {
    /// The cluster, named in the certificate
    #[arg(long, value_name = "NAME", default_value = "muster")]
    cluster_id: String,
    #[command(flatten)]
    place: CertFolder,
}

/// `muster cert replica`
#[derive(Debug, Args)]
pub(crate) struct Replica {
    /// Base name of its files: replica-1
    #[arg(value_name = "NAME")]
    file: String,
    /// A host name or address at which others reach it, as in `peers`; repeatable
    #[arg(long, required = true, value_name = "HOST")]
    name: Vec<String>,
    #[command(flatten)]
    term: Term,
    #[command(flatten)]
    place: CertFolder,
}

/// `muster cert worker`
#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// The worker's host name: `name` of its settings
    name: String,
    #[command(flatten)]
    term: Term,
    #[command(flatten)]
    place: CertFolder,
}

/// `muster cert client`
#[derive(Debug, Args)]
pub(crate) struct Client {
    /// The user's name
    name: String,
    #[command(flatten)]
    term: Term,
    #[command(flatten)]
    place: CertFolder,
}

#[derive(Debug, Args)]
struct Term {
    /// Validity in days
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = CERTIFICATE_DAYS,
        value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX)
    )]
    days: u64,
}

#[derive(Debug, Args)]
struct CertFolder {
    /// Folder of the authority, and of the new files
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

impl Verb {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Ca(ca) => {
                let made = issue::authority(&ca.place.folder, &ca.cluster_id);
                print_report(options, None, made)
            }
            Self::Replica(Replica {
                file,
                name,
                term,
                place,
            }) => make(options, &file, &PeerRole::Replica, &name, &term, place),
            Self::Worker(Worker { name, term, place }) => {
                let role = PeerRole::Worker(name.clone());
                make(options, &name, &role, &[], &term, place)
            }
            Self::Client(Client { name, term, place }) => {
                let role = PeerRole::User(name.clone());
                make(options, &name, &role, &[], &term, place)
            }
        }
    }
}

fn make(
    options: &Options,
    file: &str,
    role: &PeerRole,
    names: &[String],
    term: &Term,
    place: CertFolder,
) -> Result<Exit, Failure> {
    let made = issue::certificate(&place.folder, file, role, names, term.days);
    print_report(options, Some(place), made)
}

/// Prints the created files, and the settings that refer to them.
fn print_report(
    options: &Options,
    authority: Option<CertFolder>,
    made: Result<Issued, IssueError>,
) -> Result<Exit, Failure> {
    let made = made.map_err(|error| Failure::new(error.to_string()))?;
    let screen = options.screen();
    let (certificate, key) = (made.certificate.display(), made.key.display());
    screen.report(&match screen.format {
        Format::Table | Format::Wide => format!("certificate {certificate}, key {key}\n"),
        Format::Name => format!("{certificate}\n"),
        format => {
            let ca = authority.map(|place| place.folder.join(issue::CA_CERTIFICATE));
            let tls = CertificateFiles {
                ca: ca.map(|path| path.display().to_string()),
                certificate: certificate.to_string(),
                key: key.to_string(),
            };
            render_document(format, &Certificate { tls })?
        }
    })?;
    Ok(Exit::Ok)
}
