// Every architecture converts: one case a golden model, whatever its files fuse, stack, transpose
// or interleave.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "../model/golden.h"
#include "backend/registry.h"
#include "convert/converter.h"
#include "convert/eight_bit_model.h"
#include "convert/gptq_converter.h"
#include "convert/products.h"
#include "convert/staged_path.h"
#include "format/dequantize.h"
#include "random_rows.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

// Linears whose weights stay in floats: what chooses experts, and gates of whole heads.
bool stays_plain(const ModelSpec& spec, const LoadTarget& target) {
  if (target.role == Role::kAttentionGate) {
    const BlockSpec& block = spec.blocks[static_cast<std::size_t>(target.block)];
    return block.attention->gate != AttentionGate::kSigmoidElement;
  }
  return target.role == Role::kRouter || target.role == Role::kSharedExpertGate;
}

class ArchitectureConversion : public testing::TestWithParam<std::string> {
 protected:
  // Converts to 8 bits and to few bits, in one job.
  void convert() {
    const auto backend = open_backend("cpu", {.threads = 2});
    const Calibration rows = random_rows(1, 48, kIds);
    const ConvertArgs args{.job = {.backend = *backend,
                                   .files = files_,
                                   .calibration = rows,
                                   .work = root_ / "job",
                                   .quantize = {.sweeps = 0},
                                   .source = GetParam()},
                           .head_bits = 8,
                           .measure_rows = 1};
    Converter converter(args);
    const RateRange rates = converter.rates();
    const double rough = std::max(4.5, 0.5 * (rates.least + rates.most) - 1.0);
    reports_.push_back(convert_to(converter, rough, "rough"));
    reports_.push_back(convert_to(converter, rates.most, "fine"));
  }

  ConvertReport convert_to(Converter& converter, double bits, const char* name) {
    fs::create_directories(root_ / name);
    converter.quantize(bits);
    return converter.write(bits, root_ / name, std::uint64_t{1} << 30);
  }

  ModelFiles convert_to_gptq() {
    const auto backend = open_backend("cpu", {.threads = 2});
    const Calibration rows = random_rows(1, 48, kIds);
    const GptqConvertArgs args{
        .job = {.backend = *backend,
                .files = files_,
                .calibration = rows,
                .work = root_ / "job",
                .quantize = {.sweeps = 0},
                .source = GetParam()},
        .layout = {.bits = 8, .group_size = 32, .symmetric = false, .act_order = true}};
    GptqConverter converter(args);
    converter.quantize();
    fs::create_directories(root_ / "gptq");
    converter.write(root_ / "gptq", std::uint64_t{1} << 30);
    return open_model_folder(root_ / "gptq");
  }

  // The deviation of the logits from the original ones at the median token, relative to these. Not
  // the mean: a token whose experts change says something else, and little can be said of it.
  double deviation(const ModelFiles& converted) {
    const auto logits = [](const ModelFiles& files) {
      GoldenRun run("cpu", files, CacheType::kF32);
      return run.logits({random_rows(1, kTokens, kIds).rows[0]})[0];
    };
    const std::vector<float> base = logits(files_), other = logits(converted);
    const std::size_t vocab = base.size() / kTokens;
    std::vector<double> rows;
    for (std::size_t row = 0; row < kTokens; ++row) {
      double sum = 0.0, power = 0.0;
      for (std::size_t i = row * vocab; i < (row + 1) * vocab; ++i) {
        sum += std::pow(base[i] - other[i], 2.0);
        power += std::pow(base[i], 2.0);
      }
      rows.push_back(std::sqrt(sum / power));
    }
    std::nth_element(rows.begin(), rows.begin() + kTokens / 2, rows.end());
    return rows[kTokens / 2];
  }

  static constexpr int kIds = 96;  // all models know at least so many
  static constexpr std::size_t kTokens = 40;
  const fs::path root_ = scratch_dir(("architecture-" + case_name(GetParam())).c_str());
  const ModelFiles files_ = open_model_folder(model_folder(GetParam()));
  std::vector<ConvertReport> reports_;
};

TEST_P(ArchitectureConversion, KeepsWhatTheModelSays) {
  convert();
  const double rough = deviation(open_model_folder(root_ / "rough"));
  const double fine = deviation(open_model_folder(root_ / "fine"));
  const auto backend = open_backend("cpu", {.threads = 2});
  const double nearest = deviation(eight_bit_model(*backend, files_, {}));
  EXPECT_LT(nearest, 0.12);
  EXPECT_LT(fine, std::max(0.02, 0.7 * nearest));
  EXPECT_LT(rough, 0.3);
  const ModelLoader loader(*backend, open_model_folder(root_ / "fine"), {});
  EXPECT_EQ(loader.unused_tensors(), std::vector<std::string>());
  std::set<std::string> reported;
  for (const LinearReport& linear : reports_[1].linears) {
    EXPECT_TRUE(reported.insert(linear.key).second) << linear.key;
    EXPECT_GT(linear.bits, 8.0) << linear.key;
    EXPECT_TRUE(std::isfinite(linear.relative_error)) << linear.key;
  }
  for (const LoadTask& task : loader.load_plan().tasks) {
    const auto* matrix = std::get_if<MatrixWork>(&task.work);
    if (matrix == nullptr) continue;
    const bool plain = stays_plain(loader.spec(), task.target) || matrix->in % 32 != 0;
    EXPECT_EQ(matrix->quantized, !plain) << task.key;
    EXPECT_EQ(reported.contains(task.key), !plain) << task.key;
  }
}

// The modules of a layer that ExLlamaV2 0.3.2 looks for in EXL2 files.
class ReferenceNames : public ArchitectureConversion {};

TEST_P(ReferenceNames, AreThoseThatItLooksFor) {
  const std::map<std::string, std::vector<const char*>> wanted{
      {"hf-tiny/phi3", {"self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}},
      {"hf-tiny/glm4", {"self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj"}},
      {"hf-tiny/gpt2", {"self_attn.q_proj", "self_attn.o_proj", "mlp.c_fc", "mlp.c_proj"}},
      {"hf-tiny/gpt-bigcode", {"self_attn.k_proj", "self_attn.o_proj", "mlp.c_fc"}},
      {"hf-tiny/dbrx", {"self_attn.q_proj", "block_sparse_moe.experts.3.v1"}},
      {"hf-tiny/qwen3-moe", {"self_attn.q_proj", "mlp.experts.3.down_proj"}},
      {"archs-tiny/internlm2", {"self_attn.v_proj", "self_attn.o_proj", "feed_forward.w3"}}};
  convert();
  const ModelFiles result = open_model_folder(root_ / "fine");
  for (const char* module : wanted.at(GetParam())) {
    const std::string key = std::string("model.layers.1.") + module;
    EXPECT_NE(result.source->find(key + ".q_weight"), nullptr) << key;
  }
  EXPECT_NE(result.source->find("lm_head.q_weight"), nullptr);
  EXPECT_NE(result.source->find("model.embed_tokens.weight"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Names, ReferenceNames,
                         testing::Values("hf-tiny/phi3", "hf-tiny/glm4", "hf-tiny/gpt2",
                                         "hf-tiny/gpt-bigcode", "hf-tiny/dbrx", "hf-tiny/qwen3-moe",
                                         "archs-tiny/internlm2"),
                         [](const auto& info) { return case_name(info.param); });

// GPTQ, with groups of channels in their order of importance, under the names of the source's
// files: a module of the result is one of theirs, with all that they fuse, or an expert out of a
// stack.
TEST_P(ArchitectureConversion, WritesGptqThatReadersOfOthersKnow) {
  const auto backend = open_backend("cpu", {.threads = 2});
  const ModelFiles result = convert_to_gptq();
  EXPECT_LT(deviation(result), 0.06);
  const ModelLoader loader(*backend, result, {});
  EXPECT_EQ(loader.unused_tensors(), std::vector<std::string>());
  for (const LoadTask& task : loader.load_plan().tasks) {
    const auto* matrix = std::get_if<MatrixWork>(&task.work);
    if (matrix == nullptr || task.target.block < 0) continue;
    const bool plain = stays_plain(loader.spec(), task.target) || matrix->in % 32 != 0 ||
                       out_features(matrix->matrix) % 32 != 0;
    EXPECT_EQ(matrix->quantized, !plain) << task.key;
  }
  for (const std::string& name : result.source->names()) {
    const std::string module = name.substr(0, name.rfind('.'));
    const bool known =
        files_.source->find(name) != nullptr || files_.source->find(module + ".weight") != nullptr;
    EXPECT_TRUE(known || name.find(".experts.") != name.npos) << name;
  }
}

// Models whose files interleave queries, keys and values, quantized as one matrix.
class SharesOfFusedGptq : public ArchitectureConversion {
 protected:
  // The values of a linear as it is loaded, [in, out].
  static std::vector<std::uint16_t> values_of(const ModelLoader& loader, std::size_t task) {
    const auto& work = std::get<MatrixWork>(loader.load_plan().tasks[task].work);
    return dequantize_to_half(cut_matrix(work.matrix, work.cut));
  }
};

TEST_P(SharesOfFusedGptq, HoldTogetherWhatTheModelHas) {
  const auto backend = open_backend("ref", {});
  const ModelFiles files = convert_to_gptq();
  const ModelLoader whole(*backend, files, {});
  std::vector<std::unique_ptr<ModelLoader>> shares;
  for (int i = 0; i < 2; ++i) {
    LoadOptions options;
    options.share = {i, 2};
    shares.push_back(std::make_unique<ModelLoader>(*backend, files, options));
  }
  int compared = 0;
  for (std::size_t id = 0; id < whole.load_plan().tasks.size(); ++id) {
    const Role role = whole.load_plan().tasks[id].target.role;
    if (role != Role::kQ && role != Role::kK && role != Role::kV) continue;
    const auto all = values_of(whole, id), left = values_of(*shares[0], id),
               right = values_of(*shares[1], id);
    ASSERT_EQ(left.size() + right.size(), all.size());
    const auto& work = std::get<MatrixWork>(whole.load_plan().tasks[id].work);
    const auto rows = static_cast<std::size_t>(work.in);
    std::vector<std::uint16_t> joined;
    for (std::size_t row = 0; row < rows; ++row) {
      for (const auto* part : {&left, &right}) {
        const auto width = static_cast<std::ptrdiff_t>(part->size() / rows);
        const auto first = part->begin() + static_cast<std::ptrdiff_t>(row) * width;
        joined.insert(joined.end(), first, first + width);
      }
    }
    EXPECT_EQ(joined, all) << whole.load_plan().tasks[id].key;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Model, SharesOfFusedGptq,
                         testing::Values("archs-tiny/gpt-neox", "archs-tiny/bloom",
                                         "archs-tiny/internlm2"),
                         [](const auto& info) { return case_name(info.param); });

// What a call of a pass read, in one line.
using Inputs = std::map<int, std::vector<float>>;

void note_input(Inputs& inputs, int call, const CallInput& input) {
  const auto append = [&](const TensorView& view) {
    const auto* values = view.as<const float>();
    inputs[call].insert(inputs[call].end(), values, values + view.shape.elements());
  };
  append(input.x.view());
  if (input.routed) append(input.weights.view());
}

// Runs blocks call by call, several chunks in turn, and at once.
class ArchitectureStages : public testing::TestWithParam<std::string> {
 protected:
  static LoadOptions separating() {
    LoadOptions options;
    options.separate_linears = true;
    return options;
  }
  struct Pass {
    std::vector<Inputs> inputs{2};
    std::vector<Tensor> states = {};
  };
  Pass begin() {
    Pass pass;
    for (const Tensor& states : states_) pass.states.push_back(copy_of(states.view()));
    return pass;
  }

  Pass at_once(ModelPart& block) {
    Pass pass = begin();
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      CallPlan plan;
      const auto note = [&](int call, const auto& args) {
        note_input(pass.inputs[i], call, CallInput(products_, args));
      };
      plan.before = note;
      plan.before_experts = note;
      block.run_block(chunks_[i], pass.states[i].view(), plan);
    }
    return pass;
  }

  Pass in_stages(ModelPart& block) {
    Pass pass = begin();
    StagedPath path(block, products_, chunks_, pass.states);
    for (int call = 0; call == 0 || !path.inputs().front().x.empty(); ++call) {
      for (std::size_t i = 0; i < chunks_.size(); ++i) {
        path.advance(i);
        const CallInput& input = path.inputs()[i];
        if (!input.x.empty()) note_input(pass.inputs[i], call, input);
      }
    }
    return pass;
  }

  std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  Products products_{*backend_};
  ModelLoader loader_{*backend_, open_model_folder(model_folder(GetParam())), separating()};
  std::vector<Chunk> chunks_;
  std::vector<Tensor> states_;
};

TEST_P(ArchitectureStages, ComputeWhatOnePassComputes) {
  ModelPart ends = ModelPart::ends(loader_, *backend_);
  for (const std::vector<std::int32_t>& row : random_rows(2, 24, 96).rows) {
    chunks_.emplace_back(std::span(&row, 1));
    states_.push_back(ends.embed(chunks_.back()));
  }
  for (std::size_t number = 0; number < loader_.spec().order.size(); ++number) {
    ModelPart block = ModelPart::block(loader_, *backend_, number);
    const Pass once = at_once(block);
    Pass staged = in_stages(block);
    EXPECT_EQ(staged.inputs, once.inputs) << "block " << number;
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      const TensorView& states = once.states[i].view();
      EXPECT_EQ(std::memcmp(states.data, staged.states[i].view().data,
                            static_cast<std::size_t>(states.shape.elements()) * sizeof(float)),
                0)
          << "block " << number << ", chunk " << i;
    }
    states_ = std::move(staged.states);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, ArchitectureStages,
                         testing::ValuesIn(sampled_golden_models({"hf-tiny", "archs-tiny"})),
                         [](const auto& info) { return case_name(info.param); });

INSTANTIATE_TEST_SUITE_P(Model, ArchitectureConversion,
                         testing::ValuesIn(sampled_golden_models({"hf-tiny", "archs-tiny"})),
                         [](const auto& info) { return case_name(info.param); });

}  // namespace
}  // namespace bl::test
