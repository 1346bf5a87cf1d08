//! Records of the kernel log, parts of whose text tasks can choose: read one after the other, trusted or not.

use muster_health::kernel_log::{BusMap, Cursor, Scanner, TrustedWriters};

use crate::{SMALL, bounded};

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    bounded(data, SMALL, || {
        for trust in [TrustedWriters::Kernel, TrustedWriters::Tests] {
            let mut scanner = Scanner::new(trust, Cursor::default(), BusMap::default());
            for record in text.split('\0') {
                // As after a reboot, when record numbers start again.
                let (boot, record) = match record.strip_prefix('!') {
                    Some(record) => ("second", record),
                    None => ("first", record),
                };
                drop(scanner.read(boot, record));
            }
        }
    });
}
