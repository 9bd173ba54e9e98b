// What a JSON schema costs an answer alone on its model: the same prompt with and without it, in
// turn in one process, so that a machine that others use slows both.
//
//   constrained_decode_bench MODEL [PAIRS] [TOKENS]       60 pairs of 100 tokens

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"

namespace bl {
namespace {

constexpr const char* kSchema =
    R"({"type":"array","minItems":40,"maxItems":40,"items":{"type":"object","properties":)"
    R"({"name":{"type":"string","maxLength":20},"age":{"type":"integer"}},)"
    R"("required":["name","age"],"additionalProperties":false}})";

// Tokens a second after the first one.
double decode_rate(Engine& engine, bool constrained, std::int64_t tokens) {
  Request request;
  request.prompt = engine.tokenizer().encode("A list of people as JSON:\n");
  request.sampling.temperature = 0;
  request.sampling.max_tokens = tokens;
  request.ignore_end_tokens = true;
  if (constrained) request.constraint = {ConstraintSpec::Kind::kJsonSchema, kSchema};
  RequestHandle handle = engine.submit(std::move(request));
  double rate = 0;
  while (const std::optional<Event> event = handle.next()) {
    if (!event->finish) continue;
    if (*event->finish == FinishReason::kError) fail(event->code, "{}", event->error);
    if (event->usage.generated_tokens != tokens) {
      fail(ErrorCode::kInvalidArgument, "{} tokens instead of {}", event->usage.generated_tokens,
           tokens);
    }
    rate = event->usage.decode_rate();
  }
  return rate;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void compare(const std::string& model, int pairs, std::int64_t tokens) {
  SessionOptions options;
  options.model = model;
  options.context = 2048;
  Engine engine(ModelSession::load(options));
  std::vector<double> with;
  std::vector<double> without;
  std::vector<double> ratios;
  for (int i = -2; i < pairs; ++i) {  // the first two warm up
    const double rate = decode_rate(engine, true, tokens);
    const double plain = decode_rate(engine, false, tokens);
    if (i < 0) continue;
    with.push_back(rate);
    without.push_back(plain);
    ratios.push_back(rate / plain);
  }
  const auto best = [](const std::vector<double>& rates) {
    return *std::max_element(rates.begin(), rates.end());
  };
  std::printf(
      "%d pairs of %lld tokens, median and best: %.1f, %.1f tok/s with the schema, %.1f, %.1f "
      "without; with / without of a pair %.3f\n",
      pairs, static_cast<long long>(tokens), median(with), best(with), median(without),
      best(without), median(ratios));
}

}  // namespace
}  // namespace bl

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: constrained_decode_bench MODEL [PAIRS] [TOKENS]\n");
    return 2;
  }
  try {
    bl::compare(arguments[1], count > 2 ? std::max(std::atoi(arguments[2]), 1) : 60,
                count > 3 ? std::max(std::atoi(arguments[3]), 2) : 100);
  } catch (const bl::Error& error) {
    std::fprintf(stderr, "constrained_decode_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
