/* A library for CUDA_INJECTION64_PATH: says when it is initialised, and that it outlives the driver at exit. */
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned flags);
int cuCtxSynchronize(void);

/* With a context current, the driver must still answer here: its own exit handler runs after this one. */
static void at_exit(void) { printf("exit handler, driver answers %d\n", cuCtxSynchronize()); }

int InitializeInjection(void) {
    printf("injected, nested cuInit answers %d\n", cuInit(0));
    atexit(at_exit);
    return 0; /* ignored */
}
