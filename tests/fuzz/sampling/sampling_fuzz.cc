// Any bytes as sampling parameters and as a preset: an error of one line, or parameters with which
// a token can be chosen, and which are the same when written and read again.

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "sample/sampler_chain.h"
#include "sample/sampling_json.h"
#include "sample/sampling_preset.h"

namespace {

using namespace bl;

void check_line(const Error& error) {
  BL_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
}

void choose(const SamplingParams& params) {
  std::vector<float> logits(64);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(static_cast<int>(i * 37 % 64) - 32) * 0.25f;
  }
  std::vector<std::int32_t> history{1, 2, 3, 1, 2, 3, 1, 2};
  SamplerChain chain(params);
  try {
    for (std::uint64_t i = 0; i < 3; ++i) {
      const Pick pick = chain.pick({.logits = logits, .history = history, .position = i});
      BL_CHECK(pick.id >= 0 && pick.id < 64);
      BL_CHECK(pick.probability > 0 && pick.probability <= 1 + 1e-9);
      BL_CHECK(std::isfinite(chain.state().mirostat_mu));
      history.push_back(pick.id);
    }
  } catch (const Error& error) {
    check_line(error);  // everything is barred
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  Json document;
  try {
    document = parse_json(text, "input");
  } catch (const Error& error) {
    check_line(error);
    return 0;
  }
  try {
    SamplingParams params;
    read_sampling(document, "input", UnknownKeys::kIgnore, params);
    validate(params);
    SamplingParams again;
    const Json written = write_sampling(params, again);
    read_sampling(written, "written", UnknownKeys::kRefuse, again);
    BL_CHECK(again == params);
    choose(params);
  } catch (const Error& error) {
    check_line(error);
  }
  try {
    const SamplingPreset preset = SamplingPreset::parse(document, "input", "input");
    SamplingParams params;
    preset.apply(params);
    preset.merged(document);
  } catch (const Error& error) {
    check_line(error);
  }
  return 0;
}
