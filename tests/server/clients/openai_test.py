"""The official `openai` client: every route that it has and bitloom serves."""
import asyncio
import json
import typing
import unittest

import openai
import pydantic
from client_test_case import CITY, KEY, QUESTION, TOOL, ClientTestCase, with_tools


class City(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    city: typing.Literal["Paris", "Rome", "Oslo"]
    days: typing.Literal[1, 2, 3]
    warm: bool


class OpenAiTestCase(ClientTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.address + "/v1", api_key=KEY, max_retries=0, timeout=120)

    def chat(self, text="Name a colour.", **more):
        options = {"max_tokens": 16, "temperature": 0, **more}
        return self.client.chat.completions.create(model=self.model, messages=[{"role": "user", "content": text}], **options)


class Chats(OpenAiTestCase):
    def test_models_are_listed(self):
        models = self.client.models.list().data
        self.assertEqual([model.id for model in models], [self.model])
        self.assertEqual(self.client.models.retrieve(self.model).object, "model")

    def test_an_answer_is_whole(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertTrue(answer.id)
        self.assertEqual(answer.model, self.model)
        choice = answer.choices[0]
        self.assertEqual(choice.message.role, "assistant")
        self.assertIn(choice.finish_reason, ("stop", "length"))
        self.assertTrue(choice.message.content)
        self.assertIsNone(choice.message.tool_calls)
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertLessEqual(usage.completion_tokens, 16)
        self.assertIsNotNone(usage.prompt_tokens_details.cached_tokens)

    def test_the_demo_model_knows_something(self):
        if not self.has_demo_model():
            self.skipTest("no demo model here")
        answer = self.client.completions.create(model=self.model, prompt="The capital of France is", max_tokens=4, temperature=0)
        self.assertIn("Paris", answer.choices[0].text)

    def test_a_stream_says_what_the_whole_answer_says(self):
        whole = self.chat("Count to five.", max_tokens=24)
        chunks = list(self.chat("Count to five.", max_tokens=24, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([chunk.choices for chunk in chunks][-1], [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        reasons = [chunk.choices[0].finish_reason for chunk in chunks[:-1]]
        self.assertEqual([reason for reason in reasons if reason], [whole.choices[0].finish_reason])

    def test_a_stream_without_usage_has_none(self):
        chunks = list(self.chat(stream=True))
        self.assertTrue(all(chunk.choices for chunk in chunks))
        self.assertTrue(all(chunk.usage is None for chunk in chunks))

    def test_the_streaming_helper_adds_up(self):
        if not self.has_demo_model():
            self.skipTest("an answer of the tiny model is cut by max_tokens, which this helper takes for a fault")
        with self.client.chat.completions.stream(
                model=self.model, messages=[{"role": "user", "content": "Say hello."}], max_tokens=16, temperature=0) as stream:
            deltas = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, deltas)

    def test_choices_seeds_and_stops(self):
        several = self.chat(n=3, temperature=1.5, seed=3)
        self.assertEqual([choice.index for choice in several.choices], [0, 1, 2])
        self.assertGreater(len({choice.message.content for choice in several.choices}), 1)
        again = self.chat(n=3, temperature=1.5, seed=3)
        self.assertEqual([choice.message.content for choice in again.choices],
                         [choice.message.content for choice in several.choices])
        text = self.chat("Count to five.", max_tokens=24).choices[0].message.content
        stop = text[3:6]
        stopped = self.chat("Count to five.", max_tokens=24, stop=[stop]).choices[0]
        self.assertEqual(stopped.message.content, text[:text.index(stop)])
        self.assertEqual(stopped.finish_reason, "stop")

    def test_logprobs_are_those_of_the_text(self):
        choice = self.chat(logprobs=True, top_logprobs=3).choices[0]
        tokens = choice.logprobs.content
        text = b"".join(bytes(token.bytes) for token in tokens).decode(errors="replace")
        # The token that ended the answer is among them.
        self.assertTrue(text.startswith(choice.message.content), text)
        self.assertEqual("<|" in text, choice.finish_reason == "stop" and self.has_demo_model())
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertLessEqual(token.logprob, 0)
            self.assertAlmostEqual(token.logprob, token.top_logprobs[0].logprob, places=4)

    def test_limits_and_sampling_of_newer_clients(self):
        answer = self.client.chat.completions.create(
            model=self.model, messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            max_completion_tokens=3, frequency_penalty=0.5, presence_penalty=0.5, top_p=0.9, logit_bias={"0": -100}, user="someone",
            metadata={"a": "b"}, store=False, service_tier="auto", parallel_tool_calls=True, reasoning_effort="low")
        self.assertLessEqual(answer.usage.completion_tokens, 3)
        parts = self.client.chat.completions.create(
            model=self.model, max_tokens=4,
            messages=[{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}])
        self.assertTrue(parts.choices)

    def test_extra_fields_of_local_servers_are_taken(self):
        answer = self.chat(extra_body={"top_k": 5, "min_p": 0.05, "repetition_penalty": 1.1, "ignore_eos": True}, max_tokens=7)
        self.assertEqual(answer.usage.completion_tokens, 7)

    def test_the_raw_answer_has_its_head(self):
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.model, messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
        self.assertEqual(raw.status_code, 200)
        self.assertIn("application/json", raw.headers["content-type"])
        self.assertTrue(raw.parse().choices)

    def test_a_stream_that_is_closed_early_frees_its_place(self):
        stream = self.chat("Tell me a long story.", max_tokens=3000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assertTrue(self.chat().choices)

    def test_many_at_once(self):
        async def ask_all():
            async with openai.AsyncOpenAI(base_url=self.server.address + "/v1", api_key=KEY, max_retries=0) as client:
                return await asyncio.gather(*(client.chat.completions.create(
                    model=self.model, messages=[{"role": "user", "content": f"Say {i}"}], max_tokens=8) for i in range(12)))
        self.assertEqual(len([answer for answer in asyncio.run(ask_all()) if answer.choices]), 12)


class Completions(OpenAiTestCase):
    def complete(self, prompt="Once upon a time", **more):
        return self.client.completions.create(model=self.model, prompt=prompt, **{"max_tokens": 8, "temperature": 0, **more})

    def test_texts_go_on(self):
        answer = self.complete()
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.usage.completion_tokens, 8)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        chunks = list(self.complete(stream=True))
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), answer.choices[0].text)

    def test_prompts_come_in_batches_and_as_tokens(self):
        answer = self.complete(["One", "Two"], n=2, temperature=1)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        ids = self.server_tokens("Once upon a time")
        self.assertEqual(self.complete(ids).choices[0].text, self.complete().choices[0].text)
        self.assertEqual(len(self.complete([ids, ids]).choices), 2)

    def server_tokens(self, text):
        return self.client.post("/token/encode", body={"text": text}, cast_to=object)["tokens"]

    def test_the_prompt_is_echoed_with_its_logprobs(self):
        choice = self.complete("The sky is blue", echo=True, logprobs=2, max_tokens=1).choices[0]
        self.assertTrue(choice.text.startswith("The sky is blue"))
        tokens = choice.logprobs.tokens
        if tokens[-1].startswith("bytes:"):  # part of a character, of which the text has a replacement
            tokens[-1] = "\N{REPLACEMENT CHARACTER}"
        self.assertEqual("".join(tokens), choice.text)
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertTrue(all(value <= 0 for value in choice.logprobs.token_logprobs[1:]))
        self.assertEqual(choice.logprobs.text_offset[0], 0)

    def test_nothing_is_generated_where_none_is_asked_for(self):
        self.assertEqual(self.complete("The sky", echo=True, max_tokens=0).choices[0].text, "The sky")


class Forms(OpenAiTestCase):
    """Structured outputs."""

    def test_parsed_answers_are_objects(self):
        answer = self.client.chat.completions.parse(
            model=self.model, messages=[{"role": "user", "content": "Describe a trip to Rome."}], response_format=City, max_tokens=400)
        self.assertIsInstance(answer.choices[0].message.parsed, City)

    def test_schemas_and_json(self):
        form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}
        self.assert_is_city(json.loads(self.chat(response_format=form, max_tokens=400, temperature=1).choices[0].message.content))
        text = self.chat("Reply in JSON.", response_format={"type": "json_object"}, max_tokens=60).choices[0]
        if text.finish_reason == "stop":
            self.assertIsInstance(json.loads(text.message.content), dict)

    def test_a_stream_parses_too(self):
        with self.client.chat.completions.stream(
                model=self.model, messages=[{"role": "user", "content": "A trip to Oslo."}], response_format=City, max_tokens=400) as stream:
            final = stream.get_final_completion()
        self.assertIsInstance(final.choices[0].message.parsed, City)

    def test_broken_schemas_are_refused(self):
        for schema in ({"type": "object", "properties": {"a": {"type": "string", "pattern": "foo**"}}},
                       {"$ref": "https://elsewhere.example/schema.json"}, {"type": "no-such-type"}):
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            with self.assertRaises(openai.BadRequestError):
                self.chat(response_format=form)
        self.assert_server_is_well()


class Tools(OpenAiTestCase):
    arguments = with_tools()
    tools = [{"type": "function", "function": TOOL}]

    def test_a_call_is_made_and_answered(self):
        answer = self.chat(QUESTION, tools=self.tools, tool_choice="required", parallel_tool_calls=False, max_tokens=400)
        choice = answer.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        call = choice.message.tool_calls[0]
        self.assertEqual((call.type, call.function.name), ("function", "get_weather"))
        self.assert_is_city(json.loads(call.function.arguments))
        further = self.client.chat.completions.create(
            model=self.model, max_tokens=20, tools=self.tools,
            messages=[{"role": "user", "content": QUESTION}, choice.message,
                      {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 20 degrees"}])
        self.assertTrue(further.choices[0].message.content or further.choices[0].message.tool_calls)

    def test_a_named_tool_is_called(self):
        others = [*self.tools, {"type": "function", "function": {"name": "other", "parameters": {"type": "object", "properties": {}}}}]
        answer = self.chat(QUESTION, tools=others, tool_choice={"type": "function", "function": {"name": "get_weather"}}, max_tokens=400)
        self.assertEqual([call.function.name for call in answer.choices[0].message.tool_calls], ["get_weather"])

    def test_no_call_is_made_where_none_is_wanted(self):
        answer = self.chat(QUESTION, tools=self.tools, tool_choice="none")
        self.assertIsNone(answer.choices[0].message.tool_calls)
        self.assertIn(self.chat(QUESTION, tools=self.tools, max_tokens=400).choices[0].finish_reason,
                      ("stop", "length", "tool_calls"))

    def test_arguments_are_streamed(self):
        chunks = list(self.chat(QUESTION, tools=self.tools, tool_choice="required", parallel_tool_calls=False, max_tokens=400, stream=True))
        deltas = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or []]
        self.assertEqual({delta.index for delta in deltas}, {0})
        self.assertEqual([delta.function.name for delta in deltas if delta.function.name], ["get_weather"])
        self.assertTrue(deltas[0].id)
        self.assert_is_city(json.loads("".join(delta.function.arguments or "" for delta in deltas)))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "tool_calls")

    def test_functions_of_pydantic(self):
        tool = openai.pydantic_function_tool(City)
        answer = self.client.chat.completions.parse(
            model=self.model, messages=[{"role": "user", "content": QUESTION}], tools=[tool], tool_choice="required",
            parallel_tool_calls=False, max_tokens=400)
        self.assertIsInstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, City)
        with self.client.chat.completions.stream(
                model=self.model, messages=[{"role": "user", "content": QUESTION}], tools=[tool], tool_choice="required",
                parallel_tool_calls=False, max_tokens=400) as stream:
            final = stream.get_final_completion()
        self.assertIsInstance(final.choices[0].message.tool_calls[0].function.parsed_arguments, City)


class Responses(OpenAiTestCase):
    arguments = with_tools()
    tools = [{"type": "function", **TOOL, "strict": True}]

    def respond(self, **more):
        return self.client.responses.create(model=self.model, **{"max_output_tokens": 16, "temperature": 0, "store": False, **more})

    def test_an_answer_is_whole(self):
        answer = self.respond(input="Name a colour.", instructions="Be brief.")
        self.assertEqual(answer.object, "response")
        self.assertTrue(answer.output_text)
        self.assertIn(answer.status, ("completed", "incomplete"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)

    def test_a_stream_says_what_the_whole_answer_says(self):
        whole = self.respond(input="Count to five.")
        events = list(self.respond(input="Count to five.", stream=True))
        self.assertEqual(events[0].type, "response.created")
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual("".join(event.delta for event in events if event.type == "response.output_text.delta"), whole.output_text)
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))

    def test_the_streaming_helper_adds_up(self):
        with self.client.responses.stream(model=self.model, input="A trip to Rome.", text_format=City, max_output_tokens=400) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual(final.output_text, text)
        self.assertIsInstance(final.output_parsed, City)

    def test_calls_go_there_and_back(self):
        answer = self.respond(input=QUESTION, tools=self.tools, tool_choice="required", parallel_tool_calls=False, max_output_tokens=400)
        calls = [item for item in answer.output if item.type == "function_call"]
        self.assertEqual([call.name for call in calls], ["get_weather"])
        self.assert_is_city(json.loads(calls[0].arguments))
        further = self.respond(tools=self.tools, input=[
            {"role": "user", "content": QUESTION}, *answer.output,
            {"type": "function_call_output", "call_id": calls[0].call_id, "output": "Sunny"}])
        self.assertIn(further.status, ("completed", "incomplete"))

    def test_parsed_answers_are_objects(self):
        answer = self.client.responses.parse(model=self.model, input="A trip to Rome.", text_format=City, max_output_tokens=400)
        self.assertIsInstance(answer.output_parsed, City)

    def test_nothing_is_stored(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.respond(input="Hi", previous_response_id="resp_1")
        self.assertEqual(caught.exception.param, "previous_response_id")


class Embeddings(OpenAiTestCase):
    def test_texts_become_vectors(self):
        answer = self.client.embeddings.create(model=self.model, input=["a cat", "a cat", "the stock market"])
        self.assertEqual([item.index for item in answer.data], [0, 1, 2])
        first, same, other = (item.embedding for item in answer.data)
        self.assertAlmostEqual(sum(value * value for value in first), 1, places=3)
        self.assertAlmostEqual(sum(a * b for a, b in zip(first, same)), 1, places=3)
        self.assertLess(sum(a * b for a, b in zip(first, other)), 0.9999)
        self.assertEqual(answer.usage.prompt_tokens, answer.usage.total_tokens)

    def test_both_encodings_are_the_same_vector(self):
        floats = self.client.embeddings.create(model=self.model, input="a cat", encoding_format="float").data[0].embedding
        packed = self.client.embeddings.create(model=self.model, input="a cat").data[0].embedding
        self.assertEqual(len(floats), len(packed))
        for a, b in zip(floats, packed):
            self.assertAlmostEqual(a, b, places=5)


class Errors(OpenAiTestCase):
    def test_faults_are_the_clients_own_exceptions(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "Hi"}])
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model=self.model, messages=[])
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model=self.model, messages=[{"role": "king", "content": "Hi"}])

    def test_keys_are_asked_for(self):
        for key in ("wrong", "none"):
            with self.assertRaises(openai.AuthenticationError):
                openai.OpenAI(base_url=self.server.address + "/v1", api_key=key, max_retries=0).models.list()

    def test_a_prompt_that_does_not_fit_says_so(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("word " * 30000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertIn("maximum context length is", str(caught.exception))

    def test_a_large_limit_is_cut(self):
        self.assertTrue(self.chat("Hi", max_tokens=10 ** 7, stop=["e"]).choices)


if __name__ == "__main__":
    unittest.main()
