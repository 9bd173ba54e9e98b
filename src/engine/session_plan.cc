#include "engine/session_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/terminal.h"
#include "cache/kv_cache.h"

namespace bl {
namespace {

// Tokens of a prefill step: enough for each weight that is read to serve many of them.
constexpr std::int64_t kHostStepTokens = 512;
// Lengths to try on a device, the longest first: shorter steps save work memory.
constexpr std::array<std::int64_t, 4> kDeviceStepTokens{2048, 1024, 512, 256};
// Where the logits of every token are wanted, steps are short enough for them to stay below this.
constexpr std::int64_t kLogitBytes = 128 << 20;
// Prompts with prompt_logprobs are computed in chunks of as many tokens as there are rows: at least
// kChunkRows, where these stay below kChunkBytes.
constexpr std::int64_t kChunkRows = 64;
constexpr std::int64_t kChunkBytes = 64 << 20;

std::string text_of(std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

// Checks ranges before anything is computed from the numbers.
void check_numbers(const SessionOptions& options) {
  const auto check = [](const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value >= low && value <= high) return;
    fail(ErrorCode::kInvalidArgument, "SessionOptions: {} is {}, should be in {} … {}", name, value,
         low, high);
  };
  check("sequences", options.sequences, 1, 1 << 16);
  check("drafts", options.drafts, 0, 1 << 16);
  check("threads", options.threads, 0, 1 << 16);
  check("context", options.context, 0, INT32_MAX);
  check("longest", options.longest, 0, INT32_MAX);
  check("most_context", options.most_context, 0, INT32_MAX);
  check("pages", options.pages, 0, INT32_MAX);
}

void set_step(const PlanInput& input, std::int64_t most, SessionPlan& plan) {
  const SessionOptions& options = input.options;
  const ModelSpec& spec = input.loader.spec();
  const std::int64_t row_bytes = spec.vocab * static_cast<std::int64_t>(sizeof(float));
  const auto rows = std::clamp<std::int64_t>(kLogitBytes / row_bytes, 16, kHostStepTokens);
  if (options.logits == SessionLogits::kEveryToken) {
    plan.step_tokens = plan.logit_rows = rows;
    return;
  }
  const std::int64_t verified = std::min(options.sequences * options.drafts, rows);
  const std::int64_t longest_step = std::min(most, spec.context);
  const std::int64_t chunk = std::min({kChunkRows, kChunkBytes / row_bytes, longest_step});
  plan.logit_rows = std::max(options.sequences + verified, chunk);
  plan.step_tokens = std::max(longest_step, plan.logit_rows);
}

// The memory of everything except the cache.
MemoryPlan without_cache(const PlanInput& input, const SessionPlan& plan) {
  return input.loader.plan({.cache = plan.cache,
                            .context = 0,
                            .sequences = input.options.sequences,
                            .step_tokens = plan.step_tokens,
                            .logit_rows = plan.logit_rows,
                            .adapter_bytes = input.options.adapter_bytes});
}

std::size_t page_bytes(const PlanInput& input, CacheTypes cache) {
  return KvCache::page_bytes(input.loader.kv_layouts(cache));
}

// The longest context that a sequence may have, whatever the memory.
std::int64_t most_context(const PlanInput& input) {
  const SessionOptions& options = input.options;
  std::int64_t most = input.loader.spec().context;
  if (options.longest > most) {
    fail(ErrorCode::kInvalidArgument,
         "a sequence of {} tokens is longer than the context of {}; --ctx {} extends it",
         options.longest, most, options.longest);
  }
  if (options.most_context > 0) most = std::min(most, options.most_context);
  return most;
}

// The longest context that fits into `available` bytes, in whole pages for every sequence; `most`
// at most.
std::int64_t fitting(const PlanInput& input, const MemoryPlan& fixed, CacheTypes cache,
                     std::uint64_t available, std::int64_t most) {
  const std::size_t needed = fixed.needed();
  if (needed > available) return 0;
  const std::size_t page = page_bytes(input, cache);
  if (page == 0) return most;
  // Memory that only loading takes is free for the cache afterwards.
  const std::size_t shared =
      fixed.loading > fixed.work + fixed.adapters ? fixed.loading - fixed.work - fixed.adapters : 0;
  const std::uint64_t pages =
      (available - needed + shared) / page / static_cast<std::uint64_t>(input.options.sequences);
  return std::min(most, static_cast<std::int64_t>(std::min<std::uint64_t>(pages, INT32_MAX)) *
                            std::int64_t{kPageSlots});
}

std::int64_t choose_context(const PlanInput& input, const MemoryPlan& fixed, CacheTypes cache) {
  const SessionOptions& options = input.options;
  const std::int64_t most = most_context(input);
  if (options.longest > 0) return options.longest;
  if (options.context > 0) return options.context;
  // A tenth stays free for page tables, the tokenizer and other programs.
  const std::uint64_t available = input.available - input.available / 10;
  const std::int64_t found = fitting(input, fixed, cache, available, most);
  return found > 0 ? found : std::min<std::int64_t>(most, kPageSlots);
}

std::int32_t count_pages(const SessionOptions& options, std::int64_t context) {
  if (options.pages > 0) return options.pages;
  const std::int64_t pages = pages_for(context) * options.sequences;
  if (pages > INT32_MAX) {
    fail(ErrorCode::kInvalidArgument, "{} sequences of {} tokens are more than a cache can hold",
         options.sequences, context);
  }
  return static_cast<std::int32_t>(pages);
}

SessionPlan plan_with_step(const PlanInput& input, std::int64_t step) {
  const SessionOptions& options = input.options;
  SessionPlan plan;
  plan.available = input.available;
  plan.embed_host = options.embed_host;
  plan.cache = options.cache.value_or(input.backend.default_cache_type());
  set_step(input, step, plan);
  plan.memory = without_cache(input, plan);
  plan.context = choose_context(input, plan.memory, plan.cache);
  plan.pages = count_pages(options, plan.context);
  const std::size_t page = page_bytes(input, plan.cache);
  if (__builtin_mul_overflow(page, static_cast<std::size_t>(plan.pages), &plan.memory.cache)) {
    plan.memory.cache = std::numeric_limits<std::size_t>::max() / 4;
  }
  return plan;
}

}  // namespace

SessionPlan plan_session(const PlanInput& input) {
  check_numbers(input.options);
  if (input.backend.reads_host_memory()) return plan_with_step(input, kHostStepTokens);
  SessionPlan first;
  for (const std::int64_t step : kDeviceStepTokens) {
    SessionPlan plan = plan_with_step(input, step);
    if (plan.fits()) return plan;
    first = std::move(plan);
  }
  return first;
}

std::int64_t longest_fitting(const PlanInput& input, CacheTypes cache) {
  check_numbers(input.options);
  const ModelSpec& spec = input.loader.spec();
  SessionPlan plan;
  plan.cache = cache;
  const bool host = input.backend.reads_host_memory();
  set_step(input, host ? kHostStepTokens : kDeviceStepTokens.back(), plan);
  return fitting(input, without_cache(input, plan), cache, input.available,
                 std::max(spec.max_positions, spec.context));
}

std::string what_would_fit(const PlanInput& input, const SessionPlan& plan) {
  std::string text;
  const auto add = [&](std::string_view what) {
    text += (text.empty() ? "" : ", or ") + std::string(what);
  };
  if (const std::int64_t tokens = longest_fitting(input, plan.cache); tokens > 0) {
    add(fmt::format("--ctx {}", std::min(tokens, plan.context)));
  }
  const std::size_t now = page_bytes(input, plan.cache);
  for (const CacheTypes type :
       {CacheTypes(CacheType::kQ8), CacheTypes(CacheType::kQ8, CacheType::kQ4),
        CacheTypes(CacheType::kQ4)}) {
    if (page_bytes(input, type) >= now) continue;
    const std::int64_t tokens = longest_fitting(input, type);
    if (tokens == 0) continue;
    add(tokens >= plan.context ? fmt::format("--cache {}", name_of(type))
                               : fmt::format("--cache {} with --ctx {}", name_of(type), tokens));
    if (tokens >= plan.context) break;
  }
  return text;
}

void check_fits(const PlanInput& input, const SessionPlan& plan, const std::string& model) {
  if (plan.fits()) return;
  const MemoryPlan& memory = plan.memory;
  const std::string instead = what_would_fit(input, plan);
  const bool device = !input.backend.reads_host_memory();
  std::string driver;
  if (device) driver = fmt::format(", driver {}", text_of(memory.backend + memory.driver));
  std::string advice =
      instead.empty() ? "no context and no type of cache fits" : "what fits: " + instead;
  if (device && !plan.embed_host) advice += "; --embed-host takes less of the device";
  fail(ErrorCode::kOutOfMemory,
       "{} needs {} (weights {}, cache {} of {} tokens as {}, work space {}{}), and {} is free; {}",
       model, text_of(memory.needed()), text_of(memory.weights), text_of(memory.cache),
       plan.context, name_of(plan.cache), text_of(memory.work), driver, text_of(plan.available),
       advice);
}

}  // namespace bl
