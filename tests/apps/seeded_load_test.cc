// A backend that makes bulk weights itself gets the model that the host would make.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "backend/ref/ref_backend.h"
#include "embedded_data.h"
#include "engine/open_model.h"
#include "model/model_loader.h"
#include "random_model.h"
#include "support/data.h"

namespace bl::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const void* data, std::size_t count) {
  const auto* first = static_cast<const std::byte*>(data);
  return {first, first + count};
}

// The oracle with memory of its own. It notes what it is given and makes what is not there.
class MakingBackend : public RefBackend {
 public:
  explicit MakingBackend(bool makes) : RefBackend(1), makes_(makes) {}

  bool reads_host_memory() const override { return false; }
  bool makes_seeded() const override { return makes_; }
  void make_seeded(const TensorView& to, const SeededValues& values) override {
    const auto bytes = static_cast<std::size_t>(to.shape.elements()) * size_of(to.dtype);
    make_values(values, to.as<std::byte>(), bytes);
    given.push_back(bytes_of(to.data, bytes));
    made += 1;
  }
  Buffer allocate_transfer(std::size_t bytes) override {
    Buffer memory = RefBackend::allocate_transfer(bytes);
    tables.emplace_back(memory.data(), bytes);
    return memory;
  }
  void upload(const TensorView& to, const TensorView& from) override {
    const auto bytes = static_cast<std::size_t>(from.shape.elements()) * size_of(from.dtype);
    given.push_back(bytes_of(from.data, bytes));
    RefBackend::upload(to, from);
  }
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix,
                                     const PackOptions& options) override {
    WeightMatrix there = matrix;
    Bytes bytes;
    if (auto* exl2 = std::get_if<Exl2Matrix>(&there)) {
      bytes = filled(exl2->seeded, exl2->q_weight.data(), exl2->q_weight.size_bytes());
      exl2->q_weight = {reinterpret_cast<const std::uint32_t*>(bytes.data()), bytes.size() / 4};
    } else if (auto* gptq = std::get_if<GptqMatrix>(&there)) {
      bytes = filled(gptq->seeded, gptq->qweight.data(), gptq->qweight.size_bytes());
      gptq->qweight = {reinterpret_cast<const std::uint32_t*>(bytes.data()), bytes.size() / 4};
    } else {
      TensorView& view = std::get<DenseMatrix>(there).weight.view;
      bytes = filled(std::get<DenseMatrix>(there).weight.seeded, view.data,
                     static_cast<std::size_t>(view.shape.elements()) * size_of(view.dtype));
      view.data = bytes.data();
    }
    auto packed = RefBackend::pack(there, options);
    const Tensor values = unpack(*packed);
    given.push_back(
        bytes_of(values.view().data, static_cast<std::size_t>(values.view().shape.elements()) * 4));
    return packed;
  }

  std::vector<Bytes> given;
  std::vector<std::pair<const void*, std::size_t>> tables;  // on the host, while the model lives
  int made = 0;

 private:
  Bytes filled(const std::shared_ptr<const SeededValues>& seeded, const void* data,
               std::size_t count) {
    if (!seeded) return bytes_of(data, count);
    Bytes bytes(count);
    make_values(*seeded, bytes.data(), count);
    made += 1;
    return bytes;
  }

  bool makes_;
};

// A small config.json; `architecture` has experts or has not.
std::string small_config(const std::string& architecture) {
  const std::filesystem::path path = scratch_dir("seeded-load") / "config.json";
  Json config = parse_json(embedded_bench_shapes(), "shapes").at("config");
  config.update({{"architectures", {architecture}},
                 {"num_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 128},
                 {"hidden_size", 256},
                 {"intermediate_size", 512},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"vocab_size", 500}});
  std::ofstream(path) << config.dump();
  return path.string();
}

void load(MakingBackend& backend, const std::string& architecture, const std::string& format,
          bool table_on_host) {
  RandomModelRequest request;
  request.shape = small_config(architecture);
  request.format = format;
  request.mix = "4";
  const auto opened = open_random_model(request).opened;
  LoadOptions options;
  options.embed_host = table_on_host;
  const auto model = ModelLoader(backend, opened->files, options).load();
  ASSERT_EQ(backend.tables.size(), table_on_host ? 1u : 0u);
  for (const auto& [data, bytes] : backend.tables) backend.given.push_back(bytes_of(data, bytes));
}

// `matrices` are those of a block.
void expect_same(const std::string& architecture, int matrices) {
  for (const char* format : {"exl2", "gptq", "bf16", "fp16"}) {
    for (const bool table_on_host : {false, true}) {
      MakingBackend given(false);
      MakingBackend making(true);
      load(given, architecture, format, table_on_host);
      load(making, architecture, format, table_on_host);
      EXPECT_EQ(given.made, 0);
      // Those of two blocks, the head, and the table where the backend has it.
      EXPECT_EQ(making.made, 2 * matrices + 1 + (table_on_host ? 0 : 1)) << format;
      ASSERT_EQ(making.given.size(), given.given.size()) << format;
      for (std::size_t i = 0; i < given.given.size(); ++i) {
        EXPECT_EQ(making.given[i], given.given[i]) << format << ", " << i;
      }
    }
  }
}

TEST(SeededLoad, BackendsThatMakeWeightsHaveTheSame) { expect_same("LlamaForCausalLM", 7); }

// Of attention four, a router, and three of each expert.
TEST(SeededLoad, ExpertsAreMadeInPlaceToo) { expect_same("Qwen3MoeForCausalLM", 4 + 1 + 4 * 3); }

}  // namespace
}  // namespace bl::test
