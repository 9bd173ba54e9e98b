// Clients of a server that runs already: streams of completions with random token ids as prompts.
// Prints one line of JSON. bench/server_card runs it.
//
// Usage: stream_clients_bench PORT CLIENTS REQUESTS PROMPT_TOKENS ANSWER_TOKENS SEED

#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "stream_clients.h"

namespace bl {
namespace {

// Ids that are plain text in the vocabularies of real models.
constexpr int kFirstId = 100;
constexpr int kLastId = 30'000;

std::string body_of(std::int64_t prompt, std::int64_t tokens, std::mt19937_64& random) {
  std::uniform_int_distribution<int> ids(kFirstId, kLastId);
  Json prompt_ids = Json::array();
  for (std::int64_t i = 0; i < prompt; ++i) prompt_ids.push_back(ids(random));
  return Json{{"prompt", prompt_ids}, {"max_tokens", tokens},
              {"temperature", 0},     {"ignore_eos", true},
              {"stream", true},       {"stream_options", {{"include_usage", true}}}}
      .dump();
}

void run(const std::vector<std::string>& words) {
  const StreamLoad load{static_cast<std::uint16_t>(std::stoi(words.at(0))), std::stoll(words.at(1)),
                        std::stoll(words.at(4))};
  std::mt19937_64 random(std::stoull(words.at(5)));
  std::vector<std::string> bodies;
  for (std::int64_t i = std::stoll(words.at(2)); i > 0; --i) {
    bodies.push_back(body_of(std::stoll(words.at(3)), load.tokens, random));
  }
  const StreamRound round = run_streams(load, bodies);
  fmt::print("{}\n", Json{{"tokens", round.tokens},
                          {"seconds", round.seconds},
                          {"cpu_seconds", round.cpu_seconds},
                          {"events", round.events}}
                         .dump());
}

}  // namespace
}  // namespace bl

int main(int count, char** words) {
  if (count != 7) {
    fmt::print(
        stderr,
        "usage: stream_clients_bench PORT CLIENTS REQUESTS PROMPT_TOKENS ANSWER_TOKENS SEED\n");
    return 2;
  }
  try {
    bl::run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "stream_clients_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
