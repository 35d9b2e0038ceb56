// Just enough of CUDA C to execute a kernel on the host, one thread block at a time: every CUDA thread is a coroutine that
// runs until a barrier or a warp shuffle. No data race is visible to a single scheduling order, so launches can be run in
// ascending and in descending thread order: a missing barrier then gives different results.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __launch_bounds__(threads)
#define __device__ static
#define __forceinline__ inline
#define __shared__ static

struct Index { unsigned x, y, z; };
static Index blockIdx, blockDim, gridDim;

enum State { READY, AT_WARP, AT_BLOCK, DONE };
struct Thread {
    ucontext_t context;
    char* stack;
    Index index;
    State state;
    float offered;
};
static Thread* threads;
static unsigned current;
static ucontext_t scheduler;
static void (*kernel)(void**);
static void** arguments;
#define threadIdx (threads[current].index)

static void pause_as(State state)
{
    Thread* me = &threads[current];
    me->state = state;
    swapcontext(&me->context, &scheduler);
}

static void __syncthreads() { pause_as(AT_BLOCK); }

static float __shfl_xor_sync(unsigned, float value, int offset)
{
    threads[current].offered = value;
    pause_as(AT_WARP);
    float other = threads[current ^ offset].offered;
    pause_as(AT_WARP);
    return other;
}

static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
static long long min(long long a, long long b) { return a < b ? a : b; }
static float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static unsigned __float_as_uint(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static int atomicMin(int* at, int value)
{
    int before = *at;
    if (value < before) *at = value;
    return before;
}

static void thread_main()
{
    kernel(arguments);
    threads[current].state = DONE;
    threads[current].offered = NAN;  // a shuffle that reads a finished thread is undefined on a device
    swapcontext(&threads[current].context, &scheduler);
}

// Lets go of everyone in [first, end) if all that are not done wait at `state`; returns whether it did.
static bool release(unsigned first, unsigned end, State state)
{
    bool any = false;
    for (unsigned t = first; t < end; ++t) {
        if (threads[t].state == DONE) continue;
        if (threads[t].state != state) return false;
        any = true;
    }
    for (unsigned t = first; any && t < end; ++t)
        if (threads[t].state == state) threads[t].state = READY;
    return any;
}

// Runs one thread block. False: some threads wait at a barrier that the others never reach.
static bool run_block(unsigned count, bool descending)
{
    const unsigned stack_bytes = 64 << 10;
    for (unsigned t = 0; t < count; ++t) {
        Thread* thread = &threads[t];
        thread->index = Index{t, 0, 0};
        thread->state = READY;
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack;
        thread->context.uc_stack.ss_size = stack_bytes;
        thread->context.uc_link = 0;
        makecontext(&thread->context, thread_main, 0);
    }
    for (;;) {
        bool all_done = true, progress = false;
        for (unsigned i = 0; i < count; ++i) {
            current = descending ? count - 1 - i : i;
            if (threads[current].state != READY) continue;
            progress = true;
            swapcontext(&scheduler, &threads[current].context);
        }
        for (unsigned t = 0; t < count; ++t) all_done = all_done && threads[t].state == DONE;
        if (all_done) return true;
        for (unsigned warp = 0; warp < count; warp += 32)
            progress |= release(warp, warp + 32 < count ? warp + 32 : count, AT_WARP);
        progress |= release(0, count, AT_BLOCK);
        if (!progress) return false;
    }
}

// 0: ran. 1: a barrier that not every thread reaches.
extern "C" int launch(void (*entry)(void**), void** args, const unsigned* grid, unsigned block, int descending)
{
    kernel = entry;
    arguments = args;
    gridDim = Index{grid[0], grid[1], grid[2]};
    blockDim = Index{block, 1, 1};
    threads = (Thread*)calloc(block, sizeof(Thread));
    for (unsigned t = 0; t < block; ++t) threads[t].stack = (char*)malloc(64 << 10);
    bool ok = true;
    for (unsigned z = 0; ok && z < grid[2]; ++z)
        for (unsigned y = 0; ok && y < grid[1]; ++y)
            for (unsigned x = 0; ok && x < grid[0]; ++x) {
                blockIdx = Index{x, y, z};
                ok = run_block(block, descending);
            }
    for (unsigned t = 0; t < block; ++t) free(threads[t].stack);
    free(threads);
    return ok ? 0 : 1;
}
