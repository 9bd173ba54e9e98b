#pragma once
#include <string>
#include <vector>

#include "engine/engine.h"

namespace bl {

// DIR or DIR:WEIGHT.
struct LoraArgument {
  std::string folder;
  double weight = 1;
};

// --lora, of every command that computes with a model.
struct LoraOptions {
  std::vector<std::string> adapters;

  template <class V>
  void visit(V&& v) {
    v(adapters, {"--lora", "DIR[:WEIGHT]", "add a LoRA adapter of PEFT; may be given again"});
  }

  std::vector<LoraArgument> arguments() const;  // UsageError
  // Keeps memory free for them.
  void plan(SessionOptions& options) const;
  // Loads them; what requests are to ask for. An adapter's name is that of its folder, without the
  // path; of the second folder called NAME, "NAME#2".
  std::vector<AdapterChoice> load(Engine& engine) const;
  // The same for a session without an engine.
  AdapterMix load(ModelSession& session) const;
};

}  // namespace bl
