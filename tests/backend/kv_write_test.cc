// kv_write on every backend: the bytes of ops/kv_codec.h in the slots that were named, and nothing
// elsewhere.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "backend/device.h"
#include "backend/sampled_cache_types.h"
#include "ops/kv_codec.h"

namespace bl::test {
namespace {

class KvWriteOp : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backends, KvWriteOp, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

struct WriteCase {
  CacheTypes type{};
  int kv_heads, k_dim, v_dim;
  std::int64_t tokens;
};

// Rows of all sizes, among them zeros, outliers and values between two codes.
std::vector<float> rows(Random& random, std::int64_t count, int dim) {
  std::vector<float> x = random.normal(count * dim);
  for (std::int64_t r = 0; r < count; ++r) {
    const float size = std::exp2(static_cast<float>(random.below(40) - 20));
    for (int e = 0; e < dim; ++e) {
      float& value = x[static_cast<std::size_t>(r * dim + e)];
      value *= r % 7 == 3 ? 0.0f : size;
      if (r % 5 == 1) value = static_cast<float>(2 * e + 1) * 0x1p-10f;
      if (r % 6 == 2 && e % 50 == 7) value *= 60.0f;
    }
  }
  return x;
}

void expect_rows(const WriteCase& c, const KvRow& row, const std::vector<float>& x,
                 const std::vector<std::int64_t>& slots, const std::vector<std::byte>& pages) {
  std::vector<std::byte> expected(pages.size(), std::byte{0});
  const std::size_t page_bytes = row.bytes() * kPageSlots * static_cast<std::size_t>(c.kv_heads);
  for (std::size_t t = 0; t < slots.size(); ++t) {
    for (int h = 0; h < c.kv_heads; ++h) {
      const auto at =
          static_cast<std::size_t>(slots[t] / kPageSlots) * page_bytes +
          static_cast<std::size_t>(h * kPageSlots + slots[t] % kPageSlots) * row.bytes();
      encode_kv_row(
          row, x.data() + (static_cast<std::int64_t>(t) * c.kv_heads + h) * std::int64_t{row.dim},
          expected.data() + at);
    }
  }
  EXPECT_EQ(std::memcmp(pages.data(), expected.data(), pages.size()), 0)
      << name_of(c.type) << " dim " << row.dim << " tokens " << c.tokens;
}

void check(const std::string& backend, const WriteCase& c) {
  Device device(backend);
  Random random(static_cast<std::uint64_t>(c.k_dim * 7 + c.v_dim));
  const KvLayout layout{c.type, c.kv_heads, c.k_dim, c.v_dim};
  const std::int64_t pages = 3;
  // Slots all over the pages, each once.
  std::vector<std::int64_t> slots;
  for (std::int64_t t = 0; t < c.tokens; ++t) slots.push_back((t * 311 + 5) % (pages * kPageSlots));
  const std::vector<float> k = rows(random, c.tokens * c.kv_heads, c.k_dim);
  const std::vector<float> v = rows(random, c.tokens * c.kv_heads, c.v_dim);
  const std::size_t k_bytes = layout.k_page_bytes() * static_cast<std::size_t>(pages);
  const std::size_t v_bytes = layout.v_page_bytes() * static_cast<std::size_t>(pages);
  const KvWriteArgs args{.k = device.put_strided(k, {c.tokens, c.kv_heads, c.k_dim}, 3),
                         .v = device.put_strided(v, {c.tokens, c.kv_heads, c.v_dim}, 1),
                         .cache = {.layout = layout,
                                   .k = device.zeros(k_bytes),
                                   .v = device.zeros(v_bytes),
                                   .pages = pages},
                         .slots = device.put(slots)};
  device.ops().kv_write(device.context(), args);
  const auto bytes_at = [&](std::byte* data, std::size_t bytes) {
    const auto words =
        device.get(reinterpret_cast<const std::int32_t*>(data), (bytes + 3) / sizeof(std::int32_t));
    std::vector<std::byte> result(bytes);
    std::memcpy(result.data(), words.data(), bytes);
    return result;
  };
  expect_rows(c, layout.v_row(), v, slots, bytes_at(args.cache.v, v_bytes));
  // The cpu backend places the bytes of keys in an order of its own (cpu_kv_codec_test.cc).
  if (backend.starts_with("cpu")) return;
  expect_rows(c, layout.k_row(), k, slots, bytes_at(args.cache.k, k_bytes));
}

TEST_P(KvWriteOp, WritesTheBytesOfTheDefinition) {
  for (const CacheTypes type : sampled_cache_types()) {
    for (const int dim : {1, 2, 7, 17, 31, 32, 64, 72, 80, 96, 112, 120, 128, 192, 256, 512}) {
      check(GetParam(), {type, 2, dim, dim, 11});
    }
    check(GetParam(), {type, 1, 192, 128, 1});
    check(GetParam(), {type, 8, 128, 128, 1});
    check(GetParam(), {type, 3, 64, 96, 300});
  }
}

}  // namespace
}  // namespace bl::test
