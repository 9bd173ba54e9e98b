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

  // For commands in which the context length has another meaning or default.
  const char* context_help = "context length in tokens";
  const char* context_default = "the model's, as far as memory allows";

  template <class V>
  void visit(V&& v) {
    v.group("Model");
    v(model, {"-m,--model", "DIR", "model folder or .gguf file"});
    v(backend, {"--backend", "NAME", "where to compute: auto, cpu, ref or cuda[:N]"});
    v(threads, {"--threads", "N", "CPU threads", "physical cores"});
    v(context, {"--ctx", "N", context_help, context_default});
    v(cache, {"--cache", "TYPE", cache_help(), "fp16; ref: fp32"});
    v(rope_scale,
      {"--rope-scale", "X", "linear RoPE scaling: divide positions by X", "the model's"});
    v(rope_alpha,
      {"--rope-alpha", "X", "NTK-aware RoPE scaling: stretch the rotary base", "the model's"});
    v(overrides, {"--override", "PATTERN=DIR", kOverrideHelp});
    v(layer_map, {"--layer-map", "RUNS", kLayerMapHelp, "every layer once"});
    v(archs, {"--archs", "DIR", "folder of architecture files to use instead", "built in"});
    v(embed_host,
      {"--embed-host", "", "keep the embedding table in host memory (no effect on a CPU)"});
    v(memory, {"--vram", "SIZE", "device memory to use at most, such as 24GiB", "what is free"});
    v(kv_host,
      {"--kv-host", "SIZE", "host memory for pages evicted from the cache, such as 8GiB", "none"});
    v(deterministic,
      {"--deterministic", "", "make results independent of the batch (slower on a card)"});
  }

  // Checks everything that needs no file. Throws UsageError.
  SessionOptions session_options(bool needs_model = true) const;
};

// Whether a cache type that was asked for is measured on the model, on a probe of 256 tokens.
// Random models are never measured.
enum class CacheCheck { kMeasure, kSkip };

// Loads a model with a progress bar; on a device, logs the planned and allocated memory. Warns of a
// cache type that costs this model much (engine/cache_loss.h).
std::unique_ptr<ModelSession> load_session(const SessionOptions& options,
                                           CacheCheck check = CacheCheck::kMeasure);

}  // namespace bl
