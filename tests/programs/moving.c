/* moving N: N steps. `train` waits twice, `clip` once. What a fingerprint must survive is switched on when it is compiled:
 *   -DMOVED   other lines, other functions in between, other names of temporaries, the functions in another order
 *   -DADDED   one more wait in `train`, above the two */
#include "cuda.h"
#include "nvtx.h"

static int sum;

#ifdef MOVED
/* Something that was written since,



   and takes a few lines. */
__attribute__((noinline)) static int unrelated(int x) { return x * 3 + sum; }
__attribute__((noinline)) static void clip(void) {
    int extra = unrelated(2);
    uint32_t renamed = read_word();
    sum += (int)renamed + extra;
}
#endif

__attribute__((noinline)) static void train(void) {
#ifdef ADDED
    sum += (int)read_word();
#endif
#ifdef MOVED
    uint32_t first_of_two = read_word();

    sum += (int)first_of_two;
    uint32_t second_of_two = read_word();
    sum += (int)second_of_two;
#else
    uint32_t a = read_word();
    sum += (int)a;
    uint32_t b = read_word();
    sum += (int)b;
#endif
}

#ifndef MOVED
__attribute__((noinline)) static void clip(void) {
    uint32_t value = read_word();
    sum += (int)value;
}
#endif

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 0;
    start_cuda();
    for (int step = 0; step < steps; step++) {
        nvtx_push("step");
        set_word((uint32_t)step);
        train();
        clip();
        nvtx_pop();
    }
    return sum < 0;
}
