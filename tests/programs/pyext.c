/* What Python programs under test call through ctypes: waits on the device, with and without the GIL, from C that Python calls, from Python that
 * C calls, and from a thread that Python does not know. */
#include "cuda.h"
#include "nvtx.h"
#include <pthread.h>

static CUcontext shared;

void ext_start(void) {
    start_cuda();
    MUST(cuDevicePrimaryCtxRetain(&shared, 0));
    set_word(7);
}

/* Each thread begins with this. */
void ext_enter(void) { MUST(cuCtxSetCurrent(shared)); }

/* A copy to the host and a synchronise. */
unsigned ext_read(void) { return read_word(); }

void ext_call_back(void (*function)(void)) { function(); }

static void *on_own_thread(void *unused) {
    ext_enter();
    read_word();
    return unused;
}

void ext_read_on_own_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, on_own_thread, NULL) || pthread_join(thread, NULL)) exit(94);
}

void ext_push(const char *name) { nvtx_push(name); }
void ext_pop(void) { nvtx_pop(); }
