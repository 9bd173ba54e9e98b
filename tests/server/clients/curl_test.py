"""`curl`, as the README shows it, with the forms of HTTP that it can speak."""
import json
import shutil
import subprocess
import tempfile
import unittest

from client_test_case import KEY, ClientTestCase

# Greedy, and a request that neither model answers with an end token at once: the answer would be empty.
CHAT = {"messages": [{"role": "user", "content": "Count to five."}], "max_tokens": 4, "temperature": 0}


@unittest.skipUnless(shutil.which("curl"), "no curl here (Debian: curl)")
class Curl(ClientTestCase):
    def curl(self, path, *arguments, key=KEY):
        fields = ["-H", f"Authorization: Bearer {key}"] if key else []
        result = subprocess.run(["curl", "-sS", "-m", "60", "-w", "\n%{http_code} %{content_type}", *fields, *arguments,
                                 self.server.address + path], capture_output=True, text=True, timeout=90)
        self.assertEqual(result.returncode, 0, result.stderr)
        body, _, last = result.stdout.rpartition("\n")
        status, _, kind = last.partition(" ")
        return int(status), kind, body

    def test_chats_without_a_content_type(self):
        status, kind, body = self.curl("/v1/chat/completions", "-d", json.dumps(CHAT))
        self.assertEqual((status, kind), (200, "application/json"))
        self.assertTrue(json.loads(body)["choices"][0]["message"]["content"])

    def test_streams(self):
        status, kind, body = self.curl("/v1/chat/completions", "-N", "-d", json.dumps({**CHAT, "stream": True}))
        self.assertEqual(status, 200)
        self.assertTrue(kind.startswith("text/event-stream"))
        self.assertTrue(body.rstrip().endswith("data: [DONE]"))

    def test_large_bodies_are_asked_for(self):
        # Beyond 1 MiB curl sends Expect: 100-continue, and waits.
        with tempfile.NamedTemporaryFile("w") as file:
            json.dump({"content": "word " * 400_000}, file)
            file.flush()
            status, _, body = self.curl("/tokenize", "--data-binary", "@" + file.name, "-H", "Expect: 100-continue")
        self.assertEqual(status, 200)
        self.assertGreater(len(json.loads(body)["tokens"]), 100_000)

    def test_bodies_in_chunks_and_old_http(self):
        for more in (["-H", "Transfer-Encoding: chunked"], ["--http1.0"], ["-H", "Connection: close"]):
            status, _, body = self.curl("/v1/chat/completions", *more, "-d", json.dumps(CHAT))
            self.assertEqual(status, 200, more)
            self.assertTrue(json.loads(body)["choices"])
        status, _, body = self.curl("/v1/chat/completions", "--http1.0", "-d", json.dumps({**CHAT, "stream": True}))
        self.assertTrue(body.rstrip().endswith("data: [DONE]"))

    def test_methods_and_keys(self):
        self.assertEqual(self.curl("/health", key="")[0], 200)
        self.assertEqual(self.curl("/v1/models", key="")[0], 401)
        self.assertEqual(self.curl("/v1/models", "-X", "DELETE")[0], 405)
        self.assertEqual(self.curl("/nowhere")[0], 404)
        self.assertEqual(self.curl("/", "-I", key="")[0], 200)
        self.assertEqual(self.curl("/v1/chat/completions", "-X", "OPTIONS")[0], 200)
        self.assertEqual(self.curl("/v1/models", "-H", f"x-api-key: {KEY}", key="")[0], 200)

    def test_one_connection_answers_many(self):
        result = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{num_connects}\n", *[self.server.address + "/health"] * 1,
                                 "-o", "/dev/null", self.server.address + "/health"], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.stdout.split(), ["1", "0"])
