"""Components and their combinations for make_tokenizer_goldens.py, as they occur in the files of language models."""


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def split_string(text, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"String": text}, "behavior": behavior, "invert": invert}


def byte_level(add_prefix_space=False, use_regex=True):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def chain(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def digits(individual=True):
    return {"type": "Digits", "individual_digits": individual}


def metaspace(scheme="always", split_words=True, replacement="▁"):
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split_words}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def normalizers(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


PLAIN = byte_level(use_regex=False)
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

# Patterns that cut words, of the byte-level vocabularies in use.
WORD_PATTERNS = [
    f"{CONTRACTIONS}|{LETTERS}|\\p{{N}}{{1,3}}|{REST}",
    f"{CONTRACTIONS}|{LETTERS}|\\p{{N}}|{REST}",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    f"[^\\r\\n\\p{{L}}\\p{{N}}]?{UPPER}*{LOWER}+{ENDING}|[^\\r\\n\\p{{L}}\\p{{N}}]?{UPPER}+{LOWER}*{ENDING}|\\p{{N}}{{1,3}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:\p{L}\p{M}*)+|\p{N}+|[^\s\p{L}\p{N}]+|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[[:alpha:]]+| ?[[:digit:]]+| ?[^\s[:alnum:]]+|\s+(?!\S)|\s+",
]

NUMBER_CHAIN = chain(split(r"\p{N}{1,3}"), split(r"[一-龥぀-ゟ゠-ヿ]+"), split(WORD_PATTERNS[7]), PLAIN)
LINE_CHAIN = chain(split(r"[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
                   split(r"[一-龥ࠀ-一가-퟿]+"), digits(), PLAIN)
PUNCTUATION_CHAIN = chain({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(), digits(False), split(r"[0-9][0-9][0-9]"))

PRE_TOKENIZERS = (
    [split(p) for p in WORD_PATTERNS]
    + [NUMBER_CHAIN, LINE_CHAIN, PUNCTUATION_CHAIN, chain(digits(), byte_level()), byte_level(True), byte_level(True, False), PLAIN]
    + [split(r"\s+", b, i) for b in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous") for i in (False, True)]
    + [split_string(" ", b, i) for b in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous") for i in (False, True)]
    + [split_string("", "Isolated"), split_string("th", "MergedWithNext"), split(r"", "Isolated"), split(r"x*", "Isolated"), split(r"(?<=a)|b", "Isolated")]
    # Corners of the expressions' dialect.
    + [split(p) for p in (r"\h+", r"\H+", r"\w+", r"\W+", r"\bt\w*", r"\B.", r"^.", r".$", r"a(?i)b|t", r"(?m:a.)", r"a{,2}", r"\p{N}{2}+", r"a{2}?", r"[^\S\n]+", r"[[a-c]x[^\d\s]]",
                           r"[a-z&&[^aeiou]]+", r"[^a-z&&[^aeiou]]+", r"[\w&&\D]+", r"\p{^L}+", r"\P{L}+", r"\p{Letter}+", r"\p{Greek}+", r"[\p{Hiragana}\p{Katakana}ー]+", r"[[:punct:]]+", r"[[:^alpha:]]+",
                           r"\u0041|\x62|\x{63}", r"\R|\X", r"(?>a|ab)c", r"(?<q>['\"]).*?\k<q>", r"a++b?", r"\A.|.\z", r"[\]\-a]+", r"[]a]", r"\s+(?=\S)", r"(?#note)t", r"[^\r\n]+", r"\d{1,3}(?=(?:\d{3})*\b)")]
    + [digits(), digits(False), {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}, {"type": "UnicodeScripts"}]
    + [{"type": "Punctuation", "behavior": b} for b in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")]
    + [{"type": "CharDelimiterSplit", "delimiter": "t"}, {"type": "CharDelimiterSplit", "delimiter": "中"}]
    + [metaspace(s, w) for s in ("always", "first", "never") for w in (True, False)]
    + [metaspace("always", True, "_"), {"type": "FixedLength", "length": 3}, chain({"type": "WhitespaceSplit"}, metaspace()), chain({"type": "WhitespaceSplit"}, metaspace("first"))])

BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
NORMALIZERS = (
    [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")]
    + [{"type": "Strip", "strip_left": left, "strip_right": right} for left in (False, True) for right in (False, True)]
    + [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"), replace(" {2,}", " ", "Regex"), replace(r"[\n\r]", "", "Regex"), replace("(a)(b)?", "$1-", "Regex"), replace("", "x"), replace("", "x", "Regex")]
    + [dict(BERT, **change) for change in ({}, {"lowercase": False}, {"strip_accents": False}, {"strip_accents": True, "lowercase": False}, {"clean_text": False}, {"handle_chinese_chars": False})]
    + [normalizers({"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}), normalizers({"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")), normalizers()])

DECODERS = (
    [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    + [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": s, "split": True} for s in ("always", "first", "never")]
    + [{"type": "WordPiece", "prefix": "##", "cleanup": c} for c in (True, False)]
    + [{"type": "BPEDecoder", "suffix": "</w>"}, {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
       {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": False}]
    + [{"type": "Strip", "content": c, "start": a, "stop": b} for c, a, b in ((" ", 1, 0), (" ", 0, 1), (" ", 1, 1), ("H", 1, 0), ("中", 1, 0))]
    + [replace("▁", " "), replace("l+", "L", "Regex"), replace("abc", "-")]
    + [{"type": "Sequence", "decoders": list(steps)} for steps in (
        (replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        ({"type": "Fuse"}, replace("ab", "x")), ({"type": "Fuse"}, replace("b+", "x", "Regex")), ({"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 2}),
        ({"type": "Fuse"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}), ({"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}),
        ({"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}), ({"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, replace("l", "L")))])

ROBERTA = {"type": "RobertaProcessing", "sep": ["<|end|>", 0], "cls": ["<|start|>", 1], "trim_offsets": True, "add_prefix_space": False}
TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|end|>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|start|>": {"id": "<|start|>", "ids": [1, 5], "tokens": ["<|start|>", "x"]}, "<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}}}
SPACE_NORMALIZER = replace(" ", "▁")

VARIANTS = {
    "byte_level": (
        [{}, {"normalizer": {"type": "NFC"}}, {"normalizer": {"type": "NFKC"}}, {"normalizer": {"type": "Lowercase"}}, {"pre_tokenizer": byte_level(True)}, {"post_processor": ROBERTA}, {"post_processor": TEMPLATE},
         {"post_processor": {"type": "Sequence", "processors": [byte_level(), TEMPLATE]}}, {"model.ignore_merges": True}, {"pre_tokenizer": None, "normalizer": {"type": "ByteLevel"}}, {"decoder": None}]
        + [{"pre_tokenizer": chain(split(p), PLAIN)} for p in WORD_PATTERNS] + [{"pre_tokenizer": p} for p in (NUMBER_CHAIN, LINE_CHAIN, PUNCTUATION_CHAIN)]
        + [{"pre_tokenizer": chain(split(WORD_PATTERNS[0]), PLAIN), "normalizer": {"type": "NFC"}, "model.ignore_merges": True, "post_processor": TEMPLATE}]),
    "fallback": (
        [{}, {"normalizer": SPACE_NORMALIZER, "pre_tokenizer": split_string(" ", "MergedWithPrevious")}, {"model.fuse_unk": False}, {"model.byte_fallback": False}, {"model.byte_fallback": False, "model.fuse_unk": False}]
        + [{"normalizer": None, "pre_tokenizer": metaspace(s, w)} for s in ("always", "first", "never") for w in (True, False)]
        + [{"normalizer": normalizers({"type": "Strip", "strip_left": True, "strip_right": False}), "pre_tokenizer": metaspace("first", False)}, {"model.byte_fallback": False, "model.unk_token": None}, {"model.ignore_merges": True}]),
    "suffix": [{}, {"model.fuse_unk": True}, {"pre_tokenizer": split(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "Removed", True),
                "normalizer": normalizers({"type": "NFC"}, replace(r"\s+", " ", "Regex"), {"type": "Lowercase"})}],
    "prefix": [{}, {"pre_tokenizer": {"type": "BertPreTokenizer"}}],
    "unigram": [{}, {"normalizer": None}, {"pre_tokenizer": None}, {"pre_tokenizer": chain({"type": "WhitespaceSplit"}, metaspace())}, {"normalizer": {"type": "NFKC"}, "pre_tokenizer": metaspace("first")}],
    "word_piece": [{}, {"normalizer": None, "pre_tokenizer": {"type": "Whitespace"}}, {"model.max_input_chars_per_word": 5}],
    "word_level": [{}, {"pre_tokenizer": {"type": "Whitespace"}}],
}
