// Adapters of routed experts in an engine: requests with different ones, and without any, in the
// same steps get what they get alone.

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "engine/engine.h"
#include "model/adapter_files.h"
#include "on_cuda.h"
#include "support/data.h"
#include "tiny_model.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ModelSession> open_mixtral(const char* backend, std::int64_t sequences) {
  SessionOptions options =
      test::textless_session(test::unpacked("hf-tiny") / "mixtral", backend, sequences);
  options.deterministic = true;
  options.pages = 64;
  return ModelSession::load(options);
}

void load_expert_adapters(Engine& engine) {
  const auto load = [&](const char* name, const std::vector<std::string>& experts) {
    test::AdapterFiles files;
    files.config["lora_alpha"] = 30;
    for (const char* layer : {"0", "1"}) {
      for (const std::string& expert : experts) {
        const std::string at =
            fmt::format("model.layers.{}.block_sparse_moe.experts.{}", layer, expert);
        files.add(at + ".w1", {64, 128});
        files.add(at + ".w2", {128, 64});
      }
    }
    const fs::path folder = test::scratch_dir("expert-adapter");
    files.write(folder);
    engine.load_adapter(name, folder);
  };
  load("few", {"2"});
  load("many", {"0", "1", "3"});
}

std::vector<Request> crowd_with_experts() {
  const std::vector<std::vector<AdapterChoice>> mixes{
      {}, {{"few", 1.0}}, {{"many", 1.0}}, {{"few", 0.5}, {"many", -0.75}}};
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request request;
    for (int t = 0; t < 30 + 4 * (i / 4); ++t) request.prompt.push_back((t * 29 + 7) % 256);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 20;
    request.ignore_end_tokens = true;
    request.adapters = mixes[static_cast<std::size_t>(i % 4)];
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_same_ids_with_experts(const char* backend) {
  const std::vector<Request> requests = crowd_with_experts();
  std::vector<std::vector<std::int32_t>> expected;
  Engine single(open_mixtral(backend, 1));
  load_expert_adapters(single);
  for (const Request& request : requests) {
    const Answer answer = single.submit(request).wait().front();
    EXPECT_NE(answer.reason, FinishReason::kError) << answer.error;
    expected.push_back(answer.ids);
  }
  // They differ, or nothing would be proven.
  EXPECT_EQ(std::set(expected.begin(), expected.begin() + 4).size(), 4u);
  Engine crowd(open_mixtral(backend, 12));
  load_expert_adapters(crowd);
  std::vector<RequestHandle> handles;
  for (const Request& request : requests) handles.push_back(crowd.submit(request));
  for (std::size_t i = 0; i < handles.size(); ++i) {
    EXPECT_EQ(handles[i].wait().front().ids, expected[i]) << i;
  }
}

TEST(ExpertAdapters, SameIdsAloneAndInACrowd) { expect_same_ids_with_experts("cpu"); }

TEST(ExpertAdapters, SameIdsOnRef) { expect_same_ids_with_experts("ref"); }

class ExpertAdaptersOnCuda : public test::OnCuda {};

TEST_F(ExpertAdaptersOnCuda, SameIdsAloneAndInACrowd) { expect_same_ids_with_experts("cuda:0"); }

}  // namespace
}  // namespace bl
