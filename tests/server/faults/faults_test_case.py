"""What the tests of faults share: a server with a tiny model, and clients that send what no library would send."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/web")]
import tiny_model  # noqa: E402
from bitloom_server import Server  # noqa: E402

PATIENCE = 60  # seconds; other work may keep the machine busy
TEMPLATE = ROOT / "tests/server/clients/tools.jinja"


def is_error_of(path, body):
    """Whether a body says what is wrong in the form of its route's API."""
    if path.startswith(("/v1/messages",)):
        return body.get("type") == "error" and isinstance(body["error"]["message"], str)
    if path.startswith(("/api/v1", "/api/extra", "/api/latest")):
        return isinstance(body["detail"]["msg"], str)
    if path.startswith("/api/"):
        return isinstance(body["error"], str)
    return isinstance(body["error"]["message"], str) and "type" in body["error"]


def receive_all(connection, timeout=PATIENCE):
    """What comes until the server closes, or until nothing comes for `timeout` seconds."""
    connection.settimeout(timeout)
    pieces = []
    try:
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    except (TimeoutError, ConnectionResetError):
        pass
    return b"".join(pieces)


class FaultsTestCase(unittest.TestCase):
    """One server for all tests of a class. `run_tests` names the binary in the environment."""
    binary = os.environ.get("BITLOOM_BINARY")
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="bitloom-faults-"))
        tiny_model.make_model(cls.folder / "tiny")
        cls.server = cls.start(*cls.arguments)

    def await_idle(self):
        """Fails unless every slot is free within PATIENCE seconds: the engine hears of a client's end at its next step."""
        deadline = time.monotonic() + PATIENCE
        while any(slot["is_processing"] for slot in self.ask("GET", "/slots")[1]):
            self.assertLess(time.monotonic(), deadline, "a slot is still busy")
            time.sleep(0.05)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        shutil.rmtree(cls.folder)
        assert status == 0, f"the server ended with status {status}"

    @classmethod
    def start(cls, *arguments):
        server = Server(cls.binary, "-m", cls.folder / "tiny", "--threads", "1", "--chat-template-file", TEMPLATE, *arguments,
                        patience=PATIENCE)
        return server.wait_until_ready()

    def connect(self, server=None):
        connection = socket.create_connection(("127.0.0.1", (server or self.server).port), timeout=PATIENCE)
        self.addCleanup(connection.close)
        return connection

    def raw(self, data, half_close=False):
        """The answers to some bytes, up to the end of the connection. To a client that closes its half, the server need not answer."""
        connection = self.connect()
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return receive_all(connection)

    def ask(self, method, path, body=None, fields=None, timeout=PATIENCE):
        """(status, body) of one request; JSON is parsed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=timeout)
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(fields or {})})
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if "json" in answer.headers["Content-Type"] else data
        finally:
            connection.close()

    def post(self, path, body, **more):
        return self.ask("POST", path, body, **more)

    def assert_refused(self, path, body, status=400, seconds=10):
        """That a request is refused in time, in the form of its route, and that the server is well."""
        began = time.monotonic()
        got, answer = self.post(path, body)
        shown = f"{path} {str(body)[:200]}: {got} {str(answer)[:300]}"
        self.assertEqual(got, status, shown)
        self.assertTrue(is_error_of(path, answer), shown)
        self.assertLess(time.monotonic() - began, seconds, shown)
        return answer

    def assert_is_well(self):
        self.assertEqual(self.ask("GET", "/health")[0], 200)


def post_request(path, body, fields=""):
    """The bytes of a POST; `fields` are whole lines."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {len(data)}\r\n\r\n".encode() + data
