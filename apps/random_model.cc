#include "random_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "embedded_data.h"
#include "engine/open_model.h"
#include "format/bit_codec.h"
#include "tensor/tensor.h"

namespace bl {
namespace {

constexpr int kGptqBits = 4;

// A stretch of input rows of one width.
struct Band {
  int bits = 0;
  std::int64_t rows = 0;
  std::int64_t group = 0;
};

std::uint64_t next_random(std::uint64_t& state) {
  const std::uint64_t word = seeded_word(state, 0);
  state += kSeededStep;
  return word;
}

std::size_t bytes_of(const TensorInfo& info) {
  return static_cast<std::size_t>(info.shape.elements()) * size_of(info.dtype);
}

// Values from `least` to `most`, evenly.
SeededValues halves_between(float least, float most) {
  SeededValues halves;
  halves.halves = true;
  for (int i = 0; i < 256; ++i) {
    halves.values[i] = float_to_half(least + static_cast<float>(i) / 255.0f * (most - least));
  }
  return halves;
}

void fill_values(const TensorView& view, SeededValues values, std::uint64_t seed) {
  values.seed = seed;
  make_values(values, view.as<std::byte>(),
              static_cast<std::size_t>(view.shape.elements()) * size_of(view.dtype));
}

void fill_bits(const TensorView& view, std::uint64_t seed) { fill_values(view, {}, seed); }

// Half to one and a half times each mean.
void fill_scales(const TensorView& view, std::span<const float> means, std::uint64_t seed) {
  auto* out = view.as<std::uint16_t>();
  for (const float mean : means) {
    const auto part = static_cast<float>(next_random(seed) & 255) / 255.0f;
    *out++ = float_to_half(mean * (0.5f + part));
  }
}

// 1 or −1.
void fill_signs(const TensorView& view, std::uint64_t seed) {
  auto* out = view.as<std::uint16_t>();
  const std::int64_t count = view.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) out[i] = float_to_half(next_random(seed) & 1 ? 1 : -1);
}

void fill_permutation(const TensorView& view, std::uint64_t seed) {
  auto* out = view.as<std::int32_t>();
  const std::int64_t count = view.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(i);
  for (std::int64_t i = count - 1; i > 0; --i) {
    const auto other =
        static_cast<std::int64_t>(next_random(seed) % static_cast<std::uint64_t>(i + 1));
    std::swap(out[i], out[other]);
  }
}

// Tensors by name, each with the function that fills it, or what its seed stands for.
class RandomSource : public TensorSource {
 public:
  using Fill = std::function<void(const TensorView&, std::uint64_t seed)>;
  // Of a hollow source, all tensors above this share memory that nobody touches.
  static constexpr std::size_t kBulk = std::size_t{1} << 20;
  explicit RandomSource(bool hollow) : hollow_(hollow) {}

  void add(const std::string& name, DType dtype, const Shape& shape, Fill fill) {
    entries_[name] = {{dtype, shape, "random model"}, std::move(fill), nullptr};
  }
  // The bulk of a model may be left to who reads it (read_seeded()).
  void add_values(const std::string& name, DType dtype, const Shape& shape,
                  const SeededValues& values) {
    const auto own = std::make_shared<SeededValues>(values);
    own->seed = seed_of(name);
    entries_[name] = {{dtype, shape, "random model"}, {}, own};
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto at = entries_.find(std::string(name));
    return at == entries_.end() ? nullptr : &at->second.info;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }
  HostArray read(std::string_view name) const override {
    const Entry& entry = entry_of(name);
    const TensorInfo& info = entry.info;
    if (hollow_ && bytes_of(info) > kBulk) return untouched(info);
    const auto tensor = std::make_shared<Tensor>(make_host_tensor(info.dtype, info.shape));
    if (entry.values) {
      make_values(*entry.values, tensor->view().as<std::byte>(), bytes_of(info));
    } else {
      entry.fill(tensor->view(), seed_of(name));
    }
    return {tensor->view(), tensor};
  }
  HostArray read_seeded(std::string_view name) const override {
    const Entry& entry = entry_of(name);
    if (!entry.values) return read(name);
    HostArray array = untouched(entry.info);
    array.seeded = entry.values;
    return array;
  }

 private:
  struct Entry {
    TensorInfo info;
    Fill fill;
    std::shared_ptr<const SeededValues> values;  // in place of `fill`
  };
  static std::uint64_t seed_of(std::string_view name) {
    return std::hash<std::string_view>()(name);
  }
  const Entry& entry_of(std::string_view name) const {
    const auto at = entries_.find(std::string(name));
    if (at == entries_.end()) fail(ErrorCode::kNotFound, "random model: no tensor {}", name);
    return at->second;
  }
  HostArray untouched(const TensorInfo& info) const {
    const std::size_t bytes = bytes_of(info);
    if (!shared_ || static_cast<std::size_t>(shared_->view().rows()) < bytes) {
      const auto size = static_cast<std::int64_t>(bytes);
      shared_ = std::make_shared<Tensor>(make_host_tensor(DType::kU8, {size}));
    }
    return {view_of(shared_->view().as<std::byte>(), info.dtype, info.shape), shared_};
  }

  std::map<std::string, Entry> entries_;
  bool hollow_;
  mutable std::shared_ptr<Tensor> shared_;
};

std::vector<Band> bands_of(const Json& mix, std::int64_t in) {
  std::vector<Band> bands;
  std::int64_t left = in;
  for (std::size_t i = 0; i < mix.size(); ++i) {
    const std::int64_t group = mix[i].at("group");
    const auto share =
        static_cast<std::int64_t>(static_cast<double>(in) * mix[i].at("share").get<double>());
    const std::int64_t rows = i + 1 == mix.size() ? left : share / group * group;
    left -= rows;
    if (rows > 0) bands.push_back({mix[i].at("bits"), rows, group});
  }
  return bands;
}

void add_half(RandomSource& source, const std::string& name, const Shape& shape, float size) {
  source.add_values(name, DType::kF16, shape, halves_between(-size, size));
}

void add_halves(RandomSource& source, const std::string& name, const Shape& shape, float least,
                float most) {
  source.add(name, DType::kF16, shape, [=](const TensorView& view, std::uint64_t seed) {
    fill_values(view, halves_between(least, most), seed);
  });
}

// Of groups: they differ, as those of real files do, since a card's power, and so its speed,
// depends on the numbers it multiplies.
void add_scales(RandomSource& source, const std::string& name, const Shape& shape, float mean) {
  add_halves(source, name, shape, 0.5f * mean, 1.5f * mean);
}

// Half to one and a half times 0.02 whatever the width, as other engines' random models have it; or
// `level`, such that centred codes of every width have the standard deviation of real weights,
// about 0.02.
std::vector<float> mean_scales(const std::vector<std::int16_t>& groups, bool level) {
  constexpr float kMeanScale = 0.37f;  // of 4-bit scales, beside the largest
  std::vector<float> means(groups.size() / 2, 0.02f);
  for (std::size_t i = 0; level && i < means.size(); ++i) {
    const auto centre = static_cast<float>(1 << (groups[2 * i] - 1));
    means[i] /= kMeanScale * std::sqrt((centre - 1) * (2 * centre - 1) / 6);
  }
  return means;
}

// Random codes mean half a step less than nothing on average: the least become the centre.
void centre_codes(const TensorView& view, const std::vector<std::int16_t>& groups) {
  auto* words = view.as<std::uint32_t>();
  const std::int64_t out = view.shape[1];
  for (std::size_t i = 0; i < groups.size(); i += 2) {
    const std::int64_t end = i + 2 < groups.size() ? groups[i + 3] : view.shape[0];
    visit_code_width(groups[i], [&]<int kBits>() {
      for (std::int64_t row = groups[i + 1]; row < end; row += kBits) {
        for (std::int64_t column = 0; column < out; ++column) {
          std::uint32_t* run = words + row * out + column;
          std::uint8_t codes[kCodesPerRun];
          BitCodec<kBits>::read_run(run, out, codes);
          for (std::uint8_t& code : codes) code = code == 0 ? 1 << (kBits - 1) : code;
          BitCodec<kBits>::write_run(codes, run, out);
        }
      }
    });
  }
}

void add_constant(RandomSource& source, const std::string& name, const Shape& shape, float value) {
  add_halves(source, name, shape, value, value);
}

void add_exl2(RandomSource& source, const std::string& key, const Shape& weight, const Json& mix,
              bool level) {
  const std::int64_t in = weight[0];
  const std::int64_t out = weight[1];
  std::vector<std::int16_t> groups;
  std::int64_t words = 0;
  for (const Band& band : bands_of(mix, in)) {
    for (std::int64_t row = 0; row < band.rows; row += band.group) {
      groups.push_back(static_cast<std::int16_t>(band.bits));
      groups.push_back(static_cast<std::int16_t>(words));
      words += std::min(band.group, band.rows - row) * band.bits / 32;
    }
  }
  const auto count = static_cast<std::int64_t>(groups.size()) / 2;
  if (level) {
    source.add(key + ".q_weight", DType::kI32, Shape{words, out},
               [groups](const TensorView& view, std::uint64_t seed) {
                 fill_bits(view, seed);
                 centre_codes(view, groups);
               });
  } else {
    source.add_values(key + ".q_weight", DType::kI32, Shape{words, out}, {});
  }
  source.add(key + ".q_scale", DType::kI32, Shape{count, out / 8}, fill_bits);
  source.add(key + ".q_scale_max", DType::kF16, Shape{count},
             [means = mean_scales(groups, level)](const TensorView& view, std::uint64_t seed) {
               fill_scales(view, means, seed);
             });
  source.add(key + ".q_groups", DType::kI16, Shape{2 * count},
             [groups](const TensorView& view, std::uint64_t) {
               std::copy(groups.begin(), groups.end(), view.as<std::int16_t>());
             });
  // Converters order the channels of an input once for all matrices that read it: those of one
  // module and width.
  const std::uint64_t order = std::hash<std::string>()(key.substr(0, key.rfind('.'))) + in;
  source.add(key + ".q_invperm", DType::kI32, Shape{in},
             [order](const TensorView& view, std::uint64_t) { fill_permutation(view, order); });
}

void add_gptq(RandomSource& source, const std::string& key, const Shape& weight,
              std::int64_t group_size) {
  const std::int64_t in = weight[0];
  const std::int64_t out = weight[1];
  const std::int64_t groups = (in + group_size - 1) / group_size;
  source.add_values(key + ".qweight", DType::kI32, Shape{in * kGptqBits / 32, out}, {});
  source.add(key + ".qzeros", DType::kI32, Shape{groups, out * kGptqBits / 32},
             [](const TensorView& view, std::uint64_t) {
               std::fill_n(view.as<std::int32_t>(), view.shape.elements(), 0x77777777);
             });
  add_scales(source, key + ".scales", Shape{groups, out}, 0.002f);
}

std::int64_t size_of_config(const Json& config, const char* key, std::int64_t fallback) {
  const auto at = config.find(key);
  if (at == config.end() && fallback > 0) return fallback;
  if (at == config.end() || !at->is_number_integer() || *at < 1 || *at > (1 << 24)) {
    fail(ErrorCode::kInvalidArgument,
         "--random: {} should be a positive size, in a config.json of "
         "the plain gated kind",
         key);
  }
  return at->get<std::int64_t>();
}

// Adds linears in the wanted format.
class RandomWeights {
 public:
  RandomWeights(RandomSource& source, const RandomModelRequest& request, const Json& shapes)
      : source_(source),
        format_(request.format),
        level_(request.level),
        group_size_(request.group_size),
        head_mix_(shapes.at("head")) {
    if (format_ != "exl2") return;
    // "4+": the mix of "4", and more of the widest codes in matrices that converters favour.
    const bool favours = request.mix.ends_with('+');
    const std::string base = request.mix.substr(0, request.mix.size() - (favours ? 1 : 0));
    const auto mix = shapes.at("mixes").find(base);
    if (mix == shapes.at("mixes").end()) {
      std::string known;
      for (const auto& [name, value] : shapes.at("mixes").items()) {
        known += (known.empty() ? "" : ", ") + name;
      }
      fail(ErrorCode::kInvalidArgument, "--bpw: '{}' is not one of {}, nor one of them with '+'",
           request.mix, known);
    }
    mix_ = *mix;
    if (!favours) return;
    const Json& favoured = shapes.at("favoured");
    favoured_ = favoured.at("matrices");
    favoured_mix_ = mix_;
    Json& share = favoured_mix_.at(0).at("share");
    share = share.get<double>() * favoured.at("first_share").get<double>();
  }

  void linear(const std::string& key, std::int64_t in, std::int64_t out) {
    if (format_ == "exl2") {
      add_exl2(source_, key, {in, out}, is_favoured(key) ? favoured_mix_ : mix_, level_);
    } else if (format_ == "gptq") {
      add_gptq(source_, key, {in, out}, group_size_);
    } else {
      add_half(source_, key + ".weight", Shape{out, in}, 0.02f);
    }
  }
  void norm(const std::string& key, std::int64_t width) {
    if (!level_) return add_constant(source_, key, Shape{width}, 1.0f);
    source_.add(key, DType::kF16, Shape{width}, fill_signs);
  }
  void head(std::int64_t in, std::int64_t out) {
    if (format_ == "exl2") {
      add_exl2(source_, "lm_head", {in, (out + 31) / 32 * 32}, head_mix_, level_);
    } else {
      add_half(source_, "lm_head.weight", Shape{out, in}, 0.02f);
    }
  }

 private:
  bool is_favoured(const std::string& key) const {
    return std::any_of(favoured_.begin(), favoured_.end(),
                       [&](const Json& name) { return key.ends_with(name.get<std::string>()); });
  }

  RandomSource& source_;
  std::string format_;
  bool level_;
  std::int64_t group_size_;
  Json head_mix_;
  Json mix_;
  Json favoured_;  // names of matrices, or null
  Json favoured_mix_;
};

// Those of the blocks below `prefix`.
void add_blocks(const Json& config, const std::string& prefix, RandomSource& source,
                RandomWeights& weights) {
  const std::int64_t hidden = size_of_config(config, "hidden_size", 0);
  const std::int64_t intermediate = size_of_config(config, "intermediate_size", 0);
  const std::int64_t layers = size_of_config(config, "num_hidden_layers", 0);
  const std::int64_t heads = size_of_config(config, "num_attention_heads", 0);
  const std::int64_t kv_heads = size_of_config(config, "num_key_value_heads", heads);
  const std::int64_t head_dim =
      size_of_config(config, "head_dim", std::max<std::int64_t>(1, hidden / heads));
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", prefix, i);
    weights.linear(layer + "self_attn.q_proj", hidden, heads * head_dim);
    weights.linear(layer + "self_attn.k_proj", hidden, kv_heads * head_dim);
    weights.linear(layer + "self_attn.v_proj", hidden, kv_heads * head_dim);
    weights.linear(layer + "self_attn.o_proj", heads * head_dim, hidden);
    weights.linear(layer + "mlp.gate_proj", hidden, intermediate);
    weights.linear(layer + "mlp.up_proj", hidden, intermediate);
    weights.linear(layer + "mlp.down_proj", intermediate, hidden);
    weights.norm(layer + "input_layernorm.weight", hidden);
    weights.norm(layer + "post_attention_layernorm.weight", hidden);
    // Names that an architecture does not have are nobody's.
    add_constant(source, layer + "self_attn.q_norm.weight", Shape{head_dim}, 1.0f);
    add_constant(source, layer + "self_attn.k_norm.weight", Shape{head_dim}, 1.0f);
  }
}

// Layers that read another model's hidden states.
void add_side_layers(const Json& config, std::int64_t states, RandomSource& source,
                     RandomWeights& weights) {
  const std::int64_t hidden = size_of_config(config, "hidden_size", 0);
  weights.linear("fc", states * hidden, hidden);
  weights.norm("hidden_norm.weight", hidden);
  weights.norm("norm.weight", hidden);
  add_blocks(config, "", source, weights);
}

void add_model(const Json& config, RandomSource& source, RandomWeights& weights) {
  const auto states = config.find("target_layer_ids");
  if (states != config.end() && states->is_array()) {
    add_side_layers(config, std::ssize(*states), source, weights);
    return;
  }
  const std::int64_t hidden = size_of_config(config, "hidden_size", 0);
  const std::int64_t vocab = size_of_config(config, "vocab_size", 0);
  add_half(source, "model.embed_tokens.weight", Shape{vocab, hidden}, 0.02f);
  weights.norm("model.norm.weight", hidden);
  if (!config.value("tie_word_embeddings", false)) weights.head(hidden, vocab);
  add_blocks(config, "model.", source, weights);
}

Json config_of(const std::string& shape, const Json& shapes) {
  const Json& known = shapes.at("shapes");
  if (const auto at = known.find(shape); at != known.end()) {
    Json config = shapes.at("config");
    config.update(*at);
    return config;
  }
  if (std::filesystem::is_regular_file(shape)) return read_json_file(shape);
  std::string names;
  for (const auto& [name, value] : known.items()) names += name + ", ";
  fail(ErrorCode::kInvalidArgument, "--random: '{}' is not one of {}or the path of a config.json",
       shape, names);
}

}  // namespace

RandomModel make_random_model(const RandomModelRequest& request) {
  if (request.format != "exl2" && request.format != "gptq" && request.format != "fp16") {
    fail(ErrorCode::kInvalidArgument, "--format: '{}' is not one of exl2, gptq, fp16",
         request.format);
  }
  const std::int64_t groups[] = {32, 64, 128};
  if (std::find(std::begin(groups), std::end(groups), request.group_size) == std::end(groups)) {
    fail(ErrorCode::kInvalidArgument, "--group-size: {} is not one of 32, 64, 128",
         request.group_size);
  }
  const Json shapes = parse_json(embedded_bench_shapes(), "archs/bench/shapes.json");
  RandomModel model;
  model.config = config_of(request.shape, shapes);
  if (!model.config.is_object()) {
    fail(ErrorCode::kInvalidArgument, "--random: {} is not a JSON object", request.shape);
  }
  if (request.format == "exl2") {
    model.config["quantization_config"] = {{"quant_method", "exl2"}, {"bits", 4.0}};
  } else if (request.format == "gptq") {
    model.config["quantization_config"] = {{"quant_method", "gptq"},
                                           {"bits", kGptqBits},
                                           {"group_size", request.group_size},
                                           {"desc_act", false},
                                           {"sym", true}};
  } else {
    model.config.erase("quantization_config");
  }
  auto source = std::make_shared<RandomSource>(request.hollow);
  RandomWeights weights(*source, request, shapes);
  add_model(model.config, *source, weights);
  model.source = std::move(source);
  return model;
}

std::shared_ptr<const OpenedModel> open_random_model(const RandomModelRequest& request) {
  const RandomModel random = make_random_model(request);
  auto opened = std::make_shared<OpenedModel>();
  opened->path = "random model";
  opened->files = {random.config, "config.json of the random model", random.source,
                   read_gptq_config({}, random.config)};
  return opened;
}

}  // namespace bl
