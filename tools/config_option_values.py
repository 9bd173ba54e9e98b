"""Which tiny configurations tools/walk_config_options.py starts from, and what it changes in them.

BASES gives one small configuration per model class. `edits(base)` lists the changes of one option each; an Edit is a list of
(path, value) pairs that belong together, with ABSENT for a key that is left out. Nothing here imports torch.
"""
import copy
import dataclasses
import json
import re

ABSENT = "<absent>"
VOCAB, POSITIONS = 64, 64
BASE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=POSITIONS, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
HEAD = dict(BASE, head_dim=16)
MOE = dict(HEAD, moe_intermediate_size=16, num_experts_per_tok=2)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
WINDOW = dict(BASE, num_hidden_layers=3, use_sliding_window=True, sliding_window=8)
MROPE = dict(ROPE, mrope_section=[2, 3, 3])
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
PARTIAL = dict(ROPE, partial_rotary_factor=0.5)
LAYERS = dict(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2)
SLIDING = dict(LAYERS, sliding_window=8)
BY_TYPE = {"full_attention": dict(ROPE), "sliding_attention": dict(ROPE, rope_theta=1000.0)}
VISION = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
QWEN_VISION = dict(depth=1, hidden_size=16, embed_dim=16, num_heads=2, intermediate_size=16, out_hidden_size=32)
GPT = dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=POSITIONS, bos_token_id=1, eos_token_id=2)
GROUPED = dict(MOE, num_hidden_layers=3, n_routed_experts=8, n_shared_experts=1, n_group=2, topk_group=1, first_k_dense_replace=1)
PIXTRAL = dict(VISION, model_type="pixtral", head_dim=8)
LIMITS = dict(swiglu_limits=[0.0, 0.4, 0.0, 0.7], swiglu_limits_shared=[0.6, 0.0, 0.5, 0.3])

# name: (class, config keywords). The keys of nested dicts named "…_config" are options of that text or vision part.
BASES = {
    "afmoe": ("AfmoeForCausalLM", dict(MOE, num_experts=4, num_shared_experts=1, num_dense_layers=1, **SLIDING)),
    "apertus": ("ApertusForCausalLM", BASE),
    "arcee": ("ArceeForCausalLM", HEAD),
    "bloom": ("BloomForCausalLM", dict(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4)),
    "cohere": ("CohereForCausalLM", BASE),
    "cohere2": ("Cohere2ForCausalLM", dict(HEAD, **SLIDING)),
    "dbrx": ("DbrxForCausalLM", dict(vocab_size=VOCAB, d_model=32, n_heads=4, n_layers=2, max_seq_len=POSITIONS, attn_config=dict(kv_n_heads=2, clip_qkv=2.0, rope_theta=10000.0),
                                     ffn_config=dict(ffn_hidden_size=16, moe_num_experts=4, moe_top_k=2))),
    "dots1": ("Dots1ForCausalLM", dict(GROUPED, sliding_window=8, max_window_layers=3)),
    "ernie4_5": ("Ernie4_5ForCausalLM", HEAD),
    "ernie4_5-moe": ("Ernie4_5_MoeForCausalLM", dict(BASE, num_hidden_layers=3, moe_intermediate_size=16, moe_num_experts=4, moe_k=2,
                                                     moe_num_shared_experts=1, moe_layer_start_index=1)),
    "exaone4": ("Exaone4ForCausalLM", dict(HEAD, **SLIDING)),
    "falcon": ("FalconForCausalLM", dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, new_decoder_architecture=True,
                                         num_kv_heads=2, max_position_embeddings=POSITIONS)),
    "falcon-7b": ("FalconForCausalLM", dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=POSITIONS)),
    "flex-olmo": ("FlexOlmoForCausalLM", dict(BASE, num_experts=4, num_experts_per_tok=2)),
    "gemma": ("GemmaForCausalLM", HEAD),
    "gemma2": ("Gemma2ForCausalLM", dict(HEAD, query_pre_attn_scalar=32, **SLIDING)),
    "gemma3-text": ("Gemma3ForCausalLM", dict(HEAD, query_pre_attn_scalar=32, **SLIDING)),
    "gemma3": ("Gemma3ForConditionalGeneration", dict(text_config=dict(HEAD, query_pre_attn_scalar=32, **SLIDING),
                                                      vision_config=dict(VISION, model_type="siglip_vision_model"), mm_tokens_per_image=4)),
    "gemma4": ("Gemma4ForCausalLM", dict(HEAD, global_head_dim=16, hidden_size_per_layer_input=0, num_kv_shared_layers=0, **SLIDING)),
    "gemma4-moe": ("Gemma4ForCausalLM", dict(MOE, enable_moe_block=True, num_experts=4, top_k_experts=2, global_head_dim=16, hidden_size_per_layer_input=0,
                                             num_kv_shared_layers=0, **SLIDING)),
    "glm": ("GlmForCausalLM", HEAD),
    "glm4": ("Glm4ForCausalLM", HEAD),
    "glm4-moe": ("Glm4MoeForCausalLM", GROUPED),
    "glm4v": ("Glm4vForConditionalGeneration", dict(text_config=dict(BASE, rope_parameters=dict(PARTIAL, mrope_section=[1, 1, 0])),
                                                    vision_config=dict(QWEN_VISION))),
    "glm4v-moe": ("Glm4vMoeForConditionalGeneration", dict(text_config=dict(GROUPED, rope_parameters=dict(PARTIAL, mrope_section=[1, 1, 2])),
                                                           vision_config=dict(QWEN_VISION))),
    "gpt-bigcode": ("GPTBigCodeForCausalLM", GPT),
    "gpt-neox": ("GPTNeoXForCausalLM", BASE),
    "gpt-oss": ("GptOssForCausalLM", dict(HEAD, num_local_experts=4, num_experts_per_tok=2, rope_parameters=dict(ROPE), **SLIDING)),
    "gpt2": ("GPT2LMHeadModel", GPT),
    "granite": ("GraniteForCausalLM", BASE),
    "granite-moe": ("GraniteMoeForCausalLM", dict(BASE, num_local_experts=4, num_experts_per_tok=2)),
    "granite-moe-shared": ("GraniteMoeSharedForCausalLM", dict(BASE, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=16)),
    "helium": ("HeliumForCausalLM", dict(BASE, head_dim=8)),
    "hunyuan-dense": ("HunYuanDenseV1ForCausalLM", HEAD),
    "hy-v3": ("HYV3ForCausalLM", dict(MOE, num_hidden_layers=3, num_experts=4, num_shared_experts=1, mlp_layer_types=["sparse", "dense", "sparse"])),
    "hyperclovax": ("HyperCLOVAXForCausalLM", HEAD),
    "hcx-vision-v2": ("HyperCLOVAXVisionV2ForConditionalGeneration", dict(text_config=dict(HEAD, model_type="hyperclovax", use_post_norm=False),
                      vision_config=dict(QWEN_VISION, model_type="qwen2_5_vl_vision"), tie_word_embeddings=False)),
    "laguna": ("LagunaForCausalLM", dict(MOE, num_experts=4, shared_expert_intermediate_size=16, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
                                         num_attention_heads_per_layer=[4, 4, 4, 4], **SLIDING)),
    "llama": ("LlamaForCausalLM", HEAD),
    "llava": ("LlavaForConditionalGeneration", dict(text_config=dict(HEAD, model_type="mistral", sliding_window=None, rope_parameters=dict(ROPE)),
                                                    vision_config=dict(PIXTRAL))),
    "minimax-m2": ("MiniMaxM2ForCausalLM", dict(HEAD, num_local_experts=4, num_experts_per_tok=2, rotary_dim=8)),
    "ministral": ("MinistralForCausalLM", dict(HEAD, **SLIDING)),
    "ministral3": ("Ministral3ForCausalLM", dict(HEAD, rope_parameters={"type": "yarn", "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                   "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.1, "max_position_embeddings": 64})),
    "mistral": ("MistralForCausalLM", dict(HEAD, sliding_window=8)),
    "mistral3": ("Mistral3ForConditionalGeneration", dict(text_config=dict(HEAD, model_type="mistral", sliding_window=8, rope_parameters=dict(ROPE)),
                                                          vision_config=dict(PIXTRAL))),
    "mixtral": ("MixtralForCausalLM", dict(HEAD, num_local_experts=4, num_experts_per_tok=2)),
    "mpt": ("MptForCausalLM", dict(vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4, max_seq_len=POSITIONS, expansion_ratio=2)),
    "nanochat": ("NanoChatForCausalLM", BASE),
    "nemotron": ("NemotronForCausalLM", BASE),
    "olmo": ("OlmoForCausalLM", BASE),
    "olmo2": ("Olmo2ForCausalLM", BASE),
    "olmo3": ("Olmo3ForCausalLM", dict(BASE, **SLIDING)),
    "olmoe": ("OlmoeForCausalLM", dict(BASE, num_experts=4, num_experts_per_tok=2)),
    "phi": ("PhiForCausalLM", BASE),
    "phi3": ("Phi3ForCausalLM", dict(BASE, original_max_position_embeddings=POSITIONS)),
    "qwen2": ("Qwen2ForCausalLM", BASE),
    "qwen2-moe": ("Qwen2MoeForCausalLM", dict(BASE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16)),
    "qwen2-vl": ("Qwen2VLForConditionalGeneration", dict(text_config=dict(BASE, rope_parameters=dict(ROPE, mrope_section=[1, 1, 2])),
                                                         vision_config=dict(QWEN_VISION))),
    "qwen2_5-vl": ("Qwen2_5_VLForConditionalGeneration", dict(text_config=dict(BASE, rope_parameters=dict(ROPE, mrope_section=[1, 1, 2])),
                                                              vision_config=dict(QWEN_VISION))),
    "qwen3": ("Qwen3ForCausalLM", HEAD),
    "qwen3-moe": ("Qwen3MoeForCausalLM", dict(MOE, num_experts=4)),
    "qwen3-vl": ("Qwen3VLForConditionalGeneration", dict(text_config=dict(HEAD, rope_parameters=dict(MROPE)),
                                                         vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0]))),
    "qwen3-vl-moe": ("Qwen3VLMoeForConditionalGeneration", dict(text_config=dict(MOE, num_experts=4, rope_parameters=dict(MROPE)),
                                                                vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0]))),
    "seed-oss": ("SeedOssForCausalLM", HEAD),
    "smollm3": ("SmolLM3ForCausalLM", dict(BASE, num_hidden_layers=4, no_rope_layers=[1, 0, 1, 1])),
    "solar-open": ("SolarOpenForCausalLM", dict(MOE, n_routed_experts=4, n_shared_experts=1)),
    "stablelm": ("StableLmForCausalLM", BASE),
    "starcoder2": ("Starcoder2ForCausalLM", BASE),
    "step3p7": ("Step3p7ForConditionalGeneration", dict(text_config=dict(MOE, n_routed_experts=4, share_expert_dim=16, num_sliding_attention_heads=4,
                mlp_layer_types=["dense", "sparse", "sparse", "sparse"], **SLIDING, **LIMITS), vision_config=dict(VISION))),
    # Bases with an option switched on that others depend on.
    "cohere-qk-norm": ("CohereForCausalLM", dict(BASE, use_qk_norm=True, attention_bias=True)),
    "falcon-serial": ("FalconForCausalLM", dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=POSITIONS,
                                                multi_query=False, parallel_attn=False, bias=True)),
    "gemma4-k-eq-v": ("Gemma4ForCausalLM", dict(HEAD, global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0,
                                                num_kv_shared_layers=0, final_logit_softcapping=2.0, **SLIDING)),
    "gemma4-mm": ("Gemma4ForConditionalGeneration", dict(text_config=dict(HEAD, global_head_dim=16, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
                                                                          **SLIDING), vision_config=None, audio_config=None)),
    "gemma4-unified": ("Gemma4UnifiedForConditionalGeneration", dict(text_config=dict(HEAD, global_head_dim=16, **SLIDING), vision_config=None, audio_config=None)),
    "gpt2-inverse": ("GPT2LMHeadModel", dict(GPT, scale_attn_by_inverse_layer_idx=True, n_inner=48)),
    "gpt-bigcode-mha": ("GPTBigCodeForCausalLM", dict(GPT, multi_query=False)),
    "gpt-neox-serial": ("GPTNeoXForCausalLM", dict(BASE, use_parallel_residual=False, tie_word_embeddings=True)),
    "gpt-oss-yarn": ("GptOssForCausalLM", dict(HEAD, num_local_experts=4, num_experts_per_tok=2, **SLIDING)),
    "llama-tied": ("LlamaForCausalLM", dict(HEAD, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_parameters=dict(YARN))),
    "phi-qk-norm": ("PhiForCausalLM", dict(BASE, qk_layernorm=True, tie_word_embeddings=True)),
    "phi3-sliding": ("Phi3ForCausalLM", dict(BASE, original_max_position_embeddings=POSITIONS, sliding_window=8)),
    "qwen2-sliding": ("Qwen2ForCausalLM", dict(WINDOW, max_window_layers=1)),
    "qwen2-moe-sliding": ("Qwen2MoeForCausalLM", dict(WINDOW, max_window_layers=1, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                                      shared_expert_intermediate_size=16, decoder_sparse_step=2, norm_topk_prob=True)),
    "qwen3-sliding": ("Qwen3ForCausalLM", dict(WINDOW, head_dim=16, max_window_layers=1)),
    "qwen3-moe-sliding": ("Qwen3MoeForCausalLM", dict(WINDOW, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, mlp_only_layers=[1])),
    "smollm3-sliding": ("SmolLM3ForCausalLM", dict(WINDOW, no_rope_layers=[1, 0, 1])),
    "stablelm-parallel": ("StableLmForCausalLM", dict(BASE, use_parallel_residual=True, use_qkv_bias=True)),
    "starcoder2-sliding": ("Starcoder2ForCausalLM", dict(BASE, sliding_window=8)),
    "mixtral-sliding": ("MixtralForCausalLM", dict(HEAD, num_local_experts=4, num_experts_per_tok=2, sliding_window=8)),
}

ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2", "silu", "mish", "tanh", "sigmoid", "gelu_fast", "gelu_10",
               "leaky_relu", "linear"]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
# Options of the base class, or of others, that many model classes read from the configuration object without declaring them, and
# keys that an engine may wrongly carry over from one family to another.
FOREIGN = {
    "is_causal": False, "use_bidirectional_attention": True, "attention_chunk_size": 4, "per_layer_config": {"0": {"rms_norm_eps": 0.5}},
    "head_dim": 4, "num_key_value_heads": 1, "sliding_window": 4, "use_sliding_window": True, "layer_types": "sliding", "partial_rotary_factor": 0.5,
    "rotary_pct": 0.5, "rotary_dim": 4, "rope_theta": 300.0, "rotary_emb_base": 300.0, "rope_local_base_freq": 300.0, "attention_bias": True,
    "mlp_bias": True, "hidden_act": "relu", "hidden_activation": "relu", "activation_function": "relu", "rms_norm_eps": 0.3, "layer_norm_eps": 0.3,
    "layer_norm_epsilon": 0.3, "norm_eps": 0.3, "tie_word_embeddings": True, "logit_scale": 0.5, "logits_scaling": 3.0, "residual_multiplier": 0.5,
    "attention_multiplier": 0.7, "embedding_multiplier": 3.0, "final_logit_softcapping": 0.5, "attn_logit_softcapping": 0.5,
    "query_pre_attn_scalar": 4, "no_rope_layers": "alternating", "clip_qkv": 0.2, "use_qk_norm": True, "scale_attn_weights": False,
    "scale_attn_by_inverse_layer_idx": True, "norm_topk_prob": "flip", "routed_scaling_factor": 3.0, "use_parallel_residual": True,
    "qk_layernorm": True, "mlp_only_layers": [0], "moe_layer_freq": 2, "n_group": 2, "swiglu_limit": 0.3, "swiglu_alpha": 0.5, "alibi": True,
    "parallel_attn": False, "n_inner": 16, "intermediate_size": 16, "use_cache": False, "made_up_option": 3,
}
# Keys that say nothing about the computation; changing one must neither change logits nor be refused.
PLAIN = {"transformers_version": "4.0.0", "_name_or_path": "x", "dtype": "float16", "torch_dtype": "float16", "use_cache": False,
         "output_attentions": True, "output_hidden_states": True, "return_dict": True, "id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1},
         "problem_type": "regression", "is_encoder_decoder": False, "chunk_size_feed_forward": 3, "architectures": None, "model_type": None,
         "attn_implementation": "sdpa", "quantization_config": None, "auto_map": {}, "task_specific_params": {}, "is_decoder": True}


@dataclasses.dataclass
class Edit:
    label: str
    kind: str    # changed, left out, null, rope, foreign, alias, unknown, pair
    pairs: list  # [(dotted path, value or ABSENT)]

    def apply(self, config):
        config = copy.deepcopy(config)
        for path, value in self.pairs:
            *parents, key = path.split(".")
            at = config
            for parent in parents:
                at = at.setdefault(parent, {}) if isinstance(at.get(parent, {}), dict) else {}
            if isinstance(value, str) and value == ABSENT:
                at.pop(key, None)
            else:
                at[key] = copy.deepcopy(value)
        return config


def numbers(key, value, scope):
    """Other sensible values of a number."""
    heads = next((scope[k] for k in ("num_attention_heads", "n_head", "n_heads") if isinstance(scope.get(k), int)), 4)
    known = {"num_key_value_heads": [1, heads], "num_kv_heads": [1, heads], "kv_n_heads": [1, heads], "num_attention_heads": [2, 8], "n_head": [2, 8], "n_heads": [2, 8],
             "num_experts_per_tok": [1, 3], "moe_k": [1, 3], "top_k_experts": [1, 3], "moe_top_k": [1, 3], "vocab_size": [96], "sliding_window": [3, 1],
             "max_position_embeddings": [16, 128], "n_positions": [40, 128], "max_seq_len": [40, 128], "rope_theta": [300, 1000000.0],
             "partial_rotary_factor": [0.25, 1.0], "hidden_size": [64], "head_dim": [8, 32], "num_hidden_layers": [1, value + 1], "n_layer": [1, value + 1],
             "n_layers": [1, value + 1], "topk_group": [1, 2], "n_group": [1, 4], "original_max_position_embeddings": [16, 128], "query_pre_attn_scalar": [4, 100.5],
             "alibi_bias_max": [4], "max_window_layers": [0, 1, 2], "num_nextn_predict_layers": [1], "moe_layer_end_index": [1], "chunk_size_feed_forward": [3],
             "decoder_sparse_step": [2, 3], "no_rope_layer_interval": [2, 3], "global_attn_every_n_layers": [2, 3], "first_k_dense_replace": [0, 2],
             "num_shared_experts": [0, 2], "n_shared_experts": [2], "moe_normalize_expert_weights": [2.0, 1]}
    if key in known:
        return known[key]
    if isinstance(value, float) and 0 < value < 1e-3:
        return [0.3]  # an epsilon
    if isinstance(value, int):
        return [1, 2] if value == 0 else [value * 2, max(1, value // 2)]
    return [0.1, 1.0] if value == 0 else [value * 2, value / 2]


def lists(key, value, scope):
    if all(isinstance(x, str) for x in value) and value:
        swap = {"full_attention": "sliding_attention", "sliding_attention": "full_attention", "sparse": "dense", "dense": "sparse"}
        return [[swap.get(x, x) for x in value], [value[-1]] * len(value), list(reversed(value))]
    if all(isinstance(x, int) for x in value) and value:
        return [[1 - x for x in value]] if set(value) <= {0, 1} else [[x * 2 for x in value], list(reversed(value))]
    if all(isinstance(x, (int, float)) for x in value) and value:
        return [[0.3] * len(value), list(reversed(value)), [0.0] * len(value)]
    return [[0]] if not value else []


ABSENT_VALUES = {  # values of options that are null or absent in a base, by name
    "layer_types": lambda scope, n: [["sliding_attention", "full_attention"] * (n // 2) + ["full_attention"] * (n % 2)],
    "mlp_layer_types": lambda scope, n: [["dense"] + ["sparse"] * (n - 1)],
    "no_rope_layers": lambda scope, n: [[0, 1] * (n // 2) + [1] * (n % 2)],
    "mlp_only_layers": lambda scope, n: [[0]],
    "num_attention_heads_per_layer": lambda scope, n: [[8] * n],
    "swiglu_limits": lambda scope, n: [[0.5] * n],
    "swiglu_limits_shared": lambda scope, n: [[0.5] * n],
    "use_bidirectional_attention": lambda scope, n: [True, "all"],
    "sliding_window": lambda scope, n: [4], "clip_qkv": lambda scope, n: [0.2], "softmax_scale": lambda scope, n: [0.7], "logit_scale": lambda scope, n: [0.5, "inv_sqrt_d_model"],
    "final_logit_softcapping": lambda scope, n: [0.5], "attn_logit_softcapping": lambda scope, n: [0.5], "n_inner": lambda scope, n: [16],
    "ffn_hidden_size": lambda scope, n: [16], "head_dim": lambda scope, n: [4], "num_key_value_heads": lambda scope, n: [1], "num_kv_heads": lambda scope, n: [1],
    "num_ln_in_parallel_attn": lambda scope, n: [1, 2], "attention_multiplier": lambda scope, n: [0.7], "ffn_act_fn": lambda scope, n: [{"name": "gelu"}],
    "query_pre_attn_scalar": lambda scope, n: [4], "moe_jitter_eps": lambda scope, n: [0.1], "per_layer_config": lambda scope, n: [{"0": {"rms_norm_eps": 0.5}}],
    "num_global_key_value_heads": lambda scope, n: [1], "global_head_dim": lambda scope, n: [32], "num_sliding_attention_heads": lambda scope, n: [8],
}
TEXTS = {"gating": ["per-head", "per-element", False], "attn_type": ["multiquery_attention"], "norm_type": ["layernorm"], "logit_scale": [0.5, "inv_sqrt_d_model"],
         "init_device": ["meta"], "attn_impl": ["flash"], "summary_type": ["mean"], "use_bidirectional_attention": ["all", "vision"], "name": ["gelu", "relu"],
         "vision_feature_select_strategy": ["full"], "projector_hidden_act": ["relu"], "experts_implementation": ["eager"], "moe_router_activation_func": ["softmax"]}


def others(key, value, annotation, scope):
    """Values to try for an option that has `value`; `annotation` is its type in the config class, if that is known."""
    layers = next((scope[k] for k in ("num_hidden_layers", "n_layer", "n_layers") if isinstance(scope.get(k), int)), 2)
    if key in TEXTS and not (key == "logit_scale" and isinstance(value, float)):
        return [x for x in TEXTS[key] if x != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [x for x in numbers(key, value, scope) if x != value]
    if isinstance(value, str):
        return [a for a in ACTIVATIONS if a != value] if "act" in key else []
    if isinstance(value, list):
        return [x for x in lists(key, value, scope) if x != value]
    if value is None:
        if key in ABSENT_VALUES:
            return ABSENT_VALUES[key](scope, layers)
        if "bool" in annotation:
            return [True, False]
        if "float" in annotation:
            return [0.5]
        if "int" in annotation:
            return [2]
        if "str" in annotation and "act" in key:
            return ["relu"]
    return []


def rope_values(flat, at):
    """[(label, pairs)] of changes below one set of rope parameters at the path `at`."""
    half = 8
    longrope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0 + i / 8 for i in range(half)], "long_factor": [2.0 + i / 4 for i in range(half)],
                "original_max_position_embeddings": 16, "factor": 4.0}
    narrow = dict(longrope, short_factor=longrope["short_factor"][:4], long_factor=longrope["long_factor"][:4])
    keep = {k: v for k, v in flat.items() if k not in ("rope_type", "type", "factor", "original_max_position_embeddings")}
    typed = {
        "linear": {"rope_type": "linear", "factor": 4.0}, "linear,factor=8": {"rope_type": "linear", "factor": 8},
        "dynamic": {"rope_type": "dynamic", "factor": 4.0}, "yarn": YARN, "yarn,attention_factor": dict(YARN, attention_factor=0.7),
        "yarn,betas": dict(YARN, beta_fast=4.0, beta_slow=2.0), "yarn,mscale": dict(YARN, mscale=0.7, mscale_all_dim=0.3),
        "yarn,mscale only": dict(YARN, mscale=0.7), "yarn,mscale_all_dim only": dict(YARN, mscale_all_dim=0.3), "yarn,truncate": dict(YARN, truncate=False),
        "yarn,no original": {k: v for k, v in YARN.items() if k[0] != "o"}, "yarn,no factor": {k: v for k, v in YARN.items() if k != "factor"},
        "yarn,nulls": dict(YARN, attention_factor=None, beta_fast=None, beta_slow=None), "llama3": LLAMA3, "llama3,low=high": dict(LLAMA3, low_freq_factor=2.0),
        "longrope": longrope, "longrope,narrow": narrow, "longrope,attention_factor": dict(longrope, attention_factor=0.7),
        "longrope,narrow,attention_factor": dict(narrow, attention_factor=0.7), "longrope,no factor": {k: v for k, v in narrow.items() if k != "factor"},
        "longrope,original=64": dict(narrow, original_max_position_embeddings=64), "longrope,mscales": dict(narrow, short_mscale=1.3, long_mscale=0.8),
        "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.5}, "proportional,factor": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0},
        "unknown type": {"rope_type": "spiral", "factor": 4.0}, "type word of old": {"type": "linear", "factor": 4.0},
        "mrope word": {"rope_type": "default", "type": "mrope"}, "default with factor": {"rope_type": "default", "factor": 4.0}}
    found = [(f"{at}={label}", [(at, {**keep, **value, **({"rope_theta": flat["rope_theta"]} if "rope_theta" in flat else {})})]) for label, value in typed.items()]
    found += [(f"{at}.rope_theta={x}", [(at + ".rope_theta", x)]) for x in (300, 1000000.0)]
    found += [(f"{at}.partial_rotary_factor={x}", [(at + ".partial_rotary_factor", x)]) for x in (0.25, 0.5, 1.0)]
    for key in flat:
        found.append((f"{at}.{key} left out", [(f"{at}.{key}", ABSENT)]))
        found.append((f"{at}.{key}=null", [(f"{at}.{key}", None)]))
        if key not in ("rope_theta", "partial_rotary_factor", "rope_type", "type"):
            found += [(f"{at}.{key}={x}", [(f"{at}.{key}", x)]) for x in others(key, flat[key], "", flat)]
    found.append((f"{at}.made_up_rope_option=3", [(f"{at}.made_up_rope_option", 3)]))
    return found


def rope_edits(config, prefix):
    """Changes of the rotary embedding, in the newer and in the older way of writing it."""
    at = prefix + "rope_parameters"
    value = scope_of(config, prefix).get("rope_parameters")
    if not isinstance(value, dict):
        return []
    nested = {k: v for k, v in value.items() if isinstance(v, dict)}
    found = rope_values(value, at) if not nested else []
    for kind, flat in nested.items():
        found += rope_values(flat, f"{at}.{kind}")
        found.append((f"{at}.{kind} left out", [(f"{at}.{kind}", ABSENT)]))
    found += [(f"{at} left out", [(at, ABSENT)]), (f"{at}=null", [(at, None)]), (f"{at}={{}}", [(at, {})])]
    theta, scaling = prefix + "rope_theta", prefix + "rope_scaling"
    linear, old_yarn = {"type": "linear", "factor": 4.0}, {k: v for k, v in YARN.items() if k != "rope_theta"}
    gone = [(at, ABSENT)]
    old = {"rope_theta": [(theta, 300.0)], "rope_theta, rope_scaling=null": [(theta, 300.0), (scaling, None)], "rope_scaling=linear": [(scaling, linear)],
           "rope_theta, rope_scaling=yarn": [(theta, 300.0), (scaling, old_yarn)], "rope_scaling=dynamic": [(theta, 300.0), (scaling, {"type": "dynamic", "factor": 4.0})],
           "rope_scaling=llama3": [(theta, 300.0), (scaling, LLAMA3)], "partial_rotary_factor": [(theta, 300.0), (prefix + "partial_rotary_factor", 0.25)],
           "rotary_pct": [(prefix + "rotary_pct", 0.5), (prefix + "rotary_emb_base", 300.0)], "rotary_dim": [(prefix + "rotary_dim", 4)],
           "rope_local_base_freq": [(theta, 300.0), (prefix + "rope_local_base_freq", 50.0)], "rope_percent": [(prefix + "rope_percent", 0.5)]}
    found += [(f"old form: {label}", gone + pairs) for label, pairs in old.items()]
    found += [(f"beside rope_parameters: {label}", pairs) for label, pairs in old.items()]
    found.append(("rope_parameters of theta alone beside rope_scaling", [(at, {"rope_theta": 10000.0}), (scaling, old_yarn)]))
    found.append(("flat rope_parameters", [(at, dict(ROPE, rope_theta=300.0))]))
    found.append(("flat yarn rope_parameters", [(at, dict(YARN))]))
    return [Edit(label, "rope", pairs) for label, pairs in found]


def scope_of(config, prefix):
    for part in filter(None, prefix.split(".")):
        config = config[part]
    return config


def short(value):
    text = json.dumps(value)
    return text if len(text) < 60 else text[:57] + "…"


def option_edits(config, prefix, types, hidden):
    """Changes of single options of one config class: `types` its fields' annotations, `hidden` names that its code reads besides."""
    scope = scope_of(config, prefix)
    found = []
    skip = {"rope_parameters", "architectures", "model_type", "transformers_version", "dtype"}
    for key in sorted(set(scope) | set(types)):
        if key in skip or key.endswith("_config") and isinstance(scope.get(key), dict):
            continue
        value, path = scope.get(key), prefix + key
        if isinstance(value, dict) and key not in ("id2label", "label2id"):
            continue
        found += [Edit(f"{path}={short(x)}", "changed", [(path, x)]) for x in PLAIN.get(key, None) and [PLAIN[key]] or others(key, value, types.get(key, ""), scope)]
        if key in scope:
            found.append(Edit(f"{path} left out", "left out", [(path, ABSENT)]))
        if scope.get(key, 0) is not None:
            found.append(Edit(f"{path}=null", "null", [(path, None)]))
    layers = next((scope[k] for k in ("num_hidden_layers", "n_layer", "n_layers") if isinstance(scope.get(k), int)), 2)
    words = {"sliding": ["sliding_attention"] * layers, "alternating": [i % 2 for i in range(layers)]}
    for key in sorted(set(FOREIGN) | set(PLAIN) | hidden):
        if key in scope or key in types or key in skip:
            continue
        value = FOREIGN.get(key, PLAIN.get(key, ABSENT))
        values = ([words.get(value, value)] if isinstance(value, str) else [True] if value == "flip" else [value]) if value != ABSENT else []
        if not values:
            values = others(key, None, "bool int", scope)
        found += [Edit(f"{prefix + key}={short(x)}", "foreign", [(prefix + key, x)]) for x in values]
    found.append(Edit(f"{prefix}made_up_option=3", "unknown", [(prefix + "made_up_option", 3)]))
    return found


def alias_edits(prefix, scope, aliases):
    """A key under the other name that the class takes for it (attribute_map), alone and beside the first."""
    found = []
    for alias, real in sorted(aliases.items()):
        if real not in scope or alias in scope or scope[real] is None:
            continue
        found.append(Edit(f"{prefix}{real} as {alias}", "alias", [(prefix + real, ABSENT), (prefix + alias, scope[real])]))
        for other in others(real, scope[real], "", scope)[:1]:
            found.append(Edit(f"{prefix}{alias}={short(other)} beside {real}", "alias", [(prefix + alias, other)]))
    return found


def names_read(source):
    """Attributes of a configuration that source text reads, by any of the usual ways."""
    found = set(re.findall(r"getattr\(\s*(?:self\.)?(?:text_)?config,\s*\"(\w+)\"", source))
    found |= set(re.findall(r"kwargs\.(?:pop|get)\(\s*\"(\w+)\"", source))
    return {name for name in found if not name.startswith("_") and name not in ("rope_scaling", "rope_theta", "name_or_path", "torch_dtype")}
