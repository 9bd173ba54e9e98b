#include "lora_options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/options.h"
#include "model/peft_adapter.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr double kMaxWeight = 1e4;

LoraArgument parse_lora(const std::string& text) {
  LoraArgument argument{text, 1};
  const std::size_t colon = text.rfind(':');
  if (colon != std::string::npos && !std::filesystem::exists(text)) {
    argument.folder = text.substr(0, colon);
    try {
      parse_value(std::string_view(text).substr(colon + 1), argument.weight);
    } catch (const Error&) {
      fail_usage("--lora: '{}' should be a number: the weight after the folder in {}",
                 text.substr(colon + 1), text);
    }
  }
  if (argument.folder.empty())
    fail_usage("--lora: '{}' names no folder; give DIR or DIR:WEIGHT", text);
  if (!(std::fabs(argument.weight) <= kMaxWeight)) {
    fail_usage("--lora: the weight {} should be within ±{}", argument.weight, kMaxWeight);
  }
  return argument;
}

}  // namespace

std::vector<LoraArgument> LoraOptions::arguments() const {
  std::vector<LoraArgument> all;
  for (const std::string& text : adapters) all.push_back(parse_lora(text));
  return all;
}

void LoraOptions::plan(SessionOptions& options) const {
  for (const LoraArgument& one : arguments()) {
    options.adapter_bytes += peft_adapter_bytes(one.folder);
  }
}

std::vector<AdapterChoice> LoraOptions::load(Engine& engine) const {
  std::vector<AdapterChoice> choices;
  const auto is_free = [&](const std::string& name) {
    return std::none_of(choices.begin(), choices.end(),
                        [&](const AdapterChoice& choice) { return choice.name == name; });
  };
  for (const LoraArgument& one : arguments()) {
    const std::string folder = std::filesystem::weakly_canonical(one.folder).filename().string();
    std::string name = folder;
    for (int i = 2; !is_free(name); ++i) name = fmt::format("{}#{}", folder, i);
    choices.push_back({name, one.weight});
    engine.load_adapter(name, one.folder);
  }
  return choices;
}

AdapterMix LoraOptions::load(ModelSession& session) const {
  AdapterMix mix;
  for (const LoraArgument& one : arguments()) {
    const auto prepared = session.prepare_adapter(one.folder);
    mix.push_back({session.pack_adapter(*prepared, 0), static_cast<float>(one.weight)});
  }
  return mix;
}

}  // namespace bl
