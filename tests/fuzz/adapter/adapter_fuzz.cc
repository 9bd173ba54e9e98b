// Any bytes as adapter_config.json: ranks and scales in range for any module, or an error of one
// line. The same bytes as a pattern: an answer in bounded time, or such an error.

#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "model/peft_config.h"
#include "nn/lora.h"

namespace {

using namespace bl;

constexpr std::string_view kModules[] = {"", "lm_head", "model.layers.0.self_attn.q_proj",
                                         "model.layers.11.mlp.down_proj",
                                         "transformer.h.3.attn.c_attn"};

void check_line(const Error& error) {
  BL_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
}

void try_config(std::string_view text) {
  try {
    const PeftConfig config(parse_ordered_json(text, "adapter_config.json"), "adapter_config.json");
    for (const std::string_view module : kModules) {
      const std::int64_t rank = config.rank_of(module);
      BL_CHECK(rank >= 1 && rank <= kMaxLoraRank);
      BL_CHECK(std::isfinite(config.scale_of(module)));
      static_cast<void>(config.is_target(module));
    }
  } catch (const Error& error) {
    check_line(error);
  }
}

void try_pattern(std::string_view text) {
  try {
    const ModulePattern pattern(text, "rank_pattern");
    for (const std::string_view module : kModules) static_cast<void>(pattern.matches(module));
    static_cast<void>(pattern.matches(text));
  } catch (const Error& error) {
    check_line(error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_config(text);
  try_pattern(text);
  return 0;
}
