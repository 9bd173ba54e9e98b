// Embeddings in the words of OpenAI, Ollama and llama.cpp's server, and reranking.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "api/request_error.h"
#include "api/request_fields.h"
#include "base/json.h"
#include "base/seconds_since.h"
#include "server/answer_meter.h"
#include "server/chat_reply.h"
#include "server/embedding_input.h"
#include "server/keep_alive.h"
#include "server/request_body.h"
#include "server/reranking.h"
#include "server/route_table.h"
#include "server/routes.h"
#include "server/slow_work.h"

namespace bl::server {
namespace {

using Vectors = std::vector<std::vector<float>>;

// One request for embeddings, whatever its protocol.
struct Wanted {
  std::shared_ptr<ServedModel> model;
  EmbeddingInput input;
  bool normalize = true;
};

void check_lengths(const Wanted& wanted) {
  const std::int64_t context = wanted.model->engine().context();
  for (const std::vector<std::int32_t>& ids : wanted.input.texts) {
    if (std::ssize(ids) <= context) continue;
    throw openai::ContextOverflow(std::ssize(ids), context);
  }
}

// Computes the vectors on the queue for slow work and hands them to `reply`.
void embed(ServerState& state, const Call& call, ErrorShape shape, Wanted wanted,
           std::function<void(const Wanted&, const Vectors&)> reply) {
  check_lengths(wanted);
  run_slowly(state, call, shape,
             [&state, to = call.exchange, wanted = std::move(wanted), reply = std::move(reply)] {
               EmbedRequest request;
               request.texts = wanted.input.texts;
               request.pooling = wanted.model->pooling();
               request.normalize = wanted.normalize;
               request.adapters = wanted.model->otherwise().adapters;
               request.cancelled = [&] { return to->gone() || state.stopping(); };
               const auto start = std::chrono::steady_clock::now();
               const Vectors vectors = wanted.model->engine().embed(request);
               if (auto* const meter = dynamic_cast<AnswerMeter*>(to.get())) {
                 meter->on_embedding(*wanted.model, wanted.input.tokens(), seconds_since(start));
               }
               reply(wanted, vectors);
             });
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) {
      return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u;
    };
    const unsigned group = (byte(0) << 16) | (byte(1) << 8) | byte(2);
    for (std::size_t k = 0; k < 4; ++k) {
      const bool is_filled = i + k <= bytes.size();
      text += is_filled ? kDigits[(group >> (18 - 6 * k)) & 63] : '=';
    }
  }
  return text;
}

Json vector_json(const std::vector<float>& vector, bool as_base64) {
  static_assert(std::endian::native == std::endian::little);
  if (!as_base64) return vector;
  return base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)});
}

// OpenAI's body.
void embed_openai(ServerState& state, const Call& call, const OrderedJson& body) {
  const OrderedJson* input = openai::given(body, "input");
  if (input == nullptr) {
    openai::fail_at(ErrorCode::kInvalidArgument, "input", "input is missing");
  }
  const std::string format = text_in(body, "encoding_format");
  if (!format.empty() && format != "float" && format != "base64") {
    openai::fail_at(ErrorCode::kInvalidArgument, "encoding_format",
                    "encoding_format should be \"float\" or \"base64\"");
  }
  const std::int64_t dimensions = count_in(body, "dimensions", 0);
  Wanted wanted;
  wanted.model = model_for(state, body);
  const std::int64_t hidden = wanted.model->card()->facts.hidden;
  if (openai::given(body, "dimensions") != nullptr && dimensions != hidden) {
    openai::fail_at(ErrorCode::kInvalidArgument, "dimensions",
                    "the embeddings of this model have {} dimensions, and nothing says that they "
                    "may be cut; leave dimensions out",
                    hidden);
  }
  wanted.input = read_embedding_input(*input, "input", wanted.model->engine().tokenizer());
  const bool as_base64 = format == "base64";
  embed(state, call, ErrorShape::kOpenAi, std::move(wanted),
        [to = call.exchange, as_base64](const Wanted& asked, const Vectors& vectors) {
          Json data = Json::array();
          for (const std::vector<float>& vector : vectors) {
            data.push_back({{"object", "embedding"},
                            {"index", data.size()},
                            {"embedding", vector_json(vector, as_base64)}});
          }
          const std::int64_t tokens = asked.input.tokens();
          to->respond(json_response(
              200, {{"object", "list"},
                    {"data", std::move(data)},
                    {"model", asked.model->name()},
                    {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}));
        });
}

// llama.cpp's own body; the answer is a list.
void embed_native(ServerState& state, const Call& call, const OrderedJson& body) {
  const char* field = openai::given(body, "content") != nullptr ? "content" : "input";
  const OrderedJson* input = openai::given(body, field);
  if (input == nullptr) {
    openai::fail_at(ErrorCode::kInvalidArgument, "content", "content is missing");
  }
  // Only two of llama.cpp's norms: none and the Euclidean one.
  const std::int64_t norm = count_in(body, "embd_normalize", 2);
  if (norm != -1 && norm != 2) {
    openai::fail_at(ErrorCode::kInvalidArgument, "embd_normalize",
                    "embd_normalize should be 2 (length 1) or -1 (as the model gives it)");
  }
  Wanted wanted;
  wanted.model = model_for(state, body);
  wanted.input = read_embedding_input(*input, field, wanted.model->engine().tokenizer());
  wanted.normalize = norm == 2;
  embed(state, call, ErrorShape::kOpenAi, std::move(wanted),
        [to = call.exchange](const Wanted&, const Vectors& vectors) {
          Json list = Json::array();
          for (const std::vector<float>& vector : vectors) {
            list.push_back({{"index", list.size()}, {"embedding", Json::array({vector})}});
          }
          respond_json(*to, list);
        });
}

void handle_openai(ServerState& state, const Call& call) { embed_openai(state, call, call.body()); }

// Without "/v1", both OpenAI's clients and llama.cpp's ask here: those have "input", these
// "content".
void handle_either(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  const bool native = openai::given(body, "input") == nullptr && body.contains("content");
  native ? embed_native(state, call, body) : embed_openai(state, call, body);
}

void handle_native(ServerState& state, const Call& call) { embed_native(state, call, call.body()); }

// Cuts texts to the context, as Ollama does unless "truncate" is false.
void truncate(EmbeddingInput& input, std::int64_t context) {
  for (std::vector<std::int32_t>& ids : input.texts) {
    if (std::ssize(ids) > context) ids.resize(static_cast<std::size_t>(context));
  }
}

std::shared_ptr<ServedModel> ollama_model(ServerState& state, const OrderedJson& body) {
  const auto keep = keep_alive_of(body);
  auto model = state.model(needed_text(body, "model"));
  if (keep) state.registry().keep_alive(*model, keep);
  return model;
}

std::int64_t nanoseconds_since(std::chrono::steady_clock::time_point start) {
  return static_cast<std::int64_t>(1e9 * seconds_since(start));
}

void handle_ollama(ServerState& state, const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  const OrderedJson body = call.body();
  Wanted wanted;
  wanted.model = ollama_model(state, body);
  const std::string name = text_in(body, "model");
  const OrderedJson* input = openai::given(body, "input");
  // Nothing to embed: the request only has the model loaded.
  const bool is_empty = input == nullptr || *input == "" || *input == OrderedJson::array();
  if (is_empty) {
    return respond_json(*call.exchange, {{"model", name}, {"embeddings", Json::array()}});
  }
  if (count_in(body, "dimensions", 0) > 0 &&
      count_in(body, "dimensions", 0) != wanted.model->card()->facts.hidden) {
    openai::fail_at(ErrorCode::kInvalidArgument, "dimensions",
                    "the embeddings of this model have {} dimensions, and nothing says that they "
                    "may be cut",
                    wanted.model->card()->facts.hidden);
  }
  wanted.input = read_embedding_input(*input, "input", wanted.model->engine().tokenizer());
  if (openai::read_flag(body, "truncate", true)) {
    truncate(wanted.input, wanted.model->engine().context());
  }
  embed(state, call, ErrorShape::kOllama, std::move(wanted),
        [to = call.exchange, name, start](const Wanted& asked, const Vectors& vectors) {
          respond_json(*to, {{"model", name},
                             {"embeddings", vectors},
                             {"total_duration", nanoseconds_since(start)},
                             {"load_duration", 0},
                             {"prompt_eval_count", asked.input.tokens()}});
        });
}

// Ollama's older route: one text, and its vector as the model gives it.
void handle_ollama_prompt(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  Wanted wanted;
  wanted.model = ollama_model(state, body);
  const std::string prompt = text_in(body, "prompt");
  if (prompt.empty()) {
    return respond_json(*call.exchange, {{"embedding", Json::array()}});
  }
  wanted.input = read_embedding_input(prompt, "prompt", wanted.model->engine().tokenizer());
  wanted.normalize = false;
  truncate(wanted.input, wanted.model->engine().context());
  embed(state, call, ErrorShape::kOllama, std::move(wanted),
        [to = call.exchange](const Wanted&, const Vectors& vectors) {
          respond_json(*to, {{"embedding", vectors.front()}});
        });
}

// No model here has a head that is trained to score documents. Whoever starts the server may say
// that the similarity of embeddings will do, which is what models for embeddings are made for.
void handle_rerank(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  RerankRequest asked = RerankRequest::read(body);
  Wanted wanted;
  wanted.model = model_for(state, body);
  if (!wanted.model->reranks()) {
    throw HttpError(501, "not_supported",
                    fmt::format("the model '{}' has no head that scores documents, so it cannot "
                                "rerank; a server with --reranking orders them by their "
                                "embeddings, and /v1/embeddings gives vectors to compare",
                                wanted.model->name()));
  }
  wanted.input =
      read_embedding_input(asked.texts(), "documents", wanted.model->engine().tokenizer());
  embed(state, call, ErrorShape::kOpenAi, std::move(wanted),
        [to = call.exchange, asked = std::move(asked)](const Wanted& of, const Vectors& vectors) {
          respond_json(*to, asked.answer(vectors, of.model->name(), of.input.tokens()));
        });
}

constexpr StateRoute kEmbeddingRoutes[] = {
    {"POST", "/embeddings", Access::kKey, "Embed texts", handle_either},
    {"POST", "/v1/embeddings", Access::kKey, "Embed texts", handle_openai},
    {"POST", "/embedding", Access::kKey, "Embed texts", handle_native},
    {"POST", "/api/embed", Access::kKey, "Embed texts", handle_ollama, ErrorShape::kOllama},
    {"POST", "/api/embeddings", Access::kKey, "Embed a text", handle_ollama_prompt,
     ErrorShape::kOllama},
    {"POST", "/v1/rerank", Access::kKey, "Score documents", handle_rerank},
    {"POST", "/v1/reranking", Access::kKey, "Score documents", handle_rerank},
};

}  // namespace

void add_embedding_routes(Router& router, ServerState& state) {
  add_routes(router, state, kEmbeddingRoutes);
}

}  // namespace bl::server
