#include "model_options.h"

#include "base/log.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr std::int64_t kMaxContext = 2'000'000'000;  // positions are 32-bit numbers

void say_memory(const ModelSession& session) {
  const auto text = [](std::size_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  const MemoryPlan& plan = session.plan();  // positions are 32-bit integers
  log_info("{}: planned {} (weights {}, cache {}, work space {}), allocated {}{}",
           session.backend().name(), text(plan.total()), text(plan.weights), text(plan.cache),
           text(plan.work), text(session.backend().memory_use().peak),
           plan.on_host > 0 ? fmt::format(", {} of embeddings on the host", text(plan.on_host))
                            : std::string());
}

int checked_threads(std::int64_t threads) {
  if (threads < 0 || threads > 1024) {
    fail_usage("--threads: {} is not in 1 … 1024 (0: physical cores)", threads);
  }
  return static_cast<int>(threads);
}

}  // namespace

SessionOptions ModelOptions::session_options(bool needs_model) const {
  if (needs_model && model.empty()) fail_usage("-m DIR is missing: the model folder or .gguf file");
  if (context < 0 || context > kMaxContext) {
    fail_usage("--ctx: {} is not in 1 … {}", context, kMaxContext);
  }
  if (rope_scale < 0) fail_usage("--rope-scale: {} should be above 0", rope_scale);
  if (rope_alpha < 0) fail_usage("--rope-alpha: {} should be above 0", rope_alpha);
  SessionOptions options;
  options.model = model;
  options.backend = backend;
  options.threads = checked_threads(threads);
  options.context = context;
  options.rope_scale = rope_scale;
  options.rope_alpha = rope_alpha;
  options.layer_map = layer_map;
  options.overrides = overrides_of(overrides);
  options.archs = archs;
  options.deterministic = deterministic;
  options.kv_host = kv_host.bytes;
  options.embed_host = embed_host;
  options.memory = memory.bytes;
  options.cache = cache_types_of(cache);
  return options;
}

std::unique_ptr<ModelSession> load_session(const SessionOptions& options) {
  std::unique_ptr<Progress> progress;
  SessionOptions with_progress = options;
  with_progress.on_progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("loading", total, Progress::Unit::kBytes);
    progress->update(done);
  };
  std::unique_ptr<ModelSession> session = ModelSession::load(with_progress);
  progress.reset();
  if (!session->backend().reads_host_memory()) say_memory(*session);
  return session;
}

}  // namespace bl
