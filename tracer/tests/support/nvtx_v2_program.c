// Uses NVTX through the shared library of version 2 (argv[1]), as programs from before NVTX 3 do.
#include "nvtx.h"

int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 92; }
    int (*push_a)(const char *) = (int (*)(const char *))dlsym(library, "nvtxRangePushA");
    int (*pop_range)(void) = (int (*)(void))dlsym(library, "nvtxRangePop");
    void (*mark_a)(const char *) = (void (*)(const char *))dlsym(library, "nvtxMarkA");
    CHECK(push_a && pop_range && mark_a);
    CHECK(push_a("old") == 0 && push_a("older") == 1 && pop_range() == 1 && pop_range() == 0);
    mark_a("mark");
    return 0;
}
