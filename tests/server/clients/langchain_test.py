"""LangChain's classes for OpenAI."""
import typing

import pydantic
from client_test_case import KEY, QUESTION, ClientTestCase, with_tools
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings


class City(pydantic.BaseModel):
    """A city to visit."""
    model_config = pydantic.ConfigDict(extra="forbid")
    city: typing.Literal["Paris", "Rome", "Oslo"]
    days: typing.Literal[1, 2, 3]


@tool
def get_weather(city: typing.Literal["Paris", "Rome", "Oslo"], days: typing.Literal[1, 2, 3]) -> str:
    """Tells the weather of a city."""
    return f"{city}: sunny for {days} days"


class LangChain(ClientTestCase):
    arguments = with_tools()

    def model_of(self, **more):
        return ChatOpenAI(model=self.model, base_url=self.server.address + "/v1", api_key=KEY, max_retries=0,
                          **{"temperature": 0, "max_tokens": 16, **more})

    def test_invoke_and_stream_agree(self):
        messages = [SystemMessage("Be brief."), HumanMessage("Name a colour.")]
        whole = self.model_of().invoke(messages)
        self.assertTrue(whole.content)
        self.assertEqual(whole.usage_metadata["total_tokens"],
                         whole.usage_metadata["input_tokens"] + whole.usage_metadata["output_tokens"])
        self.assertIn(whole.response_metadata["finish_reason"], ("stop", "length"))
        chunks = list(self.model_of(stream_usage=True).stream(messages))
        self.assertEqual("".join(chunk.content for chunk in chunks), whole.content)
        total = chunks[0]
        for chunk in chunks[1:]:
            total += chunk
        self.assertEqual(total.usage_metadata["output_tokens"], whole.usage_metadata["output_tokens"])

    def test_batches(self):
        self.assertEqual(len(self.model_of().batch(["Say one", "Say two", "Say three"])), 3)

    def test_tools_are_bound_called_and_answered(self):
        model = self.model_of(max_tokens=400).bind_tools([get_weather], tool_choice="required", parallel_tool_calls=False)
        message = model.invoke(QUESTION)
        self.assertEqual([call["name"] for call in message.tool_calls], ["get_weather"])
        result = get_weather.invoke(message.tool_calls[0])
        self.assertIsInstance(result, ToolMessage)
        further = self.model_of().bind_tools([get_weather]).invoke([HumanMessage(QUESTION), message, result])
        self.assertTrue(further.content or further.tool_calls)
        total = None
        for chunk in model.stream(QUESTION):
            total = chunk if total is None else total + chunk
        self.assertEqual([call["name"] for call in total.tool_calls], ["get_weather"])
        self.assertIn(total.tool_calls[0]["args"]["city"], ("Paris", "Rome", "Oslo"))

    def test_structured_output_by_every_method(self):
        for method in ("json_schema", "function_calling"):
            with self.subTest(method):
                model = self.model_of(max_tokens=400).with_structured_output(City, method=method)
                self.assertIsInstance(model.invoke("Plan a trip to Rome."), City)

    def test_responses_route(self):
        message = self.model_of(use_responses_api=True).invoke("Name a colour.")
        self.assertTrue(message.text if isinstance(message.text, str) else message.text())

    def test_completions_and_embeddings(self):
        complete = OpenAI(model=self.model, base_url=self.server.address + "/v1", api_key=KEY, max_tokens=8, temperature=0)
        self.assertTrue(complete.invoke("Once upon a time"))
        embed = OpenAIEmbeddings(model=self.model, base_url=self.server.address + "/v1", api_key=KEY, check_embedding_ctx_length=False)
        vectors = embed.embed_documents(["a cat", "a dog"])
        self.assertEqual(len(vectors[0]), len(vectors[1]))
        self.assertNotEqual(vectors[0], vectors[1])
