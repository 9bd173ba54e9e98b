#!/usr/bin/env python3
"""Makes tests/data/format: quantized matrices with what they mean, by an oracle of its own.

Usage: tools/make_format_goldens.py [OUT_DIR]   (needs numpy and safetensors)

Packing and decoding here go bit by bit through Python integers, so that they share no shortcut with the program.
cases.json: {NAME: {"format", "config", ...}}; exl2.safetensors / gptq.safetensors: NAME.<tensors>, and dq.NAME = fp16
[in, out] in the order of the model's channels. Cases of one seed are the same on every machine.
"""
import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pack_strings(codes, bits):
    """codes [n, columns] -> words [n * bits / 32, columns]: each column one string, lowest bit first."""
    n, columns = codes.shape
    words = np.zeros((n * bits // 32, columns), np.uint32)
    for c in range(columns):
        string = sum(int(code) << (i * bits) for i, code in enumerate(codes[:, c]))
        for w in range(words.shape[0]):
            words[w, c] = string >> (32 * w) & 0xFFFFFFFF
    return words


def half(values):
    with np.errstate(over="ignore"):  # one case is about overflow to infinity
        return values.astype(np.float32).astype(np.float16)


def exl2_case(rng, groups, out, scale_max=None, bias=False):
    """groups: [(bits, rows)]."""
    k = sum(rows for _, rows in groups)
    perm = rng.permutation(k)
    invperm = np.argsort(perm)
    words, pairs, dq, start = [], [], np.zeros((k, out), np.float16), 0
    nibbles = rng.integers(0, 16, (len(groups), out))
    maxima = np.array(scale_max if scale_max is not None else rng.uniform(3e-4, 0.3, len(groups)), np.float16)
    slot = 0
    for g, (bits, rows) in enumerate(groups):
        codes = rng.integers(0, 1 << bits, (rows, out))
        words.append(pack_strings(codes, bits))
        pairs += [bits, start]
        start += rows * bits // 32
        s = half(maxima[g].astype(np.float32) / np.float32(256))
        for c in range(out):
            scale = half(np.float32((int(nibbles[g, c]) + 1) ** 2) * s.astype(np.float32))
            column = (codes[:, c] - (1 << (bits - 1))).astype(np.float32) * scale.astype(np.float32)
            dq[perm[slot:slot + rows], c] = half(column)
        slot += rows
    tensors = {
        "q_weight": np.concatenate(words).view(np.int32),
        "q_groups": np.array(pairs, np.uint16).view(np.int16),
        "q_scale": pack_strings(nibbles.T, 4).T.copy().view(np.int32),
        "q_scale_max": maxima,
        "q_invperm": invperm.astype(np.int32),
    }
    if bias:
        tensors["bias"] = rng.normal(0, 1, out).astype(np.float16)
    return tensors, dq


def exl2_cases(rng):
    for bits in (2, 3, 4, 5, 6, 8):
        yield f"width{bits}", exl2_case(rng, [(bits, 32), (bits, 64)], 64)
    yield "all-widths", exl2_case(rng, [(8, 32), (6, 32), (5, 64), (4, 128), (3, 96), (2, 32)], 96, bias=True)
    yield "short-last", exl2_case(rng, [(5, 128), (3, 128), (3, 96)], 32)
    yield "odd-sizes", exl2_case(rng, [(6, 96), (4, 160), (4, 32), (2, 224)], 32)
    yield "ascending", exl2_case(rng, [(2, 32), (5, 64), (3, 32), (8, 32)], 32)
    yield "one-group", exl2_case(rng, [(3, 32)], 32)
    # Subnormal group scales, zero after rounding, negative, the largest finite.
    yield "scale-corners", exl2_case(rng, [(8, 32)] * 6, 32, [6e-5, 6e-8, -0.01, 0.0, 65504.0, 0.01250458])


def zero_words(fields, bits, out, writer):
    """Stored qzeros [groups, out * bits / 32] of zero points, as a writer stores them."""
    groups = fields.shape[0]
    if writer == "v2":
        return pack_strings(fields.T, bits).T.copy()
    if writer == "carry":  # subtracts 1 from every field of the whole word, with borrows
        words = pack_strings(fields.T & ((1 << bits) - 1), bits).T.astype(np.uint64)
        ones = sum(1 << i for i in range(0, 32, bits))
        return np.ascontiguousarray((words - ones) & 0xFFFFFFFF).astype(np.uint32)
    return pack_strings((fields.T - 1) & ((1 << bits) - 1), bits).T.copy()


def gptq_case(rng, bits, k, out, size, order="plain", writer="v1", zeros=None, scale_dtype=np.float16, bias=False):
    groups = -(-k // size)
    codes = rng.integers(0, 1 << bits, (k, out))
    if zeros is None:
        zeros = np.full((groups, out), 1 << (bits - 1))
    scales = rng.uniform(1e-4, 0.05, (groups, out)).astype(np.float32)
    g_idx = np.arange(k) // size
    if order == "act":
        g_idx = rng.permutation(g_idx)
    scales = scales.astype(scale_dtype)
    rounded = half(scales)
    dq = half((codes - zeros[g_idx]).astype(np.float32) * rounded[g_idx].astype(np.float32))
    tensors = {
        "qweight": pack_strings(codes, bits).view(np.int32),
        "qzeros": zero_words(zeros, bits, out, writer).view(np.int32),
        "scales": scales,
    }
    if order == "zero":
        tensors["g_idx"] = np.zeros(k, np.int32)
    elif order != "absent":
        tensors["g_idx"] = g_idx.astype(np.int32)
    if bias:
        tensors["bias"] = rng.normal(0, 1, out).astype(np.float16)
    return tensors, dq


def gptq_cases(rng):
    for bits in (2, 3, 4, 8):
        top = 1 << bits
        base = {"quant_method": "gptq", "bits": bits}
        yield f"b{bits}-v1", base | {"group_size": 32, "sym": True}, gptq_case(rng, bits, 96, 32, 32)
        yield f"b{bits}-v2", base | {"group_size": 32, "sym": True, "checkpoint_format": "gptq_v2"}, \
            gptq_case(rng, bits, 96, 32, 32, writer="v2")
        yield f"b{bits}-act", base | {"group_size": 32, "desc_act": True}, \
            gptq_case(rng, bits, 128, 64, 32, "act", bias=True)
        yield f"b{bits}-one-group", base | {"group_size": -1}, gptq_case(rng, bits, 96, 32, 96)
        yield f"b{bits}-short-last", base | {"group_size": 64}, gptq_case(rng, bits, 96, 32, 64, "absent")
        asym = rng.integers(1, top + 1, (3, 32))
        asym[0, :4] = top  # stored as the largest field: no wrap-around
        yield f"b{bits}-asym-v1", base | {"group_size": 32, "sym": False, "desc_act": False}, \
            gptq_case(rng, bits, 96, 32, 32, zeros=asym)
        # The format tag is the newer alias; zero points 0 are stored as they are.
        yield f"b{bits}-asym-v2", base | {"group_size": 32, "sym": False, "format": "gptq_v2"}, \
            gptq_case(rng, bits, 96, 32, 32, zeros=rng.integers(0, top, (3, 32)), writer="v2")
        # Wrong tags of symmetric files: the words are trusted.
        yield f"b{bits}-mistagged-v2", base | {"group_size": 32, "sym": True}, \
            gptq_case(rng, bits, 96, 32, 32, writer="v2")
        yield f"b{bits}-mistagged-v1", base | {"group_size": 32, "sym": True, "checkpoint_format": "gptq_v2"}, \
            gptq_case(rng, bits, 96, 32, 32)
    for bits in (2, 4, 8):
        zeros = rng.integers(0, 1 << bits, (3, 32))
        zeros[:, ::5] = 0
        config = {"bits": bits, "group_size": 32, "sym": False, "meta": {"quantizer": ["gptqmodel:1.4.5"]}}
        yield f"b{bits}-carries", config, gptq_case(rng, bits, 96, 32, 32, zeros=zeros, writer="carry")
    yield "zero-g-idx", {"bits": 4, "group_size": 32}, gptq_case(rng, 4, 128, 32, 32, "zero")
    yield "scales-f32", {"w_bit": 4, "q_group_size": 32}, gptq_case(rng, 4, 64, 32, 32, scale_dtype=np.float32)
    yield "group-16", {"bits": 4, "group_size": 16}, gptq_case(rng, 4, 64, 32, 16)
    yield "group-over-k", {"bits": 4, "group_size": 1024}, gptq_case(rng, 4, 64, 32, 64)
    yield "narrow", {"bits": 4, "group_size": 32}, gptq_case(rng, 4, 64, 8, 32)
    dynamic = {"bits": 4, "group_size": 128, "dynamic": {"-:.*head": {}, "+:.*": {"bits": 8, "group_size": 32}}}
    yield "dynamic", dynamic, gptq_case(rng, 8, 96, 32, 32)
    yield "no-config", None, gptq_case(rng, 4, 96, 32, 32, "absent")


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/data/format"
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20240611)
    cases, exl2, gptq = {}, {}, {}
    for name, (tensors, dq) in exl2_cases(rng):
        cases[name] = {"format": "exl2"}
        exl2 |= {f"{name}.{key}": value for key, value in tensors.items()} | {f"dq.{name}": dq}
    for name, config, (tensors, dq) in gptq_cases(rng):
        cases[name] = {"format": "gptq", "config": config}
        gptq |= {f"{name}.{key}": value for key, value in tensors.items()} | {f"dq.{name}": dq}
    save_file(exl2, out / "exl2.safetensors")
    save_file(gptq, out / "gptq.safetensors")
    (out / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
