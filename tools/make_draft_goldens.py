#!/usr/bin/env python3
"""Makes tiny random drafters for the tiny models of tests/data/hf-tiny.tar.xz and archs-tiny.tar.xz, and what they
guess: the oracle of tests/model/draft_golden_test.cc and tests/engine/mtp_golden_test.cc, in numpy, fp32, without
pages, batches or a cache of keys.

Usage: tools/make_draft_goldens.py TINY OUT   (needs numpy, safetensors; the archives are unpacked in TINY)

OUT/NAME/ holds config.json and model.safetensors (fp16) of the drafter, and golden.safetensors, for each prompt N of
the target's own golden: logits_N [block - 1, vocab] of the block behind the whole prompt, whose last token is the
block's first, and of a greedy generation the rounds: starts_N [rounds] positions of the blocks' first tokens,
guesses_N [rounds, block - 1], text_N [tokens] what the target said. The target's forward is checked against the
logits that transformers gave. OUT/mtp/ is a whole model with a layer for multi-token prediction behind its own; there
guesses are a chain of CHAINED tokens.
"""
import json
import pathlib
import shutil
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

GRID = 4  # steps a standard deviation: matrices of few different values compress well
ROUNDS = 6
CHAINED = 3
# name: (target, keywords of the drafter's config)
CASES = {
    "full": ("qwen3", dict(num_hidden_layers=2, block_size=6, dflash_config=dict(target_layer_ids=[1, 0], mask_token_id=7))),
    "sliding": ("llama", dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=5, head_dim=16, num_attention_heads=4,
                              num_key_value_heads=2, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                                          original_max_position_embeddings=16),
                              layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                              dflash_config=dict(block_size=4, target_layer_ids=[0], mask_token_id=3, output_multiplier=0.5,
                                                 final_logit_softcapping=2.0, input_embedding_scale=1.5))),
    "laguna": ("llama", dict(architectures=["DFlashLagunaForCausalLM"], num_hidden_layers=2, sliding_window=6, head_dim=16, num_attention_heads=4,
                             num_key_value_heads=2, layer_types=["sliding_attention"] * 2,
                             dflash_config=dict(block_size=5, target_layer_ids=[0, 1], mask_token_id=9, causal=True))),
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


def feed_forward(x, w, at, config):
    if at + "mlp.router.gate.weight" in w:
        return routed(x, w, at, config)
    gate = x @ w[at + "mlp.gate_proj.weight"].T
    return (gate / (1 + np.exp(-gate)) * (x @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T


def expert(x, w, at):
    gate = x @ w[at + "gate_proj.weight"].T
    return (gate / (1 + np.exp(-gate)) * (x @ w[at + "up_proj.weight"].T)) @ w[at + "down_proj.weight"].T


def routed(x, w, at, config):
    """Sigmoid scores choose with a bias, weigh without it; a shared expert beside them."""
    scores = 1 / (1 + np.exp(-(x @ w[at + "mlp.router.gate.weight"].T)))
    best = np.argsort(-(scores + w[at + "mlp.expert_bias"]), -1)[:, :config["num_experts_per_tok"]]
    out = expert(x, w, at + "mlp.shared_mlp.")
    for t, chosen in enumerate(best):
        weights = scores[t, chosen] / scores[t, chosen].sum() * config["router_scaling_factor"]
        out[t] += sum(weight * expert(x[t:t + 1], w, f"{at}mlp.experts.{e}.")[0] for weight, e in zip(weights, chosen))
    return out


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
            x = x + feed_forward(rms(x, w[at + "post_attention_layernorm.weight"], c["rms_norm_eps"]), w, at, c)
            states.append(x)
        states.append(rms(x, w["model.norm.weight"], c["rms_norm_eps"]))
        return states[-1] @ self.head.T, states


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
        laguna = "aux_hidden_norms.0.weight" in w
        read = [rms(states[i], w[f"aux_hidden_norms.{n}.weight"], eps) if laguna else states[i] for n, i in enumerate(self.layers)]
        feature = rms(np.concatenate(read, -1) @ w["fc.weight"].T, w["hidden_norm.weight"], eps)
        block = [ids[-1]] + [self.mask] * (self.block - 1)
        x = self.target.w["model.embed_tokens.weight"][block] * c["dflash_config"].get("input_embedding_scale", 1.0)
        query, key = positions[start:, None], positions[None]
        for i in range(c["num_hidden_layers"]):
            at = f"layers.{i}."
            h = rms(x, w[at + "input_layernorm.weight"], eps)
            q = heads(h, w[at + "self_attn.q_proj.weight"], c, w[at + "self_attn.q_norm.weight"])
            both = np.concatenate([rms(feature, w[at + "input_layernorm.weight"], eps) if laguna else feature, h])
            k = heads(both, w[at + "self_attn.k_proj.weight"], c, w[at + "self_attn.k_norm.weight"])
            v = heads(both, w[at + "self_attn.v_proj.weight"], c)
            visible = np.ones((self.block, len(both)), bool)
            if c["layer_types"][i] == "sliding_attention":
                visible = (key <= query) & (query - key < c["sliding_window"])
            out = attend(rotate(q, positions[start:], c), rotate(k, positions, c), v, visible)
            if laguna:  # a gate a head
                gate = np.log1p(np.exp(h @ w[at + "self_attn.g_proj.weight"].T))
                out = (out.reshape(self.block, -1, c["head_dim"]) * gate[..., None]).reshape(out.shape)
            x = x + out @ w[at + "self_attn.o_proj.weight"].T
            x = x + feed_forward(rms(x, w[at + "post_attention_layernorm.weight"], eps), w, at, c)
        logits = rms(x, w["norm.weight"], eps)[1:] @ self.target.head.T * c["dflash_config"].get("output_multiplier", 1.0)
        cap = c["dflash_config"].get("final_logit_softcapping")
        return np.tanh(logits / cap) * cap if cap else logits

    def guesses(self, ids):
        return self.logits(ids).argmax(-1)

    def rounds(self, ids):
        """A greedy generation: after each block the target says what follows, as far as the guesses are right."""
        text = list(ids)
        text.append(int(self.target.forward(text)[0][-1].argmax()))
        starts, guesses = [], []
        for _ in range(ROUNDS):
            starts.append(len(text) - 1)
            guesses.append(self.guesses(text))
            said = self.target.forward(text + [int(g) for g in guesses[-1]])[0].argmax(-1)[len(text) - 1:]
            right = 0
            while right < len(guesses[-1]) and guesses[-1][right] == said[right]:
                right += 1
            text += [int(t) for t in said[:right + 1]]
        return np.array(starts), np.array(guesses), np.array(text)


class Chain(Drafter):
    """A layer behind the target's own that reads its normed states, and then its own."""

    def __init__(self, target):
        self.target, self.config, self.w = target, target.config, target.w

    def logits(self, ids):
        """Of CHAINED tokens behind the text, each behind the likeliest before it: [CHAINED, vocab]."""
        c, w, eps, start = self.config, self.w, self.config["rms_norm_eps"], len(ids) - 1
        at = f"model.layers.{c['num_hidden_layers']}."
        states = self.target.forward(ids[:start])[1][-1]
        states = np.concatenate([np.zeros((1, c["hidden_size"]), np.float32), states])  # before each token, and the last
        tokens, rows = list(ids), []
        for _ in range(CHAINED):
            embedded = rms(w["model.embed_tokens.weight"][tokens], w[at + "enorm.weight"], eps)
            x = np.concatenate([embedded, rms(states, w[at + "hnorm.weight"], eps)], -1) @ w[at + "eh_proj.weight"].T
            h, positions = rms(x, w[at + "input_layernorm.weight"], eps), np.arange(len(x))
            q, k, v = (heads(h, w[f"{at}self_attn.{p}_proj.weight"], c, w.get(f"{at}self_attn.{p}_norm.weight")) for p in "qkv")
            out = attend(rotate(q, positions, c), rotate(k, positions, c), v, positions[None] <= positions[:, None])
            x = (x + out @ w[at + "self_attn.o_proj.weight"].T)[-1:]
            x = x + feed_forward(rms(x, w[at + "post_attention_layernorm.weight"], eps), w, at, c)
            state = rms(x, w[at + "final_layernorm.weight"], eps)
            rows.append((state @ self.target.head.T)[0])
            tokens.append(int(rows[-1].argmax()))
            states = np.concatenate([states, state])
        return np.array(rows)


def results(drafter, golden):
    """What the tests compare with, for each prompt of the target's golden."""
    result = {}
    for n in range(sum(key.startswith("ids_") for key in golden)):
        ids = [int(i) for i in golden[f"ids_{n}"]]
        off = np.abs(drafter.target.forward(ids)[0] - golden[f"logits_{n}"]).max()
        assert off < 1e-3, f"the target's logits are {off} off"
        result[f"ids_{n}"] = np.array(ids)
        result[f"logits_{n}"] = drafter.logits(ids).astype(np.float32)
        starts, guesses, text = drafter.rounds(ids)
        result[f"starts_{n}"], result[f"guesses_{n}"], result[f"text_{n}"] = (a.astype(np.int64) for a in (starts, guesses, text))
        print(n, len(ids), "off", off, "said", len(text) - len(ids), "in", ROUNDS, "rounds")
    return result


def make_mtp(tiny, out):
    source = tiny / "archs-tiny" / "hy-v3"
    weights, config = load_file(source / "model.safetensors"), json.loads((source / "config.json").read_text())
    random, own = np.random.default_rng(11), f"model.layers.{config['num_hidden_layers']}."
    last = f"model.layers.{config['num_hidden_layers'] - 1}."
    added = {own + key.removeprefix(last): value.shape for key, value in weights.items() if key.startswith(last)}
    hidden = config["hidden_size"]
    added.update({own + "eh_proj.weight": (hidden, 2 * hidden), own + "enorm.weight": (hidden,), own + "hnorm.weight": (hidden,),
                  own + "final_layernorm.weight": (hidden,)})
    for key, shape in added.items():
        value = random.standard_normal(shape)
        value = 1 + 0.2 * value if len(shape) == 1 else (value * GRID).round() / GRID / np.sqrt(shape[-1])
        weights[key] = value.astype(np.float16)
    config["num_nextn_predict_layers"] = 1
    folder = out / "mtp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(results(Chain(Target(folder)), load_file(source / "golden.safetensors")), folder / "golden.safetensors")


def make(name, tiny, out):
    target_name, keywords = CASES[name]
    target = Target(tiny / "hf-tiny" / target_name)
    golden = load_file(tiny / "hf-tiny" / target_name / "golden.safetensors")
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
    laguna = config["architectures"] == ["DFlashLagunaForCausalLM"]
    for i in range(len(config["dflash_config"]["target_layer_ids"]) if laguna else 0):
        norm(f"aux_hidden_norms.{i}", hidden)
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
        if laguna:
            matrix(at + "self_attn.g_proj", config["num_attention_heads"], hidden)
        matrix(at + "mlp.gate_proj", config["intermediate_size"], hidden)
        matrix(at + "mlp.up_proj", config["intermediate_size"], hidden)
        matrix(at + "mlp.down_proj", hidden, config["intermediate_size"])
    drafter = Drafter(config, {k: v.astype(np.float32) for k, v in weights.items()}, target)
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(results(drafter, golden), folder / "golden.safetensors")


if __name__ == "__main__":
    for case in CASES:
        make(case, pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    make_mtp(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
