// Feed-forwards whose hidden channels come in the order of the matrix that reads them
// (LoadPlanner::order_hidden) compute what they compute without, adapters included.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backend/ref/ref_backend.h"
#include "format/select_outputs.h"
#include "format/tensor_set.h"
#include "model/adapter_files.h"
#include "model/golden.h"
#include "support/data.h"
#include "support/random_matrix.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

// "ref", which takes columns as a backend must that reorders hidden channels.
class OrderingRef final : public RefBackend {
 public:
  explicit OrderingRef(int* ordered) : RefBackend(1), ordered_(ordered) {}
  bool reorders_hidden() const override { return true; }
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix,
                                     const PackOptions& options) override {
    if (options.columns.empty()) return RefBackend::pack(matrix, options);
    ++*ordered_;
    return RefBackend::pack(select_outputs(matrix, options.columns), {.out = options.out});
  }

 private:
  int* ordered_;
};

constexpr std::int64_t kHidden = 64;
constexpr const char* kEnd = ".mlp.";

struct Module {
  const char* name;
  std::int64_t in;
  std::int64_t out;
};

struct FeedForwardModel {
  const char* name;
  const char* folder;
  const char* layer;            // what stands before its number
  std::vector<Module> linears;  // those that write hidden channels, then the one that reads them
  std::vector<Module> adapters;

  friend void PrintTo(const FeedForwardModel& model, std::ostream* out) { *out << model.name; }
};

const std::vector<Module> kApart{
    {"gate_proj", kHidden, 128}, {"up_proj", kHidden, 128}, {"down_proj", 128, kHidden}};
const std::vector<Module> kFused{{"gate_up_proj", kHidden, 256}, {"down_proj", 128, kHidden}};
const std::vector<Module> kUngated{{"c_fc", kHidden, 256}, {"c_proj", 256, kHidden}};

const std::vector<FeedForwardModel> kFeedForwards{
    {"apart", "hf-tiny/llama", "model.layers.", kApart, kApart},
    {"fused", "hf-tiny/phi3", "model.layers.", kFused, kFused},
    {"fused_adapters_apart", "hf-tiny/phi3", "model.layers.", kFused, kApart},
    {"apart_adapter_fused", "hf-tiny/phi3", "model.layers.", kApart, kFused},
    {"plain", "hf-tiny/gpt2", "transformer.h.", kUngated, kUngated}};

// A random EXL2 matrix of two widths, with a bias.
void add_exl2(TensorSet& set, const std::string& module, const Module& linear, Engine& random) {
  const auto [unused, in, out] = linear;
  const std::int64_t rows = in / 2 / 32 * 5 + (in - in / 2) / 32 * 4;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(rows * out));
  std::vector<std::uint32_t> scales(static_cast<std::size_t>(2 * out / 8));
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  for (std::uint32_t& word : scales) word = static_cast<std::uint32_t>(random());
  std::vector<std::int32_t> slots(static_cast<std::size_t>(in));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  const auto second = static_cast<std::int16_t>(in / 2 / 32 * 5);
  const std::uint16_t most = float_to_half(0.04f);
  const auto name = [&](const char* tensor) { return module + tensor; };
  set[name(".q_weight")] = raw("I32", {rows, out}, words);
  set[name(".q_scale")] = raw("I32", {2, out / 8}, scales);
  set[name(".q_scale_max")] = raw("F16", {2}, std::vector<std::uint16_t>{most, most});
  set[name(".q_groups")] = raw("I16", {4}, std::vector<std::int16_t>{5, 0, 4, second});
  set[name(".q_invperm")] = raw("I32", {in}, slots);
  std::vector<std::uint16_t> bias;
  for (const float value : random_floats(static_cast<std::size_t>(out), random)) {
    bias.push_back(float_to_half(0.2f * value));
  }
  set[name(".bias")] = raw("F16", {out}, bias);
}

// A model whose feed-forwards are others, but for the modules called `kept`.
class Overlay final : public TensorSource {
 public:
  Overlay(std::shared_ptr<const TensorSource> base, const TensorSet& set, std::string kept)
      : base_(std::move(base)), above_(open_set(set)), kept_(std::move(kept)) {}
  const TensorInfo* find(std::string_view name) const override { return of(name).find(name); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names = above_.names();
    for (std::string& name : base_->names()) {
      if (&of(name) == base_.get()) names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  HostArray read(std::string_view name) const override { return of(name).read(name); }

 private:
  const TensorSource& of(std::string_view name) const {
    const std::size_t at = name.find(kEnd);
    if (at == std::string_view::npos) return *base_;
    const std::string_view module = name.substr(at + std::string_view(kEnd).size());
    if (module.substr(0, module.find('.')) == kept_) return *base_;
    return above_;
  }
  std::shared_ptr<const TensorSource> base_;
  SafetensorsFile above_;
  std::string kept_;
};

// The model of a golden with random EXL2 feed-forwards; the linears called `plain` stay as they
// are.
ModelFiles quantized(const FeedForwardModel& model, const std::string& plain = "") {
  Engine random(71);
  TensorSet set;
  for (const char* layer : {"0", "1"}) {
    for (const Module& linear : model.linears) {
      if (linear.name == plain) continue;
      add_exl2(set, model.layer + std::string(layer) + kEnd + linear.name, linear, random);
    }
  }
  ModelFiles files = open_model_folder(model_folder(model.folder));
  // The new matrices have biases, which a config with this key must not deny.
  if (files.config.contains("mlp_bias")) files.config["mlp_bias"] = true;
  files.source = std::make_shared<Overlay>(files.source, set, plain);
  return files;
}

AdapterMix adapter_of(GoldenRun& run, const FeedForwardModel& model) {
  AdapterFiles files;
  for (const char* layer : {"0", "1"}) {
    for (const Module& module : model.adapters) {
      files.add(model.layer + std::string(layer) + kEnd + module.name, {module.in, module.out});
    }
  }
  const fs::path folder = scratch_dir("hidden-order-adapter");
  files.write(folder);
  return {{run.prepare_adapter(folder).pack(run.backend()), 1.0f}};
}

struct Logits {
  std::vector<float> plain;
  std::vector<float> adapted;
};

Logits logits_of(GoldenRun& run, const FeedForwardModel& model) {
  const std::vector<std::int32_t> ids = some_ids(90, 256);
  const AdapterMix mix = adapter_of(run, model);
  return {run.logits({ids})[0], run.logits({ids}, {mix})[0]};
}

Logits of_ref(const FeedForwardModel& model) {
  GoldenRun run("ref", quantized(model), CacheType::kF32);
  return logits_of(run, model);
}

void expect_close(const Logits& actual, const Logits& expected, double tolerance) {
  const double most = tolerance * std::max(1.0, deviation(expected.plain));
  EXPECT_LE(largest_difference(actual.plain, expected.plain), most);
  EXPECT_LE(largest_difference(actual.adapted, expected.adapted), most);
  EXPECT_GT(largest_difference(expected.plain, expected.adapted), 10 * most)
      << "the adapter does nothing";
}

class HiddenOrder : public testing::TestWithParam<FeedForwardModel> {};

TEST_P(HiddenOrder, ChangesNothing) {
  const FeedForwardModel& model = GetParam();
  int ordered = 0;
  GoldenRun run(std::make_unique<OrderingRef>(&ordered), quantized(model), CacheType::kF32);
  EXPECT_EQ(ordered, 2 * (std::ssize(model.linears) - 1));
  expect_close(logits_of(run, model), of_ref(model), 1e-4);
}

TEST_P(HiddenOrder, CudaEqualsRef) {
  if (cuda_backend().empty()) GTEST_SKIP() << "no CUDA device here";
  const FeedForwardModel& model = GetParam();
  GoldenRun run(cuda_backend(), quantized(model), CacheType::kF16);
  expect_close(logits_of(run, model), of_ref(model), 2e-2);
}

// Plain matrices are not packed anew for it, and a plain reader has no order.
TEST_P(HiddenOrder, StaysWhereOneOfThemIsPlain) {
  const FeedForwardModel& model = GetParam();
  const ModelFiles files = open_model_folder(model_folder(model.folder));
  for (const Module& linear : model.linears) {
    const std::string plain = linear.name;
    if (files.source->find(model.layer + ("0" + (kEnd + plain)) + ".weight") == nullptr) continue;
    int ordered = 0;
    const GoldenRun run(std::make_unique<OrderingRef>(&ordered), quantized(model, plain),
                        CacheType::kF32);
    EXPECT_EQ(ordered, 0) << plain;
  }
}

INSTANTIATE_TEST_SUITE_P(Model, HiddenOrder, testing::ValuesIn(kFeedForwards),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace bl::test
