// A program on the mock driver. argv[1]: the mock library, argv[2]: what to do.
#define _GNU_SOURCE
#include "nvtx.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTER, EXIT };
enum { DRIVER = 1, RUNTIME = 2 };
static void (*callback)(uint32_t, uint32_t, uint32_t, const void *, uint32_t, int);
static void (*record)(const void *, size_t);
static void (*drop)(unsigned);
static int (*is_enabled)(uint32_t, uint32_t), (*records_api)(uint32_t, uint32_t), (*kind)(uint32_t), *flushes;
static void *load(const char *path, const char *name) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(92); }
    void *symbol = dlsym(library, name);
    CHECK(symbol);
    return symbol;
}

static uint32_t correlation;
struct copy_async { void *dst; const void *src; size_t count; uint32_t kind; void *stream; };
struct dtoh_async { void *dst; uint64_t src; size_t bytes; void *stream; };
static void *const STREAM = (void *)0x5157;

// As libcudart does it: the driver's callbacks come inside of the runtime's, on the same thread.
__attribute__((noinline)) void runtime_copy_to_host(uint32_t copy_kind) {
    struct copy_async outer = { (void *)1, (void *)2, 4, copy_kind, STREAM };
    struct dtoh_async inner = { (void *)1, 2, 4, STREAM };
    uint32_t id = ++correlation;
    callback(ENTER, RUNTIME, 41, &outer, id, 0);
    callback(ENTER, DRIVER, 279, &inner, id, 0);
    usleep(100);
    callback(EXIT, DRIVER, 279, &inner, id, 0);
    callback(EXIT, RUNTIME, 41, &outer, id, 0);
}
__attribute__((noinline)) void runtime_stream_sync(int result) {
    void *params = STREAM;
    uint32_t id = ++correlation;
    callback(ENTER, RUNTIME, 131, &params, id, 0);
    callback(ENTER, DRIVER, 126, &params, id, 0);
    callback(EXIT, DRIVER, 126, &params, id, result);
    callback(EXIT, RUNTIME, 131, &params, id, result);
}
__attribute__((noinline)) void query_event(void *event, int result) {
    uint32_t id = ++correlation;
    callback(ENTER, RUNTIME, 138, &event, id, 0);
    callback(ENTER, DRIVER, 120, &event, id, 0);
    callback(EXIT, DRIVER, 120, &event, id, result);
    callback(EXIT, RUNTIME, 138, &event, id, result);
}

__attribute__((noinline)) static void calls(void) {
    CHECK(push("step") == 0);
    runtime_copy_to_host(4);
    runtime_stream_sync(0);
    runtime_stream_sync(719);
    // On the device only, and fast: no stack.
    struct dtoh_async on_device = { (void *)1, 2, 512, STREAM };
    callback(ENTER, DRIVER, 281, &on_device, ++correlation, 0);
    callback(EXIT, DRIVER, 281, &on_device, correlation, 0);
    // The same, and it held the host: a stack.
    callback(ENTER, DRIVER, 281, &on_device, ++correlation, 0);
    usleep(300);
    callback(EXIT, DRIVER, 281, &on_device, correlation, 0);
    // Not in the tracer's table; an EXIT whose ENTER came before the subscription.
    callback(ENTER, RUNTIME, 211, 0, ++correlation, 0);
    callback(EXIT, RUNTIME, 211, 0, correlation, 0);
    callback(EXIT, RUNTIME, 165, 0, ++correlation, 0);
    callback(ENTER, 3, 1, 0, ++correlation, 0);
    callback(ENTER, RUNTIME, 165, 0, ++correlation, 0);
    callback(EXIT, RUNTIME, 165, 0, correlation, 0);
    CHECK(pop() == 0);
}
__attribute__((noinline)) static void queries(void) {
    void *first = (void *)0xe1, *second = (void *)0xe2;
    for (int i = 0; i < 5; i++) query_event(first, 600);
    query_event(first, 0);
    query_event(second, 0);
    query_event(first, 600);
    query_event(second, 600);
    push("range");
    query_event(second, 600);
    runtime_stream_sync(0);
    query_event(second, 719);
}
__attribute__((noinline)) static void leave_without_exit(int depth) {
    volatile char below[8192];
    below[0] = depth;
    void *params = STREAM;
    if (depth) leave_without_exit(depth - 1);
    else callback(ENTER, RUNTIME, 131, &params, ++correlation, 0);
    below[1] = below[0];
}

typedef struct {
    uint32_t kind; uint8_t copy_kind, src, dst, flags; uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, pad; uint64_t reserved, graph_node;
    uint32_t graph, channel, channel_type; uint8_t on_device, pad2[3]; uint64_t count;
} memcpy_record;
typedef struct {
    uint32_t kind, type; uint64_t start, end; uint32_t correlation, context, stream, event; uint64_t event_sync; uint32_t result, pad;
} sync_record;
typedef struct {
    uint32_t kind, overhead, object_kind, object[3]; uint64_t start, end; uint32_t correlation, reserved; uint64_t data;
} overhead_record;
static void records(void) {
    memcpy_record copy = { 1, 2, 3, 1, 1, 4, 1000, 2000, 0, 1, 7, 11, 0, 0, 0, 0, 0, 1, 2, 0, { 0 }, 1 };
    record(&copy, sizeof copy);
    copy.dst = 2; copy.correlation = 99; copy.runtime_correlation = 12; copy.graph = 3; copy.graph_node = 4;
    record(&copy, sizeof copy);
    sync_record sync = { 38, 3, 3000, 4000, 13, 1, 7, 0xffffffff, 0, 0, 0 };
    record(&sync, sizeof sync);
    sync.type = 2;
    record(&sync, sizeof sync);
    overhead_record overhead = { 17, 6 << 16, 2, { 1, 2, 0 }, 5000, 6000, 14, 0, 0 };
    record(&overhead, sizeof overhead);
    copy.kind = 22; copy.copy_kind = 10; copy.correlation = copy.runtime_correlation = 0;
    ((uint32_t *)&copy)[15] = 15; // correlationId of a peer copy
    record(&copy, sizeof copy);
    struct { uint32_t kind, value; uint64_t bytes, start, end; uint32_t device, context, stream, correlation;
        uint16_t flags, memory; uint32_t pad; uint64_t rest[4]; } set = { 2, 0, 64, 7, 8, 0, 1, 7, 16, 1, 2 };
    record(&set, sizeof set);
    struct { uint32_t kind, a[3]; uint64_t start, end, completed; uint32_t device, context, stream, shape[10], correlation;
        uint64_t grid; const char *name; uint64_t c[4]; uint64_t node; uint32_t d, graph; uint64_t e[6]; } kernel = {
        10, { 0 }, 9, 10, 10, 0, 1, 7, { 0 }, 17, 0, "a_kernel", { 0 }, 5, 0, 6 };
    _Static_assert(sizeof set == 88 && sizeof kernel == 208, "strides of 12.8");
    record(&kernel, sizeof kernel);
    uint32_t api[10] = { 5, 131 }, marker[14] = { 12 };
    record(api, sizeof api);
    record(marker, sizeof marker);
}

static volatile int stop;
static void *load_and_unload(void *path) {
    for (int i = 0; !stop; i++) {
        void *library = dlopen(path, RTLD_NOW);
        CHECK(library);
        dlclose(library);
    }
    return NULL;
}

static void *storm(void *unused) {
    for (int i = 0; i < 500; i++) { runtime_copy_to_host(2); runtime_stream_sync(0); query_event((void *)0xe, 600); }
    return NULL;
}

int main(int argc, char **argv) {
    const char *mock = argv[1], *mode = argv[2];
    if (!strcmp(mode, "nvtx-first")) { nvtx_init(); push("early"); }
    int (*init)(unsigned) = load(mock, "cuInit");
    callback = load(mock, "mock_callback");
    record = load(mock, "mock_record");
    drop = load(mock, "mock_drop");
    is_enabled = load(mock, "mock_is_enabled");
    records_api = load(mock, "mock_records_api");
    kind = load(mock, "mock_kind");
    flushes = load(mock, "mock_flushes");
    init(0);
    if (strcmp(mode, "nvtx-first")) nvtx_init();
    if (!strcmp(mode, "enabled")) {
        CHECK(is_enabled(RUNTIME, 131) && is_enabled(DRIVER, 279) && !is_enabled(RUNTIME, 211) && !is_enabled(DRIVER, 307));
        CHECK(kind(1) && kind(38) && kind(17) && !kind(10) && !kind(3));
        if (argc > 3) { CHECK(kind(4) && kind(5)); }
        else { CHECK(!kind(4) && !kind(5) && records_api(RUNTIME, 41) && records_api(DRIVER, 279) && !records_api(RUNTIME, 211)); }
    }
    if (!strcmp(mode, "timeline")) {
        CHECK(kind(10) && !kind(3));
        CHECK(is_enabled(RUNTIME, 211) && is_enabled(DRIVER, 307) && is_enabled(RUNTIME, 131));
        CHECK(is_enabled(DRIVER, 295) && records_api(RUNTIME, 211) && records_api(DRIVER, 307));
    }
    if (!strcmp(mode, "calls")) calls();
    if (!strcmp(mode, "queries")) queries();
    if (!strcmp(mode, "records")) records();
    if (!strcmp(mode, "drops")) { records(); drop(17); }
    if (!strcmp(mode, "broken-records")) { uint32_t none[4] = { 63 }; record(none, sizeof none); }
    if (!strcmp(mode, "abandoned")) {
        void *params = STREAM;
        // Far down the stack; the driver's, with the runtime's after it; one that takes the hooks down.
        leave_without_exit(3);
        runtime_stream_sync(0);
        callback(ENTER, DRIVER, 126, &params, ++correlation, 0);
        runtime_stream_sync(0);
        // The EXIT of a nested call lost; the EXIT of a call that was never entered, inside of another.
        callback(ENTER, RUNTIME, 131, &params, ++correlation, 0);
        callback(ENTER, DRIVER, 126, &params, correlation, 0);
        callback(EXIT, RUNTIME, 131, &params, correlation, 0);
        callback(ENTER, RUNTIME, 165, 0, ++correlation, 0);
        callback(EXIT, DRIVER, 17, 0, correlation, 0);
        callback(EXIT, RUNTIME, 165, 0, correlation, 0);
        callback(ENTER, DRIVER, 545, &params, ++correlation, 0);
        callback(ENTER, DRIVER, 126, &params, ++correlation, 0);
        callback(EXIT, DRIVER, 126, &params, correlation, 0);
    }
    if (!strcmp(mode, "polling-killed")) { for (int i = 0; i < 70; i++) query_event((void *)0xe, 600); raise(SIGKILL); }
    if (!strcmp(mode, "inside-killed")) {
        void *params = STREAM;
        callback(ENTER, RUNTIME, 131, &params, ++correlation, 0);
        raise(SIGKILL);
    }
    if (!strcmp(mode, "storm")) {
        pthread_t ids[8];
        for (int i = 0; i < 8; i++) pthread_create(&ids[i], NULL, storm, NULL);
        for (int i = 0; i < 8; i++) pthread_join(ids[i], NULL);
    }
    if (!strcmp(mode, "unload-storm")) {
        pthread_t loader;
        pthread_create(&loader, NULL, load_and_unload, argv[3]);
        for (int i = 0; i < 300; i++) runtime_stream_sync(0);
        stop = 1;
        pthread_join(loader, NULL);
    }
    if (!strcmp(mode, "killed-later")) {
        records();
        runtime_stream_sync(0);
        usleep(1100000);
        runtime_stream_sync(0);
        CHECK(*flushes == 1);
        raise(SIGKILL);
    }
    if (!strcmp(mode, "fork")) {
        runtime_stream_sync(0);
        records();
        pid_t child = fork();
        // CUPTI belongs to the parent: the child flushes nothing, whatever it calls.
        if (child == 0) { runtime_stream_sync(0); return 0; }
        int status;
        waitpid(child, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    if (!strcmp(mode, "nvtx-first")) { runtime_stream_sync(0); pop(); }
    if (!strcmp(mode, "problem")) push("still here");
    return 3;
}
