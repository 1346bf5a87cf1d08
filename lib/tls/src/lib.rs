//! TLS of replicas, workers and clients.
//!
//! | part | content |
//! |---|---|
//! | [`TlsSettings`] | the files: the same three options for every role |
//! | [`Tls`] | their content, reloaded when they change |
//! | [`PeerRole`] | identity in a certificate |
//! | [`Dialer`] | opens connections: plain ones, or to peers that prove to be replicas |
//! | [`TlsMismatch`] | reasons of failed connections between TLS peers |
//! | [`Token`] | authentication of a user without a certificate |
//! | [`JoinToken`] | enrolment of a worker without a certificate |
//! | [`jwt`] | tokens of an external identity provider |
//! | [`Authority`] | signs certificates of workers in a running cluster |
//! | [`incoming`] | accepts connections and identifies their peers |
//! | [`issue`] | creates an authority and certificates for a start |
#![forbid(unsafe_code)]

mod dialer;
mod error;
mod incoming;
pub mod issue;
mod join_token;
pub mod jwt;
mod material;
mod mismatch;
mod peer_role;
mod private_file;
mod secret;
mod settings;
mod signing;
mod token;
mod trust;
mod validity;
mod watched;

pub use dialer::Dialer;
pub use error::TlsError;
pub use incoming::{SecuredConnection, SecuredPeer, incoming};
pub use join_token::{AuthoritiesHash, JoinToken};
pub use material::{Tls, count_renewal, describe_metrics};
pub use mismatch::{TlsMismatch, answers_in_tls};
pub use peer_role::{PeerRole, role_of};
pub use private_file::{begin_private, create_private, create_private_folder};
pub use secret::digest;
pub use settings::{TlsSettings, is_loopback};
pub use signing::{Authority, SigningRequest, signing_request};
pub use token::Token;
pub use validity::Validity;
pub use watched::FILE_CHECK_INTERVAL;
