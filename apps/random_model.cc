#include "random_model.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/terminal.h"
#include "embedded_data.h"
#include "engine/open_model.h"
#include "model/arch_library.h"
#include "model/hf_config.h"
#include "model/tensor_outline.h"
#include "random_matrix.h"
#include "random_routing.h"
#include "random_source.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr float kSmall = 0.02f;  // weights of the usual size, and biases

// A config.json, and what to call it in messages.
struct NamedConfig {
  Json config;
  std::string file;
};

NamedConfig config_of(const std::string& shape, const Json& shapes) {
  const Json& known = shapes.at("shapes");
  if (const auto at = known.find(shape); at != known.end()) {
    Json config = shapes.at("config");
    config.update(*at);
    return {std::move(config), "archs/bench/shapes.json: " + shape};
  }
  if (std::filesystem::is_regular_file(shape)) return {read_json_file(shape), shape};
  std::vector<std::string> names;
  for (const auto& [name, value] : known.items()) names.push_back(name);
  fail_usage("--random: '{}' is not one of {} or the path of a config.json{}", shape,
             fmt::join(names, ", "), did_you_mean(shape, names));
}

// Says in the config that the model has no more than its first `layers` layers. Lists of one entry
// a layer may stay longer.
void cut_layers(NamedConfig& named, std::int64_t layers, const ModelSpec& spec) {
  if (layers > spec.layers) {
    fail(ErrorCode::kInvalidArgument, "--layers: {} is more than the {} layers of {}", layers,
         spec.layers, named.file);
  }
  HfConfig config(named.config, named.file);
  config.set_scopes(spec.arch->scopes);
  for (const ArchValue::Alternative& key : spec.arch->sizes.at("layers").alternatives) {
    if (key.kind != ArchValue::Kind::kKey) continue;
    const auto found = config.find(key.text);
    if (!found) continue;
    std::string path = "/" + found->path;
    for (char& c : path) c = c == '.' ? '/' : c;
    named.config[Json::json_pointer(path)] = layers;
    return;
  }
  fail(ErrorCode::kInvalidArgument, "--layers: {} does not say how many layers there are",
       named.file);
}

// Adds everything that an outline lists.
class RandomTensors {
 public:
  RandomTensors(RandomSource& source, RandomMatrices& matrices, const ModelSpec& spec,
                const TensorOutline& outline, bool level)
      : source_(source),
        matrices_(matrices),
        spec_(spec),
        outline_(outline),
        level_(level),
        code_(spec, outline),
        dtype_(matrices.plain_dtype()) {}

  RandomModelSummary add_all();

 private:
  void table(const OutlinedTable& table);
  void linear(const OutlinedLinear& linear);
  void norm(const OutlinedNorm& norm);
  void vector(const OutlinedVector& vector);
  void bias(const std::string& name, std::int64_t width) {
    source_.add_even(name, dtype_, Shape{width}, -kSmall, kSmall);
  }
  bool coded() const { return level_ && code_.present(); }

  RandomSource& source_;
  RandomMatrices& matrices_;
  const ModelSpec& spec_;
  const TensorOutline& outline_;
  bool level_;
  RoutingCode code_;
  DType dtype_;
  RandomModelSummary summary_;
  std::int64_t block_weights_ = 0;
  std::size_t block_bytes_ = 0;
};

void RandomTensors::table(const OutlinedTable& table) {
  summary_.parameters += table.rows * table.width;
  float most = kSmall;
  if (level_) {
    // A tied table is the head too, and logits are as large as what the head reads.
    const float size = spec_.tied ? RandomMatrices::level_size(spec_.hidden)
                                  : 1.0f / std::max(spec_.embed_multiplier, 1e-6f);
    most = std::sqrt(3.0f) * size;
  }
  const Shape shape{table.rows, table.width};
  if (!coded() || table.of_positions) {
    return source_.add_even(table.name, dtype_, shape, -most, most);
  }
  source_.add(table.name, dtype_, shape,
              [code = code_, most](const TensorView& view, std::uint64_t seed) {
                code.fill_table(view, seed, most);
              });
}

void RandomTensors::linear(const OutlinedLinear& linear) {
  summary_.parameters += linear.in * linear.out + (linear.bias ? linear.out : 0);
  const bool routes = linear.role == LinearRole::kRouter;
  const std::size_t before = source_.bytes();
  if (routes && coded()) {
    source_.add(linear.key + ".weight", dtype_, Shape{linear.out, linear.in},
                [code = code_, linear](const TensorView& view, std::uint64_t) {
                  code.fill_router(view, linear);
                });
  } else {
    matrices_.add(linear);
  }
  if (linear.layer >= 0 && linear.quantizable()) {
    block_weights_ += linear.in * linear.out;
    block_bytes_ += source_.bytes() - before;
  }
  if (!linear.bias) return;
  // A router's would prefer some experts.
  if (routes) return source_.add_constant(linear.key + ".bias", dtype_, Shape{linear.out}, 0.0f);
  bias(linear.key + ".bias", linear.out);
}

void RandomTensors::norm(const OutlinedNorm& norm) {
  summary_.parameters += norm.width * (norm.bias.empty() ? 1 : 2);
  const float offset = norm.unit_offset ? 1.0f : 0.0f;
  const Shape shape{norm.width};
  if (!level_ && !code_.present()) {
    source_.add_constant(norm.weight, dtype_, shape, 1.0f - offset);
  } else if (coded() && norm.input == NormInput::kStream) {
    source_.add(norm.weight, dtype_, shape,
                [code = code_, offset](const TensorView& view, std::uint64_t seed) {
                  code.fill_norm(view, seed, offset);
                });
  } else {
    // Rows that have grown alike would all choose the same experts: signs keep them apart, even
    // where only speed is measured. Compared models have scores of about 1, so that no key takes
    // all.
    const float size = level_ && norm.score_size > 1.0f ? 1.0f / norm.score_size : 1.0f;
    source_.add(norm.weight, dtype_, shape, [=](const TensorView& view, std::uint64_t seed) {
      fill_signs(view, seed, size, offset);
    });
  }
  if (!norm.bias.empty()) bias(norm.bias, norm.width);
}

void RandomTensors::vector(const OutlinedVector& vector) {
  summary_.parameters += vector.size;
  const Shape shape{vector.size};
  switch (vector.role) {
    case VectorRole::kSinks:
      return source_.add_even(vector.name, dtype_, shape, -1.0f, 1.0f);
    case VectorRole::kSelectionBias:  // would prefer some experts
      return source_.add_constant(vector.name, dtype_, shape, 0.0f);
    case VectorRole::kExpertScale:
    case VectorRole::kOutputScale:
      return source_.add_constant(vector.name, dtype_, shape, 1.0f);
  }
}

RandomModelSummary RandomTensors::add_all() {
  summary_.architecture = spec_.architecture;
  summary_.layers = spec_.layers;
  for (const OutlinedTable& one : outline_.tables) table(one);
  for (const OutlinedLinear& one : outline_.linears) linear(one);
  for (const OutlinedNorm& one : outline_.norms) norm(one);
  for (const OutlinedVector& one : outline_.vectors) vector(one);
  summary_.bytes = source_.bytes();
  summary_.bits_per_weight =
      8.0 * static_cast<double>(block_bytes_) / static_cast<double>(block_weights_);
  return summary_;
}

ModelSpec spec_of(const NamedConfig& named, const std::filesystem::path& archs) {
  return build_model_spec(ArchLibrary(archs), HfConfig(named.config, named.file), {});
}

}  // namespace

std::string RandomModelSummary::text() const {
  return fmt::format(
      "random weights: {}, {} layers, {:.1f} M parameters, {:.2f} bits each in the "
      "blocks, {}",
      architecture, layers, static_cast<double>(parameters) * 1e-6, bits_per_weight,
      human_bytes(static_cast<double>(bytes)));
}

Json RandomModelSummary::json() const {
  return {{"architecture", architecture},
          {"layers", layers},
          {"parameters", parameters},
          {"bits_per_weight_of_blocks", bits_per_weight},
          {"bytes", bytes}};
}

RandomModel make_random_model(const RandomModelRequest& request) {
  const Json shapes = parse_json(embedded_bench_shapes(), "archs/bench/shapes.json");
  auto source = std::make_shared<RandomSource>(request.hollow);
  RandomMatrices matrices(*source, request, shapes);
  NamedConfig named = config_of(request.shape, shapes);
  ModelSpec spec = spec_of(named, request.archs);
  if (request.layers > 0) {
    cut_layers(named, request.layers, spec);
    spec = spec_of(named, request.archs);
  }
  named.config.erase("quantization_config");
  if (const Json quantization = matrices.quantization_config(); !quantization.is_null()) {
    named.config["quantization_config"] = quantization;
  }
  const TensorOutline outline =
      outline_tensors(spec, HfConfig(named.config, named.file), matrices.quantized());
  RandomModel model;
  model.summary = RandomTensors(*source, matrices, spec, outline, request.level).add_all();
  model.config = std::move(named.config);
  model.config_file = std::move(named.file);
  model.source = std::move(source);
  return model;
}

OpenedRandomModel open_random_model(const RandomModelRequest& request) {
  const RandomModel random = make_random_model(request);
  auto opened = std::make_shared<OpenedModel>();
  opened->path = "random model";
  opened->files = {random.config, random.config_file, random.source,
                   read_gptq_config({}, random.config)};
  opened->note = random.summary.text();
  return {std::move(opened), random.summary};
}

}  // namespace bl
