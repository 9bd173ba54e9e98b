#include "format/gptq_config.h"

#include <array>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "format/quoted_name.h"

namespace bl {
namespace {

class Fields {
 public:
  Fields(const Json& object, std::string file) : object_(object), file_(std::move(file)) {}
  const std::string& file() const { return file_; }

  // The value of the first of `names` that is present and not null; nullptr if there is none.
  const Json* find(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const auto found = object_.find(name);
      if (found != object_.end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }

  std::optional<std::string> text(std::initializer_list<const char*> names) const {
    const Json* value = find(names);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) reject(*names.begin(), "a string", *value);
    return value->get<std::string>();
  }
  std::optional<bool> flag(std::initializer_list<const char*> names) const {
    const Json* value = find(names);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) reject(*names.begin(), "true or false", *value);
    return value->get<bool>();
  }
  std::optional<std::int64_t> number(std::initializer_list<const char*> names) const {
    const Json* value = find(names);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer()) reject(*names.begin(), "a whole number", *value);
    return value->is_number_unsigned() && value->get<std::uint64_t>() > (1ull << 62)
               ? std::int64_t{1} << 62
               : value->get<std::int64_t>();
  }

 private:
  [[noreturn]] void reject(const char* name, const char* wanted, const Json& value) const {
    fail(ErrorCode::kInvalidFile, "{}: quantization key \"{}\" must be {}, not {}", file_, name,
         wanted, value.type_name());
  }
  const Json& object_;
  std::string file_;
};

[[noreturn]] void refuse(const Fields& fields, std::string_view what) {
  fail(ErrorCode::kUnsupported,
       "{}: the weights are quantized as {}, which is not supported (EXL2 and GPTQ are); take an "
       "export of the model in one of these, in GGUF, or without quantization",
       fields.file(), quoted_name(what));
}

bool is_auto_round(std::string_view method) {
  return method == "auto-round" || method == "auto_round" || method == "intel/auto-round";
}

// How AutoRound's name for a packing means zero points: true as they are stored (v2), false less
// one (v1). Empty for packings that are not GPTQ's.
std::optional<bool> auto_round_zeros(std::string_view packing) {
  for (const std::string_view family : {"auto_round", "auto-round", "autoround"}) {
    if (packing == family) return true;
    if (!packing.starts_with(family) || packing[family.size()] != ':') continue;
    packing.remove_prefix(family.size() + 1);
    for (const std::string_view direct :
         {"gptqmodel", "exllamav2", "tritonv2", "triton", "torch", "marlin"}) {
      if (packing == direct) return true;
    }
    break;
  }
  for (const std::string_view less_one : {"auto_gptq", "gptq", "tritonv2_zp", "torch_zp"}) {
    if (packing == less_one) return false;
  }
  if (packing.starts_with("gptq:") || packing.starts_with("auto_gptq:")) return false;
  return std::nullopt;
}

// Applies the keys that only AutoRound writes (docs/formats/gptq.md §2.1).
void apply_auto_round(const Fields& fields, GptqConfig& config) {
  std::string packing = fields.text({"packing_format", "backend"}).value_or("auto");
  if (packing == "auto") packing = "auto_round:auto_gptq";
  const std::optional<bool> direct = auto_round_zeros(packing);
  if (!direct) {
    fail(ErrorCode::kUnsupported,
         "{}: AutoRound packed the weights as {}, which is not supported; its exports in GPTQ's "
         "layout are (--format auto_gptq, or packing_format auto_round:auto_gptq)",
         fields.file(), quoted_name(packing));
  }
  config.v2 = *direct;
  const std::string type = fields.text({"data_type"}).value_or("int");
  if (!type.starts_with("int") || type.find("dq") != std::string::npos) refuse(fields, type);
  if (const auto bits = fields.number({"act_bits"}); bits && *bits < 16) {
    fail(ErrorCode::kUnsupported,
         "{}: activations are quantized to {} bits (act_bits), which is not supported; take an "
         "export that quantizes only weights",
         fields.file(), *bits);
  }
  for (const char* key : {"spinquant_config", "hadamard_config"}) {
    if (fields.find({key}) != nullptr) {
      fail(ErrorCode::kUnsupported,
           "{}: {} is not supported: activations would have to be rotated; take an export without "
           "it",
           fields.file(), key);
    }
  }
}

// Whether modules may differ in bits and group size. Which do, the tensors say.
bool differs_by_module(const Fields& fields) {
  for (const char* key : {"dynamic", "extra_config", "layer_config"}) {
    const Json* value = fields.find({key});
    if (value != nullptr && !value->empty()) return true;
  }
  return false;
}

// Whether the writer was gptqmodel 0.9.0 or newer, by `meta.quantizer`: a string or a list of
// strings "name:version".
bool by_carrying_writer(const Fields& fields) {
  const Json* meta = fields.find({"meta"});
  if (meta == nullptr || !meta->is_object()) return false;
  const auto quantizer = meta->find("quantizer");
  if (quantizer == meta->end()) return false;
  const auto matches = [](const Json& value) {
    constexpr std::string_view kName = "gptqmodel:";
    if (!value.is_string()) return false;
    const std::string& text = value.get_ref<const std::string&>();
    if (!text.starts_with(kName)) return false;
    int major = 0, minor = 0;
    if (std::sscanf(text.c_str() + kName.size(), "%4d.%4d", &major, &minor) != 2) return false;
    return major > 0 || minor >= 9;
  };
  if (!quantizer->is_array()) return matches(*quantizer);
  for (const Json& value : *quantizer) {
    if (matches(value)) return true;
  }
  return false;
}

// Applies the layout that `checkpoint_format` or `format` names.
void apply_checkpoint_format(const Fields& fields, GptqConfig& config) {
  const std::string format = fields.text({"checkpoint_format", "format"}).value_or("gptq");
  if (format == "gptq_v2") {
    config.v2 = true;
  } else if (format == "gptq_p") {
    fail(ErrorCode::kUnsupported,
         "{}: checkpoint format 'gptq_p' (planar packing) is not supported; 'gptq' and 'gptq_v2' "
         "are",
         fields.file());
  } else if (format != "gptq") {
    refuse(fields, format);
  }
  if (fields.flag({"is_marlin_format"}).value_or(false)) refuse(fields, "marlin");
  const std::string pack = fields.text({"pack_dtype"}).value_or("int32");
  if (pack != "int32") {
    fail(ErrorCode::kUnsupported, "{}: pack_dtype {} is not supported; only 'int32' is",
         fields.file(), quoted_name(pack));
  }
}

std::optional<GptqConfig> read_fields(const Fields& fields) {
  const std::string method = fields.text({"quant_method", "method"}).value_or("gptq");
  if (method == "exl2") return std::nullopt;
  const bool auto_round = is_auto_round(method);
  if (method != "gptq" && !auto_round) refuse(fields, method);
  GptqConfig config;
  config.file = fields.file();
  if (auto_round) {
    apply_auto_round(fields, config);
  } else {
    apply_checkpoint_format(fields, config);
  }
  if (const auto bits = fields.number({"bits", "w_bit"})) {
    if (*bits >= 5 && *bits <= 7) {
      fail(ErrorCode::kUnsupported,
           "{}: {}-bit GPTQ (planar packing) is not supported; 2, 3, 4 and 8 bits are",
           fields.file(), *bits);
    }
    if (*bits != 2 && *bits != 3 && *bits != 4 && *bits != 8) {
      fail(ErrorCode::kInvalidFile, "{}: bits is {}; it must be 2, 3, 4 or 8", fields.file(),
           *bits);
    }
    config.bits = static_cast<int>(*bits);
  }
  if (const auto size = fields.number({"group_size", "q_group_size"})) {
    if (*size != -1 && (*size < 1 || *size > (1 << 30))) {
      fail(ErrorCode::kInvalidFile,
           "{}: group_size is {}; it must be positive, or -1 for one group", fields.file(), *size);
    }
    config.group_size = static_cast<int>(*size);
  }
  config.symmetric = fields.flag({"sym"});
  config.act_order = fields.flag({"desc_act"}).value_or(false);
  config.per_module = differs_by_module(fields);
  config.carries = !config.v2 && config.symmetric == false && by_carrying_writer(fields);
  return config;
}

void warn_where_different(const GptqConfig& used, const GptqConfig& other) {
  const auto differ = [](const std::optional<int>& a, const std::optional<int>& b) {
    return a && b && *a != *b;
  };
  const char* key = differ(used.bits, other.bits)               ? "bits"
                    : differ(used.group_size, other.group_size) ? "group_size"
                    : used.v2 != other.v2                       ? "checkpoint_format"
                                                                : nullptr;
  if (key != nullptr) {
    log_warning("{} and {} disagree on {}; the former is used", used.file, other.file, key);
  }
}

}  // namespace

std::optional<GptqConfig> read_gptq_config(const std::filesystem::path& folder,
                                           const Json& config) {
  std::optional<GptqConfig> result;
  if (config.is_object()) {
    const auto found = config.find("quantization_config");
    if (found != config.end() && !found->is_null()) {
      const std::string file = (folder / "config.json").string();
      if (!found->is_object()) {
        fail(ErrorCode::kInvalidFile, "{}: quantization_config must be an object", file);
      }
      result = read_fields(Fields(*found, file));
      if (!result) return result;
    }
  }
  for (const char* name :
       {"quantize_config.json", "quant_config.json", "quantization_config.json"}) {
    const std::filesystem::path path = folder / name;
    std::error_code error;
    if (folder.empty() || !std::filesystem::is_regular_file(path, error)) continue;
    const Json object = read_json_file(path, 16u << 20);
    if (!object.is_object()) {
      fail(ErrorCode::kInvalidFile, "{}: the file must hold a JSON object", path.string());
    }
    const std::optional<GptqConfig> other = read_fields(Fields(object, path.string()));
    if (!result) return other;
    if (other) warn_where_different(*result, *other);
    break;
  }
  return result;
}

}  // namespace bl
