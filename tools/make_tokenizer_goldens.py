#!/usr/bin/env python3
"""Makes tests/data/tokenizers.tar.xz: small tokenizers trained on text of our own, and what the reference packages
`tokenizers` (Rust) and `sentencepiece` make of many texts with them.

Usage: tools/make_tokenizer_goldens.py OUT.tar.xz   (needs: pip install tokenizers==0.22.2 sentencepiece==0.2.3 protobuf)

  bases/NAME.json       a whole tokenizer.json
  models/NAME.model     a sentencepiece model
  encode.jsonl          {"base", "patch": {field: value}, "cases": [[text, ids, ids_without_special]], "decodes": [[ids, text, text_skip]]}
  sentencepiece.jsonl   {"model", "config", "cases": [[text, ids]], "decodes": [[ids, text]]}
  normalizers.jsonl     {"normalizer", "cases": [[text, text]]}
  pre_tokenizers.jsonl  {"pre_tokenizer", "cases": [[text, [piece, …]]]}
  decoders.jsonl        {"decoder", "cases": [[[token, …], text]]}
"""
import base64
import copy
import io
import json
import pathlib
import random
import sys
import tarfile
import tempfile

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_golden_texts import CORPUS, DECODER_TOKENS, TEXTS
from tokenizer_golden_variants import DECODERS, NORMALIZERS, PRE_TOKENIZERS, VARIANTS

ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def byte_level_base():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=ALPHABET, special_tokens=["<|end|>", "<|start|>"], show_progress=False))
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("  wide  ", normalized=True),
                          AddedToken("<ls>", lstrip=True, normalized=False), AddedToken("<rs>", rstrip=True, normalized=False),
                          AddedToken("word", single_word=True, normalized=False), AddedToken("Café", normalized=True)])
    tokenizer.add_special_tokens([AddedToken("<both>", lstrip=True, rstrip=True), "<|star"])
    return tokenizer


def fallback_base():
    """A BPE as converted from sentencepiece: characters, bytes for the rest."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=900, special_tokens=special, limit_alphabet=120, show_progress=False))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if t["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def suffix_base():
    """Words end in </w>; unknown characters without bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>", "<pad>"], end_of_word_suffix="</w>", limit_alphabet=60, show_progress=False))
    return tokenizer


def prefix_base():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece("##")
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>"], continuing_subword_prefix="##", limit_alphabet=60, show_progress=False))
    return tokenizer


def unigram_base():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(CORPUS, trainers.UnigramTrainer(
        vocab_size=500, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return tokenizer


def word_piece_base():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=80, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def word_level_base():
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False))
    return tokenizer


BASES = {"byte_level": byte_level_base, "fallback": fallback_base, "suffix": suffix_base, "prefix": prefix_base,
         "unigram": unigram_base, "word_piece": word_piece_base, "word_level": word_level_base}


def patched(document, patch):
    """A patch sets whole fields; "model.x" reaches into the model. Same in tests/text/tokenizer_golden_test.cc."""
    out = copy.deepcopy(document)
    for key, value in patch.items():
        if key.startswith("model."):
            out["model"][key[6:]] = value
        else:
            out[key] = value
    return out


def encode_record(base, document, patch, texts, rng):
    tokenizer = Tokenizer.from_str(json.dumps(patched(document, patch)))
    cases, decodes = [], []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=True).ids
        cases.append([text, ids, tokenizer.encode(text, add_special_tokens=False).ids])
    size = tokenizer.get_vocab_size()
    rows = [case[1] for case in cases if case[1]][:40] + [[rng.randrange(size + 2) for _ in range(rng.choice([1, 2, 5, 12]))] for _ in range(25)]
    for ids in rows:
        decodes.append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids, skip_special_tokens=True)])
    return {"base": base, "patch": patch, "cases": cases, "decodes": decodes}


SENTENCEPIECE = {
    "bpe_bytes": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                      user_defined_symbols=["<sep>", "  "], control_symbols=["<ctl>"], vocab_size=700),
    "bpe_plain": dict(model_type="bpe", normalization_rule_name="identity", vocab_size=350),
    "bpe_split_digits": dict(model_type="bpe", byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True,
                             remove_extra_whitespaces=False, normalization_rule_name="identity", add_dummy_prefix=False, vocab_size=700),
    "unigram_rules": dict(model_type="unigram", rules=True, vocab_size=400, user_defined_symbols=["<sep>", "ab▁c"], control_symbols=["<ctl>"]),
    "unigram_bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, vocab_size=600),
    "unigram_suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True, normalization_rule_name="identity", vocab_size=350, unk_surface="⁇"),
}
RULES = ["FF21\t41", "FF22\t42", "3000\t20", "65 301\tE9", "FB01\t66 69", "2126\t3A9", "A\t20", "9\t20", "AD\t", "200B\t", "F1 303\t6E"]


def sentencepiece_models(folder):
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(line.replace("\n", " ") for line in CORPUS))
    rules = folder / "rules.tsv"
    rules.write_text("\n".join(RULES) + "\n")
    for name, options in SENTENCEPIECE.items():
        options = dict(options)
        if options.pop("rules", False):
            options["normalization_rule_tsv"] = str(rules)
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix=str(folder / name), hard_vocab_limit=False, character_coverage=0.99, num_threads=1,
            minloglevel=2, **options)
        # The training file's name is of no use to anybody.
        yield name, (folder / f"{name}.model").read_bytes()


def sentencepiece_record(name, model, rng):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = [t for t in TEXTS if "\0" not in t]
    cases = [[text, processor.encode(text)] for text in texts]
    plain = [i for i in range(processor.vocab_size()) if not processor.is_control(i)]
    rows = [case[1] for case in cases if case[1]][:50] + [[rng.choice(plain) for _ in range(rng.choice([1, 2, 5, 12]))] for _ in range(60)]
    if processor.is_byte(plain[10]):
        pieces = [i for i in plain if processor.is_byte(i)]
        rows += [[rng.choice(pieces[0x78:]) for _ in range(rng.choice([1, 2, 4]))] + [rng.choice(plain)] for _ in range(60)]
    return {"model": name, "cases": cases, "decodes": [[ids, processor.decode(ids)] for ids in rows]}


def component(kind, document):
    return getattr(tokenizers, kind + "s"), json.dumps(document)


def charsmap_of(model):
    """The field normalizer_spec.precompiled_charsmap of a sentencepiece model."""
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def normalizer_records(charsmap):
    for document in NORMALIZERS + [{"type": "Precompiled", "precompiled_charsmap": charsmap}]:
        shell = Tokenizer(models.BPE())
        tokenizer = Tokenizer.from_str(json.dumps(dict(json.loads(shell.to_str()), normalizer=document)))
        yield {"normalizer": document, "cases": [[t, tokenizer.normalizer.normalize_str(t)] for t in TEXTS]}


def pre_tokenizer_records():
    for document in PRE_TOKENIZERS:
        shell = Tokenizer(models.BPE())
        tokenizer = Tokenizer.from_str(json.dumps(dict(json.loads(shell.to_str()), pre_tokenizer=document)))
        # The reference's table of scripts is of Unicode 8; what came later was mostly beyond U+FFFF.
        texts = [t for t in TEXTS if t and (document["type"] != "UnicodeScripts" or max(t) < "\U00010000")]
        yield {"pre_tokenizer": document,
               "cases": [[t, [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(t)]] for t in texts]}


def decoder_records():
    for document in DECODERS:
        shell = Tokenizer(models.BPE())
        tokenizer = Tokenizer.from_str(json.dumps(dict(json.loads(shell.to_str()), decoder=document)))
        cases = []
        for tokens in DECODER_TOKENS:
            try:
                cases.append([tokens, tokenizer.decoder.decode(tokens)])
            except BaseException:  # the reference panics on a few (Strip of more than there is)
                continue
        yield {"decoder": document, "cases": cases}


def main():
    rng = random.Random(20)
    files = {}
    lines = []
    for base, make in BASES.items():
        document = json.loads(make().to_str())
        files[f"bases/{base}.json"] = json.dumps(document, ensure_ascii=False).encode()
        for patch in VARIANTS[base]:
            lines.append(encode_record(base, document, patch, TEXTS, rng))
    files["encode.jsonl"] = dump(lines)
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for name, model in sentencepiece_models(pathlib.Path(folder)):
            files[f"models/{name}.model"] = model
            lines.append(sentencepiece_record(name, model, rng))
    files["sentencepiece.jsonl"] = dump(lines)
    files["normalizers.jsonl"] = dump(normalizer_records(charsmap_of(files["models/unigram_rules.model"])))
    files["pre_tokenizers.jsonl"] = dump(pre_tokenizer_records())
    files["decoders.jsonl"] = dump(decoder_records())
    with tarfile.open(sys.argv[1], "w:xz", preset=9) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo("tokenizers/" + name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def dump(records):
    return "".join(json.dumps(r, ensure_ascii=True) + "\n" for r in records).encode()


if __name__ == "__main__":
    main()
