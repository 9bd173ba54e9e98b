#include "model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

constexpr double kMaxFactor = 1e6;
const char* const kFullAttention = "full_attention";
constexpr std::int64_t kMaxRopePositions = std::int64_t{1} << 31;

// The JSON object that holds the rope parameters, if there is one. `update` is an object whose
// members replace those of `json`. What is read of them is noted in the config.
struct Parameters {
  const HfConfig& config;
  const Json* json = nullptr;
  std::string path{};
  const Json* update = nullptr;
  std::string update_path{};
  const Json* outer = nullptr;  // the object that holds one such object for each type of layer

  const std::string& file() const { return config.file(); }

  const Json* find(const char* key) const {
    if (update != nullptr) {
      config.note(update_path + "." + key);
      if (const auto it = update->find(key); it != update->end()) {
        return it->is_null() ? nullptr : &*it;
      }
    }
    if (json == nullptr) return nullptr;
    config.note(path + "." + key);
    const auto it = json->find(key);
    return it == json->end() || it->is_null() ? nullptr : &*it;
  }
  std::optional<double> real(const char* key, double least, double most) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= least && number <= most)) {
      fail(ErrorCode::kInvalidFile, "{}: {}.{} is {}, must be a number from {} to {}", file(), path,
           key, json_shown(*value), least, most);
    }
    return number;
  }
  double required(const char* key, double least, double most) const {
    const std::optional<double> value = real(key, least, most);
    if (!value) {
      fail(ErrorCode::kInvalidFile, "{}: {} has no \"{}\", which its rope type needs", file(), path,
           key);
    }
    return *value;
  }
};

bool is_nested(const Json& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Json& value) { return value.is_object(); });
}

// The object under a key of the config. As in transformers, a null means what an absent key does;
// an empty object has no parameters.
std::optional<HfConfig::Found> find_object(const HfConfig& config, const char* key) {
  std::optional<HfConfig::Found> found = config.find(key);
  if (!found) found = config.default_of(key).found;
  if (found && !found->value->is_object()) {
    fail(ErrorCode::kInvalidFile, "{}: {} is a JSON {}, must be an object or null", config.file(),
         found->path, found->value->type_name());
  }
  if (found && found->value->empty()) found.reset();
  return found;
}

// As in transformers, a flat rope_scaling takes the place of rope_parameters. Beside parameters
// for each type of layer it changes those of full attention alone.
Parameters find_parameters(const RopeConfigArgs& args) {
  const HfConfig& config = args.config.config();
  const auto scaling = find_object(config, "rope_scaling");
  const bool flat = scaling && !is_nested(*scaling->value);
  const auto given = find_object(config, "rope_parameters");
  const auto nested = scaling && !flat ? scaling : given;
  Parameters result{.config = config};
  if (nested && is_nested(*nested->value)) {
    const auto it = nested->value->find(args.layer_type);
    if (it != nested->value->end() && it->is_object()) {
      result.json = &*it;
      result.path = nested->path + "." + args.layer_type;
    }
    result.outer = nested->value;
    if (flat && args.layer_type == kFullAttention) {
      result.update = scaling->value;
      result.update_path = scaling->path;
    }
    if (result.json != nullptr || result.update != nullptr || !flat) return result;
  }
  if (!args.arch.scaling) return result;
  if (args.arch.nested) {
    // transformers updates parameters that say "default": a scaling that names its kind under
    // `type` instead of `rope_type` has no effect.
    static const Json kUnscaled = {{"rope_type", "default"}};
    if (!flat) return result;
    result.json = &kUnscaled;
    result.path = "rope_parameters." + args.layer_type;
    result.update = scaling->value;
    result.update_path = scaling->path;
    return result;
  }
  const auto& chosen = flat ? scaling : given;
  if (chosen && !is_nested(*chosen->value)) {
    result.json = chosen->value;
    result.path = chosen->path;
  }
  return result;
}

RopeKind read_kind(const Parameters& parameters) {
  for (const char* key : {"rope_type", "type"}) {
    const Json* value = parameters.find(key);
    if (value == nullptr) continue;
    const std::string type = value->is_string() ? value->get<std::string>() : value->dump();
    // For text, all sections of a multimodal rope have the same position.
    if (type == "default" || type == "mrope") return RopeKind::kDefault;
    if (type == "linear") return RopeKind::kLinear;
    if (type == "dynamic") return RopeKind::kDynamic;
    if (type == "llama3") return RopeKind::kLlama3;
    if (type == "yarn") return RopeKind::kYarn;
    if (type == "longrope" || type == "su") return RopeKind::kLongRope;
    if (type == "proportional") return RopeKind::kProportional;
    fail(ErrorCode::kUnsupported,
         "{}: {}.{} is {}, must be one of default, linear, dynamic, llama3, yarn, longrope, "
         "proportional",
         parameters.file(), parameters.path, key, json_text(Json(type.substr(0, 60))));
  }
  return RopeKind::kDefault;
}

std::int64_t read_original(const RopeConfigArgs& args, const Parameters& parameters) {
  static const ArchValue kTopLevel = parse_arch_value("original_max_position_embeddings", "");
  // As in transformers, a value beside the object of parameters takes precedence.
  if (const auto top =
          args.config.find_whole("original positions", kTopLevel, {1, kMaxRopePositions})) {
    return *top;
  }
  const auto given = parameters.real("original_max_position_embeddings", 1,
                                     static_cast<double>(kMaxRopePositions));
  return given ? static_cast<std::int64_t>(*given) : args.max_positions;
}

std::vector<double> read_factors(const Parameters& parameters, const char* key,
                                 std::int64_t count) {
  const Json* list = parameters.find(key);
  if (list == nullptr || !list->is_array() || static_cast<std::int64_t>(list->size()) != count) {
    fail(ErrorCode::kInvalidFile, "{}: {}.{} must be a list of {} numbers (half the rotated size)",
         parameters.file(), parameters.path, key, count);
  }
  std::vector<double> factors;
  for (const Json& item : *list) {
    const double number = item.is_number() ? item.get<double>() : NAN;
    if (!(number > 0.0 && number <= kMaxFactor)) {
      fail(ErrorCode::kInvalidFile, "{}: {}.{} holds {}, must hold positive numbers",
           parameters.file(), parameters.path, key, json_text(item).substr(0, 60));
    }
    factors.push_back(number);
  }
  return factors;
}

double magnitude_scale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_yarn(const Parameters& parameters, RopeSpec& spec) {
  const double ratio =
      static_cast<double>(spec.max_positions) / static_cast<double>(spec.original_positions);
  spec.factor = parameters.real("factor", 1e-6, kMaxFactor).value_or(ratio);
  const double fast = parameters.real("beta_fast", 0.0, kMaxFactor).value_or(0.0);
  const double slow = parameters.real("beta_slow", 0.0, kMaxFactor).value_or(0.0);
  if (fast != 0.0) spec.beta_fast = fast;
  if (slow != 0.0) spec.beta_slow = slow;
  const Json* truncate = parameters.find("truncate");
  // transformers looks for it beside the objects for types of layers, never in them.
  if (parameters.outer != nullptr) {
    const auto it = parameters.outer->find("truncate");
    truncate = it == parameters.outer->end() ? nullptr : &*it;
  }
  if (truncate != nullptr) spec.truncate = !truncate->is_boolean() || truncate->get<bool>();
  const double mscale = parameters.real("mscale", -kMaxFactor, kMaxFactor).value_or(0.0);
  const double all_dim = parameters.real("mscale_all_dim", -kMaxFactor, kMaxFactor).value_or(0.0);
  spec.attention_factor =
      mscale != 0.0 && all_dim != 0.0
          ? magnitude_scale(spec.factor, mscale) / magnitude_scale(spec.factor, all_dim)
          : magnitude_scale(spec.factor, 1.0);
}

void read_longrope(const Parameters& parameters, RopeSpec& spec) {
  const auto original = static_cast<double>(spec.original_positions);
  spec.factor = parameters.real("factor", 1e-6, kMaxFactor)
                    .value_or(static_cast<double>(spec.max_positions) / original);
  spec.short_factor = read_factors(parameters, "short_factor", spec.rotated / 2);
  spec.long_factor = read_factors(parameters, "long_factor", spec.rotated / 2);
  spec.attention_factor = spec.factor <= 1.0 || original <= 1.0
                              ? 1.0
                              : std::sqrt(1.0 + std::log(spec.factor) / std::log(original));
}

void read_scaling(const RopeConfigArgs& args, const Parameters& parameters, RopeSpec& spec) {
  switch (spec.kind) {
    case RopeKind::kDefault:
      return;
    case RopeKind::kLinear:
    case RopeKind::kDynamic:
      spec.factor = parameters.required("factor", 1e-6, kMaxFactor);
      return;
    case RopeKind::kProportional:
      spec.factor = parameters.real("factor", 1e-6, kMaxFactor).value_or(1.0);
      return;
    case RopeKind::kLlama3:
      spec.factor = parameters.required("factor", 1e-6, kMaxFactor);
      spec.low_freq_factor = parameters.required("low_freq_factor", 1e-6, kMaxFactor);
      spec.high_freq_factor = parameters.required("high_freq_factor", 1e-6, kMaxFactor);
      if (spec.high_freq_factor <= spec.low_freq_factor) {
        fail(ErrorCode::kInvalidFile,
             "{}: {}.high_freq_factor is {}, must be more than low_freq_factor ({})",
             parameters.file(), parameters.path, spec.high_freq_factor, spec.low_freq_factor);
      }
      break;
    case RopeKind::kYarn:
      spec.original_positions = read_original(args, parameters);
      read_yarn(parameters, spec);
      break;
    case RopeKind::kLongRope:
      spec.original_positions = read_original(args, parameters);
      read_longrope(parameters, spec);
      break;
  }
  spec.original_positions = read_original(args, parameters);
  if (const auto given = parameters.real("attention_factor", 1e-6, kMaxFactor)) {
    if (spec.kind != RopeKind::kLlama3) spec.attention_factor = *given;
  }
}

void read_rotated(const RopeConfigArgs& args, const Parameters& parameters, RopeSpec& spec) {
  static const ArchValue kTopLevel = parse_arch_value("partial_rotary_factor", "");
  // Most classes of transformers ignore the key. Where no class is known, it means what it says.
  const bool classless = !args.config.config().has_class_options();
  const ArchValue& own = args.arch.partial.given() || !classless ? args.arch.partial : kTopLevel;
  std::optional<double> share;
  if (own.given() || args.arch.rotary_dim.given() || spec.kind == RopeKind::kProportional) {
    share = parameters.real("partial_rotary_factor", 0.0, 1.0);
    if (!share) share = args.config.find_real("share of a head that rotates", own);
  }
  const double partial = share.value_or(1.0);
  std::int64_t rotated = static_cast<std::int64_t>(static_cast<double>(args.head_dim) * partial);
  const auto given =
      args.config.find_whole("rotated elements", args.arch.rotary_dim, {0, args.head_dim});
  if (given && !share) rotated = *given;
  if (spec.kind == RopeKind::kProportional) {
    spec.proportion = partial;
    rotated = args.head_dim;
  }
  if (!(partial >= 0.0 && partial <= 1.0) || rotated < 0 || rotated % 2 != 0) {
    fail(ErrorCode::kInvalidFile,
         "{}: {} of {} elements of a head would rotate, must be an even number of at most {} (a "
         "head has head_dim elements, or hidden_size / num_attention_heads; partial_rotary_factor "
         "is the share that rotates)",
         args.config.config().file(), rotated, args.head_dim, args.head_dim);
  }
  spec.rotated = rotated;
}

void stretch_base(double alpha, RopeSpec& spec) {
  const auto d = static_cast<double>(spec.rotated);
  if (spec.rotated > 2) spec.theta *= std::pow(alpha, d / (d - 2.0));
}

// Some files say "dynamic" and give an alpha that applies at every length.
void read_alpha(const Parameters& parameters, RopeSpec& spec) {
  if (spec.kind != RopeKind::kDynamic) return;
  const double alpha = parameters.real("alpha", 0.0, kMaxFactor).value_or(0.0);
  if (alpha == 0.0) return;
  parameters.find("factor");  // says nothing beside an alpha
  stretch_base(alpha, spec);
  spec.kind = RopeKind::kDefault;
}

void apply_options(const SpecOptions& options, RopeSpec& spec) {
  if (options.rope_alpha > 0.0) stretch_base(options.rope_alpha, spec);
  if (options.rope_scale > 0.0) {
    if (spec.kind == RopeKind::kLinear) {
      spec.factor = options.rope_scale;
    } else {
      spec.linear_scale = options.rope_scale;
    }
  }
}

}  // namespace

RopeSpec read_rope(const RopeConfigArgs& args) {
  const Parameters parameters = find_parameters(args);
  RopeSpec spec;
  spec.style = args.arch.style == "interleaved" ? RopeStyle::kInterleaved : RopeStyle::kNeox;
  spec.kind = read_kind(parameters);
  spec.head_dim = args.head_dim;
  spec.max_positions = args.max_positions;
  spec.theta = args.config.real("rope theta", args.arch.theta, 10000.0);
  if (const auto given = parameters.real("rope_theta", 1e-6, 1e30)) spec.theta = *given;
  if (!(spec.theta > 1.0)) {
    fail(ErrorCode::kInvalidFile, "{}: rope_theta is {}, must be a number above 1",
         args.config.config().file(), spec.theta);
  }
  // Files name it beside a rope that is not scaled, too.
  args.config.config().look_up("original_max_position_embeddings");
  read_rotated(args, parameters, spec);
  read_alpha(parameters, spec);
  read_scaling(args, parameters, spec);
  spec.reversed = args.arch.reversed;
  apply_options(args.options, spec);
  return spec;
}

}  // namespace bl
