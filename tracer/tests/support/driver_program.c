// Loads the driver named in argv[1] and initialises it, as any CUDA program does first. Exits with cuInit's result.
#include "nvtx.h"
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

// As root and with no device, the driver makes /dev/nvidiactl (measured with 535), which would outlive the test and make
// other programs believe in a GPU. Without the right to make device nodes it does not.
static void give_up_mknod(void) {
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct rights[2];
    CHECK(syscall(SYS_capget, &header, rights) == 0);
    rights[0].effective &= ~(1u << CAP_MKNOD);
    rights[0].permitted &= ~(1u << CAP_MKNOD);
    CHECK(syscall(SYS_capset, &header, rights) == 0);
}

int main(int argc, char **argv) {
    give_up_mknod();
    void *driver = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!driver) { fprintf(stderr, "%s\n", dlerror()); return 92; }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    CHECK(init);
    if (argc > 2) { nvtx_init(); push("before"); }
    int result = init(0);
    // A second time, as every library of a program does it.
    CHECK(init(0) == result);
    if (argc > 2) { push("after"); pop(); pop(); }
    return result;
}
