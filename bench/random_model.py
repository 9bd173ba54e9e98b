"""Writes a model folder with random weights in a shape of archs/bench/shapes.json, to measure loading and
peers (bitloom itself needs no file: `bench --random`). Speed does not depend on the values.

usage: python3 bench/random_model.py FOLDER SHAPE (exl2 BITS | gptq)
BITS: a mix of shapes.json, "4", or with what converters favour, "4+" (see `bitloom bench --help`).
"""

import json
import sys
from pathlib import Path

import numpy
from safetensors.numpy import save_file

TABLE = Path(__file__).resolve().parent.parent / "archs/bench/shapes.json"
BLOCKS_A_FILE = 16
SCALE_MAX = numpy.float16(0.02)
GPTQ_SCALE = numpy.float16(0.002)


class Writer:
    """Tensors on their way into numbered files."""

    def __init__(self, folder):
        self.folder, self.tensors, self.files = folder, {}, {}
        self.random = numpy.random.default_rng(1)
        self.orders = {}

    def codes(self, name, *shape):
        self.tensors[name] = numpy.frombuffer(self.random.bytes(4 * shape[0] * shape[1]),
                                              numpy.int32).reshape(shape)

    def normal(self, name, rows, columns):
        self.tensors[name] = (self.random.standard_normal((rows, columns), numpy.float32)
                              * 0.02).astype(numpy.float16)

    def ones(self, name, size):
        self.tensors[name] = numpy.ones(size, numpy.float16)

    def order(self, name, inputs):
        """Of a matrix's channels: one for all matrices of a module and width, as `bitloom bench --random` has it."""
        key = (name.rpartition(".")[0], inputs)
        if key not in self.orders:
            self.orders[key] = self.random.permutation(inputs).astype(numpy.int32)
        return self.orders[key]

    def flush(self):
        if not self.tensors:
            return
        file = f"model-{len(set(self.files.values())):05d}.safetensors"
        save_file(self.tensors, self.folder / file, metadata={"format": "pt"})
        self.files.update(dict.fromkeys(self.tensors, file))
        self.tensors = {}

    def finish(self):
        self.flush()
        (self.folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": self.files}))


def groups_of(inputs, mix):
    """(bits, rows) of each group; the last share takes what is left."""
    left = inputs
    for i, part in enumerate(mix):
        size = part["group"]
        rows = left if i + 1 == len(mix) else int(inputs * part["share"]) // size * size
        left -= rows
        for at in range(0, rows, size):
            yield part["bits"], min(size, rows - at)


def add_exl2(to, name, inputs, outputs, mix):
    groups, words = [], 0
    for bits, rows in groups_of(inputs, mix):
        groups += [bits, words]
        words += rows * bits // 32
    count = len(groups) // 2
    to.codes(name + ".q_weight", words, outputs)
    to.codes(name + ".q_scale", count, outputs // 8)
    to.tensors[name + ".q_scale_max"] = numpy.full(count, SCALE_MAX)
    to.tensors[name + ".q_groups"] = numpy.array(groups, numpy.int16)
    to.tensors[name + ".q_invperm"] = to.order(name, inputs)


def add_gptq(to, name, inputs, outputs, group=128):
    to.codes(name + ".qweight", inputs // 8, outputs)
    to.tensors[name + ".qzeros"] = numpy.full((inputs // group, outputs // 8), 0x77777777, numpy.int32)
    to.tensors[name + ".scales"] = numpy.full((inputs // group, outputs), GPTQ_SCALE)


def write(folder, shape, bits):
    """bits: of EXL2, such as "4" or "4+"; None: GPTQ, 4 bits, groups of 128."""
    table = json.loads(TABLE.read_text())
    size = table["shapes"][shape]
    if bits:
        base = bits.removesuffix("+")
        mix = table["mixes"][base]
        favoured = table["favoured"]
        wider = [{**mix[0], "share": mix[0]["share"] * favoured["first_share"]}, *mix[1:]]
        suffixes = ("v_proj", "up_proj") if base != bits else ()
        quantization = {"quant_method": "exl2", "version": "0.3.2", "bits": float(base), "head_bits": 6}
        def linear(name, inputs, outputs):
            add_exl2(to, name, inputs, outputs, wider if name.endswith(suffixes) else mix)
    else:
        quantization = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
        def linear(name, inputs, outputs):
            add_gptq(to, name, inputs, outputs)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(
        {**table["config"], **size, "torch_dtype": "float16", "quantization_config": quantization}, indent=1))
    to = Writer(folder)
    hidden, inner, vocabulary = size["hidden_size"], size["intermediate_size"], size["vocab_size"]
    keys = hidden // size["num_attention_heads"] * size["num_key_value_heads"]
    to.normal("model.embed_tokens.weight", vocabulary, hidden)
    to.ones("model.norm.weight", hidden)
    if bits:
        add_exl2(to, "lm_head", hidden, vocabulary, table["head"])
    else:
        to.normal("lm_head.weight", vocabulary, hidden)
    for block in range(size["num_hidden_layers"]):
        at = f"model.layers.{block}."
        for name, outputs in (("q", hidden), ("k", keys), ("v", keys), ("o", hidden)):
            linear(f"{at}self_attn.{name}_proj", hidden, outputs)
        linear(at + "mlp.gate_proj", hidden, inner)
        linear(at + "mlp.up_proj", hidden, inner)
        linear(at + "mlp.down_proj", inner, hidden)
        to.ones(at + "input_layernorm.weight", hidden)
        to.ones(at + "post_attention_layernorm.weight", hidden)
        if block % BLOCKS_A_FILE == BLOCKS_A_FILE - 1:
            to.flush()
    to.finish()


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5) or sys.argv[3] not in ("exl2", "gptq") or \
            (sys.argv[3] == "exl2") != (len(sys.argv) == 5):
        sys.exit(__doc__)
    write(Path(sys.argv[1]), sys.argv[2], sys.argv[4] if sys.argv[3] == "exl2" else None)
