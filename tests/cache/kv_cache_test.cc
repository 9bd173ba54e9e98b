#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>

#include "base/error.h"

namespace bl {
namespace {

// Memory only: a cache asks nothing else of a backend.
class HostMemory : public Backend {
 public:
  std::string_view name() const override { return "memory"; }
  std::string description() const override { return ""; }
  const OpTable& ops() const override { return ops_; }
  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  void upload(const TensorView&, const TensorView&) override {}
  void download(const TensorView&, const TensorView&) override {}
  void synchronize() override {}
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix&, const PackOptions&) override {
    return nullptr;
  }
  Tensor unpack(const PackedMatrix&) override { return {}; }
  std::size_t packed_bytes(const WeightMatrix&, const PackOptions&) override { return 0; }
  std::size_t scratch_bytes(const ScratchShape&) const override { return 0; }
  CacheType default_cache_type() const override { return CacheType::kF16; }

 private:
  OpTable ops_;
};

TEST(KvCache, PoolsHoldTheirPages) {
  HostMemory memory;
  const std::array<KvLayout, 2> layers{KvLayout{CacheType::kF16, 3, 64, 64},
                                       KvLayout{CacheType::kQ4, 1, 80, 96}};
  KvCache cache(memory, layers, 5);
  EXPECT_EQ(cache.pool().free_pages(), 5);
  EXPECT_EQ(cache.bytes(), 5 * KvCache::page_bytes(layers));
  ASSERT_EQ(cache.layers().size(), 2u);
  for (const PagedKvView& view : cache.layers()) {
    std::memset(view.k, 1, view.layout.k_page_bytes() * 5);
    std::memset(view.v, 2, view.layout.v_page_bytes() * 5);
  }
  EXPECT_EQ(static_cast<int>(*cache.layers()[0].k), 1);
  EXPECT_EQ(static_cast<int>(*cache.layers()[0].v), 2);
}

TEST(KvCache, BytesOfAnElement) {
  const auto bits = [](CacheTypes type, int dim) {
    const KvLayout layout{type, 1, dim, dim};
    return static_cast<double>(layout.k_page_bytes() + layout.v_page_bytes()) * 8.0 /
           (2.0 * kPageSlots * dim);
  };
  for (const int dim : {64, 96, 128, 192, 256}) {
    EXPECT_EQ(bits(CacheType::kF32, dim), 32.0);
    EXPECT_EQ(bits(CacheType::kF16, dim), 16.0);
    EXPECT_EQ(bits(CacheType::kFp8, dim), 8.0);
    EXPECT_EQ(bits(CacheType::kQ8, dim), 8.5);
    EXPECT_EQ(bits(CacheType::kQ7, dim), 7.5);
    EXPECT_EQ(bits(CacheType::kQ6, dim), 6.5);
    EXPECT_EQ(bits(CacheType::kQ5, dim), 5.5);
    EXPECT_EQ(bits(CacheType::kQ4, dim), 4.5);
    EXPECT_EQ(bits(CacheType::kQ3, dim), 3.5);
    EXPECT_EQ(bits(CacheType::kQ2, dim), 2.5);
    EXPECT_EQ(bits({CacheType::kQ8, CacheType::kQ4}, dim), 6.5);
    EXPECT_EQ(bits({CacheType::kQ2, CacheType::kQ7}, dim), 5.0);
  }
}

TEST(KvCache, TypesHaveNames) {
  for (const CacheTypes types : kAllCacheTypes) {
    EXPECT_EQ(parse_cache_types(name_of(types)).types, types) << name_of(types);
  }
  EXPECT_EQ(parse_cache_types("q8,q4").types, CacheTypes(CacheType::kQ8, CacheType::kQ4));
  EXPECT_EQ(parse_cache_types("q3,q5").types, CacheTypes(CacheType::kQ3, CacheType::kQ5));
  EXPECT_EQ(parse_cache_types("q4,q4").types, CacheType::kQ4);
}

TEST(KvCache, AllPairsOfWidthsGoTogether) {
  std::set<std::pair<int, int>> pairs;
  for (const CacheTypes types : kAllCacheTypes) {
    const KvLayout layout{types, 1, 64, 64};
    if (!layout.k_row().rotated()) continue;
    EXPECT_TRUE(layout.v_row().rotated());
    pairs.emplace(layout.k_row().bits, layout.v_row().bits);
  }
  EXPECT_EQ(pairs.size(), 49u);
  EXPECT_EQ(pairs.begin()->first, 2);
  EXPECT_EQ(pairs.rbegin()->first, 8);
}

TEST(KvCache, NamesThatSayNothingSayWhy) {
  const auto expect_fault = [](std::string_view name, const std::string& fault) {
    const ParsedCacheTypes parsed = parse_cache_types(name);
    EXPECT_EQ(parsed.types, std::nullopt) << name;
    EXPECT_EQ(parsed.fault, fault);
  };
  const std::string all = " is not one of fp32, fp16, fp8, q8, q7, q6, q5, q4, q3, q2";
  const std::string apart =
      ": different types for keys and values must be two of q8, q7, q6, q5, q4, q3, q2";
  for (const std::string name : {"", "q9", "q1", "q", "4", "int8"}) {
    expect_fault(name, "'" + name + "'" + all);
  }
  expect_fault("Q4", "'Q4'" + all + "; did you mean q4?");
  expect_fault("pf16", "'pf16'" + all + "; did you mean fp16?");
  expect_fault("q8,q4 ", "'q4 '" + all + "; did you mean q4?");
  expect_fault("q4,q9", "'q9'" + all);
  expect_fault("q1,q4", "'q1'" + all);
  expect_fault("q8,", "''" + all);
  expect_fault(",q8", "''" + all);
  expect_fault("q4,fp16", "'q4,fp16'" + apart);
  expect_fault("fp16,q4", "'fp16,q4'" + apart);
  expect_fault("fp8,q8", "'fp8,q8'" + apart);
  expect_fault("fp32,fp16", "'fp32,fp16'" + apart);
  expect_fault("q8,q4,q4", "'q8,q4,q4' has more than one type for keys and one for values");
}

TEST(KvCache, PagesForTokens) {
  EXPECT_EQ(KvCache::pages_for(0), 0);
  EXPECT_EQ(KvCache::pages_for(1), 1);
  EXPECT_EQ(KvCache::pages_for(256), 1);
  EXPECT_EQ(KvCache::pages_for(257), 2);
}

// What leaves for the host comes back into any page, bit for bit, whatever the type.
TEST(KvCache, PagesGoToTheHostAndComeBack) {
  HostMemory memory;
  for (const CacheTypes type : kAllCacheTypes) {
    SCOPED_TRACE(std::string(name_of(type)));
    const std::array<KvLayout, 2> layers{KvLayout{type, 3, 64, 64}, KvLayout{type, 1, 96, 128}};
    KvCache cache(memory, layers, 4);
    EXPECT_EQ(cache.page_bytes(), KvCache::page_bytes(layers));
    unsigned number = 1;
    const auto each_byte = [&](std::int32_t page, auto&& visit) {
      const auto index = static_cast<std::size_t>(page);
      for (const PagedKvView& view : cache.layers()) {
        const std::size_t k = view.layout.k_page_bytes();
        const std::size_t v = view.layout.v_page_bytes();
        for (std::size_t i = 0; i < k; ++i) visit(view.k[index * k + i]);
        for (std::size_t i = 0; i < v; ++i) visit(view.v[index * v + i]);
      }
    };
    const auto next = [&] {
      number = number * 1664525u + 1013904223u;
      return static_cast<std::byte>(number >> 24);
    };
    std::vector<std::byte> wanted;
    for (std::int32_t page = 0; page < 4; ++page) {
      each_byte(page, [&](std::byte& byte) {
        byte = next();
        if (page == 2) wanted.push_back(byte);
      });
    }
    const auto content = [&](std::int32_t page) {
      std::vector<std::byte> bytes;
      each_byte(page, [&](std::byte& byte) { bytes.push_back(byte); });
      return bytes;
    };
    const auto neighbours = std::pair(content(0), content(3));
    const Buffer host = cache.allocate_host(cache.page_bytes());
    cache.write_page(static_cast<std::byte*>(host.data()), 2);
    cache.finish_moves();
    EXPECT_EQ(std::memcmp(host.data(), wanted.data(), wanted.size()), 0);
    cache.read_page(1, static_cast<const std::byte*>(host.data()));
    cache.finish_moves();
    EXPECT_EQ(content(1), wanted);
    EXPECT_EQ(content(2), wanted);
    EXPECT_EQ(std::pair(content(0), content(3)), neighbours);
    cache.copy_page(0, 2);
    EXPECT_EQ(content(0), wanted);
    EXPECT_EQ(content(3), neighbours.second);
  }
}

TEST(KvCache, TooManyPagesIsAnError) {
  HostMemory memory;
  const std::array<KvLayout, 1> layers{KvLayout{CacheType::kF32, 1 << 20, 1 << 16, 1 << 16}};
  EXPECT_THROW(KvCache(memory, layers, (1 << 18) + 1), Error);
}

}  // namespace
}  // namespace bl
