#!/usr/bin/env python3
"""Makes tests/data/gguf.tar.xz: what GGUF reading and import are tested against.

    make_gguf_goldens.py --converter LLAMA_CPP_SOURCE OUT.tar.xz

Everything in it is random or written here: groups of every readable element type with the values
that the Python package `gguf` gives them; tiny models of every architecture that transformers
builds, converted by the converter of llama.cpp, with the tensors and logits that they had before;
small vocabularies trained on the sentences below with the ids that their trainers' own libraries
give. Needs torch, transformers, tokenizers, sentencepiece, gguf, numpy and safetensors.
"""
import argparse
import copy
import io
import json
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--converter", required=True, help="source folder of llama.cpp")
parser.add_argument("--only", default="", help="comma-separated names of models")
parser.add_argument("out")
args = parser.parse_args()
sys.path.insert(0, args.converter)
sys.path.insert(0, args.converter + "/gguf-py")

import gguf  # noqa: E402
import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from conversion import load_all_models  # noqa: E402
from conversion.base import ModelBase, ModelType, get_model_architecture  # noqa: E402
from conversion.llama import LlamaModel  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

load_all_models()
transformers.logging.set_verbosity_error()

# --- element types ---

HALF_AT = {  # offsets of binary16 scales within a group
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}


def make_groups(path):
    """Two rows of every type: random bytes, scales that are finite (zero and subnormal included)."""
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "groups")
    for name in ["F32", "F16", "BF16", *HALF_AT, "MXFP4"]:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        groups = 2048 // elements
        if name in ("F32", "F16", "BF16"):
            values = (rng.standard_normal(2048) * 8).astype(np.float32)
            values[:4] = [0.0, -0.0, 65504.0, 5.9604645e-08]
            data = gguf.quants.quantize(values.reshape(2, -1), kind)
        else:
            data = rng.integers(0, 256, (groups, size), dtype=np.uint8)
            for at in HALF_AT.get(name, []):
                scale = (rng.standard_normal(groups) * 0.05).astype(np.float16)
                scale[:3] = [0.0, 3e-07, -2.0]
                data[:, at : at + 2] = scale.view(np.uint8).reshape(groups, 2)
            if name == "MXFP4":
                data[:, 0] = rng.integers(115, 135, groups)
            data = data.reshape(2, -1)
        expected = gguf.quants.dequantize(data, kind).astype(np.float32)
        raw = None if name in ("F32", "F16") else kind
        writer.add_tensor(name, data, raw_dtype=raw)
        writer.add_tensor(name + ".expected", expected.reshape(2, -1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- vocabularies ---

SENTENCES = [
    "The quick brown fox jumps over the lazy dog; 12345 times, isn't it?",
    "Grüße aus Köln: naïve façade, coöperate — “quoted” … and 3.14159!",
    "def f(x):\n    return x ** 2  # squares\n\n\tif x >= 10:\r\n",
    "мороз и солнце; день чудесный 2024 года",
    "日本語の文章と漢字、かな。数字１２３",
    "emoji 👩‍👩‍👧 😀 and a lone combining e\u0301 plus CAPS LOCK HTTPServer2",
    "    leading spaces, trailing spaces   ",
    "tabs\t\tand newlines\n\n\nmixed \n with   runs of   spaces",
    "I'll you've we're they'd it's I'm DON'T CAN'T",
    "0 00 000 0000 00000 1,000,000.00 $5 £6 100%",
]
CORPUS = SENTENCES * 3 + ["a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2] + [
    w * 2 for w in "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda".split()
]
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_level(pre, normalizer, split, ignore_merges):
    tok = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tok.normalizer = getattr(tokenizers.normalizers, normalizer)()
    P = tokenizers.pre_tokenizers
    parts = []
    if split == "digits":
        parts = [P.Digits(individual_digits=True)]
    elif split:
        parts = [P.Split(tokenizers.Regex(split), "isolated")]
    parts.append(P.ByteLevel(add_prefix_space=False, use_regex=split in (None, "digits")))
    tok.pre_tokenizer = P.Sequence(parts)
    tok.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|begin|>", "<|end|>", "<|pad|>"],
        initial_alphabet=P.ByteLevel.alphabet(), show_progress=False)
    tok.train_from_iterator(CORPUS, trainer)
    tok.add_tokens([tokenizers.AddedToken("<tool>", normalized=False, special=False)])
    vocab = tok.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    kinds = [CONTROL if t.startswith("<|") else USER if t == "<tool>" else NORMAL for t in tokens]
    merges = [" ".join(m) for m in json.loads(tok.to_str())["model"]["merges"]]

    def write(w, pad_to):
        rest = [f"[PAD{i}]" for i in range(len(tokens), pad_to)]
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(pre)
        w.add_token_list(tokens + rest)
        w.add_token_types(kinds + [UNUSED] * len(rest))
        w.add_token_merges(merges)
        w.add_bos_token_id(0)
        w.add_eos_token_id(1)
        w.add_pad_token_id(2)
        w.add_chat_template("{{ bos_token }}{{ messages[0]['content'] }}")

    cases = [{"text": s, "ids": tok.encode(s).ids} for s in SENTENCES]
    cases += [{"text": s, "ids": tok.encode(s).ids} for s in ["<|begin|>a<tool> b<|end|>", "", " "]]
    return write, cases


def sentencepiece_vocabulary(kind, prefix):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([s for s in CORPUS if s.strip()]), model_writer=model,
        model_type=kind, vocab_size=500 if kind == "bpe" else 450, byte_fallback=True,
        hard_vocab_limit=False, character_coverage=0.98, add_dummy_prefix=prefix,
        remove_extra_whitespaces=kind == "unigram",
        normalization_rule_name="identity" if kind == "bpe" else "nmt_nfkc",
        user_defined_symbols=["<tool>"], bos_id=1, eos_id=2, unk_id=0, pad_id=3)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    tokens = [sp.id_to_piece(i) for i in range(sp.get_piece_size())]
    kinds = [
        UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i)
        else USER if tokens[i] == "<tool>" else NORMAL for i in range(len(tokens))]
    scores = [sp.get_score(i) for i in range(len(tokens))]
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())

    def write(w, pad_to):
        rest = [f"[PAD{i}]" for i in range(len(tokens), pad_to)]
        w.add_tokenizer_model("llama" if kind == "bpe" else "t5")
        w.add_tokenizer_pre("default")
        w.add_token_list([t.encode() for t in tokens + rest])
        w.add_token_scores(scores + [-10000.0] * len(rest))
        w.add_token_types(kinds + [UNUSED] * len(rest))
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.add_unk_token_id(0)
        w.add_add_space_prefix(prefix)
        if kind == "unigram":
            w.add_remove_extra_whitespaces(True)
            w.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
            w.add_add_eos_token(True)

    cases = [{"text": s, "ids": sp.encode(s)} for s in SENTENCES if "<" not in s]
    return write, cases


GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
VOCABULARIES = {
    "gpt2": lambda: byte_level("gpt-2", None, None, False),
    "llama": lambda: byte_level("llama-bpe", None, GPT4 % "{1,3}", True),
    "qwen2": lambda: byte_level("qwen2", "NFC", GPT4 % "", False),
    "starcoder2": lambda: byte_level("smollm", None, "digits", False),
    "mistral": lambda: sentencepiece_vocabulary("bpe", True),
    "gemma": lambda: sentencepiece_vocabulary("bpe", False),
    "qwen3": lambda: sentencepiece_vocabulary("unigram", True),
}

# --- models ---

PLAIN = {"rope_theta": 10000.0, "rope_type": "default"}
BASE = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256,
            rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            rope_parameters=PLAIN, tie_word_embeddings=False)
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
ROUTED = dict(num_hidden_layers=3, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
              moe_intermediate_size=24, first_k_dense_replace=1, routed_scaling_factor=2.5,
              norm_topk_prob=True, n_group=1, topk_group=1)
SLIDE4 = dict(num_hidden_layers=4, sliding_window=6,
              layer_types=["sliding_attention"] * 3 + ["full_attention"])


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_theta=10000.0, rope_type=kind, **more))


# name: (class prefix in transformers, config, keys of BASE to leave out)
MODELS = {
    "llama": ("Llama", {}, ()),
    "llama-bias": ("Llama", dict(attention_bias=True, mlp_bias=True), ()),
    "llama-tied": ("Llama", dict(tie_word_embeddings=True, head_dim=16), ()),
    "llama-linear": ("Llama", rope("linear", factor=4.0), ()),
    "llama-yarn": ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=64), ()),
    "llama-three-ranges": ("Llama", rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32), ()),
    "llama-three-ranges-odd": ("Llama", rope(
        "llama3", factor=8.0, low_freq_factor=1.5, high_freq_factor=5.0,
        original_max_position_embeddings=48), ()),
    "mistral": ("Mistral", dict(sliding_window=None), ()),
    "mixtral": ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2), ()),
    "ministral3": ("Ministral3", rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
        mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1), ()),
    "qwen2": ("Qwen2", {}, ("head_dim",)),
    "qwen2-moe": ("Qwen2Moe", dict(MOE, norm_topk_prob=False, shared_expert_intermediate_size=40),
                  ("head_dim",)),
    "qwen3": ("Qwen3", {}, ()),
    "qwen3-moe": ("Qwen3Moe", dict(MOE, norm_topk_prob=True), ()),
    "gemma": ("Gemma", dict(tie_word_embeddings=True), ()),
    "gemma2": ("Gemma2", dict(tie_word_embeddings=True, num_hidden_layers=4, sliding_window=6,
                              query_pre_attn_scalar=8), ()),
    "gemma3": ("Gemma3", dict(
        tie_word_embeddings=True, num_hidden_layers=7, sliding_window=6, query_pre_attn_scalar=8,
        rope_parameters={
            "full_attention": dict(rope_theta=1e6, rope_type="linear", factor=8.0),
            "sliding_attention": dict(PLAIN)}), ()),
    "phi3": ("Phi3", dict(sliding_window=None, original_max_position_embeddings=256),
             ("head_dim",)),
    "phi3-longrope": ("Phi3", dict(
        sliding_window=None, original_max_position_embeddings=16, **rope(
            "longrope", original_max_position_embeddings=16, short_factor=[1.0, 1.1, 1.2, 1.3],
            long_factor=[1.0, 1.5, 2.0, 3.0])), ("head_dim",)),
    "cohere": ("Cohere", dict(use_qk_norm=True, logit_scale=0.25, tie_word_embeddings=True),
               ("head_dim",)),
    "cohere2": ("Cohere2", dict(SLIDE4, logit_scale=0.25, tie_word_embeddings=True,
                                rotary_pct=1.0), ()),
    "granite": ("Granite", dict(attention_multiplier=0.0625, embedding_multiplier=12.0,
                                residual_multiplier=0.22, logits_scaling=8.0), ("head_dim",)),
    "olmo2": ("Olmo2", {}, ("head_dim",)),
    "olmo3": ("Olmo3", dict(SLIDE4), ("head_dim",)),
    "exaone4": ("Exaone4", dict(SLIDE4, sliding_window_pattern=4), ()),
    "glm4": ("Glm4", dict(rope("default", partial_rotary_factor=0.5), attention_bias=True), ()),
    "glm4-moe": ("Glm4Moe", dict(ROUTED, use_qk_norm=True, attention_bias=True,
                                 **rope("default", partial_rotary_factor=0.5)), ()),
    "dots1": ("Dots1", dict(ROUTED), ()),
    "ernie": ("Ernie4_5", dict(tie_word_embeddings=True), ()),
    "ernie-moe": ("Ernie4_5_Moe", dict(
        num_hidden_layers=3, moe_num_experts=4, moe_k=2, moe_intermediate_size=24,
        moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=2,
        moe_layer_interval=1), ("head_dim",)),
    "seed-oss": ("SeedOss", dict(attention_bias=True, attention_out_bias=False), ()),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=4, no_rope_layer_interval=4), ("head_dim",)),
    "arcee": ("Arcee", {}, ()),
    "apertus": ("Apertus", {}, ("head_dim",)),
    "starcoder2": ("Starcoder2", dict(use_bias=True, tie_word_embeddings=True,
                                      sliding_window=None), ("head_dim", "rms_norm_eps")),
    "minimax-m2": ("MiniMaxM2", dict(num_local_experts=4, num_experts_per_tok=2, rotary_dim=4,
                                     **rope("default", partial_rotary_factor=0.5)), ()),
    "afmoe": ("Afmoe", dict(SLIDE4, **MOE, num_shared_experts=1, num_dense_layers=1,
                            route_scale=2.0, route_norm=True, mup_enabled=True,
                            global_attn_every_n_layers=4), ()),
    "gpt-oss": ("GptOss", dict(
        num_local_experts=4, num_experts_per_tok=2, sliding_window=6, attention_bias=True,
        rope_parameters=dict(rope_theta=150000.0, rope_type="yarn", factor=32.0, beta_fast=32.0,
                             beta_slow=1.0, truncate=False,
                             original_max_position_embeddings=4096)), ()),
    "gpt2": ("GPT2", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=256, n_ctx=256,
                          bos_token_id=1, eos_token_id=2), None),
    "gpt-bigcode": ("GPTBigCode", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4,
                                       n_positions=256, bos_token_id=1, eos_token_id=2), None),
    "dbrx": ("Dbrx", dict(
        vocab_size=96, d_model=32, n_heads=4, n_layers=2, max_seq_len=256, pad_token_id=0,
        attn_config=dict(kv_n_heads=2, rope_theta=10000.0, clip_qkv=8.0),
        ffn_config=dict(ffn_hidden_size=48, hidden_size=32, moe_num_experts=4, moe_top_k=2),
        tie_word_embeddings=False), None),
}


def build(name):
    prefix, more, drop = MODELS[name]
    values = copy.deepcopy(more if drop is None else {**BASE, **more})
    for key in drop or ():
        values.pop(key, None)
    if name in VOCABULARIES:
        values["vocab_size"] = 512
    family = transformers.Gemma3TextConfig if prefix == "Gemma3" else getattr(
        transformers, prefix + "Config")
    config = family(**values)
    suffix = "LMHeadModel" if prefix == "GPT2" else "ForCausalLM"
    model = getattr(transformers, prefix + suffix)(config)
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    with torch.no_grad():
        for key, value in list(model.named_parameters()) + [
                (k, b) for k, b in model.named_buffers() if "bias" in k]:
            random = torch.randn(value.shape, generator=generator)
            if value.ndim > 1:
                value.copy_(random * (0.5 if "embed" in key or "wte" in key else 0.15))
            else:
                # Multiples of 1/512: adding 1 to them in binary16, as converters of some families
                # do, loses nothing; adding 0.0 leaves no negative zero, which it would lose.
                value.copy_(torch.round((value + 0.1 * random) * 512) / 512 + 0.0)
    return model.half()


def convert(source, target, vocabulary, vocab_size):
    def set_vocab(self):
        if vocabulary is None:
            self.gguf_writer.add_tokenizer_model("none")
        else:
            vocabulary(self.gguf_writer, vocab_size)

    LlamaModel.set_vocab = set_vocab  # for classes that hand the work to another one
    config = ModelBase.load_hparams(source, False)
    kind = ModelBase.from_model_architecture(get_model_architecture(config, ModelType.TEXT))
    own = type("Own" + kind.__name__, (kind,),
               {"set_vocab": set_vocab, "model_arch": kind.model_arch})
    with torch.inference_mode():
        own(source, gguf.LlamaFileType.MOSTLY_F16, target, eager=True).write()


def make_model(name, folder, work):
    model = build(name)
    source = work / name
    model.save_pretrained(source)
    vocab_size = model.config.vocab_size
    if name == "gemma3":  # the converter counts its tokens
        (source / "tokenizer.json").write_text(json.dumps(
            {"model": {"vocab": {str(i): i for i in range(vocab_size)}}, "added_tokens": []}))
    if name == "gpt2" or name == "cohere2":
        config = json.loads((source / "config.json").read_text())
        config.update(n_ctx=256) if name == "gpt2" else config.update(rotary_pct=1.0)
        (source / "config.json").write_text(json.dumps(config))
    vocabulary, cases = VOCABULARIES[name]() if name in VOCABULARIES else (None, None)
    target = folder / name
    target.mkdir(parents=True)
    convert(source, target / "model.gguf", vocabulary, vocab_size)

    tensors = {}
    for file in source.glob("*.safetensors"):
        tensors.update(load_file(file))
    expected = {
        "architecture": model.config.architectures[0],
        "tensors": {
            key: {"shape": list(value.shape),
                  "crc32": zlib.crc32(value.astype(np.float16).tobytes())}
            for key, value in sorted(tensors.items())},
    }
    if cases is not None:
        expected["tokenize"] = cases
    (target / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=True))

    model = model.float().eval()
    model.set_attn_implementation("eager")
    generator = torch.Generator().manual_seed(5)
    golden = {}
    for i, length in enumerate((1, 20)):
        ids = torch.randint(3, 96, (1, length), generator=generator)
        with torch.no_grad():
            golden[f"logits_{i}"] = model(ids, use_cache=False).logits[0].float().numpy()
        golden[f"ids_{i}"] = ids[0].numpy()
    save_file(golden, target / "golden.safetensors")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        folder = work / "gguf"
        folder.mkdir()
        make_groups(folder / "groups.gguf")
        names = args.only.split(",") if args.only else list(MODELS)
        for name in names:
            make_model(name, folder / "models", work / "source")
            print("made", name, flush=True)
        packed = work / "gguf.tar.xz"
        subprocess.run(["tar", "-C", str(work), "--sort=name", "--mtime=@0", "--owner=0",
                        "--group=0", "-cJf", str(packed), "gguf"], check=True)
        shutil.copy(packed, args.out)


main()
