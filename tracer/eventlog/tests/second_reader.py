"""Reads an event log by docs/trace-format.md alone and prints its records, one per line.

Shares nothing with the Rust reader; the test second_reader.rs compares the two.
"""
import struct
import sys

SLOT = 65536
M64 = (1 << 64) - 1
K, K2 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93


def rotl(x, n):
    return ((x << n) | (x >> (64 - n))) & M64


def check(nonce, position, words):
    a, b = nonce, position * K2 & M64
    for w in words:
        a, b = b, rotl((a ^ w) * K & M64, 29)
    f = (rotl(a * K2 & M64, 31) ^ b) * K & M64
    return ((f ^ (f >> 29)) >> 8) & 0xFFFFFFFF


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def words_of(data):
    return struct.unpack("<%dQ" % (len(data) // 8), data)


class Payload:
    def __init__(self, data):
        self.data, self.at = data, 0

    def word(self):
        self.at += 8
        return struct.unpack_from("<Q", self.data, self.at - 8)[0]

    def pair(self):
        self.at += 8
        return struct.unpack_from("<II", self.data, self.at - 8)

    def text(self, length):
        self.at += length
        return self.data[self.at - length:self.at].hex() or "-"

    def list(self, count):
        return [self.word() for _ in range(count)]

    def attributes(self, flags):
        domain, name = self.pair()
        category, payload = self.pair() if flags & 8 else (0, 0)
        if flags & 7 in (1, 2, 3):
            payload = self.word()
        return [domain, name, category, flags & 7, payload]


def decode(kind, flags, data):
    p = Payload(data)
    driver = flags >> 4 & 1
    if kind == 1:
        key, value = p.pair()
        return [p.text(key), p.text(value)]
    if kind == 2:
        name, length = p.pair()
        return [name, p.text(length)]
    if kind == 3:
        head = [*p.pair(), *p.list(4)]
        return head + [p.text(p.pair()[0])]
    if kind in (4, 6):
        name, count = p.pair()
        return [name, *p.list(count)]
    if kind == 5:
        name, length = p.pair()
        return [name, *p.pair(), *p.pair(), p.text(length)]
    if kind == 7:
        return [p.word()]
    if kind == 8:
        return [p.pair()[0]]
    if kind == 9:
        return [*p.pair()]
    if kind == 10:
        return [*p.pair(), p.pair()[0]]
    if kind == 11:
        return [driver, *p.pair()]
    if kind in (16, 20):
        return [p.word(), *p.attributes(flags)]
    if kind == 18:
        return [p.word(), p.word(), *p.attributes(flags)]
    if kind == 17:
        return [p.word(), p.pair()[0]]
    if kind == 19:
        return [p.word(), p.word(), p.pair()[0]]
    if kind == 24:
        return [driver, p.word(), *p.pair(), *p.pair()]
    if kind == 25:
        enter, duration, function = p.list(3)
        rest = [*p.list(3), *p.pair()]
        length = p.word() if flags & 0x20 else duration & (1 << 40) - 1
        return [driver, enter, length, duration >> 40 & 255, duration >> 48, function & 0xFFFFFFFF,
                function >> 32 & 0xFFFF, function >> 48, flags & 15, *rest]
    if kind == 26:
        return [driver, *p.list(3), *p.pair(), *p.pair(), *p.pair()]
    if kind == 32:
        correlation, kinds = p.pair()
        return [correlation, *struct.pack("<I", kinds), *p.list(3), *p.pair(), *p.pair(), p.word()]
    if kind == 33:
        correlation, kinds = p.pair()
        return [correlation, kinds & 0xFFFF, kinds >> 16, *p.list(3), *p.pair(), *p.pair(), p.word()]
    if kind == 34:
        return [*p.pair(), *p.list(2), *p.pair(), p.pair()[0]]
    if kind == 35:
        return [*p.pair(), *p.list(2), *p.pair(), *p.pair(), p.word()]
    if kind == 36:
        return [*p.pair(), *p.list(2)]
    if kind == 40:
        return p.list(3)
    if kind == 41:
        t = p.word()
        return [flags & 0x7F, t, p.text(p.pair()[0])]
    if kind == 42:
        return [p.word(), p.pair()[0]]
    if kind == 43:
        return [flags, p.word(), p.pair()[0]]
    raise SystemExit("unknown kind %d" % kind)


def main(path):
    data = open(path, "rb").read()
    magic, version, slot, nonce = struct.unpack_from("<8sIIQ", data)
    assert magic == b"SALOG\r\n\x1a" and version == 1 and slot == SLOT
    assert check(nonce, 0, words_of(data[:48])) == u32(data, 48)
    lanes = {}
    for base in range(SLOT, len(data), SLOT):
        magic, number, lane, sequence, right, _, committed = struct.unpack_from("<4sIIIIII", data, base)
        if magic == b"\0\0\0\0":
            continue
        assert magic == b"SACH" and number == base // SLOT
        assert check(nonce, base, words_of(data[base:base + 16])) == right
        lanes[lane, sequence] = (base, committed)
    for _, (base, committed) in sorted(lanes.items()):
        at = base + 32
        while at + 8 <= base + SLOT:
            kind, flags, length, right = struct.unpack_from("<BBHI", data, at)
            payload = data[at + 8:at + length * 8]
            if length == 0 or check(nonce, at, (u32(data, at), *words_of(payload))) != right:
                break
            print(kind, *decode(kind, flags, payload))
            at += length * 8
        assert at - base - 32 >= committed


main(sys.argv[1])
