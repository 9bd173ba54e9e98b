"""The official `anthropic` client."""
import asyncio
import typing

import anthropic
import pydantic
from client_test_case import CITY, KEY, QUESTION, TOOL, ClientTestCase, with_tools


class AnthropicTestCase(ClientTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = anthropic.Anthropic(base_url=cls.server.address, api_key=KEY, max_retries=0, timeout=120)

    def options(self, text="Name a colour.", **more):
        # This version of the client has no `temperature` of its own.
        return {"model": self.model, "max_tokens": 16, "extra_body": {"temperature": 0}, "messages": [{"role": "user", "content": text}], **more}

    def ask(self, text="Name a colour.", **more):
        return self.client.messages.create(**self.options(text, **more))


class Messages(AnthropicTestCase):
    def test_an_answer_is_whole(self):
        message = self.ask(system="Be brief.")
        self.assertEqual((message.type, message.role, message.model), ("message", "assistant", self.model))
        self.assertIn(message.stop_reason, ("end_turn", "max_tokens"))
        self.assertEqual([block.type for block in message.content], ["text"])
        self.assertTrue(message.content[0].text)
        self.assertGreater(message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0), 0)
        self.assertGreater(message.usage.output_tokens, 0)

    def test_a_stream_says_what_the_whole_answer_says(self):
        whole = self.ask("Count to five.")
        with self.client.messages.stream(**self.options("Count to five.")) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_events_have_their_order(self):
        events = list(self.ask(stream=True))
        kinds = [event.type for event in events if event.type != "ping"]
        self.assertEqual(kinds[0], "message_start")
        self.assertEqual(kinds[1], "content_block_start")
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(set(kinds[2:-3]), {"content_block_delta"})
        self.assertGreater(events[0].message.usage.input_tokens + (events[0].message.usage.cache_read_input_tokens or 0), 0)

    def test_stop_sequences_and_turns(self):
        text = self.ask("Count to five.", max_tokens=24).content[0].text
        stop = text[3:6]
        message = self.ask("Count to five.", max_tokens=24, stop_sequences=[stop])
        self.assertEqual((message.stop_reason, message.stop_sequence), ("stop_sequence", stop))
        self.assertEqual("".join(block.text for block in message.content), text[:text.index(stop)])
        turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
                 {"role": "user", "content": [{"type": "text", "text": "And on", "cache_control": {"type": "ephemeral"}}]}]
        self.assertTrue(self.ask(messages=turns, system=[{"type": "text", "text": "Be brief."}],
                                 extra_body={"top_k": 5, "top_p": 0.9}, metadata={"user_id": "x"}).content)

    def test_thinking_may_be_asked_for(self):
        for thinking in ({"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}, {"type": "between_tools"}, {"type": "disabled"}):
            message = self.ask(max_tokens=1100, thinking=thinking, stop_sequences=["e"])
            self.assertTrue(all(block.type in ("text", "thinking") for block in message.content), thinking)

    def test_answers_have_the_form_that_is_asked_for(self):
        class City(pydantic.BaseModel):
            model_config = pydantic.ConfigDict(extra="forbid")
            city: typing.Literal["Paris", "Rome", "Oslo"]
            warm: bool
        message = self.client.messages.parse(**self.options("A trip to Rome.", max_tokens=400), output_format=City)
        self.assertIsInstance(message.parsed_output, City)

    def test_tokens_are_counted(self):
        options = {"model": self.model, "messages": [{"role": "user", "content": "Name a colour, please."}], "system": "Be brief."}
        counted = self.client.messages.count_tokens(**options).input_tokens
        usage = self.client.messages.create(max_tokens=1, **options).usage
        self.assertEqual(counted, usage.input_tokens + (usage.cache_read_input_tokens or 0))

    def test_models_are_listed(self):
        self.assertEqual([model.id for model in self.client.models.list()], [self.model])
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)

    def test_many_at_once(self):
        async def ask_all():
            async with anthropic.AsyncAnthropic(base_url=self.server.address, api_key=KEY, max_retries=0) as client:
                return await asyncio.gather(*(client.messages.create(**self.options(f"Say {i}", max_tokens=8)) for i in range(8)))
        self.assertEqual(len([message for message in asyncio.run(ask_all()) if message.content]), 8)


class Tools(AnthropicTestCase):
    arguments = with_tools()
    tools = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": CITY}]

    def call(self, **more):
        return self.options(QUESTION, tools=self.tools, tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=400, **more)

    def test_a_call_is_made_and_answered(self):
        message = self.client.messages.create(**self.call())
        self.assertEqual(message.stop_reason, "tool_use")
        uses = [block for block in message.content if block.type == "tool_use"]
        self.assertEqual([use.name for use in uses], ["get_weather"])
        self.assert_is_city(uses[0].input)
        further = self.ask(tools=self.tools, messages=[
            {"role": "user", "content": QUESTION}, {"role": "assistant", "content": message.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": uses[0].id, "content": "Sunny"}]}])
        self.assertIn(further.stop_reason, ("end_turn", "max_tokens", "tool_use"))

    def test_input_is_streamed(self):
        with self.client.messages.stream(**self.call()) as stream:
            pieces = "".join(event.partial_json for event in stream if event.type == "input_json")
            final = stream.get_final_message()
        use = next(block for block in final.content if block.type == "tool_use")
        self.assert_is_city(use.input)
        self.assertTrue(pieces.startswith("{") and pieces.endswith("}"))

    def test_a_named_tool_and_none(self):
        named = self.client.messages.create(**{**self.call(), "tool_choice": {"type": "tool", "name": "get_weather"}})
        self.assertEqual([block.name for block in named.content if block.type == "tool_use"], ["get_weather"])
        none = self.client.messages.create(**{**self.call(), "tool_choice": {"type": "none"}, "max_tokens": 16})
        self.assertFalse([block for block in none.content if block.type == "tool_use"])

    def test_tools_count(self):
        messages = [{"role": "user", "content": QUESTION}]
        plain = self.client.messages.count_tokens(model=self.model, messages=messages).input_tokens
        self.assertGreater(self.client.messages.count_tokens(model=self.model, messages=messages, tools=self.tools).input_tokens, plain)


class Errors(AnthropicTestCase):
    def test_faults_are_the_clients_own_exceptions(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.ask(model="no-such-model")
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask(messages=[{"role": "king", "content": "Hi"}])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask("word " * 30000)
        self.assertIn("prompt is too long", str(caught.exception))

    def test_keys_are_asked_for(self):
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=self.server.address, api_key="wrong", max_retries=0).messages.create(**self.options())
        client = anthropic.Anthropic(base_url=self.server.address, auth_token=KEY, max_retries=0)
        self.assertTrue(client.messages.create(**self.options()).content)
