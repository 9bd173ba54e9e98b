"""The packages of peers and what they import, pinned: comparisons with them fetch them once and run without a network."""

import os
import tempfile
import zipfile
from pathlib import Path

from peer_runs import ROOT, run

EXLLAMAV2 = "0.3.2"
PACKAGES = [  # name, version, SHA-256 of its wheel
    ("exllamav2", EXLLAMAV2, "7cd61ae4bf1d8d12034595ab9731f0f43bac415d6394fbb273d4383293d6079e"),
    ("rich", "15.0.0", "33bd4ef74232fb73fe9279a257718407f169c09b78a87ad3d296f548e27de0bb"),
    ("pygments", "2.21.0", "2363c69b61c4a97c838da3b130dcd6468f4848992b21a82f2a63ec34377137d9"),
    ("markdown_it_py", "4.3.0", "7aa1511a46c39138de78d9eba92ce47e63124d8003fc98b3a351909e04239efa"),
    ("mdurl", "0.1.2", "84008a41e51615a49fc9966191ff91509e3c40b939176e643fd50a5c2196b8f8"),
]
UNUSED_IMPORTS = ("websockets", "fastparquet", "pandas")  # imported by it, but not needed for what runs here
# Without flash-attn 0.3.2 attends to tokens behind a position, unless this test is without its second half.
ATTENDS_BACKWARDS = ("if self.layer_idx in attn_params.block_diag_layers or causal:",
                     "if self.layer_idx in attn_params.block_diag_layers:")


AUTO_GPTQ = ("auto_gptq", "0.7.1", "a372d81d523b8d2f98639bbca63c0c427cab0ed55b8a57bb96706b0942aa01c9",
             "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64")
AUTO_GPTQ_LAYER = "auto_gptq/nn_modules/qlinear/qlinear_cuda.py"


def unpack_wheel(folder, name, version, digest, tags="py3-none-any", members=None):
    """Fetches a wheel, and unpacks all of it into the folder, or some of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = f"{name}-{version}-{tags}.whl"
    with tempfile.TemporaryDirectory() as wheels:
        run([ROOT / "tools/fetch_pinned", wheels, f"{name}=={version}", wheel, digest])
        with zipfile.ZipFile(Path(wheels) / wheel) as archive:
            archive.extractall(folder, members)


def fetch_auto_gptq(folder):
    unpack_wheel(folder, *AUTO_GPTQ, members=[AUTO_GPTQ_LAYER])


def fetch_exllamav2(folder):
    for package in PACKAGES:
        unpack_wheel(folder, *package)
    for name in UNUSED_IMPORTS:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").touch()


def make_causal(folder):
    """Mends the attention of a fetched ExLlamaV2, for comparisons of quality."""
    path = folder / "exllamav2/attn.py"
    text = path.read_text()
    if ATTENDS_BACKWARDS[0] in text:
        path.write_text(text.replace(*ATTENDS_BACKWARDS))
    elif ATTENDS_BACKWARDS[1] not in text:
        raise SystemExit(f"{path} is not that of exllamav2 {EXLLAMAV2}")


def environment_of(folder):
    paths = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths}
