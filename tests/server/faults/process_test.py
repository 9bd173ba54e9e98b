"""What happens to the process: signals, kill -9, storms of clients, sockets that are half open."""
import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

from faults_test_case import PATIENCE, FaultsTestCase, Server, post_request, receive_all

# (path, body, what its last event holds): an answer that does not end by itself.
LONG = 20_000
STREAMS = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": LONG, "ignore_eos": True, "stream": True}, b"data: [DONE]\n\n"),
    ("/v1/completions", {"prompt": "a", "max_tokens": LONG, "ignore_eos": True, "stream": True}, b"data: [DONE]\n\n"),
    ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": LONG, "ignore_eos": True, "stream": True}, b"event: message_stop\n"),
    ("/v1/responses", {"input": "a", "max_output_tokens": LONG, "ignore_eos": True, "stream": True}, b"event: response."),
    ("/api/chat", {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "options": {"num_predict": LONG, "ignore_eos": True}}, b'"done":true'),
    ("/completion", {"prompt": "a", "n_predict": LONG, "ignore_eos": True, "stream": True}, b'"stop":true'),
    ("/api/extra/generate/stream", {"prompt": "a", "max_length": LONG, "ban_eos_token": True}, b'"finish_reason":"stop"'),
]


def resident_mb(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


def file_sums(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.is_file()}


class Signals(FaultsTestCase):
    def test_every_stream_gets_its_last_event(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            server = self.start("--parallel", 3)  # some of them wait for a place
            connections = []
            for path, body, _ in STREAMS:
                connections.append(self.connect(server))
                connections[-1].sendall(post_request(path, body))
            time.sleep(0.5)
            began = time.monotonic()
            server.process.send_signal(number)
            for connection, (path, _, last) in zip(connections, STREAMS):
                answer = receive_all(connection, 15)
                # A request that was still waiting may be refused as a whole.
                self.assertTrue(last in answer or b"HTTP/1.1 503" in answer, (path, answer[-400:]))
            self.assertEqual(server.process.wait(15), 0)
            self.assertLess(time.monotonic() - began, 15)

    def test_other_signals_change_nothing(self):
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
            self.server.process.send_signal(number)
        self.assert_is_well()


class Killed(FaultsTestCase):
    def test_nothing_on_disk_is_lost(self):
        path = self.folder / "s.sock"
        before = file_sums(self.folder / "tiny")
        for _ in range(3):
            server = Server(self.binary, "-m", self.folder / "tiny", "--threads", 1, "--host", "127.0.0.1", "--host", path, patience=PATIENCE)
            server.wait_until_ready()
            connections = [self.connect(server) for _ in range(4)]
            for connection, (target, body, _) in zip(connections, STREAMS):
                connection.sendall(post_request(target, body))
            self.assertEqual(server.get("/health"), {"status": "ok"})
            server.process.kill()
            server.process.wait(PATIENCE)
            self.assertTrue(path.is_socket(), "what a killed server leaves")
            for connection in connections:
                receive_all(connection, 5)  # the connection ends
        self.assertEqual(file_sums(self.folder / "tiny"), before)

    def test_whole_lines_of_the_log_stay(self):
        log = self.folder / "access.log"
        for _ in range(2):
            server = Server(self.binary, "-m", self.folder / "tiny", "--threads", 1, "--access-log", log, patience=PATIENCE)
            server.wait_until_ready()
            for _ in range(50):
                server.get("/health")
            time.sleep(0.3)
            server.process.kill()
            server.process.wait(PATIENCE)
        lines = log.read_text().splitlines()
        self.assertGreaterEqual(len(lines), 100)
        for line in lines:
            self.assertEqual(json.loads(line)["path"], "/health")


class Storms(FaultsTestCase):
    arguments = ("--parallel", "4")

    def test_memory_after_a_storm_is_what_it_was(self):
        def storm():
            connections = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(200)]
            for i, connection in enumerate(connections):
                whole = post_request("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 200_000}]})
                connection.sendall(whole[:-1] if i % 2 else whole)
            time.sleep(0.5)
            for connection in connections:
                connection.close()
            self.await_idle()
        storm()  # what is allocated once is there now
        time.sleep(1)
        before = resident_mb(self.server.pid)
        for _ in range(3):
            storm()
        for _ in range(50):
            if resident_mb(self.server.pid) <= before + 24:
                break
            time.sleep(0.2)
        self.assertLessEqual(resident_mb(self.server.pid), before + 24, f"MB; before the storms {before:.0f}")
        self.assert_is_well()

    def test_clients_that_leave_take_nobody_with_them(self):
        body = {"prompt": "abc", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
        alone = self.post("/v1/completions", body)[1]["choices"][0]["text"]
        over = threading.Event()

        def leave():
            i = 0
            while not over.is_set():
                path, long_body, _ = STREAMS[i % len(STREAMS)]
                i += 1
                with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                    connection.sendall(post_request(path, long_body))
                    if i % 3 == 0:  # a reset instead of an end
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                    time.sleep(0.02)
        leavers = [threading.Thread(target=leave) for _ in range(3)]
        for leaver in leavers:
            leaver.start()
        try:
            for _ in range(3):
                self.assertEqual(self.post("/v1/completions", body)[1]["choices"][0]["text"], alone)
        finally:
            over.set()
            for leaver in leavers:
                leaver.join()
        self.await_idle()

    def test_half_open_sockets_are_let_go_of(self):
        before = len(os.listdir(f"/proc/{self.server.pid}/fd"))
        for path, body, _ in STREAMS:
            connection = self.connect()
            connection.sendall(post_request(path, body))
            connection.recv(10)
            connection.shutdown(socket.SHUT_WR)  # the client has said all, and does not read
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and len(os.listdir(f"/proc/{self.server.pid}/fd")) > before:
            time.sleep(0.1)
        self.assertLessEqual(len(os.listdir(f"/proc/{self.server.pid}/fd")), before)
        self.await_idle()


class LeavesWhileGuessing(FaultsTestCase):
    """With a draft, a client that leaves frees its place as well."""
    arguments = ("--ngram", "--parallel", "2")

    def test_places_are_free_again(self):
        for _ in range(10):
            connection = self.connect()
            connection.sendall(post_request("/v1/completions", {"prompt": "abababab" * 20, "max_tokens": LONG, "ignore_eos": True, "stream": True,
                                                                "repetition_penalty": 1.2}))
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200"))
            connection.close()
        status, answer = self.post("/v1/completions", {"prompt": "abab" * 20, "max_tokens": 30, "ignore_eos": True, "temperature": 0,
                                                       "presence_penalty": 1, "frequency_penalty": 1, "repetition_penalty": 1.3})
        self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 30))


class LostReaders(FaultsTestCase):
    def test_a_log_without_a_reader_stops_nothing(self):
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        process = None
        try:
            process = subprocess.Popen([self.binary, "serve", "-m", str(self.folder / "tiny"), "--port", "0", "--threads", "1", "--access-log",
                                        f"/dev/fd/{writing}"], stderr=subprocess.PIPE, text=True, pass_fds=(writing,))
            os.close(writing)
            port = None
            for line in process.stderr:
                if "listening on http://127.0.0.1:" in line:
                    port = int(line.rsplit(":", 1)[1])
                if line.strip().endswith("ready"):
                    break
            os.close(reading)
            process.stderr.close()  # nobody reads what it prints, either
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    self.assertIn(b" 200 ", receive_all(connection))
            process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0)
        finally:
            if process is not None:
                process.kill()
