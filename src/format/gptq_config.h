#pragma once
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json_fwd.h"

namespace bl {

// What config.json or quantize_config.json says about a GPTQ checkpoint (docs/formats/gptq.md §2).
// The layout comes from the tensors; these values check it and decide how zero points are meant.
struct GptqConfig {
  std::string file;  // the file that these values come from, for messages
  std::optional<int> bits;
  std::optional<int> group_size;  // -1 means one group
  std::optional<bool> symmetric;
  bool act_order = false;
  bool v2 = false;  // zero points are meant as they are stored
  // v1 by a writer that subtracted with borrows (docs/formats/gptq.md §5.3, rule 3).
  bool carries = false;
  bool per_module = false;  // bits and group_size may differ by module

  // Set when the model's one warning about wrongly tagged zero points has been given.
  std::shared_ptr<std::atomic<bool>> warned = std::make_shared<std::atomic<bool>>(false);
};

// Reads quantization_config in `config` (config.json), then quantize_config.json,
// quant_config.json or quantization_config.json in `folder`. Returns nullopt if the model is not
// quantized, or is EXL2. Throws kUnsupported, naming the format, for formats that share names with
// GPTQ but are different (awq, marlin, gptq_p, …), and kInvalidFile for values of a wrong type. If
// both files have values and they disagree, warns and uses config.json.
std::optional<GptqConfig> read_gptq_config(const std::filesystem::path& folder, const Json& config);

}  // namespace bl
