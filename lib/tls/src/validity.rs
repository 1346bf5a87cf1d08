//! Validity period of a certificate.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// Parts of a certificate's validity; it is renewed when the last one begins, so that renewals may fail for
/// a while.
const PARTS: i64 = 3;

/// Start and end of a certificate's validity, in seconds of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    not_before: i64,
    not_after: i64,
}

impl Validity {
    /// Validity of a certificate; none if it cannot be read.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let validity = parsed.validity();
        Some(Self {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
        })
    }

    /// Expiry, in seconds of Unix time.
    #[must_use]
    pub const fn expires_at(&self) -> i64 {
        self.not_after
    }

    /// Whether it has expired.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over_at(now())
    }

    /// Whether two thirds of it are over. It is backdated because of clock skew, so this is true a little
    /// before two thirds of the intended validity are over.
    #[must_use]
    pub fn is_renewal_due(&self) -> bool {
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
    reason = "the one place where the clock is read for the validity of certificates"
)]
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.map_or(0, |since: Duration| since.as_secs())).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_validity() {
        let life = Validity {
            not_before: 1_000,
            not_after: 4_000,
        };
        assert!(!life.is_to_be_renewed_at(1_000) && !life.is_to_be_renewed_at(2_999));
        assert!(life.is_to_be_renewed_at(3_000) && !life.is_over_at(3_999));
        assert!(life.is_over_at(4_000));
        assert!(life.is_over() && life.is_renewal_due(), "1970 is long ago");
    }
}
