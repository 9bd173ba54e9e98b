"""A model that a browser can chat with, made of the tiny one in tests/data: a tokenizer of single bytes and a chat template."""
import json
import pathlib
import tarfile

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
# These bytes are in no UTF-8 text, so their ids are free for the tokens that end turns.
SPECIAL = {248: "<s>", 249: "</s>", 250: "<|user|>", 251: "<|bot|>"}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}<|user|>{{ m.content }}{% else %}<|bot|>{{ m.content }}</s>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}")


def byte_names():
    """The printable stand-ins of bytes in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable}
    names.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return names


def write_tokenizer(folder):
    vocab = {SPECIAL.get(byte, name): byte for byte, name in byte_names().items()}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": id, "content": text, "special": True, **flags} for id, text in SPECIAL.items()],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": vocab, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "chat_template": TEMPLATE}))


def unpack(archive, prefix, folder):
    """Unpacks the files of one folder of an archive of tests/data."""
    folder.mkdir(parents=True)
    with tarfile.open(DATA / archive) as tar:
        for member in tar:
            if member.isfile() and member.name.startswith(prefix):
                (folder / pathlib.PurePath(member.name).name).write_bytes(tar.extractfile(member).read())


def make_model(folder):
    unpack("hf-tiny.tar.xz", "hf-tiny/llama/", folder)
    config = json.loads((folder / "config.json").read_text())
    config.update(max_position_embeddings=32768, bos_token_id=248, eos_token_id=249, pad_token_id=None)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder)


def make_adapter(folder):
    unpack("lora-llama.tar.xz", "lora-llama/attn-r8/", folder)
