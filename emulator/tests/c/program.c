/* A CUDA program in C, linked against libcuda.so.1 as any other. Its first argument says what to do; it prints what
 * happened and its exit status is 0 when all went as expected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *handle;

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuDevicePrimaryCtxRetain(handle *context, int device);
CUresult cuCtxSetCurrent(handle context);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuModuleLoadData(handle *module, const void *image);
CUresult cuModuleGetFunction(handle *function, handle module, const char *name);
CUresult cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, handle stream, void **parameters, void **extra);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status);
CUresult cuMemCreate(void *, size_t, const void *, unsigned long long);
CUresult syncauditEmuRegisterKernel(const char *name, const size_t *sizes, size_t n,
                                    CUresult (*function)(const void *launch, void *user), void *user);

#define CHECK(call, expected)                                                                      \
    do {                                                                                           \
        int code = (call);                                                                         \
        if (code != (expected)) {                                                                  \
            printf("%s answered %d, expected %d\n", #call, code, (expected));                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static CUresult never_returns(const void *launch, void *user) {
    (void)launch;
    if (user) *(volatile int *)user = 1;
    for (;;) pause();
    return 0;
}

static int context(void) {
    handle made;
    CHECK(cuInit(0), 0);
    CHECK(cuDevicePrimaryCtxRetain(&made, 0), 0);
    CHECK(cuCtxSetCurrent(made), 0);
    return 0;
}

static int copies(void) {
    CUdeviceptr memory;
    char there[6] = "hello", back[6] = "";
    const char *name;
    int version = 0, status = -1;
    CUresult (*synchronize)(void);
    CHECK(cuMemAlloc_v2(&memory, 6), 3);
    if (context()) return 1;
    CHECK(cuMemAlloc_v2(&memory, 6), 0);
    CHECK(cuMemcpyHtoD_v2(memory, there, 6), 0);
    CHECK(cuMemcpyDtoH_v2(back, memory, 6), 0);
    CHECK(cuGetProcAddress_v2("cuCtxSynchronize", (void **)&synchronize, 12080, 0, &status), 0);
    CHECK(synchronize(), 0);
    CHECK(cuGetErrorName(700, &name), 0);
    CHECK(cuDriverGetVersion(&version), 0);
    CHECK(cuMemCreate(NULL, 0, NULL, 0), 801);
    printf("%s %s %d\n", back, name, version);
    return 0;
}

/* A kernel is running and more are queued when the process ends. */
static int busy_exit(void) {
    static volatile int running;
    handle module, function;
    if (context()) return 1;
    CHECK(syncauditEmuRegisterKernel("never", NULL, 0, never_returns, (void *)&running), 0);
    CHECK(cuModuleLoadData(&module, "image"), 0);
    CHECK(cuModuleGetFunction(&function, module, "never"), 0);
    for (int i = 0; i < 10; i++) CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    while (!running) usleep(100);
    printf("leaving\n");
    return 0;
}

/* The child of a process that used CUDA can't, and neither hangs nor crashes. */
static int forking(void) {
    CUdeviceptr memory;
    int status;
    if (context()) return 1;
    CHECK(cuMemAlloc_v2(&memory, 4), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(cuInit(0), 304);
        CHECK(cuMemAlloc_v2(&memory, 4), 3);
        CHECK(cuCtxSynchronize(), 3);
        CHECK(cuMemCreate(NULL, 0, NULL, 0), 3);
        return 0;
    }
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
    CHECK(cuCtxSynchronize(), 0);
    printf("parent goes on\n");
    return 0;
}

/* Forked before cuInit: both may use CUDA. */
static int fork_first(void) {
    int status;
    pid_t child = fork();
    if (child == 0) return copies();
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
    return context();
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "copies")) return copies();
    if (!strcmp(what, "busy-exit")) return busy_exit();
    if (!strcmp(what, "fork")) return forking();
    if (!strcmp(what, "fork-first")) return fork_first();
    if (!strcmp(what, "init-twice")) return context() || context();
    return 2;
}
