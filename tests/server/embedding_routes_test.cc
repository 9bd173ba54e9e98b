// Embeddings over the routes of all protocols.

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "../http/raw_client.h"
#include "model_server.h"

namespace bl::test {
namespace {

class EmbeddingRoutes : public ModelServer {
 protected:
  EmbeddingRoutes() { add_model("a"); }

  Json vector_of(const std::string& input) {
    const HttpAnswer answer =
        post("/v1/embeddings", fmt::format(R"({{"model":"a","input":{}}})", input));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("data").at(0).at("embedding");
  }
  static double squares(const Json& vector) {
    double sum = 0;
    for (const double value : vector) sum += value * value;
    return sum;
  }
};

// Decodes what Python's base64 module would.
std::vector<float> floats_of(const std::string& base64) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0;
  int count = 0;
  for (const char c : base64) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255);
  }
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

TEST_F(EmbeddingRoutes, OpenAisFormHasVectorsAndUsage) {
  open();
  const HttpAnswer answer =
      post("/v1/embeddings", R"({"model":"a","input":["one","two words","one"]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_EQ(json.at("object"), "list");
  EXPECT_EQ(json.at("model"), "a");
  ASSERT_EQ(json.at("data").size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json.at("data")[i].at("object"), "embedding");
    EXPECT_EQ(json.at("data")[i].at("index"), i);
    ASSERT_EQ(json.at("data")[i].at("embedding").size(), 32u);
    EXPECT_NEAR(squares(json.at("data")[i].at("embedding")), 1, 1e-5);
  }
  EXPECT_EQ(json.at("data")[0].at("embedding"), json.at("data")[2].at("embedding"));
  EXPECT_NE(json.at("data")[0].at("embedding"), json.at("data")[1].at("embedding"));
  // With <s> before each.
  EXPECT_EQ(json.at("usage").at("prompt_tokens"), 4 + 10 + 4);
  EXPECT_EQ(json.at("usage").at("total_tokens"), 18);
}

TEST_F(EmbeddingRoutes, TextsAndTokenIdsGiveTheSame) {
  open();
  const Json vector = vector_of(R"("hi")");
  EXPECT_EQ(vector_of("[256,104,105]"), vector);
  EXPECT_EQ(vector_of("[[256,104,105],[1]]"), vector);
  EXPECT_EQ(vector_of(R"([256,"hi"])"), vector);
  EXPECT_EQ(vector_of(R"({"prompt_string":"hi"})"), vector);
  EXPECT_EQ(
      vector_of(R"([{"content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]},"x"])"),
      vector);
  EXPECT_EQ(vector_of(R"("")"), vector_of("[256]"));
  // The text of a control token stays text.
  EXPECT_NE(vector_of(R"("</s>")"), vector_of("[256,257]"));
}

TEST_F(EmbeddingRoutes, Base64HasTheSameFloats) {
  open();
  const Json vector = vector_of(R"("hi")");
  const HttpAnswer answer =
      post("/v1/embeddings", R"({"model":"a","input":"hi","encoding_format":"base64"})");
  ASSERT_EQ(answer.status, 200);
  const std::string text = answer.json().at("data").at(0).at("embedding");
  EXPECT_EQ(text.size() % 4, 0u);
  EXPECT_EQ(Json(floats_of(text)), vector);
}

TEST_F(EmbeddingRoutes, WrongRequestsAreToldWhatIsWrong) {
  open();
  EXPECT_EQ(post("/v1/embeddings", R"({"model":"a","input":"x","dimensions":32})").status, 200);
  const std::string longest(5000, 'x');
  for (const std::string& wrong :
       {std::string(R"({"model":"a"})"), std::string(R"({"model":"a","input":[]})"),
        std::string(R"({"model":"a","input":7})"), std::string(R"({"model":"a","input":[[]]})"),
        std::string(R"({"model":"a","input":[-1]})"),
        std::string(R"({"model":"a","input":[9999]})"),
        std::string(R"({"model":"a","input":[1.5]})"),
        std::string(R"({"model":"a","input":[null]})"),
        std::string(R"({"model":"a","input":{"content":"x"}})"),
        std::string(R"({"model":"a","input":{"content":[{"type":"image_url"}]}})"),
        std::string(R"({"model":"a","input":"x","dimensions":16})"),
        std::string(R"({"model":"a","input":"x","dimensions":0})"),
        std::string(R"({"model":"a","input":"x","dimensions":"all"})"),
        std::string(R"({"model":"a","input":"x","encoding_format":"hex"})"),
        R"({"model":"a","input":")" + longest + "\"}"}) {
    const HttpAnswer answer = post("/v1/embeddings", wrong);
    EXPECT_EQ(answer.status, 400) << wrong.substr(0, 100) << answer.body;
    EXPECT_FALSE(answer.json().at("error").at("message").get<std::string>().empty());
  }
  const Json too_long =
      post("/v1/embeddings", R"({"model":"a","input":")" + longest + "\"}").json().at("error");
  EXPECT_EQ(too_long.at("code"), "context_length_exceeded");
  EXPECT_EQ(post("/v1/embeddings", R"({"model":"none","input":"x"})").status, 404);
}

TEST_F(EmbeddingRoutes, LlamaServersFormIsAList) {
  open();
  const Json vector = vector_of(R"("hi")");
  const HttpAnswer answer = post("/embedding", R"({"model":"a","content":"hi"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json().at(0).at("embedding").at(0), vector);
  EXPECT_EQ(answer.json().at(0).at("index"), 0);
  const Json raw = post("/embedding", R"({"model":"a","content":"hi","embd_normalize":-1})").json();
  EXPECT_GT(std::fabs(squares(raw.at(0).at("embedding").at(0)) - 1), 1e-3);
  EXPECT_EQ(post("/embeddings", R"({"model":"a","content":"hi"})").json(), answer.json());
  EXPECT_EQ(post("/embeddings", R"({"model":"a","input":"hi"})").json().at("object"), "list");
}

TEST_F(EmbeddingRoutes, OllamasForms) {
  open();
  const Json vector = vector_of(R"("one")");
  const HttpAnswer answer = post("/api/embed", R"({"model":"a","input":["one","two words"]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json().at("embeddings").at(0), vector);
  EXPECT_EQ(answer.json().at("embeddings").size(), 2u);
  EXPECT_EQ(answer.json().at("prompt_eval_count"), 14);
  EXPECT_EQ(post("/api/embed", R"({"model":"a","input":""})").json().at("embeddings"),
            Json::array());
  const Json older = post("/api/embeddings", R"({"model":"a","prompt":"one"})").json();
  EXPECT_EQ(older.at("embedding").size(), 32u);
  const std::string longest(5000, 'x');
  EXPECT_EQ(post("/api/embed", R"({"model":"a","input":")" + longest + "\"}").status, 200);
  const HttpAnswer refused =
      post("/api/embed", R"({"model":"a","truncate":false,"input":")" + longest + "\"}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(refused.json().at("error").is_string());
  EXPECT_EQ(post("/api/embed", R"({"input":"x"})").status, 400);
  EXPECT_EQ(post("/api/embed", R"({"model":"none","input":"x"})").status, 404);
}

TEST_F(EmbeddingRoutes, GenerationsGoOnMeanwhile) {
  open();
  RawClient streaming(server_->port());
  streaming.send(http_request(
      "POST", "/v1/completions",
      R"({"model":"a","prompt":"a","n":64,"max_tokens":1000,"ignore_eos":true,"stream":true})"));
  ASSERT_NE(streaming.read_to("data: {", std::chrono::seconds(30)), "");
  const Json vector = vector_of(R"("hi")");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(vector_of(R"("hi")"), vector);
    EXPECT_NE(streaming.read_to("data: {"), "");
  }
}

TEST_F(EmbeddingRoutes, RerankingSaysThatNoModelCan) {
  open();
  for (const char* path : {"/v1/rerank", "/rerank", "/reranking", "/v1/reranking"}) {
    const HttpAnswer answer = post(path, R"({"model":"a","query":"q","documents":["a","b"]})");
    EXPECT_EQ(answer.status, 501) << path;
    EXPECT_EQ(answer.json().at("error").at("code"), "not_supported");
    for (const char* wrong :
         {R"({"query":"q"})", R"({"query":"q","documents":[]})",
          R"({"query":"q","documents":null})", R"({"query":"q","documents":123})",
          R"({"query":"q","documents":[1,2,3]})", R"({"documents":["a"]})"}) {
      EXPECT_EQ(post(path, wrong).status, 400) << wrong;
    }
  }
}

}  // namespace
}  // namespace bl::test
