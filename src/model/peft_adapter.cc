#include "model/peft_adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "format/safetensors_folder.h"
#include "format/tensor_check.h"
#include "model/peft_config.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 4u << 20;
constexpr const char* kWeights = "adapter_model.safetensors";

enum class Side { kA, kB, kEmbeddingA, kEmbeddingB, kBase, kWhole };

// A tensor name taken apart: "base_model.model.MODULE.lora_A.weight".
struct TensorName {
  std::string module;
  Side side;
};

std::optional<TensorName> parse_name(std::string_view name) {
  struct Ending {
    std::string_view text;
    Side side;
  };
  constexpr Ending kEndings[] = {{".lora_A.weight", Side::kA},
                                 {".lora_A.default.weight", Side::kA},
                                 {".lora_B.weight", Side::kB},
                                 {".lora_B.default.weight", Side::kB},
                                 {".lora_embedding_A", Side::kEmbeddingA},
                                 {".lora_embedding_A.default", Side::kEmbeddingA},
                                 {".lora_embedding_B", Side::kEmbeddingB},
                                 {".lora_embedding_B.default", Side::kEmbeddingB},
                                 {".base_layer.weight", Side::kBase},
                                 {".original_module.weight", Side::kBase},
                                 {".modules_to_save.weight", Side::kWhole},
                                 {".modules_to_save.default.weight", Side::kWhole},
                                 {".weight", Side::kWhole}};
  constexpr std::string_view kPrefix = "base_model.model.";
  for (const Ending& ending : kEndings) {
    if (!name.ends_with(ending.text)) continue;
    name.remove_suffix(ending.text.size());
    if (name.find("lora_") != std::string_view::npos) return std::nullopt;
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    return TensorName{std::string(name), ending.side};
  }
  return std::nullopt;
}

bool is_embedding(Side side) { return side == Side::kEmbeddingA || side == Side::kEmbeddingB; }
bool is_down(Side side) { return side == Side::kA || side == Side::kEmbeddingA; }

bool all_finite(const TensorView& view) {
  bool finite = true;
  visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
    const std::int64_t count = view.shape.elements();
    for (std::int64_t i = 0; i < count; ++i) {
      finite = finite && std::isfinite(static_cast<float>(view.as<const T>()[i]));
    }
  });
  return finite;
}

// Reads the pairs of tensors of one file and checks them against the config and the model.
class PairReader {
 public:
  PairReader(const TensorSource& source, const PeftConfig& config, const AdapterSites& sites,
             const CheckpointNames& names)
      : source_(source), config_(config), sites_(sites), names_(names) {}

  PeftAdapter read() {
    for (const std::string& name : source_.names()) collect(name);
    PeftAdapter adapter;
    for (const auto& [key, pair] : pairs_) {
      if (!pair.a.empty() || !pair.b.empty()) adapter.modules.push_back(module_of(key, pair));
      if (!pair.whole.empty()) adapter.modules.push_back(whole_of(key, pair));
    }
    add_tied_head(adapter);
    check_saved();
    if (adapter.modules.empty()) {
      const fs::path file = fs::path(config_.file).parent_path() / kWeights;
      fail(ErrorCode::kInvalidFile, "{}: holds no tensor MODULE.lora_A.weight", file.string());
    }
    return adapter;
  }

 private:
  struct Pair {
    std::string trained_as;  // the module's name when the adapter was trained
    std::string a, b;        // names of tensors
    std::string whole;
    bool embedding = false;
  };

  template <class... Args>
  [[noreturn]] void reject(ErrorCode code, const std::string& tensor,
                           fmt::format_string<Args...> format, Args&&... args) const {
    fail(code, "{}: tensor {}: {}", source_.find(tensor)->file, quoted_name(tensor),
         fmt::format(format, std::forward<Args>(args)...));
  }

  void collect(const std::string& tensor) {
    const std::optional<TensorName> name = parse_name(tensor);
    if (!name) refuse_unknown(tensor);
    const std::string module = renamed_module(name->module);
    const AdapterSite* site = sites_.find(module);
    if (name->side == Side::kWhole && (site == nullptr || !site->replaceable)) {
      reject(ErrorCode::kUnsupported, tensor,
             "whole modules are taken in place of the embedding and of a head without a bias, not "
             "of {}; fold them in with merge_and_unload of PEFT",
             quoted_name(module));
    }
    if (site == nullptr) refuse_module(tensor, module);
    if (name->side == Side::kBase) return check_shape(tensor, *site);
    if (name->side != Side::kWhole && site->is_embedding != is_embedding(name->side)) {
      reject(ErrorCode::kInvalidFile, tensor, "{} is {}, whose tensors are {}", module,
             site->is_embedding ? "an embedding" : "a linear",
             site->is_embedding ? "lora_embedding_A and lora_embedding_B" : "lora_A and lora_B");
    }
    if (!site->refusal.empty()) {
      reject(ErrorCode::kUnsupported, tensor, "nothing can be added to {}: {}", module,
             site->refusal);
    }
    if (name->side == Side::kWhole) {
      check_shape(tensor, *site);
    } else if (!config_.is_target(name->module)) {
      reject(ErrorCode::kInvalidFile, tensor,
             "{} says that other modules were trained (target_modules, layers_to_transform); the "
             "two files belong to different adapters",
             config_.file);
    }
    Pair& pair = pairs_[module];
    pair.trained_as = name->module;
    pair.embedding = site->is_embedding;
    std::string& place = name->side == Side::kWhole ? pair.whole
                         : is_down(name->side)      ? pair.a
                                                    : pair.b;
    if (!place.empty()) {
      reject(ErrorCode::kInvalidFile, tensor, "{} stands for the same module", quoted_name(place));
    }
    place = tensor;
  }

  std::string renamed_module(const std::string& module) const {
    // The rename rules apply to tensor names, so the module gets a suffix for the moment.
    constexpr std::string_view kSuffix = ".weight";
    std::string name = names_.known_as(module + std::string(kSuffix)).name;
    if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
    return name;
  }

  [[noreturn]] void refuse_unknown(const std::string& tensor) const {
    const auto has = [&](const char* part) { return tensor.find(part) != std::string::npos; };
    if (has("lora_magnitude_vector")) {
      reject(ErrorCode::kUnsupported, tensor, "this is DoRA; only plain LoRA is supported");
    }
    if (has("lora_B") && tensor.ends_with(".bias")) {
      reject(ErrorCode::kUnsupported, tensor, "biases of an adapter are not supported");
    }
    if (has("lora_")) {
      reject(ErrorCode::kUnsupported, tensor,
             "the name should end in .lora_A.weight or .lora_B.weight");
    }
    reject(
        ErrorCode::kUnsupported, tensor,
        "this is no LoRA tensor (those end in .lora_A.weight and .lora_B.weight); other kinds of "
        "adapters are not supported");
  }

  [[noreturn]] void refuse_module(const std::string& tensor, const std::string& module) const {
    if (const std::string* why = sites_.refusal(module)) {
      reject(ErrorCode::kUnsupported, tensor, "nothing can be added to {}: {}", quoted_name(module),
             *why);
    }
    // Suggest a module with the same last name, say in another layer.
    const std::string last = module.substr(module.rfind('.') + 1);
    std::string like;
    for (const auto& [name, site] : sites_.all()) {
      if (like.empty() || name.ends_with("." + last)) like = name;
      if (name.ends_with("." + last)) break;
    }
    reject(ErrorCode::kInvalidFile, tensor, "the model has no module {}; it has {}",
           quoted_name(module), quoted_name(like));
  }

  // Checks the shape of a whole weight in the adapter's file: one that replaces the model's, or a
  // copy of the one that the adapter was added to.
  void check_shape(const std::string& tensor, const AdapterSite& site) const {
    const Shape& shape = source_.find(tensor)->shape;
    const Shape expected = site.is_embedding ? Shape{site.in, site.out} : Shape{site.out, site.in};
    if (shape == expected) return;
    reject(
        ErrorCode::kUnsupported, tensor,
        "has shape {}, the model's is {}: an adapter that changes the vocabulary is not supported",
        shape.to_string(), expected.to_string());
  }

  LoraModule module_of(const std::string& name, const Pair& pair) const {
    if (pair.a.empty() || pair.b.empty()) {
      const bool has_a = pair.b.empty();
      reject(ErrorCode::kInvalidFile, has_a ? pair.a : pair.b, "there is no lora_{}{} beside it",
             pair.embedding ? "embedding_" : "", has_a ? "B" : "A");
    }
    LoraModule module;
    module.name = name;
    module.site = sites_.find(name);
    const NamedArray a(source_, pair.a, {DType::kF32, DType::kF16, DType::kBF16}, 2);
    const NamedArray b(source_, pair.b, {DType::kF32, DType::kF16, DType::kBF16}, 2);
    const std::int64_t rank = config_.rank_of(pair.trained_as);
    if (a.size(0) != rank || a.size(1) != module.site->in) {
      a.reject("has shape {}, must be [{}, {}]: the rank that {} says, and what {} of the model {}",
               a.shape(), rank, module.site->in, config_.file, name,
               pair.embedding ? "has rows" : "reads");
    }
    if (b.size(0) != module.site->out || b.size(1) != rank) {
      b.reject("has shape {}, must be [{}, {}]: what {} of the model gives, and the rank",
               b.shape(), module.site->out, rank, name);
    }
    if (rank > sites_.max_rank()) {
      a.reject("its rank is {}, which is more than {}, all that a matrix of this model can use",
               rank, sites_.max_rank());
    }
    for (const NamedArray* array : {&a, &b}) {
      if (!all_finite(array->array().view)) array->reject("holds NaN or infinite values");
    }
    module.a = a.array();
    module.b = b.array();
    module.scale = config_.scale_of(pair.trained_as);
    module.file = source_.find(pair.a)->file;
    module.tensor = pair.a;
    return module;
  }

  LoraModule whole_of(const std::string& name, const Pair& pair) const {
    LoraModule module;
    module.name = name;
    module.site = sites_.find(name);
    const NamedArray weight(source_, pair.whole, {DType::kF32, DType::kF16, DType::kBF16}, 2);
    if (!all_finite(weight.array().view)) weight.reject("holds NaN or infinite values");
    module.whole = weight.array();
    module.scale = 1;
    module.file = source_.find(pair.whole)->file;
    module.tensor = pair.whole;
    return module;
  }

  // An embedding that was saved although modules_to_save does not list it is the model's own,
  // trained. A head that is tied to it was then trained with it, so it is replaced, too.
  void add_tied_head(PeftAdapter& adapter) const {
    const auto is_model_own = [&](const LoraModule& module) {
      return module.is_whole() && module.site->is_embedding &&
             !config_.is_saved(pairs_.at(module.name).trained_as);
    };
    const auto embedding =
        std::find_if(adapter.modules.begin(), adapter.modules.end(), is_model_own);
    if (embedding == adapter.modules.end()) return;
    for (const auto& [name, site] : sites_.all()) {
      if (!site.replaceable || site.is_embedding || pairs_.contains(name)) continue;
      if (sites_.origin(site.parts[0].linear).module != embedding->name) continue;
      LoraModule head = *embedding;
      head.name = name;
      head.site = &site;
      adapter.modules.push_back(std::move(head));
      return;
    }
  }

  // Modules that were trained as a whole must be in the file: without them the model would be
  // another.
  void check_saved() const {
    for (const std::string& saved : config_.saved) {
      const bool found = std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
        return !entry.second.whole.empty() && names_module(saved, entry.second.trained_as);
      });
      if (found) continue;
      fail(ErrorCode::kInvalidFile, "{}: modules_to_save names {}, and {} holds no tensor of it",
           config_.file, quoted_name(saved), kWeights);
    }
  }

  const TensorSource& source_;
  const PeftConfig& config_;
  const AdapterSites& sites_;
  const CheckpointNames& names_;
  std::map<std::string, Pair> pairs_;  // by module
};

}  // namespace

PeftAdapter read_peft_adapter(const fs::path& folder, const AdapterSites& sites,
                              const CheckpointNames& names) {
  const fs::path config_file = folder / "adapter_config.json";
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    fail(ErrorCode::kNotFound,
         "{}: no such folder; an adapter is a folder with adapter_config.json and {}",
         folder.string(), kWeights);
  }
  if (!fs::exists(config_file, error)) {
    fail(ErrorCode::kNotFound,
         "{}: no adapter_config.json; an adapter is a folder as PEFT saves it", folder.string());
  }
  const PeftConfig config(
      parse_ordered_json(read_file(config_file, kMaxConfigBytes), config_file.string()),
      config_file.string());
  const fs::path weights = folder / kWeights;
  if (!fs::exists(weights, error)) {
    const bool pickled = fs::exists(folder / "adapter_model.bin", error);
    fail(ErrorCode::kNotFound, "{}: no {}{}", folder.string(), kWeights,
         pickled ? "; adapter_model.bin is a pickle, which can run code: save it as safetensors"
                 : "");
  }
  const SafetensorsFolder source(weights);
  return PairReader(source, config, sites, names).read();
}

std::uint64_t peft_adapter_bytes(const fs::path& folder) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(folder / kWeights, error);
  return error ? 0 : bytes;
}

}  // namespace bl
