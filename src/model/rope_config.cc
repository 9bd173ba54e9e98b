#include "model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr std::int64_t kMaxRopePositions = std::int64_t{1} << 31;

// The JSON object that holds the rope parameters, if there is one.
struct Parameters {
  const Json* json = nullptr;
  std::string path;
  std::string file;

  const Json* find(const char* key) const {
    if (json == nullptr) return nullptr;
    const auto it = json->find(key);
    return it == json->end() || it->is_null() ? nullptr : &*it;
  }
  std::optional<double> real(const char* key, double least, double most) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= least && number <= most)) {
      fail(ErrorCode::kInvalidFile, "{}: {}.{} is {}, must be a number from {} to {}", file, path,
           key, json_shown(*value), least, most);
    }
    return number;
  }
  double required(const char* key, double least, double most) const {
    const std::optional<double> value = real(key, least, most);
    if (!value) {
      fail(ErrorCode::kInvalidFile, "{}: {} has no \"{}\", which its rope type needs", file, path,
           key);
    }
    return *value;
  }
};

bool is_nested(const Json& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Json& value) { return value.is_object(); });
}

Parameters find_parameters(const RopeConfigArgs& args) {
  const HfConfig& config = args.config.config();
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const std::optional<HfConfig::Found> found = config.find(key);
    if (!found) continue;
    if (!found->value->is_object()) {
      fail(ErrorCode::kInvalidFile, "{}: {} is a JSON {}, must be an object or null", config.file(),
           found->path, found->value->type_name());
    }
    if (is_nested(*found->value)) {
      const auto it = found->value->find(args.layer_type);
      if (it == found->value->end() || !it->is_object()) continue;
      return {&*it, found->path + "." + args.layer_type, config.file()};
    }
    if (args.arch.scaling) return {found->value, found->path, config.file()};
  }
  return {nullptr, "", config.file()};
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
         parameters.file, parameters.path, key, json_text(Json(type.substr(0, 60))));
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
         parameters.file, parameters.path, key, count);
  }
  std::vector<double> factors;
  for (const Json& item : *list) {
    const double number = item.is_number() ? item.get<double>() : NAN;
    if (!(number > 0.0 && number <= kMaxFactor)) {
      fail(ErrorCode::kInvalidFile, "{}: {}.{} holds {}, must hold positive numbers",
           parameters.file, parameters.path, key, json_text(item).substr(0, 60));
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
  if (const Json* truncate = parameters.find("truncate")) {
    spec.truncate = !truncate->is_boolean() || truncate->get<bool>();
  }
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
             parameters.file, parameters.path, spec.high_freq_factor, spec.low_freq_factor);
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
  double partial = args.config.real("share of a head that rotates", args.arch.partial, 1.0);
  if (const auto given = parameters.real("partial_rotary_factor", 0.0, 1.0)) partial = *given;
  std::int64_t rotated = static_cast<std::int64_t>(static_cast<double>(args.head_dim) * partial);
  if (const auto given =
          args.config.find_whole("rotated elements", args.arch.rotary_dim, {0, args.head_dim})) {
    rotated = *given;
  }
  if (spec.kind == RopeKind::kProportional) {
    spec.proportion = partial;
    rotated = args.head_dim;
  }
  if (!(partial >= 0.0 && partial <= 1.0) || rotated < 0 || rotated % 2 != 0) {
    fail(ErrorCode::kInvalidFile,
         "{}: {} of {} elements of a head would rotate, must be an even number of at most {}",
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
  read_rotated(args, parameters, spec);
  read_alpha(parameters, spec);
  read_scaling(args, parameters, spec);
  spec.reversed = args.arch.reversed;
  apply_options(args.options, spec);
  return spec;
}

}  // namespace bl
