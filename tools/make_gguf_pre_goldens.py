#!/usr/bin/env python3
"""Makes tests/data/gguf_pre.json: how the pre-tokenizers that GGUF files name (tokenizer.ggml.pre) cut texts.

Usage: tools/make_gguf_pre_goldens.py   (needs the Python package tokenizers)

The patterns are those of the models' own tokenizer.json, or, for afmoe, the rule that llama.cpp implements, written down
here a second time. They run in the Rust library. The pieces are in the alphabet of byte-level BPE.
"""
import json
import pathlib

from tokenizers import Regex, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
MARKS = r" ?[^\s\p{L}\p{N}]+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(upper, lower, ending):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?[{upper}]*[{lower}]+{ending}|"
            rf"[^\r\n\p{{L}}\p{{N}}]?[{upper}]+[{lower}]*{ending}")


PUNCTUATED = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
ASIAN = ("[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
         "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+")
NO_HAN = r"&&[^\p{Han}]"

PATTERNS = {
    "gpt-2": [rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+|{MARKS}|\s+(?!\S)|\s+"],
    "llama-bpe": [rf"{CONTRACTION}|{WORD}|\p{{N}}{{1,3}}|{MARKS}[\r\n]*|{SPACES}"],
    "qwen2": [rf"{CONTRACTION}|{WORD}|\p{{N}}|{MARKS}[\r\n]*|{SPACES}"],
    "f2llmv2": [rf"{CONTRACTION}|{WORD}|\p{{N}}|{MARKS}[\r\n]*|{SPACES}"],
    "ufakzeka": [rf"{WORD}|\p{{N}}|{MARKS}[\r\n]*|{SPACES}"],
    "tekken": [rf"{cased(UPPER, LOWER, '')}|\p{{N}}|{MARKS}[\r\n/]*|{SPACES}"],
    "gpt-4o": [rf"{cased(UPPER, LOWER, CONTRACTION + '?')}|\p{{N}}{{1,3}}|{MARKS}[\r\n/]*|{SPACES}"],
    "kimi-k2": [rf"[\p{{Han}}]+|{cased(UPPER + NO_HAN, LOWER + NO_HAN, CONTRACTION + '?')}|\p{{N}}{{1,3}}|{MARKS}[\r\n]*|{SPACES}"],
    "jais-2": [rf"{CONTRACTION}|{WORD}|\p{{N}}{{1,3}}|{MARKS}[\r\n]*|\s*[\r\n]+|"
               + "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    rf"{PUNCTUATED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}"],
    "spark2_5": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                 rf"{PUNCTUATED}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", ASIAN, rf"{PUNCTUATED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}"],
}

TEXTS = [
    "Hello world! It's 1234567 o'clock, isn't it? I'LL go, WE'VE seen 12 and 123 and 1234.",
    "x1y22z333w4444v55555u666666t7777777 1.234.567,89 ٣٤٥٦ ½ x² Ⅳ 1٢3४5",
    "  two  spaces\n\n\tand tabs \t\r\n  end   ",
    " " * 9 + "a" + " " * 21 + "b" + " " * 70 + "\n" + " " * 3,
    "中文分词测试123和日本語のテスト、カタカナ ﾊﾝｶｸ 한국어 ไทย ລາວ ខ្មែរ မြန်မာ 㐀 豈 ⼀",
    "naïve café re\u0301sume\u0301 ÀÉÎ ǅ ʰ हिन्दी বাংলা العربية עברית Türkiye'nin",
    "CamelCaseWords andHTMLParser XMLHttpRequest'll DON'T 漢字Kanji汉A字b",
    "a/b//c\n/d?!\n...[x] {y} <z> $5 €6 +7=8 ~`^|\\ \"q\" (r)#s @t _u_",
    "🙂🙃 emoji\u200dzwj 👩\u200d👩\u200d👧 \ufeffbom \u00a0nbsp\u3000wide",
    "",
    "1", "12", "123", "1234567890123456789012", "a12b", "\n", " \n ", "'s", "'S t",
]


def main():
    pieces = {}
    for name, patterns in PATTERNS.items():
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        steps = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        pieces[name] = [[piece for piece, _ in steps.pre_tokenize_str(text)] for text in TEXTS]
    out = ROOT / "tests" / "data" / "gguf_pre.json"
    rows = ",\n".join(f' "{name}": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]"
                      for name, rows in pieces.items())
    out.write_text('{"texts": [\n' + ",\n".join("  " + json.dumps(text) for text in TEXTS) + "\n ],\n" + '"pieces": {\n' + rows + "\n}}\n")


if __name__ == "__main__":
    main()
