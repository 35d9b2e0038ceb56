/* steps N [WAITS] [WORD...]: N steps on the device, each with WAITS reads that wait (default 0). Words:
 *   range=NAME      what a step's range is called (default "step")
 *   no-ranges       no ranges at all
 *   kill-at=K       SIGKILL itself in step K (counted from 0), after its reads
 *   crash-at=K      abort() there
 *   crash-first     abort() after the device is up and before the first step
 *   exit-at=K       _exit(0) there: no exit handlers
 *   status=S        exit status at the end
 *   stdout=BYTES    writes every byte value in turn, BYTES of them, to stdout
 *   fork            forks before anything else; parent and child both run all of it
 *   orphan=FIFO     leaves a child behind that runs the steps, tells FIFO.up, and waits until FIFO is written to
 *   pause=FIFO      opens FIFO for reading before the last step, until it is written to */
#include "cuda.h"
#include "nvtx.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *option(int argc, char **argv, const char *name) {
    size_t length = strlen(name);
    for (int i = 2; i < argc; i++)
        if (strncmp(argv[i], name, length) == 0) return argv[i] + length;
    return NULL;
}

static long number(int argc, char **argv, const char *name, long otherwise) {
    const char *text = option(argc, argv, name);
    return text ? atol(text) : otherwise;
}

static void wait_for(const char *fifo) {
    char byte;
    int fd = open(fifo, O_RDONLY);
    if (fd < 0 || read(fd, &byte, 1) < 0) exit(97);
    close(fd);
}

static void tell(const char *fifo) {
    char path[4096];
    snprintf(path, sizeof path, "%s.up", fifo);
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, "x", 1) != 1) exit(96);
    close(fd);
}

/* A function with a name, so that reports have one to show. */
__attribute__((noinline)) static void wait_for_the_device(int step) {
    uint32_t value = read_word();
    if (value != (uint32_t)step) {
        fprintf(stderr, "read %u instead of %d\n", value, step);
        exit(95);
    }
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 0;
    int waits = argc > 2 ? atoi(argv[2]) : 0;
    const char *range = option(argc, argv, "range=");
    const char *orphan = option(argc, argv, "orphan=");
    const char *pause_at = option(argc, argv, "pause=");
    int ranges = option(argc, argv, "no-ranges") == NULL;
    pid_t child = 0;
    if (option(argc, argv, "fork") != NULL) child = fork();
    if (orphan != NULL && fork() != 0) {
        wait_for(orphan); /* the child has its steps behind it */
        return 0;
    }

    start_cuda();
    if (option(argc, argv, "crash-first") != NULL) abort();
    for (int step = 0; step < steps; step++) {
        if (pause_at != NULL && step == steps - 1) {
            tell(pause_at);
            wait_for(pause_at);
        }
        if (ranges) nvtx_push(range ? range : "step");
        set_word((uint32_t)step);
        for (int i = 0; i < waits; i++) wait_for_the_device(step);
        if (number(argc, argv, "kill-at=", -1) == step) kill(getpid(), SIGKILL);
        if (number(argc, argv, "crash-at=", -1) == step) abort();
        if (number(argc, argv, "exit-at=", -1) == step) _exit(0);
        if (ranges) nvtx_pop();
    }

    long bytes = number(argc, argv, "stdout=", 0);
    for (long i = 0; i < bytes; i++) putchar((int)(i & 255));
    fflush(stdout);
    if (orphan != NULL) {
        int fd = open(orphan, O_WRONLY);
        if (fd < 0 || write(fd, "x", 1) != 1) exit(94);
        close(fd);
        char stop[4096];
        snprintf(stop, sizeof stop, "%s.stop", orphan);
        wait_for(stop);
    }
    if (child > 0) waitpid(child, NULL, 0);
    return (int)number(argc, argv, "status=", 0);
}
