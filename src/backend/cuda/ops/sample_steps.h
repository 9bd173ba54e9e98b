#pragma once
// How the op `sample` works, in the steps of a CTA. They are written for device and host: what a
// thread does between two barriers is a function of its number, so that a test can run all of it
// where there is no card.
//
// A row is shared out to CTAs by parts. Three launches:
//   find_top   the greatest logit of each part;
//   weigh_row  counts tokens by their distance from the top, in buckets; the CTA that is the last
//              of its row concludes from the counts in which buckets top-k and top-p may end;
//   draw_row   sums the weights of the tokens before those buckets, by part, and lists the tokens
//              in them; the last CTA selects among these, and draws: a part, then a token.
// Nothing is sorted, and all sums are of whole numbers.
//
// A Cta has kSampleThreads threads, all of which make the same calls:
//   phase(f)             f(t) for every thread t, then a barrier
//   fold(values, op)     values[0] = all of values[0 … threads), joined
//   scan(values)         values[t] = Σ of those before it, values[threads] = Σ of all
//   add(to, value)       atomically; returns what was there
//   fresh(from)          what other CTAs have written
//   is_last(counter, ctas, shared)  whether all of the row's CTAs have come here
// Each ends with a barrier; fold and scan want one before them.

#include <cstdint>

#include "base/host_device.h"
#include "ops/sample.h"
#include "ops/sample_math.h"

namespace bl::cuda {

inline constexpr int kSampleThreads = 256;
inline constexpr int kSampleParts = 64;      // of a row, at most
inline constexpr int kSampleBuckets = 2048;  // of distances: 64 a unit
inline constexpr int kSampleListed = 4096;  // tokens; where more are in question, the row is walked

// What the launches of a step tell each other about a row.
struct SampleState {
  std::uint64_t mass = 0;     // Σ weight units
  std::uint64_t plain = 0;    // the same at temperature 1, where a log-probability is wanted
  std::uint64_t inside = 0;   // of mass, what is before bucket `first`
  std::uint32_t weighed = 0;  // CTAs that are through
  std::uint32_t drawn = 0;
  std::uint32_t listed = 0;  // tokens
  std::int32_t first = 0;    // whether tokens in these buckets stay is open; those before do,
  std::int32_t last = 0;     // those behind do not
  std::int32_t take = 0;     // of the open ones, so many stay by top-k; 0: all
  std::int32_t walked = 0;   // more than the list holds are open
  std::int32_t unused = 0;
};

// A part of a row.
struct SamplePart {
  SampleRule rule;
  float* logits = nullptr;  // of the row
  int vocab = 0;
  int part_size = 0;
  int parts = 0;
  int part = 0;
  bool fours = false;               // the row may be read by aligned fours
  std::uint64_t* tops = nullptr;    // [parts]
  std::uint64_t* masses = nullptr;  // [parts]
  std::uint32_t* counts = nullptr;  // [kSampleBuckets]
  std::int32_t* list = nullptr;     // [kSampleListed]
  SampleState* state = nullptr;
  const LogitEdit* edits = nullptr;  // all of the step
  const float* unedited = nullptr;   // what the edits have replaced
  std::int32_t* id = nullptr;
  float* log_probability = nullptr;

  BL_HD int begin() const { return part * part_size; }
  BL_HD int end() const { return begin() + part_size < vocab ? begin() + part_size : vocab; }
  BL_HD bool draws() const { return rule.kind == SampleRule::Kind::kDraw; }
  BL_HD bool truncates() const { return draws() && (rule.top_k > 0 || rule.top_p < 1); }
};

// Keys of tops: greater ones are better, those of broken rows greatest; none is 0.
inline constexpr std::uint64_t kBrokenTop = ~std::uint64_t{0};
BL_HD inline std::uint64_t top_key(float logit, int id) { return ~key_of_logit(logit, id); }
struct RowTop {
  float logit = 0;
  std::int32_t id = -1;  // −1: the row is broken, or nothing is left
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

// Tokens of some buckets, and bounds of their weight units.
struct BucketSum {  // no initializers: some lie in shared memory
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
  const std::uint64_t least = low - (low >> 16);  // whatever fast_exp rounds
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

// f(id, logit) for a thread's share of a part, ids ascending.
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

// The greatest logit of the row, of its parts' ones. `keys`: [kSampleThreads].
template <class Cta>
BL_HD RowTop row_top(Cta& cta, const SamplePart& w, std::uint64_t* keys) {
  cta.phase([&](int t) { keys[t] = t < w.parts ? cta.fresh(w.tops + t) : 0; });
  cta.fold(keys, SampleGreatest());
  return top_of(keys[0]);
}

// --- the launches ---

struct TopRoom {
  std::uint64_t keys[kSampleThreads];
};

// Also clears what the other launches count in.
template <class Cta>
BL_HD void find_top(Cta& cta, const SamplePart& w, TopRoom& room) {
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
    room.keys[t] = broken ? kBrokenTop : top_key(best, at);
  });
  cta.fold(room.keys, SampleGreatest());
  cta.phase([&](int t) {
    if (t == 0) w.tops[w.part] = room.keys[0];
  });
}

struct WeighRoom {
  std::uint64_t keys[kSampleThreads];
  std::uint64_t masses[kSampleThreads];
  std::uint64_t plain[kSampleThreads];
  std::uint32_t counts[kSampleBuckets];
  // Of the buckets before those of a thread.
  std::uint64_t count_sums[kSampleThreads + 1];
  std::uint64_t low_sums[kSampleThreads + 1];
  std::uint64_t high_sums[kSampleThreads + 1];
  // Of the cuts, each written by the thread that finds its bucket.
  int k_bucket;
  BucketSum before_k;  // Σ of the buckets before it
  BucketSum up_to_k;
  int p_first;
  std::uint64_t count_before_p;
  int p_last;
  std::uint64_t count_up_to_p;
  bool is_last;

  BL_HD BucketSum before(int t) const { return {count_sums[t], low_sums[t], high_sums[t]}; }
};

// Bounds of the units of a row's first buckets, of which `sum` is known. The row's mass is exact,
// which says more of many buckets than of few.
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

// f(bucket, Σ before it, Σ up to it) for a thread's buckets, ascending, where crosses(Σ before, Σ
// up to) holds of all of them together. Needs sums as choose_buckets() leaves them.
template <class Crosses, class F>
BL_HD void find_bucket(const WeighRoom& room, int t, Crosses&& crosses, F&& f) {
  constexpr int kEach = kSampleBuckets / kSampleThreads;
  BucketSum before = room.before(t);
  if (!crosses(before, room.before(t + 1))) return;
  for (int b = t * kEach; b < (t + 1) * kEach; ++b) {
    if (room.counts[b] == 0) continue;
    const BucketSum up_to = before + bucket_sum(b, room.counts[b]);
    if (crosses(before, up_to)) f(b, before, up_to);
    before = up_to;
  }
}

// The buckets in which top-k and top-p may end: exact for top-k, for top-p as near as the bounds of
// a bucket's weights allow.
template <class Cta>
BL_HD void choose_buckets(Cta& cta, const SamplePart& w, WeighRoom& room) {
  constexpr int kEach = kSampleBuckets / kSampleThreads;
  cta.phase([&](int t) {
    BucketSum sum{};
    for (int b = t * kEach; b < (t + 1) * kEach; ++b) {
      room.counts[b] = cta.fresh(w.counts + b);
      if (room.counts[b] != 0) sum = sum + bucket_sum(b, room.counts[b]);
    }
    room.count_sums[t] = sum.count;
    room.low_sums[t] = sum.low;
    room.high_sums[t] = sum.high;
    if (t == 0) room.k_bucket = room.p_first = room.p_last = kSampleBuckets;
  });
  cta.scan(room.count_sums);
  cta.scan(room.low_sums);
  cta.scan(room.high_sums);
  const MassBounds bounds{cta.fresh(&w.state->mass), room.before(kSampleThreads)};
  const auto k = static_cast<std::uint64_t>(w.rule.top_k);
  cta.phase([&](int t) {
    const auto crosses = [=](const BucketSum& before, const BucketSum& up_to) {
      return before.count < k && up_to.count >= k;
    };
    find_bucket(room, t, crosses, [&](int b, const BucketSum& before, const BucketSum& up_to) {
      room.k_bucket = b;
      room.before_k = before;
      room.up_to_k = up_to;
    });
  });
  const bool by_k = room.k_bucket < kSampleBuckets;
  const bool by_p = w.rule.top_p < 1;
  // The least and the most that top-p may ask for.
  const std::uint64_t least =
      by_p ? share_of(w.rule.top_p, by_k ? bounds.low(room.before_k) : bounds.mass) : 1;
  const std::uint64_t most =
      by_p ? share_of(w.rule.top_p, by_k ? bounds.high(room.up_to_k) : bounds.mass) : 1;
  cta.phase([&](int t) {
    if (!by_p) return;
    const auto may_cross = [=](const BucketSum& before, const BucketSum& up_to) {
      return bounds.high(before) < least && bounds.high(up_to) >= least;
    };
    find_bucket(room, t, may_cross, [&](int b, const BucketSum& before, const BucketSum&) {
      room.p_first = b;
      room.count_before_p = before.count;
    });
    const auto has_crossed = [=](const BucketSum& before, const BucketSum& up_to) {
      return bounds.low(before) < most && bounds.low(up_to) >= most;
    };
    find_bucket(room, t, has_crossed, [&](int b, const BucketSum&, const BucketSum& up_to) {
      room.p_last = b;
      room.count_up_to_p = up_to.count;
    });
  });
  cta.phase([&](int t) {
    if (t != 0 || (!by_k && !by_p)) return;
    SampleState& state = *w.state;
    state.first = by_p ? room.p_first : room.k_bucket;
    state.last = by_k ? room.k_bucket : room.p_last;
    const std::uint64_t before = by_p ? room.count_before_p : room.before_k.count;
    const std::uint64_t up_to = by_k ? room.up_to_k.count : room.count_up_to_p;
    state.take = by_k ? static_cast<std::int32_t>(k - before) : 0;
    state.walked = up_to - before > static_cast<std::uint64_t>(kSampleListed) ? 1 : 0;
  });
  // With neither, which happens where top-k is beyond what has weight, no bucket is open.
  cta.phase([&](int t) {
    if (t == 0 && !by_k && !by_p) w.state->first = w.state->last = kSampleBuckets;
  });
}

template <class Cta>
BL_HD void weigh_row(Cta& cta, const SamplePart& w, WeighRoom& room) {
  const bool truncates = w.truncates();
  const bool reports = w.rule.log_probability != 0;
  if (w.rule.kind == SampleRule::Kind::kNone || (!truncates && !reports)) return;
  const RowTop top = row_top(cta, w, room.keys);
  if (top.id < 0) return;
  cta.phase([&](int t) {
    for (int b = t; b < kSampleBuckets; b += kSampleThreads) room.counts[b] = 0;
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
      cta.add(room.counts + bucket_of(distance), 1u);
    });
    room.masses[t] = mass;
    room.plain[t] = plain;
  });
  cta.fold(room.masses, SampleSum());
  cta.fold(room.plain, SampleSum());
  cta.phase([&](int t) {
    if (t == 0 && reports) cta.add(&w.state->plain, room.plain[0]);
    if (!truncates) return;
    if (t == 0) cta.add(&w.state->mass, room.masses[0]);
    for (int b = t; b < kSampleBuckets; b += kSampleThreads) {
      if (room.counts[b] != 0) cta.add(w.counts + b, room.counts[b]);
    }
  });
  if (truncates && cta.is_last(&w.state->weighed, w.parts, &room.is_last)) {
    choose_buckets(cta, w, room);
  }
}

}  // namespace bl::cuda
