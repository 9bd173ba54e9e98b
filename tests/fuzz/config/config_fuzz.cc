// Any bytes as config.json: a ModelSpec whose numbers are in range, or an error of one line. The
// name of the architecture is the document's own; where it is unknown, all known ones are tried.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "model/arch_library.h"
#include "model/draft_spec.h"
#include "model/hf_config.h"
#include "model/memory_plan.h"
#include "model/model_spec.h"

namespace {

using namespace bl;

void check(const DraftSpec& draft, const ModelSpec& target) {
  BL_CHECK(draft.stretch >= 2 && draft.mask >= 0 && draft.mask < target.vocab);
  BL_CHECK(draft.layers.hidden == target.hidden && !draft.states.empty());
  for (const std::int32_t blocks : draft.states) {
    BL_CHECK(blocks > 0 && blocks <= static_cast<std::int32_t>(target.order.size()));
  }
}

// Layers that guess, for a model of their own size, and a model's own ones.
void build_drafts(const ArchLibrary& archs, const Json& config, const ModelSpec& spec) {
  const HfConfig document(config, "config.json");
  if (spec.arch->draft) check(build_draft_spec(archs, document, spec), spec);
  if (spec.arch->mtp) check(build_mtp_spec(document, spec), spec);
}

void build(const ArchLibrary& archs, const Json& config) {
  try {
    const ModelSpec spec = build_model_spec(archs, HfConfig(config, "config.json"), {});
    BL_CHECK(spec.hidden > 0 && spec.layers > 0 && spec.vocab > 0);
    BL_CHECK(static_cast<std::int64_t>(spec.blocks.size()) == spec.layers);
    for (const BlockSpec& block : spec.blocks) {
      if (block.attention) {
        BL_CHECK(block.attention->heads % block.attention->kv_heads == 0);
        BL_CHECK(block.attention->rope < static_cast<int>(spec.ropes.size()));
      }
      BL_CHECK(Block::work_bytes(block, spec.hidden, 1) > 0);
    }
    for (const RopeSpec& rope : spec.ropes) {
      if (choice_of(rope) == RopeChoice::kDynamic) {
        dynamic_row(rope, spec.max_positions * 2);
      } else if (rope.query_steps * rope.rotated < 4096) {
        fixed_rows(rope);
      }
    }
    cache_bytes(spec.kv_layouts(CacheType::kF16), spec.context, 4);
    build_drafts(archs, config, spec);
  } catch (const Error& e) {
    BL_CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ArchLibrary kArchs;
  static const std::vector<std::string> kNames = kArchs.architectures();
  if (size < 2) return 0;
  try {
    Json config = parse_json({reinterpret_cast<const char*>(data) + 1, size - 1}, "config.json");
    build(kArchs, config);
    if (config.is_object()) {
      config["architectures"] = Json::array({kNames[data[0] % kNames.size()]});
      build(kArchs, config);
    }
  } catch (const Error& e) {
    BL_CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
