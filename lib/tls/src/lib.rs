//! TLS of replicas, workers and clients.
//!
//! | part | what |
//! |---|---|
//! | [`TlsSettings`] | which files: the same three options for every role |
//! | [`Tls`] | what they hold, read again when they change |
//! | [`PeerRole`] | who a certificate speaks for |
//! | [`Dialer`] | opens connections: plain ones, or to replicas that prove that they are some |
//! | [`TlsMismatch`] | why two sides that reach each other do not come together |
//! | [`Token`] | how a user proves who it is without a certificate |
//! | [`JoinToken`] | how a worker comes by a certificate |
//! | [`jwt`] | tokens of a foreign identity provider |
//! | [`Authority`] | signs certificates of workers in a running cluster |
//! | [`incoming`] | accepts connections, and knows whose they are |
//! | [`issue`] | makes an authority and certificates for a start |
#![forbid(unsafe_code)]

mod dialer;
mod error;
mod hex;
mod incoming;
pub mod issue;
mod join_token;
pub mod jwt;
mod life;
mod material;
mod mismatch;
mod peer_role;
mod private_file;
mod settings;
mod signing;
mod token;
mod trust;
mod watched;

pub use dialer::Dialer;
pub use error::TlsError;
pub use hex::digest;
pub use incoming::{SecuredConnection, SecuredPeer, incoming};
pub use join_token::{AuthoritiesHash, JoinToken};
pub use life::Life;
pub use material::{Tls, count_renewal, describe_metrics};
pub use mismatch::{TlsMismatch, answers_in_tls};
pub use peer_role::{PeerRole, role_of};
pub use private_file::{begin_private, create_private, create_private_folder};
pub use settings::{TlsSettings, is_loopback};
pub use signing::{Authority, SigningRequest, signing_request};
pub use token::Token;
pub use watched::FILES_LOOKED_AT_EVERY;
