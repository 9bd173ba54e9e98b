#pragma once
// draw_row(), the last of the launches that sample_steps.h describes.

#include <cstdint>

#include "backend/cuda/ops/sample_steps.h"

namespace bl::cuda {

inline constexpr int kKeyDigits =
    256;  // select_key() is a radix selection, eight bits of the keys a pass
static_assert(kKeyDigits == kSampleThreads);

// Shared memory of draw_row().
struct DrawShared {
  std::uint64_t keys[kSampleThreads + 1];
  std::uint64_t masses[kSampleThreads + 1];
  std::uint32_t counts[kKeyDigits];
  std::int32_t ids[kSampleListed];
  float logits[kSampleListed];
  std::uint32_t listed;  // tokens that this CTA lists
  std::uint32_t list_begin;
  // Used by select_key().
  int digit;
  std::uint64_t needed;
  bool alone;
  std::uint64_t found;
  // Used by draw_token().
  int begin;
  int count;
  std::uint64_t place;
  bool is_last;
};

// Decides which tokens stay, by the cuts that are settled so far.
struct DrawCut {
  float top = 0;
  float inverse = 1;
  double min_p = 0;
  std::uint64_t by_logit = ~std::uint64_t{0};  // top-k: the greatest key_of_logit() that stays
  std::uint64_t by_distance =
      ~std::uint64_t{0};  // top-p: the greatest key_of_distance() that stays
  // The weight units of a token after top-k alone; 0 where it is cut.
  BL_HD std::uint64_t units(float logit, std::int32_t id) const {
    const float distance = score_distance(logit, top, inverse);
    if (!has_weight(distance) || key_of_logit(logit, id) > by_logit) return 0;
    return weight_units(weight_at(distance));
  }
  // The weight units of a token after top-k, top-p and min-p; 0 where it is cut.
  BL_HD std::uint64_t final_units(float logit, std::int32_t id) const {
    const float distance = score_distance(logit, top, inverse);
    if (!has_weight(distance) || key_of_logit(logit, id) > by_logit ||
        key_of_distance(distance, id) > by_distance) {
      return 0;
    }
    const float weight = weight_at(distance);
    return static_cast<double>(weight) < min_p ? 0 : weight_units(weight);
  }
};

// The tokens in open buckets, which may or may not stay. They come from a list or, where they are
// more than it holds, from a walk over the whole row.
struct OpenTokens {
  int count = 0;  // tokens to look at: of the list, or of the row
  bool walked = false;
  int first = 0;
  int last = 0;
  // Calls f(id, logit) for the open tokens of thread t.
  template <class F>
  BL_HD void for_each(const SamplePart& w, const DrawShared& smem, const DrawCut& cut, int t,
                      F&& f) const {
    for (int i = t; i < count; i += kSampleThreads) {
      if (!walked) {
        f(smem.ids[i], smem.logits[i]);
        continue;
      }
      const float logit = w.logits[i];
      const float distance = score_distance(logit, cut.top, cut.inverse);
      if (!has_weight(distance)) continue;
      const int bucket = bucket_of(distance);
      if (bucket >= first && bucket <= last) f(i, logit);
    }
  }
};

// Returns the smallest key for which the units of all keys up to it sum to at least `needed`, or
// the greatest key where the total is less. each(t, add) must call add(key, units) with units > 0
// for the keys of thread t. A radix selection: it fixes eight bits of the key in each pass, until
// one key is left.
template <class Cta, class Each>
BL_HD std::uint64_t select_key(Cta& cta, DrawShared& smem, std::uint64_t needed, Each&& each) {
  std::uint64_t prefix = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    const auto matches = [=](std::uint64_t key) {
      return shift == 56 || key >> (shift + 8) == prefix;
    };
    cta.phase([&](int t) {
      smem.keys[t] = 0;
      smem.counts[t] = 0;
    });
    cta.phase([&](int t) {
      each(t, [&](std::uint64_t key, std::uint64_t units) {
        if (!matches(key)) return;
        const auto digit = static_cast<int>(key >> shift & 0xff);
        cta.add(smem.keys + digit, units);
        cta.add(smem.counts + digit, 1u);
      });
    });
    cta.scan(smem.keys);
    const std::uint64_t all = smem.keys[kSampleThreads];
    if (all == 0) return ~std::uint64_t{0};
    const std::uint64_t wanted = needed < all ? needed : all;
    cta.phase([&](int t) {
      if (smem.keys[t] >= wanted || smem.keys[t + 1] < wanted) return;
      smem.digit = t;
      smem.needed = wanted - smem.keys[t];
      smem.alone = smem.counts[t] == 1;
    });
    prefix = prefix << 8 | static_cast<std::uint64_t>(smem.digit);
    needed = smem.needed;
    if (!smem.alone || shift == 0) continue;
    cta.phase([&](int t) {
      each(t, [&](std::uint64_t key, std::uint64_t) {
        if (key >> shift == prefix) smem.found = key;
      });
    });
    return smem.found;
  }
  return prefix;
}

// Settles top-k, then top-p, exactly, by selection among the open tokens.
template <class Cta>
BL_HD void settle_cuts(Cta& cta, const SamplePart& w, DrawShared& smem, const OpenTokens& open,
                       DrawCut& cut) {
  const SampleState& state = *w.state;
  const auto take = static_cast<std::uint64_t>(cta.fresh(&state.take));
  if (take > 0) {
    cut.by_logit = select_key(cta, smem, take, [&](int t, auto&& add) {
      open.for_each(w, smem, cut, t, [&](std::int32_t id, float logit) {
        add(key_of_logit(logit, id), std::uint64_t{1});
      });
    });
  }
  if (!(w.rule.top_p < 1)) return;
  const std::uint64_t inside = cta.fresh(&state.inside);
  std::uint64_t mass = cta.fresh(&state.mass);
  if (take > 0) {
    cta.phase([&](int t) {
      std::uint64_t sum = 0;
      open.for_each(w, smem, cut, t,
                    [&](std::int32_t id, float logit) { sum += cut.units(logit, id); });
      smem.masses[t] = sum;
    });
    cta.fold(smem.masses, SampleSum());
    mass = inside + smem.masses[0];
  }
  const std::uint64_t wanted = share_of(w.rule.top_p, mass);
  cut.by_distance =
      select_key(cta, smem, wanted > inside ? wanted - inside : 1, [&](int t, auto&& add) {
        open.for_each(w, smem, cut, t, [&](std::int32_t id, float logit) {
          const std::uint64_t units = cut.units(logit, id);
          const float distance = score_distance(logit, cut.top, cut.inverse);
          if (units > 0) add(key_of_distance(distance, id), units);
        });
      });
}

// One step of a search: smem.masses is the prefix sum of the weights of ranges of `size` tokens,
// the first of which begins at `begin`. Sets smem.begin and smem.count to the range that contains
// smem.place, and makes smem.place relative to it.
template <class Cta>
BL_HD void descend(Cta& cta, DrawShared& smem, int begin, int size, int end) {
  cta.phase([&](int t) {
    if (smem.place < smem.masses[t] || smem.place >= smem.masses[t + 1]) return;
    smem.begin = begin + t * size;
    smem.count = end - smem.begin < size ? end - smem.begin : size;
    smem.needed = smem.place - smem.masses[t];
  });
  cta.phase([&](int t) {
    if (t == 0) smem.place = smem.needed;
  });
}

// Returns the token at the drawn place in the cumulative sum of the weights of all tokens that
// stay. The sums of the parts that w.masses holds are without the open tokens, which are added
// here.
template <class Cta>
BL_HD std::int32_t draw_token(Cta& cta, const SamplePart& w, DrawShared& smem,
                              const OpenTokens& open, const DrawCut& cut) {
  cta.phase([&](int t) { smem.masses[t] = t < w.parts ? cta.fresh(w.masses + t) : 0; });
  cta.phase([&](int t) {
    open.for_each(w, smem, cut, t, [&](std::int32_t id, float logit) {
      const std::uint64_t units = cut.final_units(logit, id);
      if (units > 0) cta.add(smem.masses + id / w.part_size, units);
    });
  });
  cta.scan(smem.masses);
  const std::uint64_t place = place_of(w.rule.draw, smem.masses[kSampleThreads]);
  cta.phase([&](int t) {
    if (t == 0) smem.place = place;
  });
  descend(cta, smem, 0, w.part_size, w.vocab);
  while (smem.count > 1) {
    const int begin = smem.begin;
    const int end = begin + smem.count;
    const int size = (smem.count + kSampleThreads - 1) / kSampleThreads;
    cta.phase([&](int t) {
      std::uint64_t sum = 0;
      const int to = begin + (t + 1) * size < end ? begin + (t + 1) * size : end;
      for (int i = begin + t * size; i < to; ++i) sum += cut.final_units(w.logits[i], i);
      smem.masses[t] = sum;
    });
    cta.scan(smem.masses);
    descend(cta, smem, begin, size, end);
  }
  return smem.begin;
}

// Writes the row's results, and restores the logits that were edited: no other CTA reads them any
// more.
template <class Cta>
BL_HD void finish_row(Cta& cta, const SamplePart& w, const RowTop& top, std::int32_t id) {
  cta.phase([&](int t) {
    if (t != 0) return;
    *w.id = id;
    if (w.rule.log_probability == 0 || id < 0) return;
    *w.log_probability = log_share(w.logits[id], top.logit, cta.fresh(&w.state->plain));
  });
  cta.phase([&](int t) {
    for (int i = t; i < w.rule.edits; i += kSampleThreads) {
      const int at = w.rule.first_edit + i;
      w.logits[w.edits[at].id] = w.unedited[at];
    }
  });
}

// Lists the open tokens, sums the others' weights by part, and draws in the row's last CTA.
template <class Cta>
BL_HD void draw_row(Cta& cta, const SamplePart& w, DrawShared& smem) {
  const bool ignored = w.rule.kind == SampleRule::Kind::kNone;
  const RowTop top = ignored ? RowTop() : row_top(cta, w, smem.keys);
  if (top.id < 0 || !w.draws()) {
    if (w.part == 0) finish_row(cta, w, top, top.id);
    return;
  }
  const bool truncates = w.truncates();
  OpenTokens open{.first = kSampleBuckets, .last = kSampleBuckets};
  if (truncates) {
    open.first = cta.fresh(&w.state->first);
    open.last = cta.fresh(&w.state->last);
    open.walked = cta.fresh(&w.state->walked) != 0;
  }
  DrawCut cut{.top = top.logit, .inverse = w.rule.inverse, .min_p = w.rule.min_p};
  cta.phase([&](int t) {
    if (t == 0) smem.listed = 0;
  });
  cta.phase([&](int t) {
    std::uint64_t inside = 0;
    std::uint64_t kept = 0;
    for_each_logit(w, t, [&](int id, float logit) {
      const float distance = score_distance(logit, top.logit, w.rule.inverse);
      if (!has_weight(distance)) return;
      const int bucket = bucket_of(distance);
      if (bucket < open.first) {
        const float weight = weight_at(distance);
        const std::uint64_t units = weight_units(weight);
        inside += units;
        kept += static_cast<double>(weight) < w.rule.min_p ? 0 : units;
      } else if (bucket <= open.last && !open.walked) {
        smem.ids[cta.add(&smem.listed, 1u)] = id;
      }
    });
    smem.keys[t] = inside;
    smem.masses[t] = kept;
  });
  cta.fold(smem.keys, SampleSum());
  cta.fold(smem.masses, SampleSum());
  cta.phase([&](int t) {
    if (t != 0) return;
    w.masses[w.part] = smem.masses[0];
    if (truncates) cta.add(&w.state->inside, smem.keys[0]);
    if (smem.listed > 0) smem.list_begin = cta.add(&w.state->listed, smem.listed);
  });
  cta.phase([&](int t) {
    for (int i = t; i < static_cast<int>(smem.listed); i += kSampleThreads) {
      w.list[static_cast<int>(smem.list_begin) + i] = smem.ids[i];
    }
  });
  if (!cta.is_last(&w.state->drawn, w.parts, &smem.is_last)) return;
  open.count = open.walked ? w.vocab : static_cast<int>(cta.fresh(&w.state->listed));
  cta.phase([&](int t) {
    for (int i = t; i < (open.walked ? 0 : open.count); i += kSampleThreads) {
      smem.ids[i] = cta.fresh(w.list + i);
      smem.logits[i] = w.logits[smem.ids[i]];
    }
  });
  if (truncates) settle_cuts(cta, w, smem, open, cut);
  finish_row(cta, w, top, draw_token(cta, w, smem, open, cut));
}

}  // namespace bl::cuda
