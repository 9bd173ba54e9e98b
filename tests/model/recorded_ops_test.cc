// Recording the ops of a step does not change its results, on any backend.

#include <gtest/gtest.h>

#include <map>

#include "model/golden.h"
#include "ops/op_profile.h"

namespace bl::test {
namespace {

class RecordedOps : public testing::TestWithParam<const char*> {};

TEST_P(RecordedOps, GiveTheSameLogits) {
  const std::string backend =
      GetParam() == std::string("cuda") ? cuda_backend() : std::string(GetParam());
  if (backend.empty()) GTEST_SKIP() << "no CUDA device here";
  for (const char* name : {"hf-tiny/llama", "hf-tiny/qwen3-moe", "exl2-gptq/exl2-5-3"}) {
    SCOPED_TRACE(name);
    GoldenRun run(backend, model_folder(name), CacheType::kF16);
    const auto ids = some_ids(40, run.model().vocab());
    const std::vector<float> whole = run.logits({ids})[0];
    const std::vector<float> chunks = run.chunked_logits(ids, 1);
    OpProfile profile;
    HostOpTimer timer(profile);
    const RecordingTable table(run.backend().ops(), timer);
    run.use(table);
    EXPECT_TRUE(run.logits({ids})[0] == whole);
    std::map<std::string_view, std::int64_t> calls;
    for (const OpTime& time : profile.times()) {
      calls[time.op] += time.calls;
      EXPECT_TRUE(time.shape.keys == 0 || time.shape.keys == 64) << time.op;
    }
    EXPECT_EQ(calls["embed"], 1);
    // At least two products per block, before and after attention, and the head.
    EXPECT_GT(calls["matmul"], 2 * run.model().kv_layers());
    EXPECT_EQ(calls["attention"] + calls["rope_write_attend"], run.model().kv_layers());
    EXPECT_TRUE(run.chunked_logits(ids, 1) == chunks);
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, RecordedOps, testing::Values("ref", "cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, RecordedOps, testing::Values("cuda"));

}  // namespace
}  // namespace bl::test
