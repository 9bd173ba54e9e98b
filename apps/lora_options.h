#pragma once
#include <string>
#include <vector>

#include "engine/engine.h"

namespace bl {

// An argument DIR or DIR:WEIGHT.
struct LoraArgument {
  std::string folder;
  double weight = 1;
};

// The option --lora, for every command that computes with a model.
struct LoraOptions {
  std::vector<std::string> adapters;

  template <class V>
  void visit(V&& v) {
    v(adapters, {"--lora", "DIR[:WEIGHT]", "apply a LoRA adapter (PEFT) with this weight, else 1"});
  }

  std::vector<LoraArgument> arguments() const;  // throws UsageError
  // Reserves memory for the adapters.
  void plan(SessionOptions& options) const;
  // Loads the adapters and returns what requests must ask for. An adapter is named after its
  // folder, without the path; a second folder called NAME becomes "NAME#2".
  std::vector<AdapterChoice> load(Engine& engine) const;
  // Loads the adapters into a session without an engine.
  AdapterMix load(ModelSession& session) const;
};

}  // namespace bl
