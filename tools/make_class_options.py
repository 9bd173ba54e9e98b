#!/usr/bin/env python3
"""Writes archs/class-options.json: which options transformers' config classes have, and what an absent one means.

Usage: tools/make_class_options.py   (needs transformers==5.24.0, no torch; run from the repository's root)

The file has one entry for each architecture that some archs/*.json matches and transformers knows:
  "defaults"  option -> value of a config.json without it (null: none). Options of a nested config have dotted names.
  "aliases"   other name of an option -> its name (transformers' attribute_map).
A composite model whose text model may be of several kinds has "text" instead: model_type -> such an entry.
Options that are without effect for every architecture (archs/common-keys.json) are left out.
"""
import dataclasses
import fnmatch
import importlib
import json
import pathlib
import sys

import transformers
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VERSION = "5.24.0"
# The kinds of text model that an architecture file describes, where transformers allows any.
TEXT_KINDS = {
    "LlavaForConditionalGeneration": ["llama", "mistral", "ministral3"],
    "Mistral3ForConditionalGeneration": ["mistral", "ministral3", "llama"],
    "HyperCLOVAXVisionV2ForConditionalGeneration": ["hyperclovax"],
}


def config_classes():
    """Class of model -> its config class. Where several name it, the one of its own name counts."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    found = {}
    for name in dir(auto):
        if name.endswith("MAPPING_NAMES"):
            for kind, classes in getattr(auto, name).items():
                for one in classes if isinstance(classes, (tuple, list)) else [classes]:
                    found.setdefault(one, []).append(kind)
    return {one: min((CONFIG_MAPPING[kind] for kind in kinds), key=lambda c: not one.startswith(c.__name__[:-len("Config")]))
            for one, kinds in found.items() if all(kind in CONFIG_MAPPING for kind in kinds)}


def own_default(field):
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def nested_defaults(config, name, value):
    """Options of a nested config such as attn_config, which is None or a class of its own."""
    made = vars(config).get(name)
    if not isinstance(made, PreTrainedConfig):
        return {name: value}
    inherited = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    fields = {f.name: own_default(f) for f in dataclasses.fields(made) if f.name not in inherited}
    return {f"{name}.{key}": v for key, v in fields.items()}


def rope_parameters_of(config):
    """The filled parameters, one dict for each type of layer, or one under ""."""
    parameters = vars(config).get("rope_parameters") or {}
    nested = {k: v for k, v in parameters.items() if isinstance(v, dict)}
    return nested or {"": parameters}


def rope_defaults(config_class, config):
    """What absent rope parameters mean. Only the filled `rope_parameters` say it, less what comes from keys beside them."""
    result = {}
    if isinstance(config.default_theta, (int, float)) and "rope_parameters" in vars(config):
        result["rope_theta"] = config.default_theta
    if not vars(config).get("rope_parameters"):
        return result
    probe = dict(rope_theta=54321.0, rope_local_base_freq=4321.0, rotary_emb_base=54321.0, partial_rotary_factor=0.375, rotary_pct=0.375)
    beside = rope_parameters_of(config_class(**probe))
    own = {kind: {k: v for k, v in parameters.items() if beside[kind].get(k) == v}
           for kind, parameters in rope_parameters_of(config).items()}
    # A class with `rotary_dim` computes the share from it.
    if "partial_rotary_factor" in config.rope_parameters and "rotary_dim" not in vars(config):
        result["partial_rotary_factor"] = config.rope_parameters["partial_rotary_factor"]
    if any(set(parameters) - {"rope_type", "partial_rotary_factor"} for parameters in own.values()):
        result["rope_parameters"] = own.get("", own)
    return result


def options_of(config_class, ignored):
    try:
        config = config_class()
    except Exception:  # a class that cannot be made without its sub-models
        config = None
    defaults = {}
    for field in dataclasses.fields(config_class):
        if field.name == "rope_parameters":
            continue
        value = own_default(field)
        defaults.update(nested_defaults(config, field.name, value) if config is not None else {field.name: value})
    if config is not None:
        defaults.update(rope_defaults(config_class, config))
    kept = {k: v for k, v in defaults.items() if not any(fnmatch.fnmatchcase(k, p) for p in ignored)}
    entry = {"defaults": dict(sorted(kept.items()))}
    # Another name that is an option itself is overwritten by the one that it stands for.
    aliases = {k: v for k, v in config_class.attribute_map.items() if v in kept and k not in defaults}
    if aliases:
        entry["aliases"] = aliases
    return entry


def entry_of(architecture, config_class, ignored):
    spec = config_class.sub_configs_defaults.get("text_config")
    if spec is None:
        return options_of(config_class, ignored)
    kinds = TEXT_KINDS.get(architecture)
    if kinds:
        return {"text_kind": spec.model_type, "text": {kind: options_of(CONFIG_MAPPING[kind], ignored) for kind in kinds}}
    return options_of(spec.config_class, ignored)


def main():
    if transformers.__version__ != VERSION:
        sys.exit(f"transformers {transformers.__version__} is installed, must be {VERSION}")
    transformers.utils.logging.set_verbosity_error()
    archs = pathlib.Path("archs")
    common = json.loads((archs / "common-keys.json").read_text())
    ignored = [key for keys in common["without_effect"].values() for key in keys]
    classes = config_classes()
    result = {}
    for path in sorted(archs.glob("*.json")):
        for architecture in json.loads(path.read_text()).get("match", []):
            if architecture in classes:
                result[architecture] = entry_of(architecture, classes[architecture], ignored)
    lines = [f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(result.items())]
    (archs / "class-options.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(result)} architectures")


if __name__ == "__main__":
    main()
