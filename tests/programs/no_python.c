/* Preloaded, it looks like CPython of version VERSION from outside, with RUBBISH for a thread's state. */
#define ADDRESS(n) ((void *)(unsigned long)(n))

const unsigned long Py_Version = VERSION;
void *PyCode_Type[8], *PyUnicode_Type[8], *PyBytes_Type[8], *_PyRuntime[128];

int _Py_IsFinalizing(void) { return 0; }

void *PyGILState_GetThisThreadState(void) {
    static void *state[64];
    for (int i = 0; i < 64; i++) state[i] = RUBBISH;
    return state;
}
