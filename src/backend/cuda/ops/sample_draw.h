#pragma once
// The last of the launches of sample_steps.h.

#include <cstdint>

#include "backend/cuda/ops/sample_steps.h"

namespace bl::cuda {

inline constexpr int kKeyDigits = 256;  // a selection looks at eight bits of keys at a time
static_assert(kKeyDigits == kSampleThreads);

struct DrawRoom {
  std::uint64_t keys[kSampleThreads + 1];
  std::uint64_t masses[kSampleThreads + 1];
  std::uint32_t counts[kKeyDigits];
  std::int32_t ids[kSampleListed];
  float logits[kSampleListed];
  std::uint32_t listed;  // by this CTA
  std::uint32_t list_begin;
  // Of a selection.
  int digit;
  std::uint64_t needed;
  bool alone;
  std::uint64_t found;
  // Of the draw.
  int begin;
  int count;
  std::uint64_t place;
  bool is_last;
};

// Which tokens stay, as far as top-k and top-p are settled.
struct DrawCut {
  float top = 0;
  float inverse = 1;
  double min_p = 0;
  std::uint64_t by_logit = ~std::uint64_t{0};     // the last key that stays
  std::uint64_t by_distance = ~std::uint64_t{0};  // likewise
  // The units of a token before min-p; 0: it is cut.
  BL_HD std::uint64_t units(float logit, std::int32_t id) const {
    const float distance = score_distance(logit, top, inverse);
    if (!has_weight(distance) || key_of_logit(logit, id) > by_logit) return 0;
    return weight_units(weight_at(distance));
  }
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

// The tokens in open buckets: listed ones, or those met on a walk over the row.
struct OpenTokens {
  int count = 0;  // to look at
  bool walked = false;
  int first = 0;
  int last = 0;
  // f(id, logit) for a thread's share.
  template <class F>
  BL_HD void for_each(const SamplePart& w, const DrawRoom& room, const DrawCut& cut, int t,
                      F&& f) const {
    for (int i = t; i < count; i += kSampleThreads) {
      if (!walked) {
        f(room.ids[i], room.logits[i]);
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

// The smallest key up to which units sum up to `needed`, of the keys and units > 0 that
// each(t, add(key, units)) gives; the greatest where the sum falls short. Takes eight bits at a
// time, until one key is left.
template <class Cta, class Each>
BL_HD std::uint64_t select_key(Cta& cta, DrawRoom& room, std::uint64_t needed, Each&& each) {
  std::uint64_t prefix = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    const auto matches = [=](std::uint64_t key) {
      return shift == 56 || key >> (shift + 8) == prefix;
    };
    cta.phase([&](int t) {
      room.keys[t] = 0;
      room.counts[t] = 0;
    });
    cta.phase([&](int t) {
      each(t, [&](std::uint64_t key, std::uint64_t units) {
        if (!matches(key)) return;
        const auto digit = static_cast<int>(key >> shift & 0xff);
        cta.add(room.keys + digit, units);
        cta.add(room.counts + digit, 1u);
      });
    });
    cta.scan(room.keys);
    const std::uint64_t all = room.keys[kSampleThreads];
    if (all == 0) return ~std::uint64_t{0};
    const std::uint64_t wanted = needed < all ? needed : all;
    cta.phase([&](int t) {
      if (room.keys[t] >= wanted || room.keys[t + 1] < wanted) return;
      room.digit = t;
      room.needed = wanted - room.keys[t];
      room.alone = room.counts[t] == 1;
    });
    prefix = prefix << 8 | static_cast<std::uint64_t>(room.digit);
    needed = room.needed;
    if (!room.alone || shift == 0) continue;
    cta.phase([&](int t) {
      each(t, [&](std::uint64_t key, std::uint64_t) {
        if (key >> shift == prefix) room.found = key;
      });
    });
    return room.found;
  }
  return prefix;
}

// Settles top-k, then top-p, among the open tokens.
template <class Cta>
BL_HD void settle_cuts(Cta& cta, const SamplePart& w, DrawRoom& room, const OpenTokens& open,
                       DrawCut& cut) {
  const SampleState& state = *w.state;
  const auto take = static_cast<std::uint64_t>(cta.fresh(&state.take));
  if (take > 0) {
    cut.by_logit = select_key(cta, room, take, [&](int t, auto&& add) {
      open.for_each(w, room, cut, t, [&](std::int32_t id, float logit) {
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
      open.for_each(w, room, cut, t,
                    [&](std::int32_t id, float logit) { sum += cut.units(logit, id); });
      room.masses[t] = sum;
    });
    cta.fold(room.masses, SampleSum());
    mass = inside + room.masses[0];
  }
  const std::uint64_t wanted = share_of(w.rule.top_p, mass);
  cut.by_distance =
      select_key(cta, room, wanted > inside ? wanted - inside : 1, [&](int t, auto&& add) {
        open.for_each(w, room, cut, t, [&](std::int32_t id, float logit) {
          const std::uint64_t units = cut.units(logit, id);
          const float distance = score_distance(logit, cut.top, cut.inverse);
          if (units > 0) add(key_of_distance(distance, id), units);
        });
      });
}

// Finds the place among room.masses, whose first entry stands for the tokens from `begin` on, and
// each for `size` tokens: room.begin, count and place become those of the entry that holds it.
template <class Cta>
BL_HD void descend(Cta& cta, DrawRoom& room, int begin, int size, int end) {
  cta.phase([&](int t) {
    if (room.place < room.masses[t] || room.place >= room.masses[t + 1]) return;
    room.begin = begin + t * size;
    room.count = end - room.begin < size ? end - room.begin : size;
    room.needed = room.place - room.masses[t];
  });
  cta.phase([&](int t) {
    if (t == 0) room.place = room.needed;
  });
}

// The token at the rule's place in the cumulative sum of what has stayed. Parts' sums are those of
// the tokens before the open ones.
template <class Cta>
BL_HD std::int32_t draw_token(Cta& cta, const SamplePart& w, DrawRoom& room, const OpenTokens& open,
                              const DrawCut& cut) {
  cta.phase([&](int t) { room.masses[t] = t < w.parts ? cta.fresh(w.masses + t) : 0; });
  cta.phase([&](int t) {
    open.for_each(w, room, cut, t, [&](std::int32_t id, float logit) {
      const std::uint64_t units = cut.final_units(logit, id);
      if (units > 0) cta.add(room.masses + id / w.part_size, units);
    });
  });
  cta.scan(room.masses);
  const std::uint64_t place = place_of(w.rule.draw, room.masses[kSampleThreads]);
  cta.phase([&](int t) {
    if (t == 0) room.place = place;
  });
  descend(cta, room, 0, w.part_size, w.vocab);
  while (room.count > 1) {
    const int begin = room.begin;
    const int end = begin + room.count;
    const int size = (room.count + kSampleThreads - 1) / kSampleThreads;
    cta.phase([&](int t) {
      std::uint64_t sum = 0;
      const int to = begin + (t + 1) * size < end ? begin + (t + 1) * size : end;
      for (int i = begin + t * size; i < to; ++i) sum += cut.final_units(w.logits[i], i);
      room.masses[t] = sum;
    });
    cta.scan(room.masses);
    descend(cta, room, begin, size, end);
  }
  return room.begin;
}

// What is known of the row goes out, and the row is as it was. No other CTA reads it any more.
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

template <class Cta>
BL_HD void draw_row(Cta& cta, const SamplePart& w, DrawRoom& room) {
  const bool ignored = w.rule.kind == SampleRule::Kind::kNone;
  const RowTop top = ignored ? RowTop() : row_top(cta, w, room.keys);
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
    if (t == 0) room.listed = 0;
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
        room.ids[cta.add(&room.listed, 1u)] = id;
      }
    });
    room.keys[t] = inside;
    room.masses[t] = kept;
  });
  cta.fold(room.keys, SampleSum());
  cta.fold(room.masses, SampleSum());
  cta.phase([&](int t) {
    if (t != 0) return;
    w.masses[w.part] = room.masses[0];
    if (truncates) cta.add(&w.state->inside, room.keys[0]);
    if (room.listed > 0) room.list_begin = cta.add(&w.state->listed, room.listed);
  });
  cta.phase([&](int t) {
    for (int i = t; i < static_cast<int>(room.listed); i += kSampleThreads) {
      w.list[static_cast<int>(room.list_begin) + i] = room.ids[i];
    }
  });
  if (!cta.is_last(&w.state->drawn, w.parts, &room.is_last)) return;
  open.count = open.walked ? w.vocab : static_cast<int>(cta.fresh(&w.state->listed));
  cta.phase([&](int t) {
    for (int i = t; i < (open.walked ? 0 : open.count); i += kSampleThreads) {
      room.ids[i] = cta.fresh(w.list + i);
      room.logits[i] = w.logits[room.ids[i]];
    }
  });
  if (truncates) settle_cuts(cta, w, room, open, cut);
  finish_row(cta, w, top, draw_token(cta, w, room, open, cut));
}

}  // namespace bl::cuda
