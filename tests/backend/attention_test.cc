// kv_write and attention over pages, against softmax in double over the rows that the cache holds.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>

#include "backend/device.h"
#include "backend/sampled_cache_types.h"
#include "ops/kv_codec.h"
#include "support/thorough.h"

namespace bl::test {
namespace {

struct AttentionCase {
  const char* name;
  int heads, kv_heads, k_dim;
  int v_dim = 0;  // 0: k_dim
  CacheTypes type = CacheType::kF32;
  struct Length {
    int past, tokens;
  };
  std::vector<Length> sequences;
  float softcap = 0.0f;
  int window = 0;
  bool sinks = false;
  bool alibi = false;
  int values_width() const { return v_dim == 0 ? k_dim : v_dim; }
};

std::ostream& operator<<(std::ostream& out, const AttentionCase& c) { return out << c.name; }

// The first and the last size alone, unless the run is thorough.
std::vector<int> sizes(std::vector<int> all) {
  if (!thorough()) return {all.front(), all.back()};
  return all;
}

std::vector<AttentionCase> attention_specializations() {
  std::vector<AttentionCase> cases{
      {"decode", 9, 3, 64, 0, CacheType::kF32, {{300, 1}}},
      {"decode_first", 9, 3, 64, 0, CacheType::kF32, {{0, 1}}},
      {"decode_long", 4, 1, 64, 0, CacheType::kF32, {{2600, 1}}},
      {"decode_batch",
       9,
       3,
       64,
       0,
       CacheType::kF32,
       {{255, 1}, {256, 1}, {0, 1}, {700, 1}, {17, 1}}},
      {"prefill_255", 9, 3, 64, 0, CacheType::kF32, {{0, 255}}},
      {"prefill_256", 9, 3, 64, 0, CacheType::kF32, {{0, 256}}},
      {"prefill_257", 9, 3, 64, 0, CacheType::kF32, {{0, 257}}},
      {"prefill_513", 2, 1, 64, 0, CacheType::kF32, {{0, 513}}},
      {"chunk", 9, 3, 64, 0, CacheType::kF32, {{250, 13}}},
      {"mixed", 6, 2, 64, 0, CacheType::kF32, {{0, 5}, {511, 1}, {255, 2}, {100, 70}, {256, 3}}},
      {"head80", 4, 2, 80, 0, CacheType::kF32, {{0, 33}, {300, 2}}},
      {"head96", 4, 4, 96, 0, CacheType::kF32, {{0, 33}, {300, 2}}},
      {"head112", 4, 1, 112, 0, CacheType::kF32, {{0, 33}, {300, 2}}},
      {"head128", 8, 2, 128, 0, CacheType::kF32, {{0, 40}, {300, 2}}},
      {"head192", 3, 1, 192, 0, CacheType::kF32, {{0, 33}, {300, 2}}},
      {"head256", 4, 1, 256, 0, CacheType::kF32, {{0, 70}, {300, 2}}},
      {"head8", 4, 2, 8, 0, CacheType::kF32, {{0, 33}, {300, 2}}},
      {"wide_keys", 4, 2, 192, 128, CacheType::kF32, {{0, 33}, {300, 2}}},
      {"narrow_keys", 2, 2, 64, 80, CacheType::kF32, {{0, 33}, {300, 2}}},
      {"one_kv_head", 71, 1, 64, 0, CacheType::kF32, {{0, 20}, {260, 1}}},
      {"window_small", 4, 2, 64, 0, CacheType::kF32, {{0, 90}, {400, 5}, {512, 1}}, 0, 16},
      {"window_page", 4, 2, 64, 0, CacheType::kF32, {{500, 40}, {600, 1}}, 0, 256},
      {"window_large", 4, 2, 64, 0, CacheType::kF32, {{900, 30}, {0, 300}}, 0, 600},
      {"window_one", 2, 1, 64, 0, CacheType::kF32, {{0, 9}, {255, 3}}, 0, 1},
      {"softcap", 4, 2, 64, 0, CacheType::kF32, {{0, 40}, {300, 1}}, 5.0f},
      {"sinks", 8, 2, 64, 0, CacheType::kF32, {{0, 40}, {300, 1}}, 0, 0, true},
      {"sinks_window", 8, 2, 64, 0, CacheType::kF32, {{0, 40}, {300, 1}}, 0, 24, true},
      {"alibi", 6, 6, 64, 0, CacheType::kF32, {{0, 40}, {300, 1}}, 0, 0, false, true},
      {"all_at_once", 6, 2, 96, 0, CacheType::kF32, {{200, 80}, {300, 1}}, 8.0f, 100, true, true},
  };
  for (const CacheTypes type : sampled_cache_types()) {
    if (type == CacheType::kF32) continue;
    cases.push_back({"typed", 9, 3, 64, 0, type, {{0, 70}, {250, 9}, {300, 1}, {0, 257}}});
    for (const int dim : sizes({80, 96, 112, 128, 192, 256, 8})) {
      cases.push_back({"typed", 4, 2, dim, 0, type, {{0, 33}, {300, 1}}});
    }
    cases.push_back(
        {"typed_all", 6, 2, 192, 128, type, {{200, 80}, {300, 1}}, 8.0f, 100, true, true});
    for (const int group : sizes({1, 3, 4, 7, 8})) {
      cases.push_back({"typed_group", 2 * group, 2, 64, 0, type, {{257, 1}, {0, 40}, {30, 3}}});
    }
    cases.push_back({"typed_wide_group", 40, 1, 64, 0, type, {{257, 1}, {500, 8}, {0, 20}}});
    cases.push_back({"typed_past",
                     8,
                     2,
                     128,
                     0,
                     type,
                     {{0, 1}, {1, 1}, {255, 1}, {256, 1}, {257, 1}, {3000, 1}}});
    cases.push_back({"typed_long", 4, 1, 64, 0, type, {{3000, 2}}});
    cases.push_back({"typed_mixed",
                     6,
                     2,
                     64,
                     0,
                     type,
                     {{0, 9}, {511, 1}, {0, 8}, {255, 2}, {100, 70}, {1, 65}, {700, 5}}});
    for (const int window : sizes({1, 16, 64, 256, 600})) {
      cases.push_back({"typed_window",
                       4,
                       2,
                       64,
                       0,
                       type,
                       {{0, 90}, {500, 40}, {400, 5}, {512, 1}, {900, 1}},
                       0,
                       window});
    }
    // Row tiles and key tiles that end everywhere, and several of them.
    for (const int dim : {64, 128}) {
      if (type != CacheType::kF16) break;  // has kernels of its own for them
      if (!thorough() && dim != 64) break;
      cases.push_back({"typed_tiles",
                       8,
                       2,
                       dim,
                       0,
                       type,
                       {{0, 31}, {0, 32}, {0, 33}, {97, 127}, {128, 129}, {300, 200}}});
      cases.push_back({"typed_rules", 6, 2, dim, 0, type, {{300, 140}}, 8.0f, 150, true, true});
      cases.push_back({"typed_tile_window", 4, 4, dim, 0, type, {{191, 200}, {0, 129}}, 0, 130});
      // A few tokens behind a long past: tiles of rows, pieces of keys, and some without keys.
      cases.push_back({"typed_behind", 8, 2, dim, 0, type, {{2045, 16}}});
      cases.push_back({"typed_behind", 6, 2, dim, 0, type, {{1024, 33}, {1100, 1}, {1791, 7}}});
      cases.push_back({"typed_behind", 2, 1, dim, 0, type, {{1500, 64}}});
      cases.push_back({"typed_behind_few", 8, 2, dim, 0, type, {{100, 5}, {508, 8}, {0, 6}}});
      cases.push_back(
          {"typed_behind_rules", 8, 2, dim, 0, type, {{1100, 40}}, 8.0f, 700, true, true});
      cases.push_back({"typed_behind_window", 8, 2, dim, 0, type, {{2300, 20}}, 0, 1029, true});
    }
    cases.push_back({"typed_softcap", 4, 2, 64, 0, type, {{0, 40}, {300, 1}, {700, 1}}, 5.0f});
    cases.push_back({"typed_sinks", 8, 2, 64, 0, type, {{0, 40}, {300, 1}, {700, 1}}, 0, 0, true});
    cases.push_back(
        {"typed_alibi", 6, 6, 64, 0, type, {{0, 40}, {300, 1}, {700, 1}}, 0, 0, false, true});
  }
  return cases;
}

// Everything about a case on the host, keys and values of all positions included.
struct Problem {
  const AttentionCase& c;
  std::vector<float> q, k, v;  // q of new tokens; k, v [sequence, position] of all
  std::vector<float> sinks, slopes;
  std::vector<std::int64_t> first_position;  // of each sequence in k and v
  std::int64_t tokens = 0;
  float scale = 1.0f;

  explicit Problem(const AttentionCase& attention_specialization) : c(attention_specialization) {
    Random random(static_cast<std::uint64_t>(c.heads * 1000 + c.k_dim));
    std::int64_t positions = 0;
    for (const auto& s : c.sequences) {
      first_position.push_back(positions);
      positions += s.past + s.tokens;
      tokens += s.tokens;
    }
    q = random.normal(tokens * c.heads * c.k_dim, 1.5f);
    k = random.normal(positions * c.kv_heads * c.k_dim, 1.5f);
    v = random.normal(positions * c.kv_heads * c.values_width());
    // One channel of large keys, as real models have them.
    for (std::size_t i = 3; i < k.size(); i += static_cast<std::size_t>(c.k_dim)) k[i] += 9.0f;
    if (c.sinks) sinks = random.normal(c.heads, 2.0f);
    if (c.alibi) {
      for (int h = 0; h < c.heads; ++h) slopes.push_back(std::exp2(-static_cast<float>(h + 1)));
    }
    scale = 1.0f / std::sqrt(static_cast<float>(c.k_dim));
  }
};

// What the cache gives back for a row, in the model's own basis.
std::vector<float> through_cache(const KvRow& row, const float* x) {
  std::vector<std::byte> bytes(row.bytes());
  std::vector<float> y(static_cast<std::size_t>(row.dim));
  encode_kv_row(row, x, bytes.data());
  decode_kv_row(row, bytes.data(), y.data());
  if (row.rotated()) rotate_kv_head(y.data(), row.dim);
  return y;
}

// Four sums side by side, so that none waits for the last addition of another.
double dot(const float* a, const float* b, int count) {
  std::array<double, 4> sums{};
  for (int i = 0; i < count; ++i) {
    sums[static_cast<std::size_t>(i % 4)] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

std::vector<double> textbook(const Problem& p) {
  const AttentionCase& c = p.c;
  const KvLayout layout{c.type, c.kv_heads, c.k_dim, c.values_width()};
  const auto rows_through = [&](const KvRow& row, const std::vector<float>& x) {
    std::vector<float> result;
    for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(row.dim)) {
      const std::vector<float> y = through_cache(row, x.data() + i);
      result.insert(result.end(), y.begin(), y.end());
    }
    return result;
  };
  const std::vector<float> k = rows_through(layout.k_row(), p.k);
  const std::vector<float> v = rows_through(layout.v_row(), p.v);
  std::vector<double> out;
  std::int64_t token = 0;
  for (std::size_t s = 0; s < c.sequences.size(); ++s) {
    for (int t = 0; t < c.sequences[s].tokens; ++t, ++token) {
      const int position = c.sequences[s].past + t;
      for (int h = 0; h < c.heads; ++h) {
        const int kv_head = h / (c.heads / c.kv_heads);
        const int first = c.window > 0 ? std::max(0, position + 1 - c.window) : 0;
        const auto row_of = [&](int key) {
          return (p.first_position[s] + key) * c.kv_heads + kv_head;
        };
        std::vector<double> weight;
        double sum =
            c.sinks ? std::exp(static_cast<double>(p.sinks[static_cast<std::size_t>(h)])) : 0.0;
        for (int key = first; key <= position; ++key) {
          const float* q = p.q.data() + (token * c.heads + h) * c.k_dim;
          double score =
              dot(q, k.data() + row_of(key) * c.k_dim, c.k_dim) * static_cast<double>(p.scale);
          if (c.softcap > 0)
            score =
                std::tanh(score / static_cast<double>(c.softcap)) * static_cast<double>(c.softcap);
          if (c.alibi)
            score += static_cast<double>(p.slopes[static_cast<std::size_t>(h)]) * (key - position);
          weight.push_back(std::exp(score));
          sum += weight.back();
        }
        std::vector<double> values(static_cast<std::size_t>(c.values_width()));
        for (int key = first; key <= position; ++key) {
          const double share = weight[static_cast<std::size_t>(key - first)] / sum;
          const float* row = v.data() + row_of(key) * c.values_width();
          for (std::size_t d = 0; d < values.size(); ++d) {
            values[d] += share * static_cast<double>(row[d]);
          }
        }
        out.insert(out.end(), values.begin(), values.end());
      }
    }
  }
  return out;
}

// The case on a backend: pages in shuffled order, the past written first, then the step.
class PagedRun {
 public:
  PagedRun(Device& device, const Problem& problem) : device_(device), p_(problem) {
    const AttentionCase& c = p_.c;
    layout_ = {c.type, c.kv_heads, c.k_dim, c.values_width()};
    std::int32_t count = 0;
    for (const auto& s : c.sequences) count += (s.past + s.tokens + kPageSlots - 1) / kPageSlots;
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::reverse(order.begin(), order.end());
    auto next = order.begin();
    for (const auto& s : c.sequences) {
      const int pages = (s.past + s.tokens + kPageSlots - 1) / kPageSlots;
      pages_.emplace_back(next, next + pages);
      next += pages;
    }
    const auto n = static_cast<std::size_t>(count);
    // What nobody has written must not matter: all ones are no number in any format.
    const auto ones = [&](std::size_t bytes) {
      const std::vector<std::int32_t> words((bytes + 3) / 4, -1);
      return reinterpret_cast<std::byte*>(const_cast<std::int32_t*>(device.put(words)));
    };
    cache_ = {layout_, ones(n * layout_.k_page_bytes()), ones(n * layout_.v_page_bytes()), count};
  }

  void write(std::size_t sequence, int begin, int end) {
    if (begin == end) return;
    const AttentionCase& c = p_.c;
    const auto row = [&](const std::vector<float>& x, int width) {
      const std::int64_t at = p_.first_position[sequence] + begin;
      const auto* data = x.data() + at * width;
      return std::vector<float>(data, data + static_cast<std::int64_t>(end - begin) * width);
    };
    std::vector<std::int64_t> slots;
    for (int position = begin; position < end; ++position) {
      const auto page = static_cast<std::size_t>(position / kPageSlots);
      slots.push_back(std::int64_t{pages_[sequence][page]} * kPageSlots + position % kPageSlots);
    }
    const int v_dim = c.values_width();
    device_.ops().kv_write(device_.context(),
                           {.k = device_.put_strided(row(p_.k, c.kv_heads * c.k_dim),
                                                     {end - begin, c.kv_heads, c.k_dim}, 7),
                            .v = device_.put_strided(row(p_.v, c.kv_heads * v_dim),
                                                     {end - begin, c.kv_heads, v_dim}, 5),
                            .cache = cache_,
                            .slots = device_.put(slots)});
  }

  // Attention of the given sequences' new tokens in one step; outputs in that order.
  std::vector<float> attend(const std::vector<std::size_t>& which) {
    const AttentionCase& c = p_.c;
    std::vector<SequenceSpan> spans;
    std::vector<float> q;
    std::int32_t tokens = 0;
    for (const std::size_t s : which) {
      std::int64_t first = 0;
      for (std::size_t i = 0; i < s; ++i) first += c.sequences[i].tokens;
      const auto width = static_cast<std::int64_t>(c.heads) * c.k_dim;
      q.insert(q.end(), p_.q.begin() + first * width,
               p_.q.begin() + (first + c.sequences[s].tokens) * width);
      spans.push_back({.first_token = tokens,
                       .tokens = c.sequences[s].tokens,
                       .past = c.sequences[s].past,
                       .pages = pages_[s].data()});
      tokens += c.sequences[s].tokens;
    }
    const Shape out_shape{tokens, c.heads, c.values_width()};
    const TensorView out = device_.put(
        std::vector<float>(static_cast<std::size_t>(out_shape.elements()), NAN), out_shape);
    ArenaScope scope(*device_.context().scratch);
    device_.ops().attention(
        device_.context(),
        {.q = device_.put_strided(q, {tokens, c.heads, c.k_dim}, 13),
         .out = out,
         .cache = cache_,
         .sequences = spans,
         .plan = device_.backend().plan_attention(device_.context(), spans),
         .scale = p_.scale,
         .softcap = c.softcap,
         .window = c.window,
         .sinks = c.sinks ? device_.put(p_.sinks, {c.heads}) : TensorView{},
         .alibi_slopes = c.alibi ? device_.put(p_.slopes, {c.heads}) : TensorView{}});
    return device_.get(out);
  }

  std::vector<std::size_t> everyone() const {
    std::vector<std::size_t> all(p_.c.sequences.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }

 private:
  Device& device_;
  const Problem& p_;
  KvLayout layout_;
  std::vector<std::vector<std::int32_t>> pages_;
  PagedKvView cache_;
};

std::vector<float> run_case(Device& device, const Problem& problem) {
  PagedRun run(device, problem);
  const AttentionCase& c = problem.c;
  for (std::size_t s = 0; s < c.sequences.size(); ++s) {
    run.write(s, 0, c.sequences[s].past);
    run.write(s, c.sequences[s].past, c.sequences[s].past + c.sequences[s].tokens);
  }
  return run.attend(run.everyone());
}

class AttentionOp : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backends, AttentionOp, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

bool on_tensor_cores(const std::string& backend, CacheTypes type) {
  return backend.starts_with("cuda") && type != CacheType::kF32;
}

// Sums in double, or in float: scores here reach 40, where a float has steps of 4e-6. Tensor cores
// get queries, keys and weights rounded to binary16, 2^-12 of each product.
double tolerance(const std::string& backend, CacheTypes type) {
  if (backend == "ref") return 2e-6;
  return on_tensor_cores(backend, type) ? 4e-3 : 2e-5;
}

TEST_P(AttentionOp, AgreesWithTheTextbook) {
  Device device(GetParam());
  for (const AttentionCase& c : attention_specializations()) {
    const Problem problem(c);
    EXPECT_LE(worst_difference(run_case(device, problem), textbook(problem)),
              tolerance(GetParam(), c.type))
        << c << " " << name_of(c.type) << " head " << c.k_dim;
  }
}

// A step repeated gives the same bits: partial results are joined in order.
TEST_P(AttentionOp, RepeatsItself) {
  Device device(GetParam());
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ4}) {
    const AttentionCase c{"again", 8, 2, 128, 0, type, {{3000, 1}, {700, 4}, {0, 70}}};
    const Problem problem(c);
    const std::vector<float> once = run_case(device, problem);
    EXPECT_EQ(run_case(device, problem), once) << name_of(type);
    const AttentionCase few{"again", 8, 2, 128, 0, type, {{2000, 16}}};
    const Problem behind(few);
    EXPECT_EQ(run_case(device, behind), run_case(device, behind)) << name_of(type);
  }
}

// A row's result has the same bits whatever else is in the step, however the prompt was cut and
// however many threads there are.
TEST_P(AttentionOp, RowsStandAlone) {
  const AttentionCase whole{"whole", 6, 2, 64, 0, CacheType::kQ6, {{0, 300}, {513, 1}, {40, 20}}};
  Device device(GetParam());
  device.context().deterministic = true;
  const Problem problem(whole);
  const std::vector<float> together = run_case(device, problem);

  Device single(GetParam(), 1);
  single.context().deterministic = true;
  EXPECT_EQ(run_case(single, problem), together) << "threads";

  PagedRun run(device, problem);
  std::vector<float> apart;
  for (std::size_t s = 0; s < whole.sequences.size(); ++s) {
    run.write(s, 0, whole.sequences[s].past + whole.sequences[s].tokens);
    const std::vector<float> one = run.attend({s});
    apart.insert(apart.end(), one.begin(), one.end());
  }
  EXPECT_EQ(apart, together) << "batch";
}

TEST_P(AttentionOp, ChunksDoNotMatter) {
  for (const bool deterministic : {false, true}) {
    Device device(GetParam());
    device.context().deterministic = deterministic;
    for (const CacheTypes type : sampled_cache_types()) {
      const AttentionCase whole{"whole", 6, 2, 64, 0, type, {{0, 300}}};
      const Problem problem(whole);
      const std::vector<float> at_once = run_case(device, problem);
      const int row = whole.heads * whole.k_dim;
      std::vector<float> joined;
      for (const auto& [begin, end] :
           {std::pair{0, 100}, std::pair{100, 101}, std::pair{101, 300}}) {
        AttentionCase chunk = whole;
        chunk.sequences = {{begin, end - begin}};
        Problem part(chunk);
        part.k.assign(problem.k.begin(), problem.k.begin() + end * 2 * 64);
        part.v.assign(problem.v.begin(), problem.v.begin() + end * 2 * 64);
        part.q.assign(problem.q.begin() + begin * row, problem.q.begin() + end * row);
        const std::vector<float> out = run_case(device, part);
        joined.insert(joined.end(), out.begin(), out.end());
      }
      if (on_tensor_cores(GetParam(), type) && !deterministic) {
        // Kernels for few and for many tokens round weights at different points.
        EXPECT_LE(worst_difference(joined, at_once), tolerance(GetParam(), type)) << name_of(type);
      } else {
        EXPECT_EQ(joined, at_once) << name_of(type);
      }
    }
  }
}

}  // namespace
}  // namespace bl::test
