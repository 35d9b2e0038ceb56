/* The part of the CUDA driver API that the test programs use, looked up at run time as most programs do it: the tests
 * build on a machine without the toolkit, and the same programs run on a GPU. Types and values as in cuda.h. */
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long CUdeviceptr;
typedef struct CUstream_st *CUstream;
typedef struct CUctx_st *CUcontext;

#define DRIVER_FUNCTIONS(F) \
    F(cuInit, (unsigned)) \
    F(cuDeviceGet, (int *, int)) \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, int)) \
    F(cuCtxSetCurrent, (CUcontext)) \
    F(cuStreamCreate, (CUstream *, unsigned)) \
    F(cuStreamSynchronize, (CUstream)) \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    F(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream)) \
    F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))

#define DECLARE(name, arguments) static int(*name) arguments;
DRIVER_FUNCTIONS(DECLARE)

static CUstream stream;
static CUdeviceptr memory;

static void must(int result, const char *call) {
    if (result != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", call, result);
        exit(99);
    }
}
#define MUST(call) must(call, #call)

/* Driver, device 0, one stream, one word of memory. */
static void start_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(98);
    }
#define LOOK_UP(name, arguments) *(void **)&name = dlsym(library, #name);
    DRIVER_FUNCTIONS(LOOK_UP)
    int device;
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuMemAlloc_v2(&memory, sizeof(uint32_t)));
}

/* Work that the host does not wait for. */
static void set_word(uint32_t value) { MUST(cuMemsetD32Async(memory, value, 1, stream)); }

/* One wait made of two calls. */
static uint32_t read_word(void) {
    uint32_t value = 0;
    MUST(cuMemcpyDtoHAsync_v2(&value, memory, sizeof value, stream));
    MUST(cuStreamSynchronize(stream));
    return value;
}
