//! Memory limit of decoders.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of memory allowed per byte of input. Two bytes of protobuf are an empty message in a list: a struct
/// of some hundred bytes, once in the wire type, once in the core's, once re-encoded, in lists that grow by
/// doubling.
const PER_BYTE: usize = 2_048;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Runs a decoder, which may allocate `constant` bytes of memory in addition to the amount for its input.
///
/// # Panics
/// If it allocates more: then it trusts a length before the bytes have arrived.
pub(crate) fn bounded(input: &[u8], constant: usize, decode: impl FnOnce()) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    decode();
    let taken = PEAK.load(Ordering::Relaxed) - before;
    let allowed = constant + PER_BYTE * input.len();
    assert!(
        taken <= allowed,
        "{} bytes of input took {taken} bytes of memory; the limit is {allowed}",
        input.len()
    );
}

/// The system's allocator with a counter.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call is forwarded to the system allocator with the same arguments; counting touches none of
// its memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
