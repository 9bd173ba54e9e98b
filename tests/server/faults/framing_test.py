"""Bytes that could be read in two ways, floods of them, and slow ones: docs/robustness.md, "The server"."""
import random
import re
import time

from faults_test_case import FaultsTestCase, post_request, receive_all

CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'{"prompt":"a","max_tokens":2}'
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def statuses(answers):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


def chunk(data, extension=b""):
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


class Framing(FaultsTestCase):
    def test_trailers_are_bounded_and_clean(self):
        whole = CHUNKED + chunk(BODY)
        self.assertEqual(statuses(self.raw(whole + b"0\r\nX-Sum: 1\r\n\r\n"))[0], 200)
        for trailer in (b"0\r\nX: a\nY: b\r\n\r\n", b"0\r\nX: a\x00b\r\n\r\n", b'0\r\nX: "a\x01b"\r\n\r\n', b"0\r\nX: a\r\n b\x0b\r\n\r\n", b"0\n\n",
                        b"0\r\nno colon\r\n\r\n"):
            with self.subTest(trailer=trailer):
                self.assertEqual(statuses(self.raw(whole + trailer)), [400])
        for many in (b"".join(b"X%d: y\r\n" % i for i in range(20_000)), b"X: " + b"y" * 200_000 + b"\r\n"):
            self.assertIn(statuses(self.raw(whole + b"0\r\n" + many + b"\r\n")), ([400], [431]))

    def test_chunk_extensions_are_bounded_and_clean(self):
        self.assertEqual(statuses(self.raw(CHUNKED + chunk(BODY, b";a=b") + b"0\r\n\r\n")), [200])
        for extension in (b";a=\x00", b';a="\x01"', b';a="\n"', b";" + b"a" * 5000, b";a=\x7f", b";a\n"):
            with self.subTest(extension=extension[:10]):
                self.assertEqual(statuses(self.raw(CHUNKED + chunk(BODY, extension) + b"0\r\n\r\n")), [400])

    def test_a_body_is_never_a_request(self):
        for fields in ("Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n"):
            self.assertEqual(statuses(self.raw(post_request("/v1/completions", GET, fields))), [400])
        self.assertEqual(statuses(self.raw(post_request("/nowhere", GET) + GET)), [404, 200])

    def test_a_length_beyond_the_limit_is_refused_at_once(self):
        began = time.monotonic()
        connection = self.connect()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        self.assertEqual(statuses(receive_all(connection)), [413])
        self.assertLess(time.monotonic() - began, 10)

    def test_random_bytes_are_answered_or_closed(self):
        random.seed(5)
        for i in range(300):
            data = random.randbytes(random.randint(1, 400))
            if i % 3:
                whole = bytearray(post_request("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}))
                for _ in range(random.randint(1, 6)):
                    whole[random.randrange(len(whole))] = random.randrange(256)
                data = bytes(whole)
            answers = self.raw(data, half_close=True)
            self.assertFalse([status for status in statuses(answers) if status >= 500 and status not in (501, 505)], (data, answers))
        self.assert_is_well()

    def test_floods_of_headers_hold_up_nobody(self):
        slow = [self.connect() for _ in range(300)]
        for i, connection in enumerate(slow):
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * (i % 50))
        began = time.monotonic()
        for _ in range(10):
            self.assert_is_well()
            self.assertEqual(self.post("/v1/completions", {"prompt": "a", "max_tokens": 2})[0], 200)
        self.assertLess(time.monotonic() - began, 20)
        for connection in slow[:50]:
            connection.sendall(b"X: " + b"y" * 60_000)
            connection.sendall(b"y" * 60_000)
            self.assertIn(statuses(receive_all(connection)), ([431], [400], []))
        self.assert_is_well()
