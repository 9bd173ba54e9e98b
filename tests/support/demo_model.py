"""The model that programs in Python try a server with."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "web"))
import tiny_model  # noqa: E402

# In order of preference; tools/assemble_exl2_demo and tools/fetch_demo_model make them.
DEMO_MODELS = ("smollm2-135m-exl2-4.0", "smollm2-135m")


def demo_model(models):
    """The folder of the demo model below `models`, or None."""
    return next((models / name for name in DEMO_MODELS if (models / name / "config.json").exists()), None)


def demo_or_tiny_model(models, scratch):
    """The demo model, or else a tiny random one, made in the folder `scratch`: its answers have the right form, but no sense."""
    found = demo_model(models)
    if found is None:
        found = scratch / "tiny"
        tiny_model.make_model(found)
    return found
