/* plain [STATUS]: never touches CUDA. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    puts("plain output");
    return argc > 1 ? atoi(argv[1]) : 0;
}
