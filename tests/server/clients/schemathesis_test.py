"""`schemathesis` against /openapi.json: generated requests, right and wrong, to every route."""
import subprocess
import sys
import tempfile

from client_test_case import ADMIN_KEY, KEY, ClientTestCase

# What these do to the server (a model that is unloaded, a template that is switched) would decide the answers of the others; an
# ordinary key gets 403 from them.
CHANGING = r"/(load|unload|switch)$|^/lora-adapters$"
# A model may lack what a route needs (a head that scores documents, tokens for gaps): that is 501, as llama-server answers.
CONFIGURATION = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "4xx", 501]
"""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance"


class Schemathesis(ClientTestCase):
    wants_sense = False
    context = 256  # where no limit is generated, or a large one, answers go on to its end
    def generate(self, key, *more):
        examples = 40 if self.is_full else 4
        with tempfile.TemporaryDirectory(prefix="bitloom-schemathesis-") as folder:
            configuration = folder + "/schemathesis.toml"
            with open(configuration, "w") as file:
                file.write(CONFIGURATION)
            result = subprocess.run(
                [sys.executable, "-m", "schemathesis.cli", "--config-file", configuration, "run", self.server.address + "/openapi.json",
                 "-H", f"Authorization: Bearer {key}", "--checks", CHECKS, "--max-examples", str(examples), "--seed", "1",
                 "--request-timeout", "60", "--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all",
                 "--no-color", *more], cwd=folder, capture_output=True, text=True, timeout=3000)
        self.assertEqual(result.returncode, 0, result.stdout[-8000:] + result.stderr[-2000:])
        self.assert_server_is_well()

    def test_routes_with_an_ordinary_key(self):
        self.generate(KEY)

    def test_routes_with_an_admin_key(self):
        if not self.is_full:
            self.skipTest("only in a full run")
        self.generate(ADMIN_KEY, "--exclude-path-regex", CHANGING)
