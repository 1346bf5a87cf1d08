/* Simulated CUDA driver and cuBLAS for tests: GPU memory is host memory, and all work is synchronous.
 *
 * Environment variables select the faults of the GPUs:
 *   FAKE_GPUS      number of GPUs (1)
 *   FAKE_FREE_MIB  free memory of each in MiB (256)
 *   FAKE_FAIL      name of the call that fails, with the error of a GPU with broken memory
 *   FAKE_MEMORY    "flips": a copy from the GPU flips a bit of its first word once a pattern is not zero
 *   FAKE_PRODUCT   "flips": every 70th product has a wrong bit
 *   FAKE_PEERS     "apart": GPUs cannot access each other directly
 *   FAKE_COPY_US   minimum duration of a copy in microseconds
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, ECC_UNCORRECTABLE = 214 };
enum { GPUS_MAX = 8, UUID_BYTES = 16, HALF = 2, BLAS_EXECUTION_FAILED = 13 };

struct event { struct timespec at; };

static int initialised;
static int contexts[GPUS_MAX];
static void *current;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int is_set(const char *name, const char *value) {
    const char *text = getenv(name);
    return text && strcmp(text, value) == 0;
}

#define MAY_FAIL() do { if (is_set("FAKE_FAIL", __func__)) return ECC_UNCORRECTABLE; } while (0)

static void take_time(void) { usleep((useconds_t)setting("FAKE_COPY_US", 0)); }

int cuInit(unsigned flags) { (void)flags; MAY_FAIL(); initialised = 1; return SUCCESS; }

int cuGetErrorString(int error, const char **text) {
    *text = error == ECC_UNCORRECTABLE ? "uncorrectable ECC error encountered" : "another error";
    return SUCCESS;
}
int cuGetErrorName(int error, const char **text) { return cuGetErrorString(error, text); }

int cuDeviceGetCount(int *count) {
    if (!initialised) return NOT_INITIALIZED;
    *count = (int)setting("FAKE_GPUS", 1);
    return SUCCESS;
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return SUCCESS; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, 0, UUID_BYTES);
    uuid[UUID_BYTES - 1] = (unsigned char)(device + 1);
    return SUCCESS;
}
int cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)attribute; (void)device;
    *value = 0;
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    MAY_FAIL();
    *context = &contexts[device];
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return SUCCESS; }
int cuCtxGetCurrent(void **context) { *context = current; return SUCCESS; }
int cuCtxSetCurrent(void *context) { current = context; return SUCCESS; }

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = device != peer && !is_set("FAKE_PEERS", "apart");
    return SUCCESS;
}
int cuCtxEnablePeerAccess(void *peer, unsigned flags) { (void)peer; (void)flags; MAY_FAIL(); return SUCCESS; }

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    *free = (size_t)setting("FAKE_FREE_MIB", 256) << 20;
    *total = *free;
    return SUCCESS;
}
int cuMemAlloc_v2(uintptr_t *memory, size_t bytes) {
    if (bytes > (size_t)setting("FAKE_FREE_MIB", 256) << 20) return OUT_OF_MEMORY;
    *memory = (uintptr_t)malloc(bytes);
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFree_v2(uintptr_t memory) { free((void *)memory); return SUCCESS; }
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    *memory = malloc(bytes);
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFreeHost(void *memory) { free(memory); return SUCCESS; }
int cuMemsetD8Async(uintptr_t memory, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    memset((void *)memory, value, bytes);
    return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    MAY_FAIL();
    take_time();
    memcpy((void *)to, from, bytes);
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t bytes, void *stream) {
    (void)stream;
    MAY_FAIL();
    take_time();
    memcpy(to, (void *)from, bytes);
    uint64_t *first = to;
    if (is_set("FAKE_MEMORY", "flips") && *first == UINT64_MAX) *first ^= 1ull << 17;
    return SUCCESS;
}
int cuMemcpyPeerAsync(uintptr_t to, void *ours, uintptr_t from, void *theirs, size_t bytes, void *stream) {
    (void)ours; (void)theirs; (void)stream;
    MAY_FAIL();
    take_time();
    memcpy((void *)to, (void *)from, bytes);
    return SUCCESS;
}

int cuStreamSynchronize(void *stream) { (void)stream; return SUCCESS; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)stream; (void)event; (void)flags;
    return SUCCESS;
}
int cuEventCreate(struct event **event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    return *event ? SUCCESS : OUT_OF_MEMORY;
}
int cuEventDestroy_v2(struct event *event) { free(event); return SUCCESS; }
int cuEventRecord(struct event *event, void *stream) {
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return SUCCESS;
}
int cuEventSynchronize(struct event *event) { (void)event; return SUCCESS; }
int cuEventElapsedTime(float *ms, struct event *began, struct event *ended) {
    *ms = (float)(ended->at.tv_sec - began->at.tv_sec) * 1e3f +
          (float)(ended->at.tv_nsec - began->at.tv_nsec) / 1e6f;
    return SUCCESS;
}

int cublasCreate_v2(void **handle) { *handle = &initialised; return SUCCESS; }
int cublasDestroy_v2(void *handle) {
    (void)handle;
    return is_set("FAKE_FAIL", "cublasGemmEx") ? BLAS_EXECUTION_FAILED : SUCCESS;
}
int cublasSetStream_v2(void *handle, void *stream) { (void)handle; (void)stream; return SUCCESS; }

/* Integers in half precision. */
static float widened(uint16_t half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float value = exponent ? (float)(1024 + fraction) / 1024.0f : 0.0f;
    for (; exponent > 15; exponent--) value *= 2.0f;
    return half >> 15 ? -value : value;
}
static float element(const void *matrix, int type, int at) {
    return type == HALF ? widened(((const uint16_t *)matrix)[at]) : ((const float *)matrix)[at];
}

/* One product of matrices in column order. */
int cublasGemmEx(void *handle, int left_way, int right_way, int rows, int columns, int inner, const float *factor,
                 const void *left, int left_type, int left_stride, const void *right, int right_type,
                 int right_stride, const float *keeps, float *sum, int sum_type, int sum_stride, int compute,
                 int algorithm) {
    static int products;
    (void)handle; (void)left_way; (void)right_way; (void)sum_type; (void)compute; (void)algorithm;
    if (is_set("FAKE_FAIL", __func__)) return BLAS_EXECUTION_FAILED;
    for (int column = 0; column < columns; column++)
        for (int row = 0; row < rows; row++) {
            float total = 0.0f;
            for (int at = 0; at < inner; at++)
                total += element(left, left_type, at * left_stride + row) *
                         element(right, right_type, column * right_stride + at);
            float *to = &sum[column * sum_stride + row];
            *to = *factor * total + (*keeps != 0.0f ? *keeps * *to : 0.0f);
        }
    if (is_set("FAKE_PRODUCT", "flips") && ++products % 70 == 0) sum[products % rows] += 1.0f;
    return SUCCESS;
}
