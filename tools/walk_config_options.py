#!/usr/bin/env python3
"""Walks over the options of every supported model class of transformers and compares bitloom with it.

Usage: tools/walk_config_options.py oracle OUT [CLASS…] [--pairs N] [--share X] [--seed TEXT]   (torch, transformers==5.24.*, safetensors)
       tools/walk_config_options.py check OUT [CLASS…] [--bitloom PATH] [--all]                 (numpy, safetensors)
       tools/walk_config_options.py goldens OUT --archive FILE.tar.xz [--share X]                (numpy)

`oracle` starts from a tiny configuration of each class (config_option_values.py), changes one option at a time, leaves each one
out, sets it to null, and changes a seeded sample of pairs. Each config.json is written to a folder with weights and read back with
AutoConfig and from_pretrained; OUT/CLASS.json and OUT/CLASS.npz keep what was changed and the fp32 logits of transformers.
`check` makes the folders again, runs `bitloom logits --backend ref` on each and prints a table. `goldens` packs a part of it for
tests/model/config_options_test.cc.

Weights are a function of a tensor's name, its index, a scale and a shift (tensor_values below, and again in the C++ test), so
that neither OUT nor the archive holds any. A model of a changed configuration has the tensors that transformers saves for it.
Where these are others than the base's, `kept` cases try the changed configuration with the base's file as well, as it is when
somebody edits a config.json.
"""
import argparse
import collections
import io
import json
import lzma
import math
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import config_option_values as options  # noqa: E402

LENGTH, LARGEST = 32, 3_000_000   # tokens of the prompt; parameters of the largest model that is tried
# Of the standard deviation of the logits. transformers in fp32 strays from itself in fp64 by up to 1.6e-4 (heads of 256 that are
# not scaled); the smallest fault that was found so far made 4.8e-3.
EFFECT, TOLERANCE = 2e-5, 5e-4
IDS = [(i * i * 7 + i * 13 + 5) % (options.VOCAB - 3) + 3 for i in range(LENGTH)]
TOWERS = re.compile("vision|visual|vit_|projector|merger|audio|mm_")  # only the text model is tried
# Kinds of which --share takes a seeded part.
SAMPLED = ("rope", "foreign")
# What the archive of goldens holds: kinds of cases, and the positions whose logits are kept.
GOLDEN_KINDS = ("base", "changed", "left out", "null", "rope", "foreign", "alias", "pair")
GOLDEN_ROWS = (11, LENGTH - 1)


def tensor_values(name, spec):
    """Float32 values of a tensor: shift + scale · u, with u uniform in [-1, 1) from splitmix64 seeded by FNV-1a of the name."""
    shape, scale, shift = spec
    seed = np.uint64(0xCBF29CE484222325)
    with np.errstate(over="ignore"):
        for byte in name.encode():
            seed = (seed ^ np.uint64(byte)) * np.uint64(0x100000001B3)
        z = seed + np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    u = (z >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0
    return (shift + scale * u).astype(np.float32).reshape(shape)


def spec_of(name, array):
    """Scale and shift for a tensor. Outputs of layers and embeddings are small, so that the epsilon of a norm matters."""
    shape = list(array.shape)
    if name.endswith(("beta", ".eps")):  # constants of an activation
        return [shape, 0.0, float(array.flat[0])]
    if len(shape) < 2 or "bias" in name or "per_expert_scale" in name:
        shift = -1.0 if "correction_bias" in name else 0.0 if "bias" in name or "sink" in name else 8.0 if name.endswith("router.scale") else 1.0
        return [shape, 0.3, shift]
    if re.search(r"embed|wte|wpe|lm_head", name):
        return [shape, 0.02, 0.0]
    small = 0.1 if re.search(r"(o_proj|down_proj|out_proj|c_proj|attention\.dense|dense_4h_to_h|fc2|w2|output_linear)\b", name) else 1.0
    return [shape, float(f"{small * math.sqrt(3.0 / shape[-1]):.5g}"), 0.0]


class Refused(Exception):
    """The oracle does not take a configuration."""


class Oracle:
    def __init__(self, name, work):
        import torch
        import transformers
        self.torch, self.transformers, self.work, self.name = torch, transformers, work, name
        class_name, keywords = options.BASES[name]
        self.model_class = getattr(transformers, class_name)
        self.config_class = self.model_class.config_class
        config = self.config_class(**json.loads(json.dumps(keywords)))
        config.architectures = [class_name]
        config.save_pretrained(work)
        self.base = json.loads((work / "config.json").read_text())
        if self.base.get("dtype"):
            self.base["dtype"] = "float32"
        self.seen = {}

    def sources(self):
        """The text of the class's modeling and configuration files, and of the shared ones that read options."""
        module = sys.modules[self.model_class.__module__]
        folder = pathlib.Path(module.__file__).parent
        shared = pathlib.Path(self.transformers.__file__).parent
        return "".join(p.read_text() for p in [*folder.glob("modeling_*.py"), *folder.glob("configuration_*.py"), shared / "masking_utils.py"])

    def edits(self):
        hidden = options.names_read(self.sources())
        found = []
        for prefix, config_class in self.scopes():
            types = {k: str(v) for c in reversed(config_class.__mro__) for k, v in getattr(c, "__annotations__", {}).items()
                     if "ClassVar" not in str(v) and not k.startswith("_")}
            found += options.option_edits(self.base, prefix, types, hidden if prefix in ("", "text_config.") else set())
            found += options.rope_edits(self.base, prefix)
            found += options.alias_edits(prefix, options.scope_of(self.base, prefix), getattr(config_class, "attribute_map", {}))
        return found

    def scopes(self):
        scopes = [("", self.config_class)]
        for key, value in self.base.items():
            if isinstance(value, dict) and key in ("text_config", "attn_config", "ffn_config"):
                scopes.append((key + ".", type(getattr(self.config_class(**json.loads(json.dumps(self.base))), key))))
        if "ffn_config" in self.base and isinstance(self.base["ffn_config"].get("ffn_act_fn"), dict):
            scopes.append(("ffn_config.ffn_act_fn.", object))
        return scopes

    def tensors_of(self, config):
        """{name: spec} of the file that transformers saves for a model of this configuration."""
        with self.torch.device("meta"):
            outline = self.model_class(config)
        state = {k: tuple(v.shape) for k, v in outline.state_dict().items()}
        count = sum(math.prod(s) for k, s in state.items() if not TOWERS.search(k))
        if count > LARGEST:
            raise Refused(f"too large to try ({count} parameters)")
        key = (tuple(state.items()), repr(sorted((outline.all_tied_weights_keys or {}).items())))
        if key not in self.seen:
            folder = self.work / "saved"
            shutil.rmtree(folder, ignore_errors=True)
            self.model_class(config).save_pretrained(folder)
            stored = load_file(folder / "model.safetensors")
            self.seen[key] = {k: spec_of(k, v) for k, v in stored.items() if v.size and not TOWERS.search(k)}
        return self.seen[key]

    def logits(self, config, tensors):
        folder = self.work / "model"
        write_model(folder, json.loads((folder / "config.json").read_text()), tensors)
        model, info = self.model_class.from_pretrained(folder, config=config, dtype=self.torch.float32, attn_implementation="eager", output_loading_info=True)
        missing = [k for k in info["missing_keys"] if not TOWERS.search(k)]
        if missing or info["mismatched_keys"]:
            raise Refused(f"tensors are missing: {missing[:3]} {list(info['mismatched_keys'])[:3]}")
        result = model.eval()(input_ids=self.torch.tensor([IDS])).logits[0].float().numpy()
        if not np.isfinite(result).all():
            raise Refused("logits that are not finite")
        return result

    def run(self, edit, kept=None):
        """({name: spec}, logits) of an edited configuration; `kept` takes the base's tensors instead of the edited ones."""
        config_json = edit.apply(self.base)
        folder = self.work / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config_json, indent=1))
        try:
            with self.torch.no_grad():
                config = self.transformers.AutoConfig.from_pretrained(folder)
                tensors = kept or self.tensors_of(config)
                return tensors, self.logits(config, tensors)
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {str(error)[:300]}") from None


def write_model(folder, config, tensors, cache={}):
    """A model folder. Files of the same tensors are made once."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    key = json.dumps(tensors, sort_keys=True)
    if cache.get("key") != (str(folder), key):
        cache["key"] = (str(folder), key)
        (folder / "model.safetensors").unlink(missing_ok=True)
        save_file({k: tensor_values(k, s) for k, s in tensors.items()}, folder / "model.safetensors", {"format": "pt"})


def difference(a, b):
    """The largest difference over the deviation of b."""
    return float(np.abs(a - b).max() / max(b.std(), 1e-12))


def changed_tensors(tensors, base):
    return {**{k: v for k, v in tensors.items() if base.get(k) != v}, **{k: None for k in base if k not in tensors}}


def with_changes(base, changes):
    merged = {**base, **changes}
    return {k: v for k, v in merged.items() if v is not None}


def pairs_of(name, edits, count, seed):
    """A seeded sample of pairs of edits that touch different options and of which one at least has an effect."""
    chooser = random.Random(f"{name} {seed}")
    found, tried = {}, 0
    while len(found) < count and tried < 50 * count and len(edits) > 3:
        tried += 1
        (a, effect_a), (b, effect_b) = chooser.sample(edits, 2)
        paths = [[p for p, _ in e.pairs] for e in (a, b)]
        apart = not any(x == y or x.startswith(y + ".") or y.startswith(x + ".") for x in paths[0] for y in paths[1])
        label = " & ".join(sorted((a.label, b.label)))
        if apart and (effect_a or effect_b) and label not in found:
            found[label] = options.Edit(label, "pair", a.pairs + b.pairs)
    return list(found.values())


def walk(oracle, args):
    """(record of the class, logits of its cases)."""
    torch_base = options.Edit("as it is", "base", [])
    base_tensors, base_logits = oracle.run(torch_base)
    record = {"class": oracle.model_class.__name__, "config": oracle.base, "tensors": base_tensors, "ids": IDS, "cases": []}
    rows, good = [], []

    def add(edit, kept=None):
        case = {"label": edit.label, "kind": edit.kind, "pairs": edit.pairs}
        try:
            tensors, logits = oracle.run(edit, kept)
            case["tensors"] = {} if kept else changed_tensors(tensors, base_tensors)
            case["effect"] = logits.shape != base_logits.shape or difference(logits, base_logits) > EFFECT
            case["row"] = len(rows)
            rows.append(logits)
            if edit.kind not in ("pair", "unknown", "base"):
                good.append((edit, case["effect"]))
        except Refused as error:
            case["refused"] = str(error)
        record["cases"].append(case)
        return case

    add(torch_base)
    chooser = random.Random(f"{oracle.name} {args.seed}")
    for edit in oracle.edits():
        if edit.kind in SAMPLED and not chooser.random() < args.share:
            continue
        if edit.kind == "changed" and str(edit.pairs[0][1]) in options.ACTIVATIONS and not chooser.random() < max(args.share, 0.4):
            continue
        case = add(edit)
        changes = case.get("tensors") or {}
        if changes and all(spec is None for spec in changes.values()) and edit.kind in ("changed", "left out", "null"):
            add(options.Edit(edit.label + " (kept)", "kept", edit.pairs), base_tensors)
    for edit in pairs_of(oracle.name, good, args.pairs, args.seed):
        add(edit)
    return record, rows


def run_oracle(args):
    import torch
    import transformers
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or options.BASES:
        with tempfile.TemporaryDirectory() as work:
            try:
                record, rows = walk(Oracle(name, pathlib.Path(work)), args)
            except Exception as error:
                print(name, "FAILED", type(error).__name__, str(error)[:400], flush=True)
                continue
        np.savez(args.out / f"{name}.npz", **{str(i): row for i, row in enumerate(rows)})
        record["transformers"] = transformers.__version__
        (args.out / f"{name}.json").write_text(json.dumps(record))
        print(name, len(record["cases"]), "cases,", len(rows), "computed by transformers", flush=True)
    return 0


class Bitloom:
    def __init__(self, program, work):
        self.program, self.folder = program, work
        (work / "ids.json").write_text(json.dumps(IDS))

    def run(self, config, tensors):
        """(exit status, standard error, logits or None)"""
        write_model(self.folder / "model", config, tensors)
        out = self.folder / "out.safetensors"
        out.unlink(missing_ok=True)
        done = subprocess.run([self.program, "logits", "-m", self.folder / "model", "--ids", self.folder / "ids.json", "-o", out, "--backend", "ref", "--threads", "1"],
                              capture_output=True, text=True)
        return done.returncode, done.stderr, next(iter(load_file(out).values())) if done.returncode == 0 else None


def names_key(case, text):
    """Whether a message has, as a word of its own, an option that a case changes, or the value that it is given."""
    words = set()
    for path, value in case["pairs"]:
        words.add(path.split(".")[-1])
        for part in (value, *value.values()) if isinstance(value, dict) else (value,):
            words |= {part} if isinstance(part, str) and part != options.ABSENT else set()
        words |= set(value) if isinstance(value, dict) else set()
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for word in words)


def judge(case, expected, status, text, logits):
    """(verdict, largest difference relative to the deviation)"""
    if status not in (0, 1):
        return "crash", None
    named = names_key(case, text)
    if expected is None:
        return ("oracle failed, ran" if status == 0 else "oracle failed, refused"), None
    if status == 1:
        if not case["effect"]:
            return "no effect but refused", None
        return ("refused by name" if named else "refused otherwise"), None
    gap = difference(logits.reshape(expected.shape), expected) if logits.size == expected.size else math.inf
    if gap <= TOLERANCE:
        if case["kind"] == "unknown" or ".made_up" in case["label"]:
            return ("unknown key named" if named else "UNKNOWN KEY NOT NAMED"), gap
        declared = case["kind"] in ("base", "changed", "left out", "null")
        return ("same, but a declared key is named" if declared and named else "same"), gap
    return ("difference, named in a warning" if named else "SILENT DIFFERENCE"), gap


VERDICTS = ["same", "same, but a declared key is named", "refused by name", "refused otherwise", "SILENT DIFFERENCE", "difference, named in a warning", "crash", "no effect but refused",
            "oracle failed, refused", "oracle failed, ran", "unknown key named", "UNKNOWN KEY NOT NAMED"]


def run_check(args):
    total, refused, effective = collections.Counter(), 0, 0
    kinds = collections.Counter()
    for i, verdict in enumerate(VERDICTS):
        print(f"{chr(65 + i)}: {verdict}")
    print("class".ljust(20) + " ".join(chr(65 + i).rjust(6) for i in range(len(VERDICTS))))
    lines = []
    for file in sorted(args.out.glob("*.json")):
        name = file.stem
        if args.names and name not in args.names or file.name.startswith("results"):
            continue
        record, logits = json.loads(file.read_text()), np.load(args.out / f"{name}.npz")
        counts = collections.Counter()
        with tempfile.TemporaryDirectory() as work:
            bitloom = Bitloom(args.bitloom, pathlib.Path(work))
            for case in record["cases"]:
                expected = logits[str(case["row"])] if "row" in case else None
                if expected is None and not args.all:
                    continue
                config = options.Edit(case["label"], case["kind"], case["pairs"]).apply(record["config"])
                status, text, own = bitloom.run(config, with_changes(record["tensors"], case.get("tensors", {})))
                verdict, gap = judge(case, expected, status, text, own)
                counts[verdict] += 1
                kinds[case["kind"], verdict] += 1
                if case["kind"] not in ("pair", "kept", "unknown", "base") and case.get("effect"):
                    effective += 1
                    refused += status != 0
                if verdict not in ("same", "unknown key named"):
                    lines.append({"class": name, "label": case["label"], "kind": case["kind"], "verdict": verdict, "difference": gap,
                                  "effect": case.get("effect"), "message": text.strip()[-300:]})
        total += counts
        print(name.ljust(20) + " ".join(str(counts[v]).rjust(6) for v in VERDICTS), flush=True)
    print("total".ljust(20) + " ".join(str(total[v]).rjust(6) for v in VERDICTS))
    print(f"single options with effect: {effective}, of these refused: {refused} ({100 * refused / max(effective, 1):.1f} %)")
    for (kind, verdict), count in sorted(kinds.items()):
        print(f"  {kind:10} {verdict:32} {count}")
    (args.report or args.out / "results.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return 1 if total["SILENT DIFFERENCE"] or total["crash"] or total["UNKNOWN KEY NOT NAMED"] else 0


def chosen(record, logits, columns, seed, share):
    """The cases of one class that go into the archive, with few of their logits."""
    chooser, found = random.Random(f"{record['class']} goldens {seed}"), []
    for case in record["cases"]:
        # Keys without an effect are worth a few cases, too: an engine may read a key that the class does not have.
        part = share if case.get("effect") else share / 8 if case["kind"] in ("foreign", "rope", "alias") else 0.0
        if "row" not in case or case["kind"] not in GOLDEN_KINDS or not (case["kind"] == "base" or chooser.random() < part):
            continue
        all_of_it = logits[str(case["row"])]
        values = [float(f"{all_of_it[r, c]:.6g}") for r in GOLDEN_ROWS for c in columns]
        changes = [[path, {"absent": True} if value == options.ABSENT else value] for path, value in case["pairs"]]
        entry = {"label": case["label"], "changes": changes, "std": float(f"{all_of_it.std():.4g}"), "logits": values}
        if case.get("tensors"):
            entry["tensors"] = case["tensors"]
        found.append(entry)
    return found


def run_goldens(args):
    """An archive of the same bytes for the same OUT: sorted names, no times, no owners."""
    columns = list(range(0, options.VOCAB, 8))
    raw = io.BytesIO()
    cases = 0
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(args.out.glob("*.json")):
            record, logits = json.loads(file.read_text()), np.load(file.with_suffix(".npz"))
            entries = chosen(record, logits, columns, args.seed, args.share)
            cases += len(entries)
            content = {"class": record["class"], "transformers": record["transformers"], "ids": record["ids"], "rows": list(GOLDEN_ROWS), "columns": columns,
                       "config": record["config"], "tensors": record["tensors"], "cases": entries}
            data = json.dumps(content, separators=(",", ":")).encode()
            info = tarfile.TarInfo(f"config-options/{file.name}")
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    args.archive.write_bytes(lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    print(cases, "cases,", args.archive.stat().st_size, "bytes")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["oracle", "check", "goldens"])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--pairs", type=int, default=30, help="pairs of each class")
    parser.add_argument("--share", type=float, default=1.0, help="part of the rope and foreign options that is tried")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--bitloom", default="build/release/bin/bitloom")
    parser.add_argument("--all", action="store_true", help="also run what transformers refuses")
    parser.add_argument("--archive", type=pathlib.Path, help="the archive of goldens to write")
    parser.add_argument("--report", type=pathlib.Path, help="where the list of all cases that are not the same goes")
    args = parser.parse_args()
    return {"oracle": run_oracle, "check": run_check, "goldens": run_goldens}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
