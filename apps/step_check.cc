#include "step_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/json.h"
#include "base/progress.h"
#include "engine/batch_logits.h"

namespace bl {
namespace {

using Rows = std::vector<std::vector<float>>;

std::vector<std::int32_t> random_ids(const ModelSession& session) {
  std::mt19937 random(1);
  std::uniform_int_distribution<std::int32_t> id(0, static_cast<std::int32_t>(session.vocab()) - 1);
  std::vector<std::int32_t> ids(kCheckedTokens);
  for (std::int32_t& token : ids) token = id(random);
  return ids;
}

// Logits of every position, computed in steps of at most `tokens` tokens.
Rows logits_of(ModelSession& session, const std::vector<std::int32_t>& ids, std::int64_t tokens) {
  Rows rows;
  compute_logits(
      session, {&ids, 1}, {},
      [&](std::size_t, std::int64_t, std::span<const float> row) {
        rows.emplace_back(row.begin(), row.end());
      },
      tokens);
  return rows;
}

double apart(std::span<const float> row, std::span<const float> other) {
  double difference = 0;
  double length = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double d = double{row[i]} - double{other[i]};
    difference += d * d;
    length += double{other[i]} * double{other[i]};
  }
  // Logits that are all zero or not numbers prove nothing.
  const double ratio = std::sqrt(difference / length);
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

StepCheck worst_row(std::int64_t tokens, const Rows& rows, const Rows& others) {
  StepCheck check{tokens, 0, 0};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double own = apart(rows[i], others[i]);
    if (own <= check.apart) continue;
    check.apart = own;
    check.position = static_cast<std::int64_t>(i);
  }
  return check;
}

}  // namespace

std::vector<StepCheck> check_steps(ModelSession& session) {
  // Each of these numbers has kernels of its own: one, two, a few, one and two tiles of eight,
  // more.
  constexpr std::int64_t kTokens[] = {1, 2, 3, 8, 16, 24};
  Progress progress("check", std::ssize(kTokens) + 1, Progress::Unit::kItems);
  const std::vector<std::int32_t> ids = random_ids(session);
  const Rows all = logits_of(session, ids, kCheckedTokens);
  progress.update(1);
  std::vector<StepCheck> checks;
  for (const std::int64_t tokens : kTokens) {
    checks.push_back(worst_row(tokens, logits_of(session, ids, tokens), all));
    progress.update(1 + std::ssize(checks));
  }
  return checks;
}

StepCheck check_backends(ModelSession& session, ModelSession& other) {
  const std::vector<std::int32_t> ids = random_ids(session);
  return worst_row(kCheckedTokens, logits_of(session, ids, kCheckedTokens),
                   logits_of(other, ids, kCheckedTokens));
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
