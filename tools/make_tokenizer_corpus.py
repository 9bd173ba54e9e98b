#!/usr/bin/env python3
"""Makes seeds of fuzz_tokenizer: small inputs of our own (tokenizer_fuzz.cc describes the layout).

Usage: tools/make_tokenizer_corpus.py OUT_FOLDER   (tools/add_fuzz_seeds puts the files into the archive)
"""
import json
import pathlib
import struct
import sys

from tokenizer_golden_variants import DECODERS, NORMALIZERS, PRE_TOKENIZERS, ROBERTA, TEMPLATE

TEXT = "the loom<s> isn't  42 é中😀\n"
CHARACTERS = sorted(set("the loomisn't42é中▁Ġ</w>#"))


def entry(kind, file, text=TEXT):
    file = file if isinstance(file, bytes) else json.dumps(file, ensure_ascii=False).encode()
    return bytes([kind]) + struct.pack("<H", len(file)) + file + text.encode()


def document(model, **fields):
    added = [{"id": 0, "content": "<s>", "special": True, "normalized": False, "lstrip": True, "rstrip": False, "single_word": False},
             {"id": 1, "content": "Oom", "special": False, "normalized": True, "lstrip": False, "rstrip": True, "single_word": True}]
    return dict({"added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}, **fields)


def vocabulary(*more):
    return {token: i for i, token in enumerate(CHARACTERS + list(more))}


BPE = {"type": "BPE", "unk_token": "#", "fuse_unk": True, "byte_fallback": True, "vocab": vocabulary("th", "the", "oo", "<0xC3>"), "merges": ["t h", ["th", "e"], "o o"]}
SUFFIX = {"type": "BPE", "end_of_word_suffix": "</w>", "continuing_subword_prefix": "##", "vocab": vocabulary("##h", "th", "##e</w>"), "merges": [["t", "##h"]]}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [["#", 0.0], ["t", -1.5], ["he", -2], ["▁the", -1], ["oo", -3]]}
WORD_PIECE = {"type": "WordPiece", "unk_token": "#", "continuing_subword_prefix": "##", "max_input_chars_per_word": 8, "vocab": vocabulary("the", "loom", "##oom")}
WORD_LEVEL = {"type": "WordLevel", "unk_token": "#", "vocab": vocabulary("the", "loom")}


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, content):
    if isinstance(content, bool) or isinstance(content, int):
        return varint(number << 3) + varint(int(content))
    if isinstance(content, float):
        return varint(number << 3 | 5) + struct.pack("<f", content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def piece(text, score, kind=1):
    return field(1, field(1, text.encode()) + field(2, score) + field(3, kind))


def sentencepiece(kind, **flags):
    pieces = [piece("<unk>", 0.0, 2), piece("<s>", 0.0, 3), piece("<sep>", 0.0, 4)]
    pieces += [piece(c, -1.0 - i) for i, c in enumerate(CHARACTERS)] + [piece("▁th", -0.5), piece("th", -0.25), piece("oo", -0.75), piece("▁", -9.0)]
    if flags.get("byte_fallback"):
        pieces += [piece(f"<0x{b:02X}>", 0.0, 6) for b in range(256)]
    trainer = field(3, kind) + field(24, flags.get("suffix", False)) + field(35, flags.get("byte_fallback", False))
    normalizer = field(3, flags.get("prefix", True)) + field(4, flags.get("squeeze", True)) + field(5, True)
    return b"".join(pieces) + field(2, trainer) + field(3, normalizer)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    entries = {f"model_{m['type'].lower()}_{i}": entry(0, document(m)) for i, m in enumerate([BPE, SUFFIX, UNIGRAM, WORD_PIECE, WORD_LEVEL])}
    for kind, components in (("normalizer", NORMALIZERS), ("pre_tokenizer", PRE_TOKENIZERS), ("decoder", DECODERS), ("post_processor", [ROBERTA, TEMPLATE])):
        for i, component in enumerate(components):
            entries[f"{kind}_{i}"] = entry(0, document(BPE, **{kind: component}))
    for i, flags in enumerate([{}, {"byte_fallback": True}, {"suffix": True}, {"squeeze": False, "prefix": False}]):
        for kind in (1, 2):
            entries[f"sentencepiece_{kind}_{i}"] = entry(1, sentencepiece(kind, **flags), TEXT.replace("<s>", "<sep>"))
    for name, data in entries.items():
        (out / name).write_bytes(data)


if __name__ == "__main__":
    main()
