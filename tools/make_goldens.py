#!/usr/bin/env python3
"""Makes tiny random models with transformers and stores the logits of their fp32 forward: the oracle of tests/model.

Usage: tools/make_goldens.py OUT [NAME…]   (needs torch, transformers, safetensors)

OUT/NAME/ holds config.json and model.safetensors (fp16, as transformers saves them) and golden.safetensors with
ids_N [tokens] and logits_N [tokens, vocab]. An architecture that transformers does not have is made from one that
computes the same: its tensors are renamed, packed or scaled (the functions below `derived`).
"""
import copy
import json
import math
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

VOCAB, LENGTHS = 96, (5, 40)
GRID = 4  # steps a standard deviation: matrices of few different values compress well
BASE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            tie_word_embeddings=False)
HEAD = dict(BASE, head_dim=16)
MOE = dict(HEAD, moe_intermediate_size=32, num_experts_per_tok=2)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
PARTIAL = dict(ROPE, partial_rotary_factor=0.5)
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
SLIDING = dict(sliding_window=8, num_hidden_layers=4,
               layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"])
BY_TYPE = {"full_attention": dict(YARN), "sliding_attention": dict(ROPE)}
VISION = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=16,
              patch_size=8)
QWEN_VISION = dict(depth=1, hidden_size=32, embed_dim=32, num_heads=2, intermediate_size=32, out_hidden_size=64)
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}

GEMMA4_MOE = dict(MOE, enable_moe_block=True, hidden_size_per_layer_input=0, num_kv_shared_layers=0)
STEP = dict(MOE, n_routed_experts=4, share_expert_dim=48, moe_router_scaling_factor=2.0, num_sliding_attention_heads=8,
            swiglu_limits=[0.0, 0.4, 0.0, 0.7], swiglu_limits_shared=[0.6, 0.0, 0.5, 0.3], **SLIDING)

# name: (class, config keywords); a nested dict for a "…_config" keyword stays a dict.
CASES = {
    "ministral3": ("Ministral3ForCausalLM", dict(HEAD, rope_parameters=dict(YARN, llama_4_scaling_beta=0.1))),
    "mistral3": ("Mistral3ForConditionalGeneration",
                 dict(text_config=dict(HEAD, model_type="mistral", sliding_window=8, rope_parameters=dict(ROPE)),
                      vision_config=dict(VISION, model_type="pixtral", head_dim=16))),
    "gemma3": ("Gemma3ForConditionalGeneration",
               dict(text_config=dict(HEAD, num_hidden_layers=7, sliding_window=8, query_pre_attn_scalar=32),
                    vision_config=dict(VISION, model_type="siglip_vision_model"), mm_tokens_per_image=4)),
    "qwen2-sliding": ("Qwen2ForCausalLM", dict(BASE, num_hidden_layers=3, use_sliding_window=True, sliding_window=8,
                                               max_window_layers=1)),
    "qwen2-vl": ("Qwen2VLForConditionalGeneration",
                 dict(text_config=dict(BASE, rope_parameters=dict(MROPE)), vision_config=dict(QWEN_VISION))),
    "qwen2_5-vl": ("Qwen2_5_VLForConditionalGeneration",
                   dict(text_config=dict(BASE, rope_parameters=dict(MROPE)), vision_config=dict(QWEN_VISION))),
    "qwen3-vl": ("Qwen3VLForConditionalGeneration",
                 dict(text_config=dict(HEAD, rope_parameters=dict(MROPE)), vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0]))),
    "qwen3-vl-moe": ("Qwen3VLMoeForConditionalGeneration",
                     dict(text_config=dict(MOE, num_experts=4, rope_parameters=dict(MROPE)),
                          vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0]))),
    "glm": ("GlmForCausalLM", dict(HEAD, attention_bias=True)),
    "glm4v": ("Glm4vForConditionalGeneration",
              dict(text_config=dict(HEAD, rope_parameters=dict(PARTIAL, mrope_section=[1, 1, 2])),
                   vision_config=dict(QWEN_VISION))),
    "ernie4_5": ("Ernie4_5ForCausalLM", dict(HEAD)),
    "ernie4_5-moe": ("Ernie4_5_MoeForCausalLM", dict(HEAD, num_hidden_layers=3, moe_intermediate_size=32, moe_num_experts=4,
                     num_experts_per_tok=2, moe_k=2, moe_num_shared_experts=2, moe_layer_start_index=1)),
    "glm4v-moe": ("Glm4vMoeForConditionalGeneration",
                  dict(text_config=dict(MOE, n_routed_experts=8, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1,
                                        rope_parameters=dict(PARTIAL, mrope_section=[1, 1, 2])),
                       vision_config=dict(QWEN_VISION))),
    "llava": ("LlavaForConditionalGeneration",
              dict(text_config=dict(HEAD, model_type="mistral", sliding_window=None, rope_parameters=dict(ROPE)),
                   vision_config=dict(VISION, model_type="pixtral", head_dim=16))),
    "hcx-vision-v2": ("HyperCLOVAXVisionV2ForConditionalGeneration",
                      dict(text_config=dict(HEAD, model_type="hyperclovax", embedding_multiplier=3.0, logits_scaling=0.5,
                                            attention_multiplier=0.3, residual_multiplier=0.8, use_post_norm=False),
                           vision_config=dict(QWEN_VISION, model_type="qwen2_5_vl_vision"), tie_word_embeddings=False)),
    "arcee": ("ArceeForCausalLM", dict(HEAD)),
    "apertus": ("ApertusForCausalLM", dict(BASE)),
    "smollm3-sliding": ("SmolLM3ForCausalLM", dict(BASE, num_hidden_layers=4, no_rope_layers=[1, 0, 1, 1],
                                                   use_sliding_window=True, sliding_window=8)),
    "exaone4": ("Exaone4ForCausalLM", dict(HEAD, **SLIDING)),
    "exaone4-full": ("Exaone4ForCausalLM", dict(HEAD, sliding_window=None, num_hidden_layers=2, layer_types=["full_attention"] * 2)),
    "olmo": ("OlmoForCausalLM", dict(BASE, clip_qkv=0.7)),
    "olmo3": ("Olmo3ForCausalLM", dict(BASE, rope_parameters=dict(BY_TYPE), **SLIDING)),
    "olmoe": ("OlmoeForCausalLM", dict(BASE, num_experts=4, num_experts_per_tok=2, clip_qkv=0.6)),
    "flex-olmo": ("FlexOlmoForCausalLM", dict(BASE, num_experts=4, num_experts_per_tok=2)),
    "hyperclovax": ("HyperCLOVAXForCausalLM", dict(HEAD, embedding_multiplier=3.0, logits_scaling=0.5,
                                                   attention_multiplier=0.3, residual_multiplier=0.8)),
    "nanochat": ("NanoChatForCausalLM", dict(BASE)),
    "granite-moe": ("GraniteMoeForCausalLM", dict(BASE, num_local_experts=4, num_experts_per_tok=2, residual_multiplier=0.3,
                                                  embedding_multiplier=4.0, attention_multiplier=0.2, logits_scaling=2.0)),
    "granite-moe-shared": ("GraniteMoeSharedForCausalLM", dict(BASE, num_local_experts=4, num_experts_per_tok=2,
                                                               shared_intermediate_size=48, residual_multiplier=0.3)),
    "dots1": ("Dots1ForCausalLM", dict(MOE, num_hidden_layers=3, n_routed_experts=8, n_shared_experts=2, n_group=2,
                                       topk_group=1, first_k_dense_replace=1, routed_scaling_factor=2.5)),
    "glm4-moe": ("Glm4MoeForCausalLM", dict(MOE, n_routed_experts=8, n_shared_experts=1, n_group=4, topk_group=2,
                                            first_k_dense_replace=1, routed_scaling_factor=1.5, use_qk_norm=True)),
    "solar-open": ("SolarOpenForCausalLM", dict(MOE, n_routed_experts=4, n_shared_experts=1)),
    "minimax-m2": ("MiniMaxM2ForCausalLM", dict(HEAD, num_local_experts=4, num_experts_per_tok=2, rotary_dim=8)),
    "hy-v3": ("HYV3ForCausalLM", dict(MOE, num_hidden_layers=3, num_experts=4, num_shared_experts=1,
                                       mlp_layer_types=["sparse", "dense", "sparse"])),
    "laguna": ("LagunaForCausalLM", dict(MOE, num_experts=4, shared_expert_intermediate_size=48, mlp_layer_types=["sparse", "dense", "sparse", "sparse"],
                                         num_attention_heads_per_layer=[4, 8, 8, 4], **SLIDING)),
    "afmoe": ("AfmoeForCausalLM", dict(MOE, num_experts=4, num_shared_experts=1, num_dense_layers=1, mup_enabled=True,
                                       route_scale=1.7, **SLIDING)),
    "afmoe-unshared": ("AfmoeForCausalLM", dict(MOE, num_experts=4, num_shared_experts=0, num_dense_layers=0,
                                                layer_types=["full_attention"] * 2)),
    "bloom": ("BloomForCausalLM", dict(vocab_size=VOCAB, hidden_size=64, n_layer=2, n_head=4)),
    "bloom-12-heads": ("BloomForCausalLM", dict(vocab_size=VOCAB, hidden_size=96, n_layer=2, n_head=12)),
    "mpt": ("MptForCausalLM", dict(vocab_size=VOCAB, d_model=64, n_layers=2, n_heads=4, max_seq_len=128, expansion_ratio=2,
                                   attn_config=dict(clip_qkv=2.0))),
    "phi": ("PhiForCausalLM", dict(BASE)),
    "phi-qk-norm": ("PhiForCausalLM", dict(BASE, qk_layernorm=True, partial_rotary_factor=0.4)),
    "gpt-neox": ("GPTNeoXForCausalLM", dict(BASE)),
    "gpt-neox-serial": ("GPTNeoXForCausalLM", dict(BASE, use_parallel_residual=False)),
    "gpt-bigcode-mha": ("GPTBigCodeForCausalLM", dict(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=128, multi_query=False)),
    "gpt2-inverse": ("GPT2LMHeadModel", dict(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=128,
                                             scale_attn_by_inverse_layer_idx=True)),
    "nemotron": ("NemotronForCausalLM", dict(BASE)),
    "helium": ("HeliumForCausalLM", dict(HEAD)),
    "hunyuan-dense": ("HunYuanDenseV1ForCausalLM", dict(HEAD)),
    "hunyuan-alpha": ("HunYuanDenseV1ForCausalLM", dict(HEAD, rope_parameters=dict(ROPE, rope_type="dynamic", alpha=50.0, factor=1.0))),
    "stablelm": ("StableLmForCausalLM", dict(BASE, use_qkv_bias=True)),
    "stablelm-parallel": ("StableLmForCausalLM", dict(BASE, use_parallel_residual=True)),
    "falcon": ("FalconForCausalLM", dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                         new_decoder_architecture=True, num_kv_heads=2, bias=False)),
    "falcon-7b": ("FalconForCausalLM", dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                            multi_query=True, parallel_attn=True, bias=True)),
    "falcon-serial": ("FalconForCausalLM", dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                                multi_query=False, parallel_attn=False, bias=True)),
    "falcon-one-norm": ("FalconForCausalLM", dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, bias=False,
                                                  new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)),
    "gemma4": ("Gemma4ForCausalLM", dict(HEAD, global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True,
                                         hidden_size_per_layer_input=0, num_kv_shared_layers=0, final_logit_softcapping=20.0, **SLIDING)),
    "gemma4-moe": ("Gemma4ForCausalLM", dict(GEMMA4_MOE, num_experts=8, top_k_experts=3, global_head_dim=32, num_global_key_value_heads=1,
                                             attention_k_eq_v=True, final_logit_softcapping=20.0, **SLIDING)),
    "gemma4-moe-text": ("Gemma4ForConditionalGeneration",
                        dict(text_config=dict(GEMMA4_MOE, num_hidden_layers=3, num_experts=5, top_k_experts=2, global_head_dim=16,
                                              layer_types=["sliding_attention", "full_attention", "full_attention"], sliding_window=8,
                                              tie_word_embeddings=True),
                             vision_config=dict(VISION, head_dim=16, position_embedding_size=16), audio_config=None)),
    "step3p7": ("Step3p7ForConditionalGeneration",
                dict(text_config=dict(STEP, mlp_layer_types=["dense", "sparse", "sparse", "sparse"]), vision_config=dict(VISION))),
    "llama-yarn-mscale": ("LlamaForCausalLM", dict(HEAD, rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=0.3, beta_fast=8.0, beta_slow=2.0))),
}


def randomize(model, generator):
    """Every parameter and buffer that is stored, so that none of them can be left out unnoticed."""
    noise = lambda t: torch.randn(t.shape, generator=generator)
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point() or tensor.numel() == 0 or "inv_freq" in name:
            continue
        if tensor.dim() < 2 or "bias" in name:
            scale, shift = 0.2, 0.0 if "bias" in name or "sink" in name else 1.0
            if name.endswith(("beta", "eps")):
                continue
            if "correction_bias" in name:  # scores below zero: experts of excluded groups must not come before them
                shift = -1.0
            if name.endswith("router.scale"):  # the router divides by the root of its width: spread its logits again
                scale, shift = 2.0, 8.0
            if name.endswith("per_expert_scale"):
                scale = 0.5
            value = noise(tensor)
        else:
            scale, shift = 1.0 / math.sqrt(tensor.shape[-1]), 0.0
            value = (noise(tensor) * GRID).round() / GRID
        tensor.copy_((value * scale + shift).half().float())


def write(folder, model, config=None):
    """Saves the model and the logits of what was saved."""
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder)
    reloaded = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    golden = {}
    for i, length in enumerate(LENGTHS):
        ids = torch.randint(3, VOCAB, (1, length), generator=generator)
        golden[f"ids_{i}"] = ids[0].clone()
        golden[f"logits_{i}"] = reloaded(input_ids=ids).logits[0].float().contiguous()
    save_file(golden, folder / "golden.safetensors")
    (folder / "generation_config.json").unlink(missing_ok=True)


def make(name, out):
    class_name, keywords = CASES[name]
    model_class = getattr(transformers, class_name)
    torch.manual_seed(0)
    config = model_class.config_class(**copy.deepcopy(keywords))
    model = model_class(config).eval()
    randomize(model, torch.Generator().manual_seed(sum(map(ord, name))))
    write(out / name, model)
    drop_towers(out / name)


def derived(name, out):
    """A model of an architecture that transformers lacks, from one that computes the same function."""
    source, keywords, change = DERIVED[name]
    work = out / f".{name}"
    model_class = getattr(transformers, source)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**copy.deepcopy(keywords))).eval()
    randomize(model, torch.Generator().manual_seed(sum(map(ord, name))))
    write(work, model)
    tensors, config = load_file(work / "model.safetensors"), json.loads((work / "config.json").read_text())
    shutil.rmtree(out / name, ignore_errors=True)
    (out / name).mkdir()
    reloaded = model_class.from_pretrained(work, dtype=torch.float32, attn_implementation="eager").eval()
    tensors, golden = change(tensors, config, reloaded)
    if golden is None:
        shutil.copy(work / "golden.safetensors", out / name)
    else:
        save_file(golden, out / name / "golden.safetensors")
    save_file({k: v.contiguous() for k, v in tensors.items()}, out / name / "model.safetensors", {"format": "pt"})
    (out / name / "config.json").write_text(json.dumps(config, indent=1))
    shutil.rmtree(work)


def forward(model, tensors):
    """Logits of a model whose parameters were replaced by fp32 values."""
    state = model.state_dict()
    for name, tensor in tensors.items():
        state[name].copy_(tensor)
    generator, golden = torch.Generator().manual_seed(7), {}
    for i, length in enumerate(LENGTHS):
        ids = torch.randint(3, VOCAB, (1, length), generator=generator)
        golden[f"ids_{i}"] = ids[0].clone()
        golden[f"logits_{i}"] = model(input_ids=ids).logits[0].float().contiguous()
    return golden


def to_internlm2(tensors, config, model):
    config["architectures"] = ["InternLM2ForCausalLM"]
    heads, kv, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    names = {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "feed_forward.w1",
             "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2", "self_attn.o_proj": "attention.wo",
             "model.embed_tokens": "model.tok_embeddings", "lm_head": "output"}
    result = {}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        q, k, v = (tensors.pop(f"{prefix}self_attn.{p}_proj.weight") for p in "qkv")
        parts = [x.view(kv, -1, dim, x.shape[1]) for x in (q, k, v)]
        result[prefix + "attention.wqkv.weight"] = torch.cat(parts, 1).reshape(-1, q.shape[1])
    for name, tensor in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        result[name] = tensor
    return result, None


def to_orion(tensors, config, model):
    config["architectures"], config["rms_norm_eps"] = ["OrionForCausalLM"], config.pop("layer_norm_eps")
    return tensors, None


def to_minicpm(tensors, config, model):
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    config.update(architectures=["MiniCPMForCausalLM"], scale_emb=config.pop("embedding_multiplier"),
                  scale_depth=config.pop("residual_multiplier") * math.sqrt(layers),
                  dim_model_base=hidden / config.pop("logits_scaling"))
    config.pop("attention_multiplier")
    return tensors, None


def to_index(tensors, config, model):
    config.update(architectures=["IndexForCausalLM"], norm_head=True)
    changed = {k: v.float() for k, v in tensors.items()}
    changed["lm_head.weight"] = torch.nn.functional.normalize(changed["lm_head.weight"])
    return tensors, forward(model, changed)


def to_decilm(tensors, config, model):
    """Shared key-value heads, absent layers and narrow feed-forwards are an ordinary model with repeated and zero weights."""
    dim, hidden, size = config["head_dim"], config["hidden_size"], config["intermediate_size"]
    mults = [0.75, None, 0.3]  # None: no feed-forward; attention is absent in the last layer
    groups = [2, 4, None]
    full = {k: v.float() for k, v in tensors.items()}
    blocks = []
    for layer, (mult, group) in enumerate(zip(mults, groups)):
        at = f"model.layers.{layer}."
        if group is None:
            full[at + "self_attn.o_proj.weight"].zero_()
            for part in "qkvo":
                tensors.pop(f"{at}self_attn.{part}_proj.weight")
            tensors.pop(at + "input_layernorm.weight")
        else:
            for part in "kv":
                name = f"{at}self_attn.{part}_proj.weight"
                kept = tensors[name].view(-1, dim, hidden)[::group]
                tensors[name] = kept.reshape(-1, hidden)
                full[name] = kept.repeat_interleave(group, 0).reshape(-1, hidden).float()
        if mult is None:
            full[at + "mlp.down_proj.weight"].zero_()
            for part in ("gate", "up", "down"):
                tensors.pop(f"{at}mlp.{part}_proj.weight")
            tensors.pop(at + "post_attention_layernorm.weight")
        else:
            width = math.ceil(int(2 * mult * hidden / 3) / 256) * 256
            assert width == size
        blocks.append({"attention": {"no_op": group is None, "n_heads_in_group": group}, "ffn": {"no_op": mult is None, "ffn_mult": mult}})
    config.update(architectures=["DeciLMForCausalLM"], block_configs=blocks, num_key_value_heads=None, intermediate_size=None)
    return tensors, forward(model, full)


def to_gemmoe(tensors, config, model):
    """Norm weights are stored less one, the embedding unscaled."""
    config["architectures"] = ["GemmoeForCausalLM"]
    changed = {k: v.float() for k, v in tensors.items()}
    for name in changed:
        if "norm" in name:
            changed[name] += 1.0
    changed["model.embed_tokens.weight"] *= math.sqrt(config["hidden_size"])
    experts = [name for name in changed if ".experts." in name]  # these differ in form, not in value
    return tensors, forward(model, {k: v for k, v in changed.items() if k not in experts and ".gate." not in k})


def to_step3p5(tensors, config, model):
    """The published configuration: flat, per-layer lists with an entry for the layer of speculation that is not run."""
    text = config["text_config"]
    per_type = {"rope_theta": (20000.0, 10000.0), "partial_rotary_factors": (0.5, 1.0)}
    lists = {key: [values[kind == "sliding_attention"] for kind in text["layer_types"]] for key, values in per_type.items()}
    config.clear()
    config.update({k: text[k] for k in ("head_dim", "hidden_size", "intermediate_size", "max_position_embeddings", "moe_intermediate_size",
                                        "num_attention_heads", "num_hidden_layers", "rms_norm_eps", "share_expert_dim", "sliding_window",
                                        "vocab_size", "bos_token_id", "eos_token_id", "moe_router_scaling_factor")})
    config.update(architectures=["Step3p5ForCausalLM"], model_type="step3p5", num_attention_groups=text["num_key_value_heads"],
                  moe_num_experts=text["n_routed_experts"], moe_top_k=text["num_experts_per_tok"], moe_layers_enum="1,2,3",
                  attention_other_setting=dict(attention_type="sliding_attention", num_attention_heads=text["num_sliding_attention_heads"],
                                               num_attention_groups=text["num_key_value_heads"], head_dim=text["head_dim"]),
                  layer_types=text["layer_types"] + ["sliding_attention"], swiglu_limits=text["swiglu_limits"] + [0.0],
                  swiglu_limits_shared=text["swiglu_limits_shared"] + [0.0], num_nextn_predict_layers=1,
                  rope_scaling=dict(rope_type="llama3", factor=2.0, low_freq_factor=1.0, high_freq_factor=32.0, original_max_position_embeddings=64),
                  yarn_only_types=["full_attention"], use_moe=False, use_head_wise_attn_gate=True)
    config.update({key: values + values[:1] for key, values in lists.items()})
    changed = model.config.text_config
    for kind, theta, part in (("full_attention", 20000.0, 0.5), ("sliding_attention", 10000.0, 1.0)):
        changed.rope_parameters[kind] = dict(rope_type="default", rope_theta=theta, partial_rotary_factor=part)
    changed.rope_parameters["full_attention"].update(config["rope_scaling"])
    rotary = model.model.language_model.rotary_emb
    model.model.language_model.rotary_emb = type(rotary)(changed)
    tensors = {k: v for k, v in tensors.items() if not any(w in k for w in ("vision", "projector", "vit_"))}
    return tensors, forward(model, {})


def to_yi(tensors, config, model):
    config["architectures"] = ["YiForCausalLM"]
    return {k.replace("input_layernorm", "ln1").replace("post_attention_layernorm", "ln2"): v for k, v in tensors.items()}, None


DERIVED = {
    "internlm2": ("LlamaForCausalLM", dict(HEAD), to_internlm2),
    "orion": ("StableLmForCausalLM", dict(BASE, rope_parameters=dict(ROPE, partial_rotary_factor=1.0)), to_orion),
    "minicpm": ("GraniteForCausalLM", dict(BASE, embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=4.0,
                                           attention_multiplier=0.25), to_minicpm),
    "index": ("LlamaForCausalLM", dict(HEAD), to_index),
    "deci-lm": ("LlamaForCausalLM", dict(HEAD, num_hidden_layers=3, num_key_value_heads=4, intermediate_size=256), to_decilm),
    "gemmoe": ("MixtralForCausalLM", dict(HEAD, num_local_experts=4, num_experts_per_tok=2, hidden_act="gelu_pytorch_tanh"), to_gemmoe),
    "step3p5": ("Step3p7ForConditionalGeneration",
                dict(text_config=dict(STEP, mlp_layer_types=["dense", "sparse", "sparse", "sparse"]), vision_config=dict(VISION)), to_step3p5),
    "yi": ("LlamaForCausalLM", dict(HEAD), to_yi),
}


def drop_towers(folder):
    """Only the text model is tested; the rest would be dead weight."""
    path = folder / "model.safetensors"
    tensors = {k: v for k, v in load_file(path).items()
               if v.numel() and not any(w in k for w in ("vision", "visual", "projector", "vit_", "mm_"))}
    save_file(tensors, path, {"format": "pt"})


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or sorted(CASES) + sorted(DERIVED)
    failed = 0
    for name in names:
        try:
            (derived if name in DERIVED else make)(name, out)
            print(name, "made", flush=True)
        except Exception as error:  # a version of transformers without that class, or with other keywords
            failed += 1
            print(name, "FAILED", type(error).__name__, str(error)[:300], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
