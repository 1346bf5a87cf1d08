//! The asynchronous runtime of a simulated world: one thread, simulated time, seeded randomness, and a kill
//! group for every node.
//!
//! Every task belongs to the node whose task spawned it, so that killing a node drops all its tasks at
//! once, as `kill -9` does. Time is tokio's paused clock: it jumps to the next timer when nothing can run.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::{
    TokioInstant, TokioMpsc, TokioMutex, TokioOneshot, TokioRuntime, TokioWatch,
};
use tokio::task::AbortHandle;

/// A simulated machine: a replica or a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The world itself: its tasks are never killed.
    pub const WORLD: Self = Self(0);
}

/// The runtime that replicas are opened with.
pub type SimRuntime = DeterministicRng<KillableRuntime>;

thread_local! {
    static CURRENT: Cell<NodeId> = const { Cell::new(NodeId::WORLD) };
    /// Frozen nodes, each with the wakers of its ready tasks.
    static FROZEN: RefCell<BTreeMap<NodeId, Vec<Waker>>> = const { RefCell::new(BTreeMap::new()) };
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static TASKS: RefCell<BTreeMap<NodeId, Vec<AbortHandle>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Finished tasks are swept from a node's list whenever it has grown by this many.
const SWEEP_EVERY_TASKS: usize = 256;

/// The node whose task is being polled.
#[must_use]
pub fn current_node() -> NodeId {
    CURRENT.get()
}

/// Starts a task of `node` with its own random stream.
pub fn spawn_on<F>(node: NodeId, seed: u64, future: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let handle = tokio::spawn(OnNode {
        node,
        future: Box::pin(SimRuntime::scope(seed, future)),
    });
    register(node, handle.abort_handle());
}

/// Freezes a node, as SIGSTOP does: none of its tasks is polled until [`thaw`], while time advances.
pub fn freeze(node: NodeId) {
    FROZEN.with_borrow_mut(|frozen| {
        frozen.entry(node).or_default();
    });
}

/// Resumes a frozen node.
pub fn thaw(node: NodeId) {
    let woken = FROZEN.with_borrow_mut(|frozen| frozen.remove(&node));
    woken.into_iter().flatten().for_each(Waker::wake);
}

/// Drops every task of `node`; returns how many were alive.
pub fn kill(node: NodeId) -> usize {
    thaw(node);
    let tasks = TASKS
        .with_borrow_mut(|tasks| tasks.remove(&node))
        .unwrap_or_default();
    let alive = tasks.iter().filter(|task| !task.is_finished()).count();
    for task in tasks {
        task.abort();
    }
    alive
}

/// Takes the panic messages of tasks of this world since the last call: a panic is never just a task that
/// ended.
#[must_use]
pub fn take_panics() -> Vec<String> {
    PANICS.take()
}

/// The message of a panic.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Runs a world to its end: one thread, paused clock, every random draw from `seed`.
///
/// # Errors
/// If the operating system cannot create an event loop.
pub fn run_world<F, T>(seed: u64, world: F) -> io::Result<T>
where
    F: Future<Output = T>,
{
    TASKS.with_borrow_mut(BTreeMap::clear);
    FROZEN.with_borrow_mut(BTreeMap::clear);
    PANICS.with_borrow_mut(Vec::clear);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()))
        .build()?;
    let outcome = runtime.block_on(SimRuntime::scope(seed, world));
    // Tasks that are still alive are dropped with the runtime, before the next world begins.
    drop(runtime);
    TASKS.with_borrow_mut(BTreeMap::clear);
    Ok(outcome)
}

fn register(node: NodeId, task: AbortHandle) {
    TASKS.with_borrow_mut(|tasks| {
        let list = tasks.entry(node).or_default();
        if list.len() % SWEEP_EVERY_TASKS == SWEEP_EVERY_TASKS - 1 {
            list.retain(|task| !task.is_finished());
        }
        list.push(task);
    });
}

/// Whether a node is frozen; if so, `waker` is woken when it resumes.
fn is_frozen(node: NodeId, waker: &Waker) -> bool {
    FROZEN.with_borrow_mut(|frozen| {
        let sleepers = frozen.get_mut(&node);
        sleepers.is_some_and(|sleepers| {
            sleepers.push(waker.clone());
            true
        })
    })
}

/// A future that is polled in the name of its node.
struct OnNode<F> {
    node: NodeId,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for OnNode<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if is_frozen(self.node, context.waker()) {
            return Poll::Pending;
        }
        let outer = CURRENT.replace(self.node);
        let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context)));
        CURRENT.set(outer);
        polled.unwrap_or_else(|payload| {
            PANICS.with_borrow_mut(|panics| panics.push(panic_message(&*payload)));
            // The runtime treats it like every panic of a task.
            resume_unwind(payload)
        })
    }
}

/// Tokio's runtime, with tasks in kill groups and blocking work executed inline.
#[derive(Debug)]
pub struct KillableRuntime(TokioRuntime);

impl AsyncRuntime for KillableRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = tokio::task::JoinHandle<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = TokioInstant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = tokio::time::Timeout<T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = TokioMpsc;
    type Watch = TokioWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let node = current_node();
        let handle = tokio::spawn(OnNode {
            node,
            future: Box::pin(future),
        });
        register(node, handle.abort_handle());
        handle
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    // The default starts an operating-system thread, which no seed controls.
    async fn spawn_blocking<F, T>(work: F) -> Result<T, io::Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Ok(work())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_killed_node_does_nothing_any_more_and_its_children_neither() {
        let ticks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ticks);
        run_world(1, async move {
            spawn_on(NodeId(1), 7, async move {
                let child = SimRuntime::spawn(async move {
                    loop {
                        SimRuntime::sleep(Duration::from_secs(1)).await;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                });
                let _never: Result<(), _> = child.await;
            });
            tokio::time::sleep(Duration::from_millis(10_500)).await;
            assert_eq!(kill(NodeId(1)), 2);
            tokio::time::sleep(Duration::from_secs(3_600)).await;
        })
        .unwrap();
        assert_eq!(ticks.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn a_frozen_node_does_nothing_until_it_goes_on() {
        let ticks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ticks);
        let seen = run_world(1, async move {
            let seen = Arc::clone(&counted);
            spawn_on(NodeId(1), 7, async move {
                loop {
                    SimRuntime::sleep(Duration::from_secs(1)).await;
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            freeze(NodeId(1));
            tokio::time::sleep(Duration::from_secs(60)).await;
            let frozen = seen.load(Ordering::Relaxed);
            thaw(NodeId(1));
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            (frozen, seen.load(Ordering::Relaxed))
        })
        .unwrap();
        // The timer that became due meanwhile fires at once, the next ones a second apart.
        assert_eq!(seen, (2, 5));
        assert_eq!(ticks.load(Ordering::Relaxed), 5);
    }
}
