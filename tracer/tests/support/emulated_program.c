// One training step's worth of driver calls on the emulated device (argv[1] is its library), the ways to wait for it
// each in a function of its own.
#include "nvtx.h"
#include <unistd.h>

typedef uint64_t dptr;
static void *driver;
#define CU(name, ...) static int (*name)(__VA_ARGS__)
CU(cuInit, unsigned);
CU(cuDevicePrimaryCtxRetain, void **, int);
CU(cuCtxSetCurrent, void *);
CU(cuCtxSynchronize, void);
CU(cuStreamCreate, void **, unsigned);
CU(cuStreamSynchronize, void *);
CU(cuEventCreate, void **, unsigned);
CU(cuEventRecord, void *, void *);
CU(cuEventQuery, void *);
CU(cuEventSynchronize, void *);
CU(cuMemAlloc_v2, dptr *, size_t);
CU(cuMemFree_v2, dptr);
CU(cuMemHostAlloc, void **, size_t, unsigned);
CU(cuMemcpyHtoDAsync_v2, dptr, const void *, size_t, void *);
CU(cuMemcpyDtoHAsync_v2, void *, dptr, size_t, void *);
CU(cuMemcpyDtoH_v2, void *, dptr, size_t);
CU(cuMemsetD8Async, dptr, unsigned char, size_t, void *);
static void *symbol(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) { fprintf(stderr, "%s\n", dlerror()); exit(93); }
    return found;
}
#define LOAD(name) (name = symbol(#name))

static void *stream, *event;
static dptr memory;
static char *pinned;
enum { BYTES = 1 << 16 };

__attribute__((noinline)) static void read_to_pageable(void) {
    char *host = malloc(BYTES);
    CHECK(cuMemcpyDtoHAsync_v2(host, memory, BYTES, stream) == 0);
    CHECK(cuStreamSynchronize(stream) == 0);
    CHECK(host[0] == 42 && host[BYTES - 1] == 42);
    free(host);
}
__attribute__((noinline)) static void read_to_pinned(void) {
    CHECK(cuMemcpyDtoHAsync_v2(pinned, memory, 4, stream) == 0);
    CHECK(cuStreamSynchronize(stream) == 0);
    CHECK(pinned[0] == 42);
}
__attribute__((noinline)) static void poll(void) {
    CHECK(cuMemcpyDtoHAsync_v2(pinned, memory, BYTES, stream) == 0 && cuEventRecord(event, stream) == 0);
    int result;
    while ((result = cuEventQuery(event)) == 600) { }
    CHECK(result == 0);
}
__attribute__((noinline)) static void upload(void) {
    static char host[BYTES];
    memset(host, 42, sizeof host);
    CHECK(cuMemcpyHtoDAsync_v2(memory, host, BYTES, stream) == 0);
}
__attribute__((noinline)) static void event_sync(void) {
    CHECK(cuEventRecord(event, stream) == 0 && cuEventSynchronize(event) == 0);
}
__attribute__((noinline)) static void device_sync(void) { CHECK(cuCtxSynchronize() == 0); }
__attribute__((noinline)) static void synchronous_read(void) {
    char byte;
    CHECK(cuMemcpyDtoH_v2(&byte, memory, 1) == 0 && byte == 42);
}

int main(int argc, char **argv) {
    driver = dlopen(argv[1], RTLD_NOW);
    if (!driver) { fprintf(stderr, "%s\n", dlerror()); return 92; }
    LOAD(cuInit); LOAD(cuDevicePrimaryCtxRetain); LOAD(cuCtxSetCurrent); LOAD(cuCtxSynchronize); LOAD(cuStreamCreate);
    LOAD(cuStreamSynchronize); LOAD(cuEventCreate); LOAD(cuEventRecord); LOAD(cuEventQuery); LOAD(cuEventSynchronize);
    LOAD(cuMemAlloc_v2); LOAD(cuMemFree_v2); LOAD(cuMemHostAlloc); LOAD(cuMemcpyHtoDAsync_v2); LOAD(cuMemcpyDtoHAsync_v2);
    LOAD(cuMemcpyDtoH_v2); LOAD(cuMemsetD8Async);
    nvtx_init();
    void *context;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
    CHECK(cuStreamCreate(&stream, 1) == 0 && cuEventCreate(&event, 2) == 0);
    CHECK(cuMemAlloc_v2(&memory, BYTES) == 0 && cuMemHostAlloc((void **)&pinned, BYTES, 0) == 0);
    push("step");
    upload();
    read_to_pageable();
    read_to_pinned();
    poll();
    event_sync();
    device_sync();
    synchronous_read();
    CHECK(cuMemsetD8Async(memory, 0, BYTES, stream) == 0);
    pop();
    CHECK(cuMemFree_v2(memory) == 0);
    return 0;
}
