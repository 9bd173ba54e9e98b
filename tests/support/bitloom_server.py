"""`bitloom serve` as a process, for tests and measurements that are written in Python."""
import json
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.request

PATIENCE = 20  # seconds; other work may keep the machine busy


class Server:
    """`bitloom serve` on a free port. `arguments` are those of the command line; the access log is off unless they ask for it.
    `key` goes with the requests of get() and post()."""

    def __init__(self, binary, *arguments, patience=PATIENCE, key=""):
        self.log = tempfile.NamedTemporaryFile(prefix="bitloom-serve-")
        self.patience = patience
        self.fields = {"Content-Type": "application/json", **({"Authorization": "Bearer " + key} if key else {})}
        self.process = subprocess.Popen([binary, "serve", "--port", "0", "--access-log", "none", *map(str, arguments)],
                                        stdout=self.log, stderr=self.log)
        try:
            self.address = self._address()
        except BaseException:
            self.process.kill()
            raise

    def text(self):
        """What the server has printed so far."""
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def _address(self):
        end = time.monotonic() + self.patience
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"listening on (http://\S+)", self.text())
            if found:
                return found[1]
            time.sleep(0.02)
        raise RuntimeError(f"the server did not start: {self.text()}")

    @property
    def pid(self):
        return self.process.pid

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def wait_until_ready(self):
        """Waits until the model is loaded; a server that does not come to that is killed."""
        try:
            return self._ready()
        except BaseException:
            self.process.kill()
            raise

    def _ready(self):
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server has ended: {self.text()}")
            try:
                with urllib.request.urlopen(self.address + "/health", timeout=self.patience) as answer:
                    if answer.status == 200:
                        return self
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the model is not loaded after {self.patience} s: {self.text()}")

    def get(self, path, timeout=None):
        """The body of a GET; JSON is parsed."""
        request = urllib.request.Request(self.address + path, headers=self.fields)
        with urllib.request.urlopen(request, timeout=timeout or self.patience) as answer:
            body = answer.read()
            return json.loads(body) if "json" in answer.headers["Content-Type"] else body.decode()

    def post(self, path, body, timeout=None):
        """The parsed answer to a POST of JSON."""
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), self.fields)
        with urllib.request.urlopen(request, timeout=timeout or self.patience) as answer:
            return json.load(answer)

    def stop(self):
        """Asks the server to end, and returns its exit status. A server that does not end in time is killed."""
        self.process.terminate()
        try:
            return self.process.wait(self.patience)
        finally:
            self.process.kill()
            self.log.close()
