#!/usr/bin/env python3
"""Makes a tiny random model whose logits lie close together, and its logits: the oracle of
tests/model/close_logits_test.cc, in numpy, in double.

Usage: tools/make_close_golden.py TINY OUT   (needs numpy, safetensors; tests/data/hf-tiny.tar.xz is unpacked in TINY)

The model is what careless random weights give, and what `bench --check` avoids: matrices mean half a step less than
nothing, as random codes do, so rows grow alike from block to block; scores of attention are in the tens, so that one
key takes all; and rows of the head differ by little from each other. OUT/llama-close/ holds config.json,
model.safetensors (fp16) and golden.safetensors with ids_N [tokens] and logits_N [tokens, vocab]. The forward is first
checked against the logits that transformers gave for TINY/llama.
"""
import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
          "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 16, "vocab_size": 96, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
LENGTHS = (40, 64)


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, theta):
    """x: [tokens, heads, dim]"""
    tokens, _, dim = x.shape
    angles = np.arange(tokens)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    low, high = x[..., :dim // 2], x[..., dim // 2:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


def attention(x, config, weight):
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    q, k, v = (weight(name, x).reshape(len(x), -1, dim) for name in ("q_proj", "k_proj", "v_proj"))
    q, k = rotate(q, theta), rotate(k, theta)
    k, v = (np.repeat(y, heads // kv_heads, axis=1) for y in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim)
    scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return weight("o_proj", np.einsum("hqk,khd->qhd", shares, v).reshape(len(x), -1))


def logits(tensors, config, ids):
    tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    eps = config["rms_norm_eps"]
    x = tensors["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        y = norm(x, tensors[at + "input_layernorm.weight"], eps)
        x = x + attention(y, config, lambda name, z: z @ tensors[f"{at}self_attn.{name}.weight"].T)
        y = norm(x, tensors[at + "post_attention_layernorm.weight"], eps)
        gate, up = (y @ tensors[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + gate / (1 + np.exp(-gate)) * up @ tensors[at + "mlp.down_proj.weight"].T
    return norm(x, tensors["model.norm.weight"], eps) @ tensors["lm_head.weight"].T


def check_forward(folder):
    """Logits of transformers, in fp32."""
    golden = load_file(folder / "golden.safetensors")
    config = json.loads((folder / "config.json").read_text())
    for i in range(sum(name.startswith("ids_") for name in golden)):
        own = logits(load_file(folder / "model.safetensors"), config, golden[f"ids_{i}"])
        apart = np.abs(own - golden[f"logits_{i}"]).max()
        assert apart < 1e-4, f"{folder}, prompt {i}: {apart} apart from transformers"


def make(random):
    hidden, inner, vocab = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    width = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    kv_width = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]

    def codes(out, inputs, step):
        """As of 4 bits: −8 … 7 steps, −½ on average."""
        return (random.integers(-8, 8, (out, inputs)) * step).astype(np.float16)

    tensors = {"model.embed_tokens.weight": codes(vocab, hidden, 1 / 64), "model.norm.weight": np.ones(hidden, np.float16)}
    for i in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, out, inputs, step in (("self_attn.q_proj", width, hidden, 1 / 16), ("self_attn.k_proj", kv_width, hidden, 1 / 16),
                                        ("self_attn.v_proj", kv_width, hidden, 1 / 32), ("self_attn.o_proj", hidden, width, 1 / 32),
                                        ("mlp.gate_proj", inner, hidden, 1 / 16), ("mlp.up_proj", inner, hidden, 1 / 16),
                                        ("mlp.down_proj", hidden, inner, 1 / 32)):
            tensors[f"{at}{name}.weight"] = codes(out, inputs, step)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = np.ones(hidden, np.float16)
    # A common row, and a part, a sixteenth as large, that is each token's own.
    own = random.integers(-8, 8, (vocab, hidden)) / 16 + random.integers(-8, 8, hidden)
    tensors["lm_head.weight"] = (own / 16).astype(np.float16)
    return tensors


def main():
    tiny, out = map(pathlib.Path, sys.argv[1:])
    check_forward(tiny / "llama")
    random = np.random.default_rng(49)
    tensors = make(random)
    golden = {}
    for i, length in enumerate(LENGTHS):
        ids = random.integers(0, CONFIG["vocab_size"], length)
        rows = logits(tensors, CONFIG, ids)
        golden |= {f"ids_{i}": ids, f"logits_{i}": rows.astype(np.float32)}
        best = np.sort(rows, -1)
        size = np.abs(rows).mean()
        print(f"prompt {i}: logits of {size:.2f} on average, {rows.std(-1).mean() / size:.4f} of that apart; "
              f"best before second {np.median(best[:, -1] - best[:, -2]) / size:.5f} (median)")
    folder = out / "llama-close"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(golden, folder / "golden.safetensors")


if __name__ == "__main__":
    main()
