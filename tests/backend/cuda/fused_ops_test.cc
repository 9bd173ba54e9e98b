// Fused ops of the CUDA backend give the results of the ops that they replace.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/on_cuda_device.h"
#include "backend/sampled_cache_types.h"

namespace bl::test {
namespace {

struct AttendCase {
  CacheTypes type{};
  int heads, kv_heads, head_dim;
  std::int64_t rotated;
  RopeStyle style;
  int window;
};

class CudaFusedOps : public OnCudaDevice {
 protected:
  void check_attend(const AttendCase& c, const std::vector<std::int32_t>& pasts);
  // Returns attention's results with rotation, cache write and attention in one op, or one after
  // the other.
  std::vector<float> attend(bool fused, const RopeAndWriteArgs& rope,
                            const AttentionArgs& attention) {
    if (fused) {
      device_->ops().rope_write_attend(device_->context(), rope, attention);
    } else {
      device_->ops().rope_and_write(device_->context(), rope);
      device_->ops().attention(device_->context(), attention);
    }
    return device_->get(attention.out);
  }
  std::vector<std::int32_t> argmax_of(const std::vector<float>& logits, const Shape& shape,
                                      int padding) {
    const auto rows = static_cast<std::size_t>(shape[0]);
    auto* out = const_cast<std::int32_t*>(device_->put(std::vector<std::int32_t>(rows, -7)));
    device_->ops().argmax(device_->context(),
                          {.logits = device_->put_strided(logits, shape, padding), .out = out});
    return device_->get(out, rows);
  }

  Random random_{23};
};

TEST_F(CudaFusedOps, ArgmaxTakesTheLowestOfEquals) {
  for (const std::int64_t vocab : {1, 2, 31, 1023, 1024, 1025, 4099, 32000, 49152, 128256}) {
    for (const std::int64_t rows : {1, 3, 64}) {
      if (rows * vocab > 3 * 128256) continue;
      for (const int padding : {0, 3, 4}) {
        std::vector<float> logits = random_.normal(rows * vocab);
        std::vector<std::int32_t> expected;
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto begin = logits.begin() + r * vocab;
          if (r % 2 == 1) {
            // Equal values all over the row.
            const float top = *std::max_element(begin, begin + vocab);
            for (int i = 0; i < 5; ++i) begin[random_.below(static_cast<int>(vocab))] = top;
          }
          expected.push_back(
              static_cast<std::int32_t>(std::max_element(begin, begin + vocab) - begin));
        }
        EXPECT_EQ(argmax_of(logits, {rows, vocab}, padding), expected) << vocab << " " << padding;
      }
    }
  }
}

TEST_F(CudaFusedOps, ArgmaxOfSpecialRows) {
  const float inf = INFINITY;
  const std::int64_t vocab = 5000;
  std::vector<float> rows;
  const auto append = [&](float fill, std::initializer_list<std::pair<int, float>> values) {
    std::vector<float> row(static_cast<std::size_t>(vocab), fill);
    for (const auto& [at, value] : values) row[static_cast<std::size_t>(at)] = value;
    rows.insert(rows.end(), row.begin(), row.end());
  };
  append(-1.0f, {{3000, 0.0f}, {2000, -0.0f}});  // equal zeros
  append(-inf, {{4999, -3e38f}});
  append(-inf, {});
  append(0.0f, {{77, NAN}, {5, 9.0f}});
  append(0.0f, {{4998, inf}});
  append(0.0f, {{4097, -NAN}});
  append(-5.0f, {});
  append(1.0f, {{0, 3.4e38f}, {4999, 3.4e38f}});
  EXPECT_EQ(argmax_of(rows, {8, vocab}, 0),
            (std::vector<std::int32_t>{2000, 4999, -1, -1, -1, -1, 0, 0}));
}

struct WriteCase {
  CacheTypes type{};
  int heads, kv_heads, head_dim;
  std::int64_t rotated;
  RopeStyle style;
  std::int64_t tokens;
};

TEST_F(CudaFusedOps, RopeAndWriteIsBoth) {
  std::vector<WriteCase> cases;
  for (const CacheTypes type : sampled_cache_types()) {
    cases.push_back({type, 32, 8, 128, 128, RopeStyle::kNeox, 1});
    cases.push_back({type, 9, 3, 64, 64, RopeStyle::kNeox, 40});
    cases.push_back({type, 8, 2, 128, 128, RopeStyle::kNeox, 100});
    cases.push_back({type, 4, 2, 80, 32, RopeStyle::kNeox, 7});
    cases.push_back({type, 4, 2, 80, 32, RopeStyle::kNeox, 70});
    cases.push_back({type, 4, 1, 96, 96, RopeStyle::kNeox, 3});
    cases.push_back({type, 2, 2, 72, 20, RopeStyle::kInterleaved, 3});
    cases.push_back({type, 2, 1, 256, 256, RopeStyle::kInterleaved, 300});
  }
  for (const WriteCase& c : cases) {
    const std::int64_t half = c.rotated / 2;
    std::vector<float> inv_freq;
    for (std::int64_t i = 0; i < half; ++i) {
      inv_freq.push_back(
          static_cast<float>(std::pow(5e5, -static_cast<double>(i) / static_cast<double>(half))));
    }
    std::vector<std::int32_t> positions;
    std::vector<std::int64_t> slots;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      positions.push_back(random_.below(100000));
      slots.push_back((t * 37 + 250) % (2 * kPageSlots));
    }
    const auto tokens = static_cast<std::size_t>(c.tokens);
    const KvLayout layout{c.type, c.kv_heads, c.head_dim, c.head_dim};
    const std::size_t k_bytes = 2 * layout.k_page_bytes();
    const std::size_t v_bytes = 2 * layout.v_page_bytes();
    const Shape q_shape{c.tokens, c.heads, c.head_dim};
    const Shape k_shape{c.tokens, c.kv_heads, c.head_dim};
    const std::vector<float> q = random_.normal(q_shape.elements());
    const std::vector<float> k = random_.normal(k_shape.elements());
    const std::vector<float> v = random_.normal(k_shape.elements());
    RopeArgs rope{.x = {},
                  .positions = device_->put(positions),
                  .inv_freq = device_->put(inv_freq, {1, half}),
                  .scale = device_->put({1.1f}, {1}),
                  .variant = device_->put(std::vector<std::int32_t>(tokens, 0)),
                  .rotated = c.rotated,
                  .style = c.style};
    std::vector<float> rotated[2];
    std::vector<std::int32_t> pages[2];
    for (const bool fused : {false, true}) {
      RopeArgs q_rope = rope;
      RopeArgs k_rope = rope;
      q_rope.x = device_->put_strided(q, q_shape, 8);
      k_rope.x = device_->put_strided(k, k_shape, 8);
      const KvWriteArgs write{.k = k_rope.x,
                              .v = device_->put(v, k_shape),
                              .cache = {.layout = layout,
                                        .k = device_->zeros(k_bytes),
                                        .v = device_->zeros(v_bytes),
                                        .pages = 2},
                              .slots = device_->put(slots)};
      if (fused) {
        device_->ops().rope_and_write(device_->context(),
                                      {.q = q_rope, .k = k_rope, .write = write});
      } else {
        device_->ops().rope(device_->context(), q_rope);
        device_->ops().rope(device_->context(), k_rope);
        device_->ops().kv_write(device_->context(), write);
      }
      rotated[fused] = device_->get(q_rope.x);
      const auto words = [&](std::byte* data, std::size_t bytes) {
        return device_->get(reinterpret_cast<const std::int32_t*>(data), bytes / 4);
      };
      pages[fused] = words(write.cache.k, k_bytes);
      const std::vector<std::int32_t> values = words(write.cache.v, v_bytes);
      pages[fused].insert(pages[fused].end(), values.begin(), values.end());
    }
    EXPECT_EQ(rotated[1], rotated[0]) << name_of(c.type) << " dim " << c.head_dim;
    EXPECT_EQ(pages[1], pages[0]) << name_of(c.type) << " dim " << c.head_dim;
  }
}

// Rotation, cache write and attention in one op give the bits of three ops.
void CudaFusedOps::check_attend(const AttendCase& c, const std::vector<std::int32_t>& pasts) {
  const auto tokens = static_cast<std::int64_t>(pasts.size());
  const KvLayout layout{c.type, c.kv_heads, c.head_dim, c.head_dim};
  std::vector<std::vector<std::int32_t>> tables;
  std::vector<std::int64_t> slots;
  std::int32_t pages = 0;
  for (const std::int32_t past : pasts) {
    std::vector<std::int32_t>& table = tables.emplace_back();
    for (int p = 0; p <= past / kPageSlots; ++p) table.push_back(pages++);
    slots.push_back(std::int64_t{table.back()} * kPageSlots + past % kPageSlots);
  }
  const std::int64_t half = c.rotated / 2;
  const std::vector<float> inv_freq = random_.normal(half);
  const Shape q_shape{tokens, c.heads, c.head_dim};
  const Shape k_shape{tokens, c.kv_heads, c.head_dim};
  const Shape old_shape{std::int64_t{pages} * kPageSlots, c.kv_heads, c.head_dim};
  const std::vector<float> q = random_.normal(q_shape.elements());
  const std::vector<float> k = random_.normal(k_shape.elements());
  const std::vector<float> v = random_.normal(k_shape.elements());
  const std::vector<float> old = random_.normal(old_shape.elements());
  std::vector<std::int64_t> old_slots;
  for (std::int64_t s = 0; s < old_shape[0]; ++s) old_slots.push_back(s);
  std::vector<float> results[2];
  std::vector<std::int32_t> contents[2];
  for (const bool fused : {false, true}) {
    const PagedKvView cache{.layout = layout,
                            .k = device_->zeros(pages * layout.k_page_bytes()),
                            .v = device_->zeros(pages * layout.v_page_bytes()),
                            .pages = pages};
    device_->ops().kv_write(device_->context(), {.k = device_->put(old, old_shape),
                                                 .v = device_->put(old, old_shape),
                                                 .cache = cache,
                                                 .slots = device_->put(old_slots)});
    RopeArgs q_rope{.x = device_->put(q, q_shape),
                    .positions = device_->put(pasts),
                    .inv_freq = device_->put(inv_freq, {1, half}),
                    .scale = device_->put({0.9f}, {1}),
                    .variant = device_->put(std::vector<std::int32_t>(pasts.size(), 0)),
                    .rotated = c.rotated,
                    .style = c.style};
    RopeArgs k_rope = q_rope;
    k_rope.x = device_->put(k, k_shape);
    const RopeAndWriteArgs rope{.q = q_rope,
                                .k = k_rope,
                                .write = {.k = k_rope.x,
                                          .v = device_->put(v, k_shape),
                                          .cache = cache,
                                          .slots = device_->put(slots)}};
    std::vector<SequenceSpan> spans;
    for (std::size_t s = 0; s < pasts.size(); ++s) {
      spans.push_back({.first_token = static_cast<std::int32_t>(s),
                       .tokens = 1,
                       .past = pasts[s],
                       .pages = tables[s].data()});
    }
    const AttentionArgs attention{
        .q = q_rope.x,
        .out = device_->put(std::vector<float>(q.size(), 7.0f), q_shape),
        .cache = cache,
        .sequences = spans,
        .plan = device_->backend().plan_attention(device_->context(), spans),
        .scale = 0.1f,
        .window = c.window,
        .sinks = {},
        .alibi_slopes = {}};
    results[fused] = attend(fused, rope, attention);
    contents[fused] = device_->get(reinterpret_cast<const std::int32_t*>(cache.k),
                                   pages * layout.k_page_bytes() / 4);
    const std::vector<std::int32_t> values = device_->get(
        reinterpret_cast<const std::int32_t*>(cache.v), pages * layout.v_page_bytes() / 4);
    contents[fused].insert(contents[fused].end(), values.begin(), values.end());
  }
  EXPECT_EQ(results[1], results[0])
      << name_of(c.type) << " dim " << c.head_dim << " past " << pasts.back();
  EXPECT_EQ(contents[1], contents[0])
      << name_of(c.type) << " dim " << c.head_dim << " past " << pasts.back();
}

// Three sequences of one token each: an empty one, a short one, and one with a page, with several
// pages and pieces, or with so many pieces that they are no cluster.
TEST_F(CudaFusedOps, RopeWriteAttendIsAll) {
  for (const std::int32_t longest : {200, 2100, 9000}) {
    for (const CacheTypes type : sampled_cache_types()) {
      check_attend({type, 8, 2, 128, 128, RopeStyle::kNeox, 0}, {0, 37, longest});
      check_attend({type, 9, 3, 64, 64, RopeStyle::kNeox, 0}, {0, 37, longest});
      if (longest == 9000) continue;
      check_attend({type, 4, 2, 80, 32, RopeStyle::kInterleaved, 300}, {0, 37, longest});
      check_attend({type, 2, 1, 256, 256, RopeStyle::kNeox, 0}, {0, 37, longest});
    }
  }
}

// Attention itself can rotate the queries of a prompt.
TEST_F(CudaFusedOps, PrefillOfTurnedQueries) {
  for (const int dim : {64, 128}) {
    for (const std::int64_t rotated : {dim, dim / 2}) {
      const std::vector<std::pair<int, int>> sequences{{0, 70}, {130, 141}};  // past, tokens
      const KvLayout layout{CacheType::kF16, 2, dim, dim};
      const std::vector<std::int32_t> pages{2, 0, 1, 3};
      std::vector<SequenceSpan> spans;
      std::vector<std::int32_t> positions;
      std::vector<std::int64_t> slots;
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        const auto [past, count] = sequences[s];
        spans.push_back({.first_token = static_cast<std::int32_t>(positions.size()),
                         .tokens = count,
                         .past = past,
                         .pages = pages.data() + 2 * s});
        for (int p = past; p < past + count; ++p) {
          positions.push_back(p);
          slots.push_back(std::int64_t{pages[2 * s + static_cast<std::size_t>(p / kPageSlots)]} *
                              kPageSlots +
                          p % kPageSlots);
        }
      }
      const auto tokens = static_cast<std::int64_t>(positions.size());
      std::vector<float> inv_freq;
      for (std::int64_t i = 0; i < rotated / 2; ++i) {
        inv_freq.push_back(std::pow(1e4f, -2.0f * static_cast<float>(i) / float(rotated)));
      }
      const Shape q_shape{tokens, 6, dim};
      const Shape k_shape{tokens, 2, dim};
      const std::vector<float> q = random_.normal(q_shape.elements());
      const std::vector<float> k = random_.normal(k_shape.elements());
      const std::vector<float> v = random_.normal(k_shape.elements());
      const RopeArgs turns{.x = {},
                           .positions = device_->put(positions),
                           .inv_freq = device_->put(inv_freq, {1, rotated / 2}),
                           .scale = device_->put({1.1f}, {1}),
                           .variant = device_->put(std::vector<std::int32_t>(positions.size(), 0)),
                           .rotated = rotated,
                           .style = RopeStyle::kNeox};
      std::vector<float> results[2];
      for (const bool fused : {false, true}) {
        RopeArgs q_turns = turns;
        RopeArgs k_turns = turns;
        q_turns.x = device_->put_strided(q, q_shape, 8);
        k_turns.x = device_->put_strided(k, k_shape, 8);
        const PagedKvView cache{layout, device_->zeros(4 * layout.k_page_bytes()),
                                device_->zeros(4 * layout.v_page_bytes()), 4};
        const RopeAndWriteArgs rope{
            .q = q_turns,
            .k = k_turns,
            .write = {k_turns.x, device_->put(v, k_shape), cache, device_->put(slots)}};
        ArenaScope scope(*device_->context().scratch);
        const AttentionArgs attention{
            .q = q_turns.x,
            .out = device_->put(std::vector<float>(q.size(), 7.0f), q_shape),
            .cache = cache,
            .sequences = spans,
            .plan = device_->backend().plan_attention(device_->context(), spans),
            .scale = 0.1f,
            .sinks = {},
            .alibi_slopes = {}};
        results[fused] = attend(fused, rope, attention);
      }
      EXPECT_EQ(results[1], results[0]) << "head " << dim << ", " << rotated << " turn";
    }
  }
}

}  // namespace
}  // namespace bl::test
