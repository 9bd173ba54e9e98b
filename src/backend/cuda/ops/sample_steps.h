#pragma once
// The algorithm of the op `sample` (ops/sample.h, ADR 24), from the view of one CTA. It compiles
// for the device and the host: between two barriers, the work of a thread is a function of its
// index, so that a test can run the whole algorithm where there is no card.
//
// Each row is cut into parts, one a CTA. There are three launches:
//   find_top   finds the greatest logit of each part.
//   weigh_row  counts the tokens by their distance from the top logit, in buckets. From the counts,
//              the row's last CTA finds the buckets in which top-k and top-p may end (open
//              buckets).
//   draw_row   sums the weights of the tokens before the open buckets, by part, and lists the
//              tokens in them. The row's last CTA settles the cuts among these, then draws: first
//              a part, then a token in it.
// Nothing is sorted, and all sums are sums of integers, so their order does not matter.
//
// A Cta has kSampleThreads threads, all of which make the same calls:
//   phase(f)             calls f(t) for every thread t
//   fold(values, op)     reduces values[0 … threads) to values[0]
//   scan(values)         exclusive prefix sum; values[threads] becomes the total
//   add(to, value)       atomic add; returns the old value
//   fresh(from)          reads what other CTAs have written
//   is_last(counter, ctas, shared)  whether this CTA is the last of the row's `ctas` to come here
// phase, fold, scan and is_last end with a barrier; fold and scan need one before them.

#include <cstdint>

#include "base/host_device.h"
#include "ops/sample.h"
#include "ops/sample_math.h"

namespace bl::cuda {

inline constexpr int kSampleThreads = 256;
inline constexpr int kSampleParts = 64;      // the most parts of a row
inline constexpr int kSampleBuckets = 2048;  // buckets of distances, each 1/64 wide
inline constexpr int kSampleListed = 4096;   // tokens of a list; the row is walked if more are open

// What the launches tell each other about a row.
struct SampleState {
  std::uint64_t mass = 0;     // Σ weight units of the row, if top-k or top-p may cut
  std::uint64_t plain = 0;    // that sum at temperature 1, where a log-probability is wanted
  std::uint64_t inside = 0;   // Σ weight units of the tokens before bucket `first`
  std::uint32_t weighed = 0;  // CTAs that have finished weigh_row
  std::uint32_t drawn = 0;    // CTAs that have finished their part of draw_row
  std::uint32_t listed = 0;   // tokens in the list
  std::int32_t first = 0;     // the open buckets are first … last: tokens before them stay,
  std::int32_t last = 0;      // tokens behind them do not
  std::int32_t take = 0;      // how many open tokens top-k keeps; 0: all of them
  std::int32_t walked = 0;    // whether more tokens are open than the list holds
  std::int32_t unused = 0;
};

// A part of a row, with what its CTA reads and writes.
struct SamplePart {
  SampleRule rule;
  float* logits = nullptr;  // the whole row
  int vocab = 0;
  int part_size = 0;
  int parts = 0;
  int part = 0;
  bool fours = false;               // the row can be read with vector loads of four logits
  std::uint64_t* tops = nullptr;    // [parts]
  std::uint64_t* masses = nullptr;  // [parts]
  std::uint32_t* counts = nullptr;  // [kSampleBuckets]
  std::int32_t* list = nullptr;     // [kSampleListed]
  SampleState* state = nullptr;
  const LogitEdit* edits = nullptr;  // of all rows
  const float* unedited = nullptr;   // the logits that the edits replaced
  std::int32_t* id = nullptr;
  float* log_probability = nullptr;

  BL_HD int begin() const { return part * part_size; }
  BL_HD int end() const { return begin() + part_size < vocab ? begin() + part_size : vocab; }
  BL_HD bool draws() const { return rule.kind == SampleRule::Kind::kDraw; }
  BL_HD bool truncates() const { return draws() && (rule.top_k > 0 || rule.top_p < 1); }
};

// Keys of candidates for the top: the greatest key is the greatest logit, of equals the lowest id.
// A part that has a NaN or +∞ has the greatest key of all; no key is 0.
inline constexpr std::uint64_t kBrokenTop = ~std::uint64_t{0};
BL_HD inline std::uint64_t top_key(float logit, int id) { return ~key_of_logit(logit, id); }
struct RowTop {
  float logit = 0;
  std::int32_t id = -1;  // −1: the row has a NaN or +∞, or nothing but −∞
};
BL_HD inline RowTop top_of(std::uint64_t key) {
  const auto ascending = static_cast<std::uint32_t>(key >> 32);
  constexpr std::uint32_t kLowest = 0x007fffffu;   // −∞
  constexpr std::uint32_t kHighest = 0xff800000u;  // +∞
  if (ascending <= kLowest || ascending >= kHighest) return {};
  const std::uint32_t bits = (ascending & 0x80000000u) != 0 ? ascending & 0x7fffffffu : ~ascending;
  return {float_of_bits(bits), static_cast<std::int32_t>(~static_cast<std::uint32_t>(key))};
}

BL_HD inline int bucket_of(float distance) { return static_cast<int>(distance * 64.0f); }

// The number of tokens in a range of buckets, and bounds on the sum of their weight units.
struct BucketSum {  // no initializers, because some lie in shared memory
  std::uint64_t count;
  std::uint64_t low;
  std::uint64_t high;
  BL_HD BucketSum operator+(const BucketSum& other) const {
    return {count + other.count, low + other.low, high + other.high};
  }
};
BL_HD inline BucketSum bucket_sum(int bucket, std::uint32_t count) {
  const auto edge = static_cast<float>(bucket) * 0.015625f;
  const std::uint64_t high = weight_units(weight_at(edge));
  const std::uint64_t low = weight_units(weight_at(edge + 0.015625f));
  const std::uint64_t least = low - (low >> 16);  // a margin for the rounding of fast_exp
  return {count, count * (least < 2 ? 0 : least - 2), count * (high + (high >> 16) + 2)};
}

struct SampleSum {
  BL_HD std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a + b; }
};
struct SampleGreatest {
  BL_HD std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a > b ? a : b; }
};

struct alignas(16) FourLogits {
  float at[4];
};

// Calls f(id, logit) for the tokens of thread t in a part, in ascending order.
template <class F>
BL_HD void for_each_logit(const SamplePart& w, int t, F&& f) {
  const int end = w.end();
  if (!w.fours) {
    for (int i = w.begin() + t; i < end; i += kSampleThreads) f(i, w.logits[i]);
    return;
  }
  for (int i = w.begin() + t * 4; i < end; i += kSampleThreads * 4) {
    const FourLogits four = *reinterpret_cast<const FourLogits*>(w.logits + i);
    for (int e = 0; e < 4; ++e) f(i + e, four.at[e]);
  }
}

// Returns the row's greatest logit, from those of its parts. `keys` is shared memory,
// [kSampleThreads].
template <class Cta>
BL_HD RowTop row_top(Cta& cta, const SamplePart& w, std::uint64_t* keys) {
  cta.phase([&](int t) { keys[t] = t < w.parts ? cta.fresh(w.tops + t) : 0; });
  cta.fold(keys, SampleGreatest());
  return top_of(keys[0]);
}

// --- the launches ---

// Shared memory of find_top().
struct TopShared {
  std::uint64_t keys[kSampleThreads];
};

// Finds the greatest logit of a part. The first part's CTA also clears the row's counters for the
// launches that follow.
template <class Cta>
BL_HD void find_top(Cta& cta, const SamplePart& w, TopShared& smem) {
  if (w.rule.kind == SampleRule::Kind::kNone) return;
  cta.phase([&](int t) {
    if (w.part == 0) {
      for (int b = t; b < kSampleBuckets; b += kSampleThreads) w.counts[b] = 0;
      if (t == 0) *w.state = SampleState();
    }
    bool broken = false;
    float best = -INFINITY;
    int at = w.begin();
    for_each_logit(w, t, [&](int id, float logit) {
      broken = broken || !is_logit(logit);
      at = logit > best ? id : at;
      best = logit > best ? logit : best;
    });
    smem.keys[t] = broken ? kBrokenTop : top_key(best, at);
  });
  cta.fold(smem.keys, SampleGreatest());
  cta.phase([&](int t) {
    if (t == 0) w.tops[w.part] = smem.keys[0];
  });
}

// Shared memory of weigh_row().
struct WeighShared {
  std::uint64_t keys[kSampleThreads];
  std::uint64_t masses[kSampleThreads];
  std::uint64_t plain[kSampleThreads];
  std::uint32_t counts[kSampleBuckets];
  // Prefix sums: over the buckets before those of each thread.
  std::uint64_t count_sums[kSampleThreads + 1];
  std::uint64_t low_sums[kSampleThreads + 1];
  std::uint64_t high_sums[kSampleThreads + 1];
  // The buckets where the cuts may fall, each written by the thread that finds it.
  int k_bucket;
  BucketSum before_k;  // Σ over the buckets before k_bucket
  BucketSum up_to_k;   // Σ over the buckets up to it
  int p_first;
  std::uint64_t count_before_p;
  int p_last;
  std::uint64_t count_up_to_p;
  bool is_last;

  BL_HD BucketSum before(int t) const { return {count_sums[t], low_sums[t], high_sums[t]}; }
};

// Bounds on the weight units of a row's first buckets, whose own bounds are `sum`. The row's total
// is known exactly; less the bounds of the buckets behind, it gives the better bound for many
// buckets.
struct MassBounds {
  std::uint64_t mass = 0;
  BucketSum all{};
  BL_HD std::uint64_t low(const BucketSum& sum) const {
    const std::uint64_t behind = all.high - sum.high;
    const std::uint64_t rest = behind < mass ? mass - behind : 0;
    return rest > sum.low ? rest : sum.low;
  }
  BL_HD std::uint64_t high(const BucketSum& sum) const {
    const std::uint64_t rest = mass - (all.low - sum.low);
    return rest < sum.high ? rest : sum.high;
  }
};

// Calls f(bucket, Σ before it, Σ up to it), in ascending order, for those buckets of thread t for
// which crosses(Σ before, Σ up to) holds. Needs the prefix sums that choose_buckets() makes.
template <class Crosses, class F>
BL_HD void find_bucket(const WeighShared& smem, int t, Crosses&& crosses, F&& f) {
  constexpr int kEach = kSampleBuckets / kSampleThreads;
  BucketSum before = smem.before(t);
  if (!crosses(before, smem.before(t + 1))) return;
  for (int b = t * kEach; b < (t + 1) * kEach; ++b) {
    if (smem.counts[b] == 0) continue;
    const BucketSum up_to = before + bucket_sum(b, smem.counts[b]);
    if (crosses(before, up_to)) f(b, before, up_to);
    before = up_to;
  }
}

// Finds the buckets in which top-k and top-p may end. For top-k that is one bucket; for top-p it is
// a range, because only bounds of the weights in a bucket are known.
template <class Cta>
BL_HD void choose_buckets(Cta& cta, const SamplePart& w, WeighShared& smem) {
  constexpr int kEach = kSampleBuckets / kSampleThreads;
  cta.phase([&](int t) {
    BucketSum sum{};
    for (int b = t * kEach; b < (t + 1) * kEach; ++b) {
      smem.counts[b] = cta.fresh(w.counts + b);
      if (smem.counts[b] != 0) sum = sum + bucket_sum(b, smem.counts[b]);
    }
    smem.count_sums[t] = sum.count;
    smem.low_sums[t] = sum.low;
    smem.high_sums[t] = sum.high;
    if (t == 0) smem.k_bucket = smem.p_first = smem.p_last = kSampleBuckets;
  });
  cta.scan(smem.count_sums);
  cta.scan(smem.low_sums);
  cta.scan(smem.high_sums);
  const MassBounds bounds{cta.fresh(&w.state->mass), smem.before(kSampleThreads)};
  const auto k = static_cast<std::uint64_t>(w.rule.top_k);
  cta.phase([&](int t) {
    const auto crosses = [=](const BucketSum& before, const BucketSum& up_to) {
      return before.count < k && up_to.count >= k;
    };
    find_bucket(smem, t, crosses, [&](int b, const BucketSum& before, const BucketSum& up_to) {
      smem.k_bucket = b;
      smem.before_k = before;
      smem.up_to_k = up_to;
    });
  });
  const bool by_k = smem.k_bucket < kSampleBuckets;
  const bool by_p = w.rule.top_p < 1;
  // Bounds on the sum of weights that top-p asks for, since top-k may have cut some of the total.
  const std::uint64_t least =
      by_p ? share_of(w.rule.top_p, by_k ? bounds.low(smem.before_k) : bounds.mass) : 1;
  const std::uint64_t most =
      by_p ? share_of(w.rule.top_p, by_k ? bounds.high(smem.up_to_k) : bounds.mass) : 1;
  cta.phase([&](int t) {
    if (!by_p) return;
    const auto may_cross = [=](const BucketSum& before, const BucketSum& up_to) {
      return bounds.high(before) < least && bounds.high(up_to) >= least;
    };
    find_bucket(smem, t, may_cross, [&](int b, const BucketSum& before, const BucketSum&) {
      smem.p_first = b;
      smem.count_before_p = before.count;
    });
    const auto has_crossed = [=](const BucketSum& before, const BucketSum& up_to) {
      return bounds.low(before) < most && bounds.low(up_to) >= most;
    };
    find_bucket(smem, t, has_crossed, [&](int b, const BucketSum&, const BucketSum& up_to) {
      smem.p_last = b;
      smem.count_up_to_p = up_to.count;
    });
  });
  cta.phase([&](int t) {
    if (t != 0 || (!by_k && !by_p)) return;
    SampleState& state = *w.state;
    state.first = by_p ? smem.p_first : smem.k_bucket;
    state.last = by_k ? smem.k_bucket : smem.p_last;
    const std::uint64_t before = by_p ? smem.count_before_p : smem.before_k.count;
    const std::uint64_t up_to = by_k ? smem.up_to_k.count : smem.count_up_to_p;
    state.take = by_k ? static_cast<std::int32_t>(k - before) : 0;
    state.walked = up_to - before > static_cast<std::uint64_t>(kSampleListed) ? 1 : 0;
  });
  // Where neither cuts, as when fewer tokens have weight than top-k keeps, no bucket is open.
  cta.phase([&](int t) {
    if (t == 0 && !by_k && !by_p) w.state->first = w.state->last = kSampleBuckets;
  });
}

// Sums the weights of a part and counts its tokens by bucket; see the top of this file.
template <class Cta>
BL_HD void weigh_row(Cta& cta, const SamplePart& w, WeighShared& smem) {
  const bool truncates = w.truncates();
  const bool reports = w.rule.log_probability != 0;
  if (w.rule.kind == SampleRule::Kind::kNone || (!truncates && !reports)) return;
  const RowTop top = row_top(cta, w, smem.keys);
  if (top.id < 0) return;
  cta.phase([&](int t) {
    for (int b = t; b < kSampleBuckets; b += kSampleThreads) smem.counts[b] = 0;
  });
  cta.phase([&](int t) {
    std::uint64_t mass = 0;
    std::uint64_t plain = 0;
    for_each_logit(w, t, [&](int, float logit) {
      if (reports) plain += weight_units(weight_at(score_distance(logit, top.logit, 1.0f)));
      if (!truncates) return;
      const float distance = score_distance(logit, top.logit, w.rule.inverse);
      if (!has_weight(distance)) return;
      mass += weight_units(weight_at(distance));
      cta.add(smem.counts + bucket_of(distance), 1u);
    });
    smem.masses[t] = mass;
    smem.plain[t] = plain;
  });
  cta.fold(smem.masses, SampleSum());
  cta.fold(smem.plain, SampleSum());
  cta.phase([&](int t) {
    if (t == 0 && reports) cta.add(&w.state->plain, smem.plain[0]);
    if (!truncates) return;
    if (t == 0) cta.add(&w.state->mass, smem.masses[0]);
    for (int b = t; b < kSampleBuckets; b += kSampleThreads) {
      if (smem.counts[b] != 0) cta.add(w.counts + b, smem.counts[b]);
    }
  });
  if (truncates && cta.is_last(&w.state->weighed, w.parts, &smem.is_last)) {
    choose_buckets(cta, w, smem);
  }
}

}  // namespace bl::cuda
