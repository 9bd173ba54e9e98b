#include "convert_rates.h"

#include <algorithm>
#include <memory>

#include "backend/registry.h"
#include "base/error.h"
#include "base/terminal.h"
#include "comma_list.h"
#include "engine/session_plan.h"
#include "model_flags.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr double kDefaultRate = 4.125;

// What a card must have free for a model of these tensors, by the plan that `run` follows.
std::uint64_t card_bytes(const ConvertOptions& options, const ConvertArgs& args,
                         const Converter& converter, Backend& planner,
                         std::span<const PlannedMatrix> matrices) {
  LoadOptions load;
  load.archs = args.job.archs;
  load.spec.context = options.context;
  const ModelFiles files = hollow_model(
      args.job.files, planned_tensors(args.job.files, converter.loader(), matrices), matrices);
  const ModelLoader loader(planner, files, load);
  SessionOptions session;
  session.context = loader.spec().context;
  session.cache = cache_types_of(options.cache);
  return plan_session({session, loader, planner, options.vram.bytes}).memory.needed();
}

}  // namespace

std::vector<double> rates_of(const std::string& list) {
  std::vector<double> rates;
  for (const std::string& text : split_at_commas(list)) {
    double rate = 0.0;
    try {
      parse_value(text, rate);
    } catch (const Error& error) {
      fail_usage("-b: {}", error.what());
    }
    if (!(rate >= 2.0 && rate <= 8.0)) fail_usage("-b: {} is not in 2 … 8", text);
    if (std::find(rates.begin(), rates.end(), rate) != rates.end()) {
      fail_usage("-b: {} occurs twice", text);
    }
    rates.push_back(rate);
  }
  return rates;
}

std::vector<double> listed_rates(const ConvertOptions& options) {
  const int ways = (options.bits.empty() ? 0 : 1) + (options.target_size.bytes > 0 ? 1 : 0) +
                   (options.vram.bytes > 0 ? 1 : 0);
  if (ways > 1) fail_usage("give one of -b, --target-size and --vram");
  if (options.vram.bytes == 0 && (options.context != 0 || !options.cache.empty())) {
    fail_usage("--ctx and --cache say how much room --vram SIZE leaves for the cache");
  }
  if (options.context < 0) fail_usage("--ctx: {} should be 1 or more", options.context);
  (void)cache_types_of(options.cache);
  if (options.bits.empty()) {
    return ways == 0 ? std::vector<double>{kDefaultRate} : std::vector<double>{};
  }
  return rates_of(options.bits);
}

std::uint64_t shard_bytes_of(const ConvertOptions& options) {
  return options.shard_mib > 0 ? static_cast<std::uint64_t>(options.shard_mib) << 20 : UINT64_MAX;
}

std::uint64_t file_bytes_of(const ConvertOptions& options, const ConvertArgs& args,
                            const Converter& converter, std::span<const PlannedMatrix> matrices) {
  return ShardWriter({}, planned_tensors(args.job.files, converter.loader(), matrices),
                     exl2_shards(shard_bytes_of(options)))
      .file_bytes();
}

SizeLimit limit_of(const ConvertOptions& options, const ConvertArgs& args,
                   const Converter& converter) {
  const auto size = [](const ByteSize& value) {
    return human_bytes(static_cast<double>(value.bytes));
  };
  if (options.target_size.bytes > 0) {
    return {"--target-size " + size(options.target_size), options.target_size.bytes,
            [&](std::span<const PlannedMatrix> matrices) {
              return file_bytes_of(options, args, converter, matrices);
            }};
  }
  const std::shared_ptr<Backend> planner = open_planner("cuda", {}).backend;
  return {"--vram " + size(options.vram), options.vram.bytes,
          [&, planner](std::span<const PlannedMatrix> matrices) {
            return card_bytes(options, args, converter, *planner, matrices);
          }};
}

}  // namespace bl
