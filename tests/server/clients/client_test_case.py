"""What the tests of all clients share: a server with a model, and the schemas that answers are held to."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from bitloom_server import Server  # noqa: E402
from demo_model import demo_model, demo_or_tiny_model  # noqa: E402

KEY = "a-key-of-the-tests"
ADMIN_KEY = "an-admin-key-of-the-tests"

# Every value is of bounded length, so that an answer of any model ends.
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                   "warm": {"type": "boolean"}},
    "required": ["city", "days", "warm"],
    "additionalProperties": False,
}
TOOL = {"name": "get_weather", "description": "Tells the weather of a city", "parameters": CITY}
QUESTION = "What is the weather in Paris for 3 days? Use the function."


class ClientTestCase(unittest.TestCase):
    """One server for all tests of a class; `run_tests` says in the environment with which binary."""
    binary = os.environ.get("BITLOOM_BINARY")
    models = pathlib.Path(os.environ.get("BITLOOM_MODELS", ROOT / "models"))
    is_full = os.environ.get("BITLOOM_FULL") == "true"
    wants_sense = True  # or else the tiny model will do, which answers in no time
    context = 4096
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="bitloom-clients-"))
        cls.model_folder = demo_or_tiny_model(cls.models if cls.wants_sense else cls.scratch, cls.scratch)
        cls.model = "demo"
        cls.server = Server(cls.binary, "-m", cls.model_folder, "--alias", cls.model, "--threads", "2", "--parallel", "8",
                            "--ctx", cls.context, "--api-key", KEY, "--admin-key", ADMIN_KEY, *cls.arguments, patience=120, key=KEY)
        cls.server.wait_until_ready()

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        shutil.rmtree(cls.scratch)
        assert status == 0, f"the server ended with status {status}"

    @classmethod
    def has_demo_model(cls):
        return demo_model(cls.models) is not None

    def assert_is_city(self, value):
        """That a value keeps to the schema CITY."""
        self.assertEqual(sorted(value), ["city", "days", "warm"])
        self.assertIn(value["city"], CITY["properties"]["city"]["enum"])
        self.assertIn(value["days"], range(1, 10))
        self.assertIsInstance(value["warm"], bool)

    def assert_server_is_well(self):
        self.assertEqual(self.server.get("/health"), {"status": "ok"})


def with_tools(arguments=()):
    return ("--chat-template-file", str(HERE / "tools.jinja"), *arguments)
