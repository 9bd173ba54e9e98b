"""Shared by the measurements of servers: streamed requests over plain sockets, at as little cost to the machine as Python allows,
and what a process has used of it."""

import asyncio
import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Answer:
    """One answer: its status and text, and when its first and last pieces came, in seconds since it was asked for."""
    status: int = 0
    first: float = 0
    last: float = 0
    events: int = 0
    body: bytes = b""
    fields: dict = field(default_factory=dict)

    def json(self):
        return json.loads(self.body)

    def usage(self):
        """The usage that a stream tells in its last chunk."""
        for line in reversed(self.body.split(b"\n")):
            if line.startswith(b"data: {") and b'"usage"' in line:
                usage = json.loads(line[6:]).get("usage")
                if usage:
                    return usage
        raise ValueError(f"no usage in the stream: …{self.body[-300:]!r}")


def request_bytes(method, path, body=None, fields=()):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(data)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + data


class Connection:
    """A connection that asks one request after another, or leaves in the middle of an answer."""

    def __init__(self, port):
        self.port = port
        self.reader = self.writer = None

    async def ask(self, method, path, body=None, fields=(), leave_after=None):
        """Returns the whole answer; with `leave_after`, what came within so many events, after which the connection is closed."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        answer = Answer()
        began = time.monotonic()
        self.writer.write(request_bytes(method, path, body, fields))
        await self._head(answer)
        pieces = []
        async for piece in self._body(answer):
            now = time.monotonic() - began
            if b"data: {" in piece:
                answer.first = answer.first or now
                answer.events += piece.count(b"data: {")
            answer.last = now
            pieces.append(piece)
            if leave_after is not None and answer.events >= leave_after:
                self.close()
                break
        answer.body = b"".join(pieces)
        answer.first = answer.first or answer.last
        if answer.fields.get("connection", "").lower() == "close":
            self.close()
        return answer

    async def _head(self, answer):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        answer.status = int(head[0].split()[1])
        answer.fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}

    async def _body(self, answer):
        if "chunked" in answer.fields.get("transfer-encoding", ""):
            while True:
                size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
                piece = await self.reader.readexactly(size + 2)
                if size == 0:
                    return
                yield piece[:-2]
        elif "content-length" in answer.fields:
            yield await self.reader.readexactly(int(answer.fields["content-length"]))
        else:
            while piece := await self.reader.read(1 << 16):
                yield piece

    def close(self):
        if self.writer is not None:
            self.writer.transport.abort()
            self.reader = self.writer = None


async def ask(port, method, path, body=None, fields=()):
    """One request on a connection of its own."""
    connection = Connection(port)
    try:
        return await connection.ask(method, path, body, fields)
    finally:
        connection.close()


def thread_seconds(pid):
    """The processor time of each thread name of a process so far, in seconds."""
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            text = (task / "stat").read_text()
        except OSError:
            continue  # the thread has ended
        name = text[text.index("(") + 1:text.rindex(")")]
        user, system = text[text.rindex(")") + 2:].split()[11:13]
        seconds[name] = seconds.get(name, 0) + (int(user) + int(system)) / TICKS
    return seconds


def seconds_between(before, after):
    return {name: after[name] - before.get(name, 0) for name in after}


def resident_bytes(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} has no VmRSS")


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def percentile(values, share):
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def load_of_machine():
    """What else runs beside a measurement, as far as the system says: mean number of running processes over 1 and 5 minutes."""
    one, five, _ = os.getloadavg()
    return f"load {one:.1f} (1 min), {five:.1f} (5 min) on {os.cpu_count()} cores"
