"""The clients of bench/soak. Each is a coroutine that does one thing once; it counts every request that the server has to count, by
the status that came back, and raises AssertionError where an answer is wrong."""

import asyncio
import json
import random
from collections import Counter

from http_streams import Connection, request_bytes

PATIENCE = 180  # seconds for one answer
LEFT = "left"   # counted where a client leaves; the server counts it as answered (200) or as left (499)

CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}
TOOL = {"name": "get_weather", "description": "Tells the weather", "parameters": CITY}
GREEDY = {"prompt": "The harbour of the old town lies between", "max_tokens": 24, "temperature": 0, "ignore_eos": True}

# (path, body, status)
WRONG = [
    ("/v1/chat/completions", None, 400), ("/v1/chat/completions", b"{", 400), ("/v1/chat/completions", [1], 400),
    ("/v1/chat/completions", {"messages": None}, 400), ("/v1/chat/completions", {"messages": [{"role": "king", "content": "x"}]}, 400),
    ("/v1/chat/completions", {"messages": [{}]}, 400), ("/v1/chat/completions", {"model": "none", "messages": []}, 404),
    ("/v1/chat/completions", b'{"messages":' + b"[" * 5000, 400),
    ("/v1/completions", {"prompt": "x", "temperature": -1}, 400), ("/v1/completions", {"prompt": "x", "n": 1_000_000}, 400),
    ("/v1/completions", {"prompt": [10 ** 9]}, 400), ("/v1/completions", {"prompt": "x " * 60000}, 400),
    ("/v1/completions", {"prompt": "x", "logit_bias": {"999999999": 1}}, 400),
    ("/v1/completions", {"prompt": "x", "guided_regex": "foo**"}, 400), ("/v1/completions", {"prompt": "x", "grammar": "root ::= ("}, 400),
    ("/v1/completions", {"prompt": "x", "json_schema": {"$ref": "http://elsewhere/"}}, 400),
    ("/v1/messages", {"messages": [{"role": "user", "content": 1}]}, 400), ("/v1/responses", {"input": "x", "previous_response_id": "r"}, 400),
    ("/api/chat", {"model": "demo", "messages": [{"role": "king", "content": "x"}]}, 400), ("/v1/embeddings", {}, 400),
    ("/nowhere", {}, 404), ("/health", {}, 405),
]


def chat(text, **more):
    return {"model": "demo", "messages": [{"role": "user", "content": text}], "max_tokens": random.randint(4, 40), **more}


class Clients:
    """`keys`: the fields of a header with the ordinary key and with the admin's."""

    def __init__(self, port, key, admin_key):
        self.port = port
        self.key = (f"Authorization: Bearer {key}",)
        self.admin_key = (f"x-api-key: {admin_key}",)
        self.counts = Counter()
        self.tokens = 0  # of answers that came whole, as their usage tells
        self.greedy = None
        self.kinds = [self.chats, self.chats, self.streams, self.streams, self.completions, self.same_text, self.tools, self.forms,
                      self.leaves, self.leaves_early, self.half_requests, self.wrong, self.wrong, self.garbage, self.keyless,
                      self.anthropic, self.responses, self.ollama, self.llama, self.kobold, self.embeddings, self.tokens_of_text,
                      self.lists, self.kept_connection]

    async def ask(self, path, body=None, fields=None, method="POST", connection=None):
        own = connection or Connection(self.port)
        try:
            answer = await asyncio.wait_for(own.ask(method, path, body, self.key if fields is None else fields), PATIENCE)
        finally:
            if connection is None:
                own.close()
        self.counts[answer.status] += 1
        return answer

    async def get(self, path, fields=None):
        return await self.ask(path, method="GET", fields=fields)

    async def good(self, path, body, connection=None):
        answer = await self.ask(path, body, connection=connection)
        assert answer.status == 200, f"{path} {json.dumps(body)[:300]}: {answer.status} {answer.body[:300]!r}"
        return answer

    async def chats(self):
        answer = (await self.good("/v1/chat/completions", chat("Name a colour.", n=random.choice((1, 1, 2))))).json()
        assert all(choice["finish_reason"] in ("stop", "length") for choice in answer["choices"]), answer
        self.tokens += answer["usage"]["completion_tokens"]

    async def streams(self):
        answer = await self.good("/v1/chat/completions", chat("Tell me of the sea.", stream=True, stream_options={"include_usage": True},
                                                              logprobs=random.random() < 0.2))
        assert answer.body.endswith(b"data: [DONE]\n\n"), answer.body[-300:]
        self.tokens += answer.usage()["completion_tokens"]

    async def completions(self):
        more = random.choice(({"echo": True, "logprobs": 2}, {"n": 2, "best_of": 2}, {"stop": ["e", "\n"]}, {"max_tokens": 0, "echo": True},
                              {"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "dry_multiplier": 0.8}, {"seed": 1}))
        answer = (await self.good("/v1/completions", {"prompt": ["Once upon", "A time"], "max_tokens": 12, **more})).json()
        assert len(answer["choices"]) == 2 * more.get("n", 1), answer
        self.tokens += answer["usage"]["completion_tokens"]

    async def same_text(self):
        """A greedy text is the same whatever runs beside it."""
        answer = (await self.good("/v1/completions", GREEDY)).json()
        self.greedy = self.greedy or answer["choices"][0]["text"]
        assert answer["choices"][0]["text"] == self.greedy, answer
        self.tokens += answer["usage"]["completion_tokens"]

    async def tools(self):
        answer = (await self.good("/v1/chat/completions", chat("What is the weather in Rome?", tools=[{"type": "function", "function": TOOL}],
                                                               tool_choice="required", parallel_tool_calls=False, max_tokens=200))).json()
        call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        assert call["name"] == "get_weather", answer
        if answer["choices"][0]["finish_reason"] == "tool_calls":
            assert json.loads(call["arguments"])["city"] in CITY["properties"]["city"]["enum"], answer
        self.tokens += answer["usage"]["completion_tokens"]

    async def forms(self):
        form = random.choice(({"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}},
                              {"guided_regex": "(yes|no), [a-z]{3,12}"}))
        answer = (await self.good("/v1/chat/completions", chat("A trip to Oslo.", **form, max_tokens=100))).json()
        text = answer["choices"][0]["message"]["content"]
        if answer["choices"][0]["finish_reason"] == "stop":  # else the limit has cut it
            assert json.loads(text)["days"] in range(1, 10) if "response_format" in form else text.startswith(("yes, ", "no, ")), text
        self.tokens += answer["usage"]["completion_tokens"]

    async def leaves(self):
        path, body = random.choice((("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", chat("Go on.")),
                                    ("/v1/messages", chat("Go on.")), ("/completion", {"prompt": "x"})))
        body = {**body, "max_tokens": 500, "n_predict": 500, "stream": True, "ignore_eos": True}
        connection = Connection(self.port)
        answer = await asyncio.wait_for(connection.ask("POST", path, body, self.key, leave_after=random.randint(1, 8)), PATIENCE)
        connection.close()
        self.counts[LEFT] += 1
        assert answer.status == 200, answer.body[:300]

    async def leaves_early(self):
        """The whole request is sent, and nobody waits for the answer."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = chat("word " * random.choice((1, 300)), max_tokens=200, stream=random.random() < 0.5)
        writer.write(request_bytes("POST", "/v1/chat/completions", body, self.key))
        await writer.drain()
        await asyncio.sleep(random.choice((0.05, 0.2, 0.5)))
        self.counts[LEFT] += 1
        writer.transport.abort()

    async def half_requests(self):
        """Headers or bodies that never become whole: no request was made, and none is counted."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        whole = request_bytes("POST", "/v1/chat/completions", chat("Hi"), self.key)
        writer.write(whole[:random.randint(1, len(whole) - 1)])
        await writer.drain()
        await asyncio.sleep(random.choice((0, 0.3)))
        writer.transport.abort()

    async def wrong(self):
        path, body, status = random.choice(WRONG)
        answer = await self.ask(path, body)
        assert answer.status == status, f"{path} {str(body)[:200]}: {answer.status} {answer.body[:300]!r}"
        assert "error" in answer.json(), answer.body[:300]

    async def garbage(self):
        """Bytes that are no request, of which each connection gets one answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(random.choice((b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\nHost: x\n\n",
                                    b"GET / HTTP/1.1\r\n\r\n", b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n")))
        head = await asyncio.wait_for(reader.read(65536), PATIENCE)
        status = int(head.split()[1])
        assert 400 <= status < 600 and status != 500, head
        self.counts[status] += 1
        writer.transport.abort()

    async def keyless(self):
        fields = random.choice(((), ("Authorization: Bearer wrong",)))
        assert (await self.ask("/v1/chat/completions", chat("Hi"), fields=fields)).status == 401
        assert (await self.ask("/v1/model/unload", {})).status == 403

    async def anthropic(self):
        answer = (await self.good("/v1/messages", chat("Hi"))).json()
        assert answer["stop_reason"] in ("end_turn", "max_tokens"), answer
        self.tokens += answer["usage"]["output_tokens"]
        stream = await self.good("/v1/messages", chat("Hi", stream=True))
        assert b"event: message_stop\n" in stream.body, stream.body[-300:]
        deltas = [json.loads(line[6:]) for line in stream.body.split(b"\n") if line.startswith(b'data: {') and b'"message_delta"' in line]
        self.tokens += deltas[-1]["usage"]["output_tokens"]
        assert (await self.good("/v1/messages/count_tokens", chat("Hi"))).json()["input_tokens"] > 0

    async def responses(self):
        answer = (await self.good("/v1/responses", {"model": "demo", "input": "Hi", "max_output_tokens": 12})).json()
        assert answer["status"] in ("completed", "incomplete"), answer
        self.tokens += answer["usage"]["output_tokens"]

    async def ollama(self):
        lines = (await self.good("/api/chat", {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 9}}))
        last = json.loads(lines.body.splitlines()[-1])
        assert last["done"], last
        self.tokens += last["eval_count"]
        answer = (await self.good("/api/generate", {"model": "demo", "prompt": "Hi", "stream": False, "options": {"num_predict": 5}})).json()
        self.tokens += answer["eval_count"]

    async def llama(self):
        answer = (await self.good("/completion", {"prompt": "Hi", "n_predict": 7, "n_probs": random.choice((0, 2))})).json()
        self.tokens += answer["tokens_predicted"]

    async def kobold(self):
        answer = (await self.good("/api/v1/generate", {"prompt": "Hi", "max_length": 6, "ban_eos_token": True})).json()
        assert answer["results"][0]["text"], answer
        self.tokens += 6

    async def embeddings(self):
        answer = (await self.good("/v1/embeddings", {"model": "demo", "input": ["a cat", "a dog"]})).json()
        assert len(answer["data"]) == 2, answer

    async def tokens_of_text(self):
        ids = (await self.good("/tokenize", {"content": "The harbour of the old town"})).json()["tokens"]
        assert (await self.good("/detokenize", {"tokens": ids})).json()["content"] == "The harbour of the old town"

    async def lists(self):
        for path in ("/health", "/v1/models", "/props", "/slots", "/v1/loras", "/lora-adapters", "/api/tags", "/api/ps", "/v1/model",
                     "/openapi.json", "/metrics"):
            answer = await self.get(path)
            assert answer.status == 200, f"{path}: {answer.status} {answer.body[:200]!r}"
        assert (await self.ask("/v1/sampling/override/switch", {"preset": "precise"}, fields=self.admin_key)).status == 200
        assert (await self.ask("/v1/sampling/override/unload", fields=self.admin_key)).status == 200

    async def kept_connection(self):
        """One connection, many requests, right and wrong."""
        connection = Connection(self.port)
        for _ in range(5):
            answer = await self.good("/v1/completions", {"prompt": "x", "max_tokens": 3, "stream": random.random() < 0.5,
                                                         "stream_options": None}, connection=connection)
            del answer
            assert (await self.ask("/v1/completions", b"{", connection=connection)).status == 400
            assert (await self.ask("/health", method="GET", connection=connection)).status == 200
        connection.close()
