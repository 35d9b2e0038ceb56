/* NVTX ranges for the test programs: the program's side of the injection protocol, as far as push and pop need it. */
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static void *nvtx_slots[16];
static void **nvtx_addresses[16];

static int nvtx_module_table(int module, void ****table, unsigned *size) {
    if (module != 1) return 0;
    for (int i = 1; i < 16; i++) nvtx_addresses[i] = &nvtx_slots[i];
    if (table) *table = nvtx_addresses;
    if (size) *size = 16;
    return 1;
}

static void nvtx_ignore_version(uint32_t version) { (void)version; }

static const void *nvtx_export_table(uint32_t id) {
    static const struct {
        size_t size;
        int (*module_table)(int, void ****, unsigned *);
    } callbacks = {sizeof callbacks, nvtx_module_table};
    static const struct {
        size_t size;
        uint32_t version, reserved;
        void (*set_version)(uint32_t);
    } version = {sizeof version, 3, 0, nvtx_ignore_version};
    return id == 1 ? (const void *)&callbacks : id == 3 ? (const void *)&version : NULL;
}

static void nvtx_start(void) {
    static int started;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    if (started++ || path == NULL) return;
    void *library = dlopen(path, RTLD_LAZY);
    int (*initialize)(const void *(*)(uint32_t)) = NULL;
    if (library) *(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
    if (initialize) initialize(nvtx_export_table);
}

static void nvtx_push(const char *name) {
    nvtx_start();
    if (nvtx_slots[9]) ((int (*)(const char *))nvtx_slots[9])(name);
}

static void nvtx_pop(void) {
    if (nvtx_slots[11]) ((int (*)(void))nvtx_slots[11])();
}
