// The program's side of the NVTX injection protocol, as nvtx3 headers compiled into a program do it: find the library,
// hand it our tables, call what it put there. Facts: nvtxInit.h, nvtxTypes.h.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

typedef void (*fn)(void);
static fn core_fns[16], core2_fns[16];
static fn *core_table[17], *core2_table[17];
static unsigned core2_size = 16;

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union { uint64_t u64; int64_t i64; double f64; uint32_t u32; int32_t i32; float f32; } payload;
    int32_t message_type;
    union { const char *ascii; const wchar_t *wide; const void *registered; } message;
} attributes;

static int get_table(int module, fn ***table, unsigned *size) {
    if (module == 1) { *table = core_table; *size = 16; return 1; }
    if (module == 5) { *table = core2_table; *size = core2_size; return 1; }
    return 0;
}
static struct { size_t size; int (*get)(int, fn ***, unsigned *); } callbacks = { 16, get_table };
static const void *export_table(uint32_t id) { return id == 1 ? &callbacks : 0; }

static void *nvtx_library(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : 0;
    if (!library) { fprintf(stderr, "no injection library: %s\n", path ? dlerror() : "not named"); exit(90); }
    return library;
}
static int nvtx_init(void) {
    for (int i = 1; i < 16; i++) { core_table[i] = &core_fns[i]; core2_table[i] = &core2_fns[i]; }
    int (*init)(const void *(*)(uint32_t)) =
        (int (*)(const void *(*)(uint32_t)))dlsym(nvtx_library(), "InitializeInjectionNvtx2");
    return init(export_table);
}

#define CALL(table, slot, otherwise, type, ...) (table[slot] ? ((type)table[slot])(__VA_ARGS__) : otherwise)
static int push(const char *name) { return CALL(core_fns, 9, -9, int (*)(const char *), name); }
static int pop(void) { return CALL(core_fns, 11, -9, int (*)(void)); }
static int push_ex(const attributes *a) { return CALL(core_fns, 8, -9, int (*)(const attributes *), a); }
static attributes named(const char *name) {
    attributes a = { .version = 3, .size = sizeof a, .message_type = 1, .message.ascii = name };
    return a;
}
#define CHECK(condition) do { if (!(condition)) { fprintf(stderr, "line %d: %s\n", __LINE__, #condition); exit(91); } } while (0)
