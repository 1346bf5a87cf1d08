/* Preloaded into a replica: delays or fails its syncs and shifts its wall clock, on commands from a memory-mapped
 * file. All other calls are unaffected; without the file, every call is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct commands {
    int64_t sync_delay_ms;
    int64_t sync_error;
    int64_t clock_offset_s;
    /* Number of calls delayed, failed or falsified by these commands; written by this library. */
    uint64_t applied;
};

static volatile struct commands none;
static volatile struct commands *commands = &none;

__attribute__((constructor)) static void map_commands(void) {
    const char *path = getenv("MUSTER_CHAOS_LIBRARY");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *commands, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        commands = mapped;
}

static int sync_file(long number, int file) {
    int64_t delay_ms = commands->sync_delay_ms;
    int64_t error = commands->sync_error;
    if (delay_ms > 0 || error > 0)
        __atomic_fetch_add(&commands->applied, 1, __ATOMIC_RELAXED);
    if (delay_ms > 0) {
        struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000};
        nanosleep(&delay, NULL);
    }
    if (error > 0) {
        errno = (int)error;
        return -1;
    }
    return (int)syscall(number, file);
}

int fsync(int file) {
    return sync_file(SYS_fsync, file);
}

int fdatasync(int file) {
    return sync_file(SYS_fdatasync, file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    int64_t offset_s = commands->clock_offset_s;
    if (result == 0 && clock == CLOCK_REALTIME && offset_s != 0) {
        now->tv_sec += offset_s;
        __atomic_fetch_add(&commands->applied, 1, __ATOMIC_RELAXED);
    }
    return result;
}
