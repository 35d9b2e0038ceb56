/* signals [stubborn]: says "ready", then waits for signals. Exits with 40 + the number of the first SIGINT, SIGTERM,
 * SIGHUP or SIGUSR1; a stubborn one says "again" for each and never ends by them. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int signal = 0;
        sigwait(&set, &signal);
        if (argc < 2 || strcmp(argv[1], "stubborn") != 0) return 40 + signal;
        puts("again");
        fflush(stdout);
    }
}
