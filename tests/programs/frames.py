"""frames.py LIBRARY OUT: waits in every kind of Python frame.

Before each wait, on the same line, `here` takes down the chain of frames as Python itself tells it. OUT.PID gets all chains of a process.
"""
import asyncio
import ctypes
import json
import os
import sys
import threading

ext, held = ctypes.CDLL(sys.argv[1]), ctypes.PyDLL(sys.argv[1])
seen = []


def here():
    frame, chain = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        chain.append([code.co_filename, getattr(code, "co_qualname", code.co_name), frame.f_lineno])
        frame = frame.f_back
    seen.append([threading.get_native_id(), chain])


def write():
    with open("%s.%d" % (sys.argv[2], os.getpid()), "w") as out:
        json.dump(seen, out)


class Model:
    def forward(self, with_gil=False):
        if with_gil:
            here(); held.ext_read()
        for _ in range(2):

            here(); ext.ext_read()
        [(here(), ext.ext_read()) for _ in range(1)]
        (lambda: (here(), ext.ext_read()))()

        def inner():
            try:
                raise ValueError
            except ValueError:
                here(); ext.ext_read()
            finally:
                here(); ext.ext_read()

        inner()

    @property
    def größe_模型_𝔐(self):
        here(); return ext.ext_read()

    def __enter__(self):
        here(); ext.ext_read()

    def __exit__(self, *_):
        here(); ext.ext_read()


def batches(n):
    for i in range(n):
        here(); ext.ext_read()
        yield i
    yield from ((here(), ext.ext_read()) for _ in range(n))


async def fetch():
    here(); ext.ext_read()
    await asyncio.sleep(0)
    here(); ext.ext_read()


async def both():
    await asyncio.gather(fetch(), fetch())


@ctypes.CFUNCTYPE(None)
def called_from_c():
    here(); ext.ext_read()


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    here(); ext.ext_read()


def made_and_freed(times):
    """Code objects that are gone right after, so that others get their addresses."""
    for i in range(times):
        names = {"here": here, "ext": ext}
        source = "def f%d():\n%s here(); ext.ext_read()\nf%d()" % (i, "\n" * (i % 7) + " " * (i % 3), i)
        exec(compile(source, "made.py", "exec"), names)
    for i in range(times):
        # The same names and first lines, only the lines within differ.
        exec(compile("%shere(); ext.ext_read()" % ("\n" * (i % 5)), "made.py", "exec"), {"here": here, "ext": ext})


# 300 lines further down than the function's first line.
far = "def far():\n x = 0\n" + " x += 1\n" * 300 + " here(); ext.ext_read()\n for i in range(2):\n  here(); ext.ext_read()\n"


def worker(number):
    ext.ext_enter()
    for i in range(20):
        Model().forward()
        list(batches(2))
        recurse(number + i)


def main():
    ext.ext_start()
    here(); ext.ext_read()
    with Model() as _:
        Model().forward(with_gil=True)
    Model().größe_模型_𝔐
    list(batches(3))
    asyncio.new_event_loop().run_until_complete(both())
    ext.ext_call_back(called_from_c)
    held.ext_call_back(called_from_c)
    ext.ext_read_on_own_thread()
    names = {"here": here, "ext": ext}
    exec(compile(far, "far.py", "exec"), names)
    names["far"]()
    for depth in 28, 252, 253, 254, 255, 256, 600:
        recurse(depth)
    made_and_freed(100)
    list(map(lambda _: (here(), ext.ext_read()), range(2)))
    sorted([2, 1], key=lambda x: (here(), ext.ext_read(), x)[2])
    threads = [threading.Thread(target=worker, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Any module-level code.
    exec("here(); ext.ext_read()")


main()
here(); ext.ext_read()
write()
