#include "model/checkpoint_names.h"

#include <algorithm>
#include <array>

namespace bl {
namespace {

// What multimodal classes of transformers put before the names of their text model.
constexpr std::array<std::string_view, 2> kWrappers = {"model.", "language_model."};

}  // namespace

std::string renamed(std::string name, const RenameRules& rules) {
  for (const auto& [pattern, to] : rules) {
    if (pattern.starts_with('^')) {
      const std::size_t length = pattern.size() - 1;
      if (name.compare(0, length, pattern, 1) == 0) name.replace(0, length, to);
      continue;
    }
    for (std::size_t at = name.find(pattern); at != std::string::npos;
         at = name.find(pattern, at + to.size())) {
      name.replace(at, pattern.size(), to);
    }
  }
  return name;
}

CheckpointNames::CheckpointNames(const ArchSpec& arch) : rules_(arch.rename) {
  if (!arch.base.empty()) base_ = arch.base + ".";
  const auto add = [&](const Names& names) {
    for (const std::string& name : names) roots_.push_back(name + ".");
  };
  add(arch.embed);
  add(arch.positions);
  add(arch.head);
  if (arch.embed_norm) add(arch.embed_norm->name);
  if (arch.final_norm) add(arch.final_norm->name);
  const std::size_t number = arch.layer.find("{i}");
  if (number == std::string::npos) {
    add({arch.layer});
  } else {
    layers_ = arch.layer.substr(0, number);
  }
}

bool CheckpointNames::knows(std::string_view name) const {
  const bool of_block = !layers_.empty() && name.starts_with(layers_) &&
                        name.size() > layers_.size() && name[layers_.size()] >= '0' &&
                        name[layers_.size()] <= '9';
  return of_block || std::any_of(roots_.begin(), roots_.end(),
                                 [&](const std::string& root) { return name.starts_with(root); });
}

std::string_view CheckpointNames::bare(std::string_view name) const {
  for (bool found = true; found;) {
    found = false;
    const auto take = [&](std::string_view prefix) {
      if (prefix.empty() || !name.starts_with(prefix)) return;
      name.remove_prefix(prefix.size());
      found = true;
    };
    take(base_);
    for (const std::string_view wrapper : kWrappers) take(wrapper);
  }
  return name;
}

CheckpointNames::Known CheckpointNames::known_as(const std::string& name) const {
  const std::string by_rules = renamed(name, rules_);
  if (!knows(by_rules)) {
    const std::string core(bare(name));
    for (const std::string& candidate : {base_ + core, core}) {
      std::string found = renamed(candidate, rules_);
      if (knows(found)) return {std::move(found), Distance::kPrefix};
    }
  }
  return {by_rules, by_rules == name ? Distance::kSame : Distance::kRenamed};
}

}  // namespace bl
