#include "step_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/progress.h"
#include "engine/step_runner.h"

namespace bl {
namespace {

using Rows = std::vector<std::vector<float>>;

// One sequence, computed again and again.
class CheckedSequence {
 public:
  explicit CheckedSequence(ModelSession& session)
      : session_(session), runner_(session), sequence_(session.new_sequence()) {
    std::mt19937 random(1);
    std::uniform_int_distribution<std::int32_t> id(0,
                                                   static_cast<std::int32_t>(session.vocab()) - 1);
    for (std::int64_t i = 0; i < kCheckedTokens; ++i) ids_.push_back(id(random));
  }

  // Logits of every position, so many tokens a step, or as many as a step takes.
  Rows logits(std::int64_t tokens) {
    runner_.truncate(sequence_, 0);
    sequence_.ids = ids_;
    sequence_.reach = kCheckedTokens;
    const std::int64_t most = std::min(session_.step_tokens(), session_.logit_rows());
    Rows rows;
    while (sequence_.cached < kCheckedTokens) {
      check_interrupt();
      const std::int64_t count = std::min({tokens, most, kCheckedTokens - sequence_.cached});
      const StepItem item{.sequence = &sequence_, .count = count, .logits = LogitRows::kAll};
      const StepLogits logits = runner_.run({&item, 1});
      for (std::int64_t i = 0; i < count; ++i) {
        const std::span<const float> row = logits.row(i);
        rows.emplace_back(row.begin(), row.end());
      }
    }
    return rows;
  }

 private:
  ModelSession& session_;
  StepRunner runner_;
  Sequence sequence_;
  std::vector<std::int32_t> ids_;
};

double apart(std::span<const float> row, std::span<const float> other) {
  double difference = 0;
  double length = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double d = double{row[i]} - double{other[i]};
    difference += d * d;
    length += double{other[i]} * double{other[i]};
  }
  // Logits that are all zero say nothing, and neither does what is not a number.
  const double ratio = std::sqrt(difference / length);
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<StepCheck> check_steps(ModelSession& session) {
  // Numbers that kernels of their own are for: alone, in pairs, a few, two tiles of eight, more.
  constexpr std::int64_t kTokens[] = {1, 2, 3, 8, 16, 24};
  Progress progress("check", std::ssize(kTokens) + 1, Progress::Unit::kItems);
  CheckedSequence sequence(session);
  const Rows all = sequence.logits(kCheckedTokens);
  progress.update(1);
  std::vector<StepCheck> checks;
  for (const std::int64_t tokens : kTokens) {
    const Rows rows = sequence.logits(tokens);
    StepCheck& check = checks.emplace_back(StepCheck{tokens, 0, 0});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double own = apart(rows[i], all[i]);
      if (own <= check.apart) continue;
      check.apart = own;
      check.position = static_cast<std::int64_t>(i);
    }
    progress.update(1 + std::ssize(checks));
  }
  return checks;
}

StepCheck furthest_apart(std::span<const StepCheck> checks) {
  return *std::max_element(
      checks.begin(), checks.end(),
      [](const StepCheck& a, const StepCheck& b) { return a.apart < b.apart; });
}

Json step_checks_json(std::span<const StepCheck> checks) {
  Json list = Json::array();
  for (const StepCheck& check : checks) {
    // JSON has no infinity.
    const double apart = std::isfinite(check.apart) ? check.apart : 1e9;
    list.push_back({{"tokens", check.tokens}, {"apart", apart}, {"position", check.position}});
  }
  return list;
}

std::string step_check_table(std::span<const StepCheck> checks) {
  std::string text = "tokens of a step   logits apart from the prompt's\n";
  for (const StepCheck& check : checks) {
    text += fmt::format("{:>16}   {:.4f} % (position {})\n", check.tokens, 100 * check.apart,
                        check.position);
  }
  return text;
}

}  // namespace bl
