//! How long a certificate holds.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// Parts of a certificate's life; it is renewed when the last one begins, so that a renewal may fail for a while.
const PARTS: i64 = 3;

/// From when until when a certificate holds, in seconds of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    not_before: i64,
    not_after: i64,
}

impl Life {
    /// Of a certificate; none if it cannot be read.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let validity = parsed.validity();
        Some(Self {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
        })
    }

    /// When it ends, in seconds of Unix time.
    #[must_use]
    pub const fn expires_at(&self) -> i64 {
        self.not_after
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over_at(now())
    }

    /// Whether two thirds of it are over. It begins a little before the certificate was made, because clocks differ, so this
    /// is so before two thirds are over of what it was made for.
    #[must_use]
    pub fn is_to_be_renewed(&self) -> bool {
        self.is_to_be_renewed_at(now())
    }

    const fn is_over_at(&self, now: i64) -> bool {
        now >= self.not_after
    }

    const fn is_to_be_renewed_at(&self, now: i64) -> bool {
        now >= self.not_after - (self.not_after - self.not_before) / PARTS
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the clock is read by which certificates count"
)]
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.map_or(0, |since: Duration| since.as_secs())).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_when_two_thirds_of_it_are_over() {
        let life = Life {
            not_before: 1_000,
            not_after: 4_000,
        };
        assert!(!life.is_to_be_renewed_at(1_000) && !life.is_to_be_renewed_at(2_999));
        assert!(life.is_to_be_renewed_at(3_000) && !life.is_over_at(3_999));
        assert!(life.is_over_at(4_000));
        assert!(
            life.is_over() && life.is_to_be_renewed(),
            "1970 is long ago"
        );
    }
}
