#include "eval_distance.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "sample/log_probability.h"

namespace bl {
namespace {

void check_comparable(const ModelSession& base, const ModelSession& other) {
  if (base.vocab() != other.vocab()) {
    fail(ErrorCode::kInvalidArgument,
         "the models have {} and {} tokens, but a comparison needs the same vocabulary",
         base.vocab(), other.vocab());
  }
}

}  // namespace

void Distance::add(const StepLogits& base, const StepLogits& other, EvalThreads& threads) {
  struct Figures {
    double kld = 0;
    bool same_top = false;
  };
  const auto compare = [&](std::int64_t r) -> Figures {
    return {kl_divergence(base.row(r), other.row(r)),
            top_logit(base.row(r)).id == top_logit(other.row(r)).id};
  };
  for (const Figures& of_row : threads.map<Figures>(base.rows(), compare)) {
    kld += of_row.kld;
    same_top += of_row.same_top ? 1 : 0;
  }
  positions += base.rows();
}

void Distance::add(const Distance& other) {
  kld += other.kld;
  same_top += other.same_top;
  positions += other.positions;
  surprise.add(other.surprise);
  base_surprise.add(other.base_surprise);
}

Json Distance::json() const {
  return {{"kld", mean_kld()},
          {"top1", top_share()},
          {"ppl", surprise.perplexity()},
          {"base_ppl", base_surprise.perplexity()}};
}

std::vector<Distance> distances_of(const ModelPair& pair, const EvalRows& rows) {
  check_comparable(pair.base, pair.other);
  const std::int64_t step = std::min(pair.other.step_tokens(), pair.base.step_tokens());
  RowReader reader(pair.other, pair.adapters);
  RowReader base_reader(pair.base);
  EvalThreads threads(pair.base);
  Progress progress("eval", rows.tokens(), Progress::Unit::kTokens);
  std::vector<Distance> distances;
  for (const std::vector<std::int32_t>& ids : rows.rows) {
    reader.start(ids);
    base_reader.start(ids);
    Distance& of_row = distances.emplace_back();
    for (std::int64_t first = 0; first < rows.length(); first += step) {
      check_interrupt();
      const std::int64_t count = std::min(step, rows.length() - first);
      const StepLogits base_logits = base_reader.next(count);
      const StepLogits logits = reader.next(count);
      of_row.add(base_logits, logits, threads);
      of_row.base_surprise.add(base_logits, ids, first, threads);
      of_row.surprise.add(logits, ids, first, threads);
      progress.advance(count);
    }
  }
  return distances;
}

Distance sum_of(const std::vector<Distance>& rows) {
  Distance sum;
  for (const Distance& row : rows) sum.add(row);
  return sum;
}

}  // namespace bl
