#!/usr/bin/env python3
"""Decodes the GPTQ linears of a model folder as AutoGPTQ lays them out, and compares with matrices that were decoded
elsewhere.

Usage: compare_gptq.py MODEL_FOLDER DECODED.safetensors   (F16 [in, out] by module name; needs the standard library only)
Exit status 0: all are equal to the bit.
"""
import json
import pathlib
import struct
import sys

FORMATS = {"I32": "I", "F16": "e"}


def tensors_of(path):
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, about in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or about["dtype"] not in FORMATS:
            continue
        begin, end = about["data_offsets"]
        code = FORMATS[about["dtype"]]
        count = (end - begin) // struct.calcsize(code)
        tensors[name] = about["shape"], struct.unpack_from(f"<{count}{code}", data, 8 + size + begin)
    return tensors


def fields(words, bits):
    """All fields of one bit string, the lowest bits of the first word first."""
    whole = sum(word << (32 * i) for i, word in enumerate(words))
    return [(whole >> (bits * i)) & ((1 << bits) - 1) for i in range(32 * len(words) // bits)]


def decode(tensors, key, config):
    (rows, out), qweight = tensors[key + ".qweight"]
    (groups, columns), qzeros = tensors[key + ".qzeros"]
    scales, g_idx = tensors[key + ".scales"][1], tensors[key + ".g_idx"][1]
    bits = config["bits"]
    assert columns * 32 == out * bits, f"{key}: qzeros has {columns} columns for {out} outputs"
    add = 0 if config["checkpoint_format"] == "gptq_v2" else 1
    zeros = [[f + add for f in fields(qzeros[g * columns:(g + 1) * columns], bits)] for g in range(groups)]
    codes = [fields(qweight[c::out], bits) for c in range(out)]
    size = len(g_idx) if config["group_size"] == -1 else config["group_size"]
    if not config["desc_act"]:
        assert list(g_idx) == [i // size for i in range(len(g_idx))], f"{key}: g_idx is not in order without desc_act"
    if config["sym"]:
        assert all(z == 1 << (bits - 1) for row in zeros for z in row), f"{key}: zero points are not in the middle"
    return [(codes[c][i] - zeros[g][c]) * scales[g * out + c] for i, g in enumerate(g_idx) for c in range(out)]


def main():
    folder, other = pathlib.Path(sys.argv[1]), tensors_of(pathlib.Path(sys.argv[2]))
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert config == json.loads((folder / "quantize_config.json").read_text()), "the two configurations differ"
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors.update(tensors_of(path))
    keys = sorted(name[:-len(".qweight")] for name in tensors if name.endswith(".qweight"))
    assert keys and keys == sorted(other), f"the linears are {keys}, not {sorted(other)}"
    for key in keys:
        values = decode(tensors, key, config)
        # struct rounds to binary16, ties to even.
        expected = struct.pack(f"<{len(values)}e", *values)
        if expected != struct.pack(f"<{len(values)}e", *other[key][1]):
            sys.exit(f"{key} decodes to other values")
    print(f"{len(keys)} linears are equal")


main()
