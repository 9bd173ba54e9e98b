#!/usr/bin/env python3
"""Makes tiny random drafters for the tiny models of tests/data/hf-tiny.tar.xz, and what they guess: the oracle of
tests/model/draft_golden_test.cc, in numpy, fp32, without pages, batches or a cache of keys.

Usage: tools/make_draft_goldens.py HF_TINY OUT   (needs numpy, safetensors; HF_TINY is the unpacked archive)

OUT/NAME/ holds config.json and model.safetensors (fp16) of the drafter, and golden.safetensors, for each prompt N of
the target's own golden: logits_N [block - 1, vocab] of the block behind the whole prompt, whose last token is the
block's first, and of a greedy generation the rounds: starts_N [rounds] positions of the blocks' first tokens,
guesses_N [rounds, block - 1], text_N [tokens] what the target said. The target's forward is checked against the
logits that transformers gave.
"""
import json
import pathlib
import shutil
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

GRID = 4  # steps a standard deviation: matrices of few different values compress well
ROUNDS = 6
# name: (target, keywords of the drafter's config)
CASES = {
    "full": ("qwen3", dict(num_hidden_layers=2, block_size=6, dflash_config=dict(target_layer_ids=[1, 0], mask_token_id=7))),
    "sliding": ("llama", dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=5, head_dim=16, num_attention_heads=4,
                              num_key_value_heads=2, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                                          original_max_position_embeddings=16),
                              layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                              dflash_config=dict(block_size=4, target_layer_ids=[0], mask_token_id=3, output_multiplier=0.5,
                                                 final_logit_softcapping=2.0, input_embedding_scale=1.5))),
}


def rms(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def frequencies(config):
    """Of a rotation, and the factor of its cosines and sines (YaRN: arXiv 2309.00071)."""
    dim, rope = config["head_dim"], config["rope_parameters"]
    plain = rope["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    if rope["rope_type"] != "yarn":
        return plain, 1.0
    turn = lambda turns: dim * np.log(rope["original_max_position_embeddings"] / (turns * 2 * np.pi)) / (2 * np.log(rope["rope_theta"]))
    low, high = max(np.floor(turn(32.0)), 0), min(np.ceil(turn(1.0)), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    return plain / rope["factor"] * ramp + plain * (1 - ramp), 0.1 * np.log(rope["factor"]) + 1


def rotate(x, positions, config):
    """x: [tokens, heads, head_dim]."""
    inv, factor = frequencies(config)
    angles = np.asarray(positions)[:, None] * inv
    cos, sin = np.cos(angles)[:, None] * factor, np.sin(angles)[:, None] * factor
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def heads(x, weight, config, norm=None):
    y = (x @ weight.T).reshape(len(x), -1, config["head_dim"])
    return y if norm is None else rms(y, norm, config["rms_norm_eps"])


def attend(q, k, v, visible):
    """q [tokens, heads, d], k and v [keys, kv_heads, d], visible [tokens, keys]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[2])
    scores = np.where(visible[None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v).reshape(len(q), -1)


def feed_forward(x, w, at):
    gate = x @ w[at + "mlp.gate_proj.weight"].T
    return (gate / (1 + np.exp(-gate)) * (x @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T


class Target:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.config.setdefault("head_dim", self.config["hidden_size"] // self.config["num_attention_heads"])
        self.w = {k: v.astype(np.float32) for k, v in load_file(folder / "model.safetensors").items()}
        self.head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])

    def forward(self, ids):
        """Logits [tokens, vocab], and what the stream holds behind each layer."""
        c, w, positions = self.config, self.w, np.arange(len(ids))
        x = w["model.embed_tokens.weight"][ids]
        states = []
        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}."
            h = rms(x, w[at + "input_layernorm.weight"], c["rms_norm_eps"])
            q, k, v = (heads(h, w[f"{at}self_attn.{p}_proj.weight"], c, w.get(f"{at}self_attn.{p}_norm.weight")) for p in "qkv")
            out = attend(rotate(q, positions, c), rotate(k, positions, c), v, positions[None] <= positions[:, None])
            x = x + out @ w[at + "self_attn.o_proj.weight"].T
            x = x + feed_forward(rms(x, w[at + "post_attention_layernorm.weight"], c["rms_norm_eps"]), w, at)
            states.append(x)
        return rms(x, w["model.norm.weight"], c["rms_norm_eps"]) @ self.head.T, states


class Drafter:
    def __init__(self, config, weights, target):
        self.config, self.w, self.target = config, weights, target
        own = config["dflash_config"]
        self.layers, self.mask = own["target_layer_ids"], own["mask_token_id"]
        self.block = own.get("block_size", config.get("block_size"))

    def logits(self, ids):
        """Of the block whose first token is the last of ids: [block - 1, vocab]."""
        c, w, eps = self.config, self.w, self.config["rms_norm_eps"]
        start = len(ids) - 1
        positions = np.arange(start + self.block)
        states = self.target.forward(ids[:start])[1] if start else [np.zeros((0, c["hidden_size"]), np.float32)] * 2
        feature = rms(np.concatenate([states[i] for i in self.layers], -1) @ w["fc.weight"].T, w["hidden_norm.weight"], eps)
        block = [ids[-1]] + [self.mask] * (self.block - 1)
        x = self.target.w["model.embed_tokens.weight"][block] * c["dflash_config"].get("input_embedding_scale", 1.0)
        query, key = positions[start:, None], positions[None]
        for i in range(c["num_hidden_layers"]):
            at = f"layers.{i}."
            h = rms(x, w[at + "input_layernorm.weight"], eps)
            q = heads(h, w[at + "self_attn.q_proj.weight"], c, w[at + "self_attn.q_norm.weight"])
            both = np.concatenate([feature, h])
            k = heads(both, w[at + "self_attn.k_proj.weight"], c, w[at + "self_attn.k_norm.weight"])
            v = heads(both, w[at + "self_attn.v_proj.weight"], c)
            visible = np.ones((self.block, len(both)), bool)
            if c["layer_types"][i] == "sliding_attention":
                visible = (key <= query) & (query - key < c["sliding_window"])
            x = x + attend(rotate(q, positions[start:], c), rotate(k, positions, c), v, visible) @ w[at + "self_attn.o_proj.weight"].T
            x = x + feed_forward(rms(x, w[at + "post_attention_layernorm.weight"], eps), w, at)
        logits = rms(x, w["norm.weight"], eps)[1:] @ self.target.head.T * c["dflash_config"].get("output_multiplier", 1.0)
        cap = c["dflash_config"].get("final_logit_softcapping")
        return np.tanh(logits / cap) * cap if cap else logits

    def rounds(self, ids):
        """A greedy generation: after each block the target says what follows, as far as the guesses are right."""
        text = list(ids)
        text.append(int(self.target.forward(text)[0][-1].argmax()))
        starts, guesses = [], []
        for _ in range(ROUNDS):
            starts.append(len(text) - 1)
            guesses.append(self.logits(text).argmax(-1))
            said = self.target.forward(text + [int(g) for g in guesses[-1]])[0].argmax(-1)[len(text) - 1:]
            right = 0
            while right < len(guesses[-1]) and guesses[-1][right] == said[right]:
                right += 1
            text += [int(t) for t in said[:right + 1]]
        return np.array(starts), np.array(guesses), np.array(text)


def make(name, tiny, out):
    target_name, keywords = CASES[name]
    target = Target(tiny / target_name)
    golden = load_file(tiny / target_name / "golden.safetensors")
    c = target.config
    config = dict(architectures=["DFlashDraftModel"], model_type="qwen3", attention_bias=False, hidden_act="silu",
                  hidden_size=c["hidden_size"], intermediate_size=96, num_attention_heads=c["num_attention_heads"],
                  num_key_value_heads=c["num_key_value_heads"], head_dim=c["head_dim"], rms_norm_eps=1e-5, vocab_size=c["vocab_size"],
                  max_position_embeddings=512, rope_parameters=dict(rope_type="default", rope_theta=1e5),
                  layer_types=["full_attention"] * keywords["num_hidden_layers"], num_target_layers=c["num_hidden_layers"],
                  use_sliding_window=False, **{k: v for k, v in keywords.items() if k in ("num_hidden_layers", "block_size")})
    config.update(keywords)
    random = np.random.default_rng(sum(map(ord, name)))
    weights = {}

    def matrix(key, rows, columns):
        values = (random.standard_normal((rows, columns)) * GRID).round() / GRID / np.sqrt(columns)
        weights[key + ".weight"] = values.astype(np.float16)

    def norm(key, width):
        weights[key + ".weight"] = (1 + 0.2 * random.standard_normal(width)).astype(np.float16)

    hidden, dim = config["hidden_size"], config["head_dim"]
    matrix("fc", hidden, hidden * len(config["dflash_config"]["target_layer_ids"]))
    norm("hidden_norm", hidden)
    norm("norm", hidden)
    for i in range(config["num_hidden_layers"]):
        at = f"layers.{i}."
        norm(at + "input_layernorm", hidden)
        norm(at + "post_attention_layernorm", hidden)
        norm(at + "self_attn.q_norm", dim)
        norm(at + "self_attn.k_norm", dim)
        matrix(at + "self_attn.q_proj", config["num_attention_heads"] * dim, hidden)
        matrix(at + "self_attn.k_proj", config["num_key_value_heads"] * dim, hidden)
        matrix(at + "self_attn.v_proj", config["num_key_value_heads"] * dim, hidden)
        matrix(at + "self_attn.o_proj", hidden, config["num_attention_heads"] * dim)
        matrix(at + "mlp.gate_proj", config["intermediate_size"], hidden)
        matrix(at + "mlp.up_proj", config["intermediate_size"], hidden)
        matrix(at + "mlp.down_proj", hidden, config["intermediate_size"])
    drafter = Drafter(config, {k: v.astype(np.float32) for k, v in weights.items()}, target)
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    result = {}
    for n in range(sum(key.startswith("ids_") for key in golden)):
        ids = [int(i) for i in golden[f"ids_{n}"]]
        off = np.abs(target.forward(ids)[0] - golden[f"logits_{n}"]).max()
        assert off < 1e-3, f"{target_name}: the target's logits are {off} off"
        result[f"logits_{n}"] = drafter.logits(ids).astype(np.float32)
        starts, guesses, text = drafter.rounds(ids)
        result[f"starts_{n}"], result[f"guesses_{n}"], result[f"text_{n}"] = (a.astype(np.int64) for a in (starts, guesses, text))
        print(name, n, len(ids), "off", off, "said", len(text) - len(ids), "in", ROUNDS, "rounds")
    save_file(result, folder / "golden.safetensors")


if __name__ == "__main__":
    for case in CASES:
        make(case, pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
