// The kernels of the op `sample`, run thread by thread on the host, against the reference op.

#include "backend/cuda/ops/sample_draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "backend/ref/ref_ops.h"
#include "support/sample_cases.h"

namespace bl::test {
namespace {

using namespace bl::cuda;

// Runs the threads of a CTA one after another between two barriers, in a random order: a result
// that depends on the order would depend on the card's scheduling.
class HostCta {
 public:
  explicit HostCta(std::uint64_t seed) : random_(seed) {
    std::iota(order_.begin(), order_.end(), 0);
    shuffle();
  }
  template <class F>
  void phase(F&& f) {
    for (const int t : order_) f(t);
    if (++phases_ % 5 == 0) shuffle();
  }
  template <class Op>
  void fold(std::uint64_t* values, Op op) {
    for (int t = 1; t < kSampleThreads; ++t) values[0] = op(values[0], values[t]);
  }
  void scan(std::uint64_t* values) {
    std::uint64_t sum = 0;
    for (int t = 0; t <= kSampleThreads; ++t) {
      const std::uint64_t value = t < kSampleThreads ? values[t] : 0;
      values[t] = sum;
      sum += value;
    }
  }
  template <class T>
  T add(T* to, T value) {
    const T before = *to;
    *to += value;
    return before;
  }
  template <class T>
  T fresh(const T* from) {
    return *from;
  }
  bool is_last(std::uint32_t* counter, int ctas, bool*) {
    return ++*counter == static_cast<std::uint32_t>(ctas);
  }

 private:
  void shuffle() { std::shuffle(order_.begin(), order_.end(), random_); }
  std::mt19937_64 random_;
  std::array<int, kSampleThreads> order_{};
  int phases_ = 0;
};

struct Chosen {
  std::vector<std::int32_t> ids;
  std::vector<float> log_probabilities;
};

// Runs the launches of one row.
class RowLaunches {
 public:
  RowLaunches(SampleCase& c, std::int64_t row, int parts, std::uint64_t seed)
      : tops_(kSampleParts),
        masses_(kSampleParts),
        counts_(kSampleBuckets, 77),
        list_(kSampleListed),
        seed_(seed) {
    part_.rule = c.rules[static_cast<std::size_t>(row)];
    part_.logits = c.logits.data() + row * c.vocab;
    part_.vocab = static_cast<int>(c.vocab);
    part_.part_size = (part_.vocab + parts - 1) / parts;
    part_.part_size = (part_.part_size + 3) / 4 * 4;
    part_.parts = (part_.vocab + part_.part_size - 1) / part_.part_size;
    part_.fours = c.vocab % 4 == 0 && reinterpret_cast<std::uintptr_t>(part_.logits) % 16 == 0;
    part_.tops = tops_.data();
    part_.masses = masses_.data();
    part_.counts = counts_.data();
    part_.list = list_.data();
    part_.state = &state_;
    part_.edits = c.edits.data();
    unedited_.resize(c.edits.size());
    part_.unedited = unedited_.data();
    state_.listed = 99;  // as another step may have left it
  }

  void run(std::int32_t& id, float& log_probability) {
    part_.id = &id;
    part_.log_probability = &log_probability;
    for (int i = part_.rule.first_edit; i < part_.rule.first_edit + part_.rule.edits; ++i) {
      const LogitEdit& edit = part_.edits[i];
      unedited_[static_cast<std::size_t>(i)] = part_.logits[edit.id];
      part_.logits[edit.id] = edited_logit(part_.logits[edit.id], edit, part_.rule);
    }
    launch<TopShared>(
        [](HostCta& cta, const SamplePart& p, TopShared& room) { find_top(cta, p, room); });
    launch<WeighShared>(
        [](HostCta& cta, const SamplePart& p, WeighShared& room) { weigh_row(cta, p, room); });
    launch<DrawShared>(
        [](HostCta& cta, const SamplePart& p, DrawShared& room) { draw_row(cta, p, room); });
  }
  bool walked() const { return state_.walked != 0; }
  std::uint32_t listed() const { return state_.listed; }

 private:
  template <class Room, class F>
  void launch(const F& body) {
    std::vector<int> order(static_cast<std::size_t>(part_.parts));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(seed_);
    std::shuffle(order.begin(), order.end(), random);
    for (const int part : order) {
      auto room = std::make_unique<Room>();
      std::memset(static_cast<void*>(room.get()), 0xa5,
                  sizeof *room);  // shared memory may hold anything
      SamplePart own = part_;
      own.part = part;
      HostCta cta(random());
      body(cta, own, *room);
    }
  }

  SamplePart part_;
  SampleState state_;
  std::vector<std::uint64_t> tops_;
  std::vector<std::uint64_t> masses_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::int32_t> list_;
  std::vector<float> unedited_;
  std::uint64_t seed_;
};

Chosen naive(const SampleCase& c) {
  Chosen out{std::vector<std::int32_t>(c.rules.size(), -9),
             std::vector<float>(c.rules.size(), -9.0f)};
  ExecContext ctx;
  ref::sample(ctx, {.logits = view_of(const_cast<float*>(c.logits.data()),
                                      {static_cast<std::int64_t>(c.rules.size()), c.vocab}),
                    .rules = c.rules.data(),
                    .edits = c.edits.data(),
                    .max_edits = static_cast<std::int64_t>(c.edits.size()),
                    .ids = out.ids.data(),
                    .log_probabilities = out.log_probabilities.data()});
  return out;
}

struct Met {
  int walked = 0;
  int listed = 0;
  int chosen = 0;
};

void expect_same(SampleCase c, std::uint64_t seed, Met& met) {
  const Chosen expected = naive(c);
  const std::vector<float> before = c.logits;
  std::mt19937_64 random(seed);
  for (std::size_t r = 0; r < c.rules.size(); ++r) {
    for (const int parts : {1, 1 + static_cast<int>(random() % kSampleParts)}) {
      RowLaunches launches(c, static_cast<std::int64_t>(r), parts, random());
      std::int32_t id = -9;
      float log_probability = -9;
      launches.run(id, log_probability);
      const SampleRule& rule = c.rules[r];
      ASSERT_EQ(id, expected.ids[r])
          << "vocab " << c.vocab << " row " << r << " parts " << parts << " k " << rule.top_k
          << " p " << rule.top_p << " min-p " << rule.min_p << " 1/T " << rule.inverse << " edits "
          << rule.edits << " walked " << launches.walked();
      ASSERT_EQ(log_probability, expected.log_probabilities[r]);
      met.walked += launches.walked() ? 1 : 0;
      met.listed += launches.listed() > 0 ? 1 : 0;
      met.chosen += id >= 0 ? 1 : 0;
    }
  }
  ASSERT_EQ(std::memcmp(c.logits.data(), before.data(), before.size() * sizeof(float)), 0);
}

TEST(SampleSteps, ChooseWhatTheNaiveOpChooses) {
  std::mt19937_64 random(5);
  Met met;
  for (const std::int64_t vocab : {1, 2, 3, 4, 31, 64, 257, 1000, 1024, 4099}) {
    for (int i = 0; i < 12; ++i) {
      expect_same(random_sample_case(random, vocab, 16), random(), met);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  EXPECT_GT(met.listed, 500);
  EXPECT_GT(met.chosen, 2000);
}

TEST(SampleSteps, ChooseInLongRows) {
  std::mt19937_64 random(6);
  Met met;
  for (const std::int64_t vocab : {49152, 128256, 130001}) {
    expect_same(random_sample_case(random, vocab, 40), random(), met);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(met.walked, 5);  // more tokens at a border than the list holds
  EXPECT_GT(met.listed, 40);
}

TEST(SampleSteps, PlaceIsTheHighHalfOfAProduct) {
  EXPECT_EQ(place_of(0, 1000), 0u);
  EXPECT_EQ(place_of(~std::uint64_t{0}, 1000), 999u);
  EXPECT_EQ(place_of(std::uint64_t{1} << 63, 1000), 500u);
  EXPECT_EQ(place_of(~std::uint64_t{0}, ~std::uint64_t{0}), ~std::uint64_t{0} - 1);
  EXPECT_EQ(place_of(0xfedcba9876543210u, 0x123456789abcdef0u), 0x121fa00ad77d7422u);
}

}  // namespace
}  // namespace bl::test
