// rope_write_attend of host backends: to the bit what rope, kv_write and attention do one after the
// other.

#include <gtest/gtest.h>

#include "backend/device.h"
#include "backend/sampled_cache_types.h"
#include "ops/kv_layout.h"

namespace bl::test {
namespace {

struct Sequence {
  std::int32_t past;
  std::int32_t tokens;
};

struct Case {
  CacheTypes type{};
  int heads, kv_heads, head_dim;
  std::int64_t rotated;
  RopeStyle style;
  int window;
  std::vector<Sequence> sequences;
};

std::vector<Case> cases() {
  // One token each: nothing before it, less than a tile, a whole one, several, pages and spans.
  const std::vector<Sequence> decode{{0, 1},   {37, 1},  {63, 1},   {64, 1}, {80, 1}, {200, 1},
                                     {511, 1}, {512, 1}, {1100, 1}, {5, 1},  {0, 0},  {90, 1}};
  const std::vector<Sequence> few{{0, 3}, {255, 5}, {600, 2}, {62, 4}, {30, 1}};
  const std::vector<Sequence> prompt{{0, 150}, {70, 1}, {300, 40}};
  std::vector<Case> all;
  for (const CacheTypes type : sampled_cache_types()) {
    for (const std::vector<Sequence>& sequences : {decode, few, prompt}) {
      all.push_back({type, 9, 3, 64, 64, RopeStyle::kNeox, 0, sequences});
      if (!type.are_one()) continue;  // heads of other sizes have rows of the same types
      all.push_back({type, 4, 2, 80, 32, RopeStyle::kInterleaved, 100, sequences});
      all.push_back({type, 8, 1, 32, 32, RopeStyle::kNeox, 0, sequences});
    }
  }
  return all;
}

// What a step leaves behind, fused or not.
struct Outcome {
  std::vector<float> out;
  std::vector<std::int32_t> pages;
};

class Step {
 public:
  Step(const Case& c, Random& random) : c_(c) {
    for (const Sequence& s : c.sequences) {
      std::vector<std::int32_t>& table = tables_.emplace_back();
      const int count = (s.past + s.tokens + kPageSlots - 1) / kPageSlots;
      for (int p = 0; p < count; ++p) table.push_back(pages_++);
      for (std::int32_t i = s.past; i < s.past + s.tokens; ++i) {
        positions_.push_back(i);
        const std::int64_t page = table[static_cast<std::size_t>(i / kPageSlots)];
        slots_.push_back(page * kPageSlots + i % kPageSlots);
      }
    }
    tokens_ = static_cast<std::int64_t>(positions_.size());
    inv_freq_ = random.normal(c.rotated / 2);
    q_ = random.normal(tokens_ * c.heads * c.head_dim);
    k_ = random.normal(tokens_ * c.kv_heads * c.head_dim);
    v_ = random.normal(tokens_ * c.kv_heads * c.head_dim);
    old_ = random.normal(std::int64_t{pages_} * kPageSlots * c.kv_heads * c.head_dim);
  }

  Outcome run(Device& device, bool fused) const {
    const KvLayout layout{c_.type, c_.kv_heads, c_.head_dim, c_.head_dim};
    const auto pages = static_cast<std::size_t>(pages_);
    const PagedKvView cache{.layout = layout,
                            .k = device.zeros(pages * layout.k_page_bytes()),
                            .v = device.zeros(pages * layout.v_page_bytes()),
                            .pages = pages_};
    fill(device, cache);
    const Shape k_shape{tokens_, c_.kv_heads, c_.head_dim};
    const Shape q_shape{tokens_, c_.heads, c_.head_dim};
    RopeArgs q{.x = device.put_strided(q_, q_shape, 13),
               .positions = device.put(positions_),
               .inv_freq = device.put(inv_freq_, {1, c_.rotated / 2}),
               .scale = device.put(std::vector<float>{0.9f}, {1}),
               .variant = device.put(std::vector<std::int32_t>(positions_.size(), 0)),
               .rotated = c_.rotated,
               .style = c_.style};
    RopeArgs k = q;
    k.x = device.put_strided(k_, k_shape, 5);
    const RopeAndWriteArgs before{.q = q,
                                  .k = k,
                                  .write = {.k = k.x,
                                            .v = device.put_strided(v_, k_shape, 7),
                                            .cache = cache,
                                            .slots = device.put(slots_)}};
    const std::vector<SequenceSpan> spans = this->spans();
    const AttentionArgs attention{.q = q.x,
                                  .out = device.put(std::vector<float>(q_.size(), 7.0f), q_shape),
                                  .cache = cache,
                                  .sequences = spans,
                                  .plan = device.backend().plan_attention(device.context(), spans),
                                  .scale = 0.1f,
                                  .window = c_.window,
                                  .sinks = {},
                                  .alibi_slopes = {}};
    if (fused) {
      device.ops().rope_write_attend(device.context(), before, attention);
    } else {
      device.ops().rope(device.context(), q);
      device.ops().rope(device.context(), k);
      device.ops().kv_write(device.context(), before.write);
      device.ops().attention(device.context(), attention);
    }
    Outcome outcome{device.get(attention.out), words(device, cache.k, layout.k_page_bytes())};
    const std::vector<std::int32_t> values = words(device, cache.v, layout.v_page_bytes());
    outcome.pages.insert(outcome.pages.end(), values.begin(), values.end());
    return outcome;
  }

 private:
  std::vector<SequenceSpan> spans() const {
    std::vector<SequenceSpan> spans;
    std::int32_t first = 0;
    for (std::size_t s = 0; s < c_.sequences.size(); ++s) {
      spans.push_back({.first_token = first,
                       .tokens = c_.sequences[s].tokens,
                       .past = c_.sequences[s].past,
                       .pages = tables_[s].data()});
      first += c_.sequences[s].tokens;
    }
    return spans;
  }

  // Every slot holds something, as if sequences had come that far.
  void fill(Device& device, const PagedKvView& cache) const {
    const Shape shape{std::int64_t{pages_} * kPageSlots, c_.kv_heads, c_.head_dim};
    std::vector<std::int64_t> slots;
    for (std::int64_t s = 0; s < shape[0]; ++s) slots.push_back(s);
    device.ops().kv_write(device.context(), {.k = device.put(old_, shape),
                                             .v = device.put(old_, shape),
                                             .cache = cache,
                                             .slots = device.put(slots)});
  }

  std::vector<std::int32_t> words(Device& device, std::byte* data, std::size_t page_bytes) const {
    const std::size_t bytes = static_cast<std::size_t>(pages_) * page_bytes;
    return device.get(reinterpret_cast<const std::int32_t*>(data), bytes / 4);
  }

  const Case& c_;
  std::vector<std::vector<std::int32_t>> tables_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int64_t> slots_;
  std::int32_t pages_ = 0;
  std::int64_t tokens_ = 0;
  std::vector<float> inv_freq_, q_, k_, v_, old_;
};

class RopeWriteAttend : public testing::TestWithParam<std::string> {};

TEST_P(RopeWriteAttend, IsOneAfterTheOther) {
  Random random(5);
  for (const Case& c : cases()) {
    const Step step(c, random);
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(testing::Message() << name_of(c.type) << " dim " << c.head_dim << " sequences "
                                      << c.sequences.size() << " threads " << threads);
      Device plain(GetParam(), threads);
      Device fused(GetParam(), threads);
      if (fused.ops().rope_write_attend == nullptr) GTEST_SKIP() << "no such op";
      const Outcome expected = step.run(plain, false);
      const Outcome outcome = step.run(fused, true);
      EXPECT_EQ(outcome.out, expected.out);
      EXPECT_EQ(outcome.pages, expected.pages);
    }
  }
}

std::vector<std::string> host_backends() {
  std::vector<std::string> names;
  for (const std::string& name : runnable_backends()) {
    if (name.starts_with("cpu")) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Hosts, RopeWriteAttend, testing::ValuesIn(host_backends()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace bl::test
