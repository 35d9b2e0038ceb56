// A program that uses NVTX in every way; argv[1] says which. What it must see is checked here, what must be in the log by
// the test that runs it.
#define _GNU_SOURCE
#include "nvtx.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void every_slot(void) {
    attributes a = named("mark ex");
    ((void (*)(attributes *))core_fns[1])(&a);
    ((void (*)(const char *))core_fns[2])("mark a");
    ((void (*)(const wchar_t *))core_fns[3])(L"mark \u00df \U0001F600");
    a = named("start ex");
    uint64_t first = ((uint64_t(*)(attributes *))core_fns[4])(&a);
    uint64_t second = ((uint64_t(*)(const char *))core_fns[5])("start a");
    uint64_t third = ((uint64_t(*)(const wchar_t *))core_fns[6])(L"start w");
    CHECK(first && second && third && first != second && second != third);
    ((void (*)(uint64_t))core_fns[7])(second);
    ((void (*)(uint64_t))core_fns[7])(first);
    ((void (*)(uint64_t))core_fns[7])(third);

    CHECK(push("outer") == 0);
    a = named("with payload");
    a.category = 7;
    a.payload_type = 2;
    a.payload.i64 = -42;
    CHECK(push_ex(&a) == 1);
    CHECK(((int (*)(const wchar_t *))core_fns[10])(L"wide") == 2);
    CHECK(pop() == 2 && pop() == 1 && pop() == 0);
    CHECK(pop() < 0);

    struct { int type; uint64_t bits; } payloads[] = {
        { 1, 1ull << 63 }, { 3, 0 }, { 4, 4000000000u }, { 5, 0 }, { 6, 0 } };
    for (int i = 0; i < 5; i++) {
        a = named("payload");
        a.payload_type = payloads[i].type;
        a.payload.u64 = payloads[i].bits;
        if (payloads[i].type == 3) a.payload.f64 = 0.5;
        if (payloads[i].type == 5) a.payload.i32 = -5;
        if (payloads[i].type == 6) a.payload.f32 = 1.5f;
        ((void (*)(attributes *))core_fns[1])(&a);
    }
    ((void (*)(uint32_t, const char *))core_fns[12])(7, "seven");
    ((void (*)(uint32_t, const wchar_t *))core_fns[13])(8, L"eight");
    ((void (*)(uint32_t, const char *))core_fns[14])((uint32_t)syscall(SYS_gettid), "chief");

    void *left = ((void *(*)(const char *))core2_fns[12])("left");
    void *right = ((void *(*)(const wchar_t *))core2_fns[13])(L"right");
    CHECK(left && right && left != right);
    void *text = ((void *(*)(void *, const char *))core2_fns[10])(left, "registered");
    void *wide = ((void *(*)(void *, const wchar_t *))core2_fns[11])(left, L"registered wide");
    CHECK(text && wide && text != wide);
    ((void (*)(void *, uint32_t, const char *))core2_fns[8])(left, 7, "left seven");
    ((void (*)(void *, uint32_t, const wchar_t *))core2_fns[9])(left, 9, L"left nine");
    attributes r = { .version = 3, .size = sizeof r, .message_type = 3, .message.registered = text };
    int (*domain_push)(void *, attributes *) = (int (*)(void *, attributes *))core2_fns[4];
    int (*domain_pop)(void *) = (int (*)(void *))core2_fns[5];
    // Domains interleave, and each has levels of its own; a null domain is the default one.
    CHECK(domain_push(left, &r) == 0);
    r.message.registered = wide;
    CHECK(domain_push(right, &r) == 0);
    CHECK(domain_push(left, &r) == 1);
    CHECK(push("default") == 0);
    CHECK(domain_push(NULL, &r) == 1);
    CHECK(domain_pop(left) == 1 && domain_pop(left) == 0 && domain_pop(right) == 0);
    CHECK(domain_pop(NULL) == 1 && pop() == 0);
    ((void (*)(void *, attributes *))core2_fns[1])(right, &r);
    uint64_t range = ((uint64_t(*)(void *, attributes *))core2_fns[2])(right, &r);
    ((void (*)(void *, uint64_t))core2_fns[3])(right, range);
    CHECK(((void *(*)(void *, void *))core2_fns[6])(left, &a));
    ((void (*)(void *))core2_fns[7])(NULL);
    ((void (*)(void *))core2_fns[14])(left);
    // Programs do this.
    r.message.registered = text;
    CHECK(domain_push(left, &r) == 0 && domain_pop(left) == 0);
    // Not handles of ours, no attributes, attributes of an unknown size: no crash.
    r.message.registered = (void *)0x12345;
    CHECK(domain_push((void *)0xdeadbeef, &r) == 0 && domain_pop((void *)0xdeadbeef) == 0);
    CHECK(push_ex(NULL) == 0 && pop() == 0);
    r.size = 8;
    CHECK(push_ex(&r) == 0 && pop() == 0);
    CHECK(push(NULL) == 0 && pop() == 0);
    if (core2_fns[15]) ((void (*)(void *))core2_fns[15])(NULL);
}

static void *storm(void *number) {
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "t%ld i%d", (long)number, i % 10);
        CHECK(push(name) == 0 && push("inner") == 1 && pop() == 1 && pop() == 0);
    }
    return NULL;
}
static void threads(int rounds, int count) {
    pthread_t ids[64];
    for (int round = 0; round < rounds; round++) {
        for (long i = 0; i < count; i++) pthread_create(&ids[i], NULL, storm, (void *)i);
        for (int i = 0; i < count; i++) pthread_join(ids[i], NULL);
    }
}

typedef struct { size_t id, count; intptr_t *slots; } segment;
typedef struct { uint16_t version, size, module, compat; size_t segments; segment *segment; void *fn; void *info; } module_info;
static void extension(void) {
    int (*init)(module_info *) = (int (*)(module_info *))dlsym(nvtx_library(), "InitializeInjectionNvtxExtension");
    intptr_t slots[8] = { 0 };
    segment s = { 0, 8, slots };
    module_info info = { 0x302, sizeof info, 2, 0x104, 1, &s, 0, 0 };
    CHECK(init(&info) == 1 && slots[7] && ((uint8_t(*)(void *))slots[7])(NULL) == 1);
    CHECK(((int (*)(void *, void *, size_t))slots[3])(NULL, NULL, 0) == 0);
    CHECK(((int (*)(void *, void *, size_t))slots[4])(NULL, NULL, 0) == 0);
    // Fewer slots than we fill, another extension, nothing at all.
    intptr_t few[6] = { 0 };
    s.count = 5; s.slots = few;
    CHECK(init(&info) == 1 && few[5] == 0);
    memset(slots, 0, sizeof slots);
    s.count = 8; s.slots = slots; info.module = 1;
    CHECK(init(&info) == 1 && slots[7] == 0);
    CHECK(init(NULL) == 1);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "v2")) core2_size = 15;
    CHECK(nvtx_init() == 1);
    if (!strcmp(mode, "off")) { CHECK(!core_fns[9] && !core2_fns[4]); return 0; }
    if (!strcmp(mode, "v2")) { CHECK(core2_fns[14] && !core2_fns[15]); return 0; }
    if (!strcmp(mode, "slots")) every_slot();
    if (!strcmp(mode, "twice")) { CHECK(nvtx_init() == 1); CHECK(push("once") == 0 && pop() == 0); }
    if (!strcmp(mode, "threads")) threads(3, 16);
    if (!strcmp(mode, "extension")) extension();
    if (!strcmp(mode, "fork")) {
        void *domain = ((void *(*)(const char *))core2_fns[12])("shared");
        void *text = ((void *(*)(void *, const char *))core2_fns[10])(domain, "text of the parent");
        attributes r = { .version = 3, .size = sizeof r, .message_type = 3, .message.registered = text };
        int (*domain_push)(void *, attributes *) = (int (*)(void *, attributes *))core2_fns[4];
        CHECK(push("parent") == 0 && domain_push(domain, &r) == 0);
        pid_t quiet = fork();
        if (quiet == 0) return 0;
        pid_t child = fork();
        if (child == 0) {
            CHECK(push("child") == 1 && domain_push(domain, &r) == 1);
            pid_t grandchild = fork();
            if (grandchild == 0) { push("grandchild"); _exit(0); }
            waitpid(grandchild, NULL, 0);
            exit(4);
        }
        int status;
        waitpid(quiet, &status, 0);
        waitpid(child, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
        CHECK(pop() == 0);
    }
    if (!strcmp(mode, "fork-storm")) {
        pthread_t ids[4];
        for (long i = 0; i < 4; i++) pthread_create(&ids[i], NULL, storm, (void *)i);
        for (int i = 0; i < 20; i++) {
            pid_t child = fork();
            if (child == 0) { push("child of a storm"); exit(0); }
            int status;
            CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        for (int i = 0; i < 4; i++) pthread_join(ids[i], NULL);
    }
    if (!strcmp(mode, "close-all")) {
        push("before");
        for (int fd = 3; fd < 1024; fd++) close(fd);
        int mine = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(mine >= 0);
        for (int i = 0; i < 20000; i++) { push("after"); pop(); }
        struct stat about;
        CHECK(fstat(mine, &about) == 0 && about.st_size == 0);
    }
    if (!strcmp(mode, "exec")) {
        push("before");
        char *next[] = { argv[0], "after-exec", NULL };
        execv(argv[0], next);
    }
    if (!strcmp(mode, "after-exec")) push("after");
    if (!strcmp(mode, "abort")) { push("last words"); signal(SIGABRT, SIG_DFL); abort(); }
    if (!strcmp(mode, "kill")) { push("last words"); raise(SIGKILL); }
    if (!strcmp(mode, "_exit")) { push("last words"); _exit(5); }
    if (!strcmp(mode, "exit-in-thread-storm")) {
        pthread_t ids[8];
        for (long i = 0; i < 8; i++) pthread_create(&ids[i], NULL, storm, (void *)i);
        push("main"); exit(6);
    }
    return 0;
}
