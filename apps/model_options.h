#pragma once
#include <memory>
#include <string>

#include "base/options.h"
#include "engine/model_session.h"
#include "model_flags.h"

namespace bl {

// The options of every command that loads a model.
struct ModelOptions {
  std::string model;
  std::string backend = "auto";
  std::int64_t threads = 0;
  std::int64_t context = 0;
  std::string cache;
  double rope_scale = 0;
  double rope_alpha = 0;
  std::string layer_map;
  std::vector<std::string> overrides;
  std::string archs;
  bool embed_host = false;
  ByteSize memory;
  ByteSize kv_host;
  bool deterministic = false;

  // What a command says instead where its context has a meaning or a default of its own.
  const char* context_help = "tokens that prompt and answer may have together";
  const char* context_default = "the model's, as far as memory allows";

  template <class V>
  void visit(V&& v) {
    v.group("Model");
    v(model, {"-m,--model", "DIR", "model folder or .gguf file"});
    v(backend, {"--backend", "NAME", "auto, cpu, ref or cuda[:N]"});
    v(threads, {"--threads", "N", "threads of the CPU", "physical cores"});
    v(context, {"--ctx", "N", context_help, context_default});
    v(cache, {"--cache", "TYPE", cache_help(), "fp16; ref: fp32"});
    v(rope_scale, {"--rope-scale", "X", "divide positions by X", "the model's"});
    v(rope_alpha, {"--rope-alpha", "X", "stretch the rotary base (NTK)", "the model's"});
    v(overrides, {"--override", "PATTERN=DIR", kOverrideHelp});
    v(layer_map, {"--layer-map", "RUNS", kLayerMapHelp, "every layer once"});
    v(archs, {"--archs", "DIR", "architecture files that replace the built-in ones", "built in"});
    v(embed_host, {"--embed-host", "", "keep the embedding in host memory (no effect on a CPU)"});
    v(memory, {"--vram", "SIZE", "memory of the device to keep to, such as 24GiB", "what is free"});
    v(kv_host,
      {"--kv-host", "SIZE", "host memory for pages that leave the cache, such as 8GiB", "none"});
    v(deterministic,
      {"--deterministic", "", "results that do not depend on the batch (slower on a card)"});
  }

  // Checks what can be checked without a file; UsageError.
  SessionOptions session_options(bool needs_model = true) const;
};

// Loads with a progress bar and says on stderr what deserves to be said.
std::unique_ptr<ModelSession> load_session(const SessionOptions& options);

}  // namespace bl
