// Stands in for libcuda.so.1 and for libcupti, with nothing behind it: a program (mock_program.c) says which callbacks and
// records there are. Layouts and semantics: the headers of CUPTI 12.8; a stride per kind as that version emits it.
//
// -DMISSING leaves out what older versions don't have; -DNO_SUBSCRIBE a function that no CUPTI can do without.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    uint32_t site;
    const char *name;
    const void *params;
    const void *result;
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *correlation_data;
    uint32_t correlation;
} callback_data;
typedef void (*callback)(void *, uint32_t, uint32_t, const callback_data *);

static callback subscriber;
static unsigned char enabled[3][1024], api_records[3][1024], kinds[64];
static int refuse(const char *what) {
    const char *list = getenv("MOCK_REFUSE");
    const char *at = list ? strstr(list, what) : 0;
    return at ? atoi(at + strlen(what) + 1) : 0;
}

// ---- driver ----
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
#ifdef EMULATED
uint32_t syncauditEmuVersion(void) { return 1; }
#endif
int cuInit(unsigned flags) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : 0;
    int (*init)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : 0;
    if (init) init();
    return 0;
}

// ---- CUPTI ----
int cuptiGetVersion(uint32_t *version) { *version = 26; return 0; }
int cuptiGetTimestamp(uint64_t *ns) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    *ns = t.tv_sec * 1000000000ull + t.tv_nsec;
    return 0;
}
#ifndef NO_SUBSCRIBE
int cuptiSubscribe(void **handle, callback f, void *user) {
    int refused = refuse("subscribe");
    if (!refused) { subscriber = f; *handle = &subscriber; }
    return refused;
}
#endif
int cuptiUnsubscribe(void *handle) { subscriber = 0; return 0; }
int cuptiEnableCallback(uint32_t enable, void *handle, uint32_t domain, uint32_t cbid) {
    if (handle != &subscriber || domain > 2) return 1;
    if (refuse("callback")) return refuse("callback");
    // A version that knows fewer calls than the tracer.
    if (cbid > (domain == 1 ? 781 : 486)) return 1;
    enabled[domain][cbid] = enable;
    return 0;
}
int cuptiActivityEnable(uint32_t kind) {
    if (refuse("activity")) return refuse("activity");
    kinds[kind] = 1;
    return 0;
}
int cuptiActivityDisable(uint32_t kind) { kinds[kind] = 0; return 0; }
#ifndef MISSING
int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on) {
    if (cbid > 486) return 1;
    api_records[2][cbid] = on;
    return 0;
}
int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on) {
    if (cbid > 781) return 1;
    api_records[1][cbid] = on;
    return 0;
}
int cuptiActivityEnableAllSyncRecords(uint8_t on) { return 0; }
int cuptiActivityFlushPeriod(uint32_t ms) { return 0; }
#endif

static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static uint8_t *buffer;
static size_t buffer_size, filled;
static unsigned drops;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int cuptiActivityRegisterCallbacks(void *r, void *c) { request = r; complete = c; return 0; }
int mock_flushes;
int cuptiActivityFlushAll(uint32_t flag) {
    pthread_mutex_lock(&lock);
    uint8_t *full = buffer;
    size_t valid = filled;
    buffer = 0; filled = 0;
    mock_flushes++;
    pthread_mutex_unlock(&lock);
    if (full) complete(0, 0, full, buffer_size, valid);
    return 0;
}
static size_t stride(uint32_t kind) {
    switch (kind) {
    case 1: case 22: return 96;
    case 2: return 88;
    case 4: case 5: return 40;
    case 10: return 208;
    case 17: case 38: case 12: return 56;
    default: return 0;
    }
}
int cuptiActivityGetNextRecord(uint8_t *start, size_t valid, uint8_t **record) {
    if (!start) return 1;
    uint8_t *next = *record ? *record + stride(*(uint32_t *)*record) : start;
    if (next + 4 > start + valid) return 12;
    size_t size = stride(*(uint32_t *)next);
    if (!size) return 21;
    if (next + size > start + valid) return 12;
    *record = next;
    return 0;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
    *count = drops;
    drops = 0;
    return 0;
}

// ---- what the program asks for ----
int mock_is_enabled(uint32_t domain, uint32_t cbid) { return subscriber && enabled[domain][cbid]; }
int mock_records_api(uint32_t domain, uint32_t cbid) { return api_records[domain][cbid]; }
int mock_kind(uint32_t kind) { return kinds[kind]; }
void mock_drop(unsigned count) { drops = count; }
void mock_callback(uint32_t site, uint32_t domain, uint32_t cbid, const void *params, uint32_t correlation, int result) {
    if (!subscriber) return;
    uint64_t carried = 0;
    callback_data data = { site, "name", params, site ? &result : 0, 0, 0, 1, &carried, correlation };
    subscriber(0, domain, cbid, &data);
}
void mock_record(const void *record, size_t size) {
    if (!request) return;
    pthread_mutex_lock(&lock);
    if (!buffer) {
        size_t most = 1;
        request(&buffer, &buffer_size, &most);
        if (!buffer) abort();
    }
    memcpy(buffer + filled, record, size);
    filled += size;
    pthread_mutex_unlock(&lock);
}
