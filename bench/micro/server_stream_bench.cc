// What the server costs by itself: streams of completions over HTTP, from a model whose ops compute
// nothing. Prints one line of JSON. bench/server_load makes the model folder and runs it.
//
// Usage: server_stream_bench MODEL STREAMS TOKENS ROUNDS

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "server/api_server.h"
#include "stream_clients.h"

namespace bl {
namespace {

template <class... Args>
void nothing(ExecContext&, const Args&...) {}

// Every row's likeliest token is the letter "a".
void always_a(ExecContext&, const ArgmaxArgs& args) {
  std::fill_n(args.out, args.logits.rows(), 'a');
}

constexpr OpTable kNoOps{.embed = nothing,
                         .norm = nothing,
                         .activate = nothing,
                         .add = nothing,
                         .scale = nothing,
                         .gate = nothing,
                         .clamp = nothing,
                         .copy_rows = nothing,
                         .add_rows = nothing,
                         .matmul = nothing,
                         .route = nothing,
                         .experts = nothing,
                         .rope = nothing,
                         .kv_write = nothing,
                         .attention = nothing,
                         .argmax = always_a};

std::shared_ptr<server::ServedModel> load(const std::string& folder, std::int64_t streams) {
  SessionOptions options;
  options.model = folder;
  options.backend = "cpu";
  options.threads = 1;
  options.sequences = streams;
  options.context = 4096;
  std::unique_ptr<ModelSession> session = ModelSession::load(options);
  session->use_ops(&kNoOps);
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(std::move(session));
  args.names = {"none"};
  return std::make_shared<server::ServedModel>(std::move(args));
}

// A request for a stream of so many tokens.
std::string body_of(std::int64_t tokens) {
  return fmt::format(R"({{"prompt":"Hi","max_tokens":{},"temperature":0,"ignore_eos":true,)"
                     R"("stream":true,"stream_options":{{"include_usage":true}}}})",
                     tokens);
}

void run(const std::vector<std::string>& words) {
  const std::int64_t streams = std::stoll(words.at(1));
  const std::int64_t tokens = std::stoll(words.at(2));
  server::ApiServer server({.http = {.port = 0}});
  server.state().set_model(load(words.at(0), streams));
  server.start();
  Json rates = Json::array();
  StreamRound last;
  const std::vector<std::string> bodies(static_cast<std::size_t>(streams), body_of(tokens));
  for (int i = std::stoi(words.at(3)); i > 0; --i) {
    last = run_streams({server.port(), streams, tokens}, bodies);
    rates.push_back(static_cast<double>(last.tokens) / last.seconds);
  }
  fmt::print("{}\n", Json{{"streams", streams},
                          {"tokens_per_second", rates},
                          {"tokens_of_an_event",
                           static_cast<double>(last.tokens) / static_cast<double>(last.events)},
                          {"bytes_of_a_token",
                           static_cast<double>(last.bytes) / static_cast<double>(last.tokens)}}
                         .dump());
  server.stop(std::chrono::seconds(5));
}

}  // namespace
}  // namespace bl

int main(int count, char** words) {
  if (count != 5) {
    fmt::print(stderr, "usage: server_stream_bench MODEL STREAMS TOKENS ROUNDS\n");
    return 2;
  }
  try {
    bl::run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "server_stream_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
