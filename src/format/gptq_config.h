#pragma once
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json_fwd.h"

namespace bl {

// What config.json or quantize_config.json says about a GPTQ checkpoint (spec §2). Layouts come
// from the tensors; these values check them and decide how zero points are meant.
struct GptqConfig {
  std::string file;  // where it was read, for messages
  std::optional<int> bits;
  std::optional<int> group_size;  // -1: one group
  std::optional<bool> symmetric;
  bool act_order = false;
  bool v2 = false;          // stored zero points are meant as they are
  bool carries = false;     // v1 by a writer that subtracted across fields (spec §5.3, 3)
  bool per_module = false;  // `dynamic`: bits and group_size may differ by module

  // One warning a model, not one a matrix.
  std::shared_ptr<std::atomic<bool>> warned = std::make_shared<std::atomic<bool>>(false);
};

// Looks into `config` (config.json: quantization_config), then quantize_config.json and
// quant_config.json of `folder`. Empty where the model is not quantized or is EXL2. Throws
// kUnsupported, naming the format, for those that share names with GPTQ and are not (awq, marlin,
// gptq_p, …), kInvalidFile for values of wrong type. Where both files speak and disagree, warns and
// follows config.json.
std::optional<GptqConfig> read_gptq_config(const std::filesystem::path& folder, const Json& config);

}  // namespace bl
