#include "model_options.h"

#include <array>

#include "base/log.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "engine/cache_loss.h"
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

// The option that keeps the scores right: 8-bit keys where these do, else fp16.
std::string better_cache(CacheTypes chosen, const CacheLoss& with_q8) {
  const bool q8_helps = is_int_code(chosen.k) && with_q8.score < kNotableCacheLoss;
  if (!q8_helps) return "fp16";
  return name_of(CacheTypes(CacheType::kQ8, chosen.v));
}

void warn_of_cache(ModelSession& session, CacheTypes chosen) {
  if (!may_lose(chosen.k)) return;
  const std::array types{chosen.k, CacheType::kQ8};
  const std::vector<CacheLoss> losses = measure_cache_loss(session, types);
  const CacheLoss& loss = losses[0];
  if (loss.score < kNotableCacheLoss) return;
  log_warning(
      "--cache {}: the keys of this model have outliers (up to {:.0f}, in layer {}), so that this "
      "cache shifts attention scores by {:.2f} (from {} on, answers get worse); better: --cache {}",
      name_of(chosen), loss.largest_key, loss.layer, loss.score, kNotableCacheLoss,
      better_cache(chosen, losses[1]));
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
  check_backend_flag("--backend", backend);
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

std::unique_ptr<ModelSession> load_session(const SessionOptions& options, CacheCheck check) {
  std::unique_ptr<Progress> progress;
  SessionOptions with_progress = options;
  with_progress.on_progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("loading", total, Progress::Unit::kBytes);
    progress->update(done);
    if (options.on_progress) options.on_progress(done, total);
  };
  std::unique_ptr<ModelSession> session = ModelSession::load(with_progress);
  progress.reset();
  if (!session->backend().reads_host_memory()) say_memory(*session);
  const bool is_random = options.opened != nullptr;
  if (check == CacheCheck::kMeasure && options.cache && !is_random) {
    warn_of_cache(*session, *options.cache);
  }
  return session;
}

}  // namespace bl
