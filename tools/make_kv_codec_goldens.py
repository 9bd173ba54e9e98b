#!/usr/bin/env python3
"""Bytes of cache rows, from the words of src/ops/kv_codec.h alone (needs numpy).

Prints the vectors of tests/backend/kv_codec_test.cc: element i of a row is
(((37 i + 11) mod 41) - 20) / 16, and the seventh element is 3 more.
"""

import numpy as np

F = np.float32
DIVISORS = {2: (2, 2.25, 2.5, 2.875), 3: (4, 4.25, 3.75, 4.75), 4: (8, 8.5, 7.5, 7), 5: (16, 16.5, 15.75, 15)}


def half(x):
    return np.clip(F(x), F(-65504), F(65504)).astype(np.float16)


def rotated(x):
    y = x.copy()
    for begin in range(0, len(y), 32):
        group = y[begin : begin + 32]
        run = len(group) & -len(group)
        runs = len(group) // run
        for r in range(runs):
            part = group[r * run : (r + 1) * run]
            stride = 1
            while stride < run:
                low = np.array([i for i in range(run) if not i & stride])
                a, b = part[low].copy(), part[low + stride].copy()
                part[low], part[low + stride] = a + b, a - b
                stride *= 2
            part *= F(1 / np.sqrt(run))
        if runs > 1:
            table = group.reshape(runs, run)
            total = np.zeros(run, F)
            for r in range(runs):
                total = total + table[r]
            table -= F(2 / runs) * total
    return y


def codes(y, scale, h):
    inverse = F(1) / scale if scale != 0 else F(0)
    return np.rint(np.clip(y * inverse, F(-h), F(h - 1))).astype(np.int32) + h


def squared_error(y, scale, h):
    e = np.zeros(32, F)
    e[: len(y)] = y - (codes(y, scale, h) - h).astype(F) * scale
    e = e * e
    for distance in (16, 8, 4, 2, 1):
        e = e[:distance] + e[distance : 2 * distance]
    return e[0]


def scale_of(y, bits):
    h = 1 << (bits - 1)
    largest = np.abs(y).max()
    if largest == 0:
        return np.float16(0)
    if bits > 5:
        return half((-largest if -largest in y else largest) / F(-h))
    tried = [half(largest / F(sign * d)) for d in DIVISORS[bits] for sign in (1, -1)]
    errors = [squared_error(y, F(s), h) for s in tried]
    return tried[int(np.argmin(errors))]


def packed(n, bits):
    g, h = len(n), 1 << (bits - 1)
    full = np.concatenate([n, np.full(32, h)])
    out, lowest = [], 0
    for width in (8, 4, 2, 1):
        if not bits & width:
            continue
        size = -(-g * width // 8)
        part = full >> lowest & (1 << width) - 1
        out += [sum(part[i + j * size] << width * j for j in range(8 // width)) for i in range(size)]
        lowest += width
    return bytes(int(byte) for byte in out)


def row(x, bits):
    y = rotated(x)
    all_codes, scales = b"", b""
    for begin in range(0, len(y), 32):
        group = y[begin : begin + 32]
        scale = scale_of(group, bits)
        all_codes += packed(codes(group, F(scale), 1 << (bits - 1)), bits)
        scales += scale.astype("<f2").tobytes()
    return all_codes + scales


for dim in (64, 45, 24):
    x = np.array([(37 * i + 11) % 41 - 20 for i in range(dim)], F) / F(16)
    x[6] += F(3)
    for bits in (8, 7, 6, 5, 4, 3, 2):
        print(f'{{{dim}, {bits}, "{row(x, bits).hex()}"}},')
