#!/usr/bin/env python3
"""Makes seeds of fuzz_safetensors and fuzz_tensor_set: small files near every rule of the formats.

Usage: tools/make_format_corpus.py OUT_FOLDER   (needs numpy; cuts the cases of make_format_goldens.py small)
Writes OUT_FOLDER/fuzz_safetensors and OUT_FOLDER/fuzz_tensor_set; tools/add_fuzz_seeds puts the files into the archives.
"""
import json
import pathlib
import struct
import sys

import numpy as np

import make_format_goldens as goldens

CODES = {"int32": "I32", "int16": "I16", "float16": "F16", "float32": "F32", "int64": "I64", "uint8": "U8"}
# The order of names and dtypes in tensor_set_fuzz.cc.
NAMES = ["q_weight", "q_groups", "q_scale", "q_scale_max", "q_invperm", "qweight", "qzeros", "scales", "g_idx", "weight",
         "bias"]
DTYPES = ["int32", "int16", "float16", "float32", "bfloat16", "int64", "uint8", "int8"]


def file_bytes(tensors, metadata=None):
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, array in tensors.items():
        begin, data = len(data), data + array.tobytes()
        header[name] = {"dtype": CODES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def size_byte(size):
    return size if size < 8 else size // 8 + 33


def set_bytes(tensors, flags=0, hints=0, extra=b""):
    out = bytes([flags]) + extra + bytes([len(tensors)])
    for name, array in tensors.items():
        out += bytes([NAMES.index(name), DTYPES.index(str(array.dtype)), array.ndim, *map(size_byte, array.shape)])
        out += array.tobytes()
    return out + bytes([hints])


def write(fuzzer, name, data):
    folder = pathlib.Path(sys.argv[1]) / fuzzer
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def main():
    rng = np.random.default_rng(5)
    for name, groups in {"w2": [(2, 32)], "w5-3": [(5, 32), (3, 32)], "w8-6-2": [(8, 64), (6, 32), (2, 32)]}.items():
        tensors, _ = goldens.exl2_case(rng, groups, 32, bias=True)
        write("fuzz_safetensors", f"exl2-{name}", file_bytes({f"m.{k}": v for k, v in tensors.items()}))
        write("fuzz_tensor_set", f"exl2-{name}", set_bytes(tensors))
    for name, (bits, k, size, order, config) in {
        "b4": (4, 64, 32, "plain", {"bits": 4, "group_size": 32, "sym": True}),
        "b3": (3, 32, 32, "absent", {"bits": 3, "group_size": -1, "sym": False}),
        "b8-act": (8, 64, 32, "act", {"bits": 8, "desc_act": True, "checkpoint_format": "gptq_v2"}),
        "b2-carries": (2, 32, 32, "zero", {"bits": 2, "sym": False, "meta": {"quantizer": ["gptqmodel:1.4.5"]}}),
    }.items():
        tensors, _ = goldens.gptq_case(rng, bits, k, 32, size, order)
        metadata = {"config": json.dumps({"quantization_config": config})}
        write("fuzz_safetensors", f"gptq-{name}", file_bytes({f"m.{k}": v for k, v in tensors.items()}, metadata))
        write("fuzz_tensor_set", f"gptq-{name}", set_bytes(tensors, flags=2 * (name == "b2-carries"), hints=128))
    weight = rng.normal(0, 1, (3, 2)).astype(np.float32)
    write("fuzz_safetensors", "dense", file_bytes({"m.weight": weight, "m.bias": weight[:, 0].copy(), "e": weight[:0]}))
    write("fuzz_tensor_set", "dense", set_bytes({"weight": weight, "bias": weight[:, 0].copy()}, hints=8))
    write("fuzz_safetensors", "empty", file_bytes({}))
    odd = file_bytes({"a": np.zeros(3, np.uint8), "b": np.zeros((1, 1, 1, 1, 2), np.float32)}, {"k": "v"})
    write("fuzz_safetensors", "odd", odd)
    write("fuzz_safetensors", "f8", odd.replace(b'"U8"', b'"F4"').replace(b"[3]", b"[6]"))


if __name__ == "__main__":
    main()
