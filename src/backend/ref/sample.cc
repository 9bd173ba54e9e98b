#include "ops/sample.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "backend/ref/ref_ops.h"
#include "ops/sample_math.h"

namespace bl::ref {
namespace {

struct Candidate {
  std::int32_t id = 0;
  float logit = 0;
  float distance = 0;
  std::uint64_t units = 0;
};

std::uint64_t sum_of(const std::vector<Candidate>& candidates) {
  std::uint64_t sum = 0;
  for (const Candidate& c : candidates) sum += c.units;
  return sum;
}

template <class Key>
void sort_by(std::vector<Candidate>& candidates, Key&& key) {
  std::sort(candidates.begin(), candidates.end(),
            [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
}

void keep_top_k(std::vector<Candidate>& candidates, std::int32_t k) {
  sort_by(candidates, [](const Candidate& c) { return key_of_logit(c.logit, c.id); });
  candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(k)));
}

void keep_top_p(std::vector<Candidate>& candidates, double p) {
  sort_by(candidates, [](const Candidate& c) { return key_of_distance(c.distance, c.id); });
  const std::uint64_t wanted = share_of(p, sum_of(candidates));
  std::uint64_t sum = 0;
  std::size_t kept = 0;
  while (sum < wanted) sum += candidates[kept++].units;
  candidates.resize(kept);
}

std::int32_t draw(std::vector<Candidate>& candidates, std::uint64_t draw) {
  sort_by(candidates, [](const Candidate& c) { return c.id; });
  const std::uint64_t place = place_of(draw, sum_of(candidates));
  std::uint64_t sum = 0;
  for (const Candidate& c : candidates) {
    sum += c.units;
    if (sum > place) return c.id;
  }
  return -1;
}

std::int32_t choose(const SampleRule& rule, const std::vector<float>& row, std::int32_t likeliest) {
  if (rule.kind == SampleRule::Kind::kLikeliest) return likeliest;
  const float top = row[static_cast<std::size_t>(likeliest)];
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const float distance = score_distance(row[i], top, rule.inverse);
    if (!has_weight(distance)) continue;
    candidates.push_back(
        {static_cast<std::int32_t>(i), row[i], distance, weight_units(weight_at(distance))});
  }
  if (rule.top_k > 0) keep_top_k(candidates, rule.top_k);
  if (rule.top_p < 1) keep_top_p(candidates, rule.top_p);
  std::erase_if(candidates, [&](const Candidate& c) {
    return static_cast<double>(weight_at(c.distance)) < rule.min_p;
  });
  return draw(candidates, rule.draw);
}

float log_probability(const std::vector<float>& row, float top, std::int32_t id) {
  std::uint64_t mass = 0;
  for (const float logit : row) mass += weight_units(weight_at(score_distance(logit, top, 1)));
  return log_share(row[static_cast<std::size_t>(id)], top, mass);
}

void sample_row(const SampleArgs& args, std::int64_t r) {
  const SampleRule& rule = args.rules[r];
  args.ids[r] = -1;
  if (rule.kind == SampleRule::Kind::kNone) return;
  const float* logits = args.logits.row<float>(r);
  std::vector<float> row(logits, logits + args.logits.columns());
  for (std::int32_t i = rule.first_edit; i < rule.first_edit + rule.edits; ++i) {
    float& logit = row[static_cast<std::size_t>(args.edits[i].id)];
    logit = edited_logit(logit, args.edits[i], rule);
  }
  if (!std::all_of(row.begin(), row.end(), is_logit)) return;
  const auto top = std::max_element(row.begin(), row.end());
  if (*top == -std::numeric_limits<float>::infinity()) return;
  args.ids[r] = choose(rule, row, static_cast<std::int32_t>(top - row.begin()));
  if (rule.log_probability == 0) return;
  args.log_probabilities[r] = log_probability(row, *top, args.ids[r]);
}

}  // namespace

void sample(ExecContext& ctx, const SampleArgs& args) {
  for_range(ctx, args.logits.rows(), 1, [&](long begin, long end) {
    for (long r = begin; r < end; ++r) sample_row(args, r);
  });
}

}  // namespace bl::ref
