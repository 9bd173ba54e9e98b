#include "convert/bit_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace bl {
namespace {

constexpr std::int64_t kRun = 32;  // slots of one entry of a curve

struct Choice {
  GroupList groups;
  double loss = 0.0;      // times sensitivity
  std::int64_t bits = 0;  // in the file
  double priced = 0.0;    // loss + price · bits
};

// The curves of one group size, widest first.
std::vector<const WidthCurve*> curves_of(const LinearMeasurement& linear, std::int32_t size) {
  std::vector<const WidthCurve*> curves;
  for (const WidthCurve& curve : linear.curves) {
    if (curve.group_size == size) curves.push_back(&curve);
  }
  std::sort(curves.begin(), curves.end(),
            [](const auto* a, const auto* b) { return a->bits > b->bits; });
  return curves;
}

// The best widths with one group size: best[w] is the least priced loss of the groups so far if the
// last of them has width w or more; came[unit][w] is the width that the group then has.
class WidthSearch {
 public:
  WidthSearch(const LinearMeasurement& linear, std::int32_t size, double price)
      : linear_(linear), size_(size), price_(price), curves_(curves_of(linear, size)) {}

  Choice run() const {
    const std::int64_t units = (linear_.in + size_ - 1) / size_;
    std::vector<double> best(curves_.size(), 0.0);
    std::vector<std::vector<std::size_t>> came;
    for (std::int64_t unit = 0; unit < units; ++unit) {
      std::vector<std::size_t>& own = came.emplace_back(curves_.size());
      double least = std::numeric_limits<double>::infinity();
      std::size_t at = 0;
      // A group of width w follows groups of width w or more.
      for (std::size_t w = 0; w < curves_.size(); ++w) {
        const double sum =
            best[w] + loss_of(w, unit) + price_ * static_cast<double>(bits_of(w, unit));
        if (sum < least) {
          least = sum;
          at = w;
        }
        best[w] = least;
        own[w] = at;
      }
    }
    return choice(came);
  }

 private:
  std::int64_t slots_of(std::int64_t unit) const {
    return std::min<std::int64_t>(size_, linear_.in - unit * size_);
  }
  double loss_of(std::size_t w, std::int64_t unit) const {
    double sum = 0.0;
    for (std::int64_t run = 0; run < slots_of(unit) / kRun; ++run) {
      sum += curves_[w]->errors[static_cast<std::size_t>(unit * size_ / kRun + run)];
    }
    return sum * linear_.sensitivity;
  }
  std::int64_t bits_of(std::size_t w, std::int64_t unit) const {
    return stored_bits({{curves_[w]->bits, static_cast<std::int32_t>(slots_of(unit))}}, 0,
                       linear_.out);
  }

  Choice choice(const std::vector<std::vector<std::size_t>>& came) const {
    Choice result;
    std::size_t w = curves_.size() - 1;
    for (auto unit = static_cast<std::int64_t>(came.size()) - 1; unit >= 0; --unit) {
      w = came[static_cast<std::size_t>(unit)][w];
      result.loss += loss_of(w, unit);
      result.groups.push_back({curves_[w]->bits, static_cast<std::int32_t>(slots_of(unit))});
    }
    std::reverse(result.groups.begin(), result.groups.end());
    result.bits = stored_bits(result.groups, linear_.in, linear_.out);
    result.priced = result.loss + price_ * static_cast<double>(result.bits);
    return result;
  }

  const LinearMeasurement& linear_;
  std::int32_t size_;
  double price_;
  std::vector<const WidthCurve*> curves_;
};

Choice best_choice(const LinearMeasurement& linear, double price) {
  std::vector<std::int32_t> sizes;
  for (const WidthCurve& curve : linear.curves) {
    if (std::find(sizes.begin(), sizes.end(), curve.group_size) == sizes.end()) {
      sizes.push_back(curve.group_size);
    }
  }
  Choice best;
  for (const std::int32_t size : sizes) {
    Choice choice = WidthSearch(linear, size, price).run();
    if (best.groups.empty() || choice.priced < best.priced) best = std::move(choice);
  }
  return best;
}

struct Solution {
  std::vector<Choice> choices;
  std::int64_t bits = 0;
  double loss = 0.0;
};

Solution solve(const ErrorMeasurement& measurement, double price) {
  Solution solution;
  for (const LinearMeasurement& linear : measurement.linears) {
    solution.choices.push_back(best_choice(linear, price));
    solution.bits += solution.choices.back().bits;
    solution.loss += solution.choices.back().loss;
  }
  return solution;
}

}  // namespace

BitPlan plan_bits(const ErrorMeasurement& measurement, double bits_per_weight) {
  double weights = 0.0;
  for (const LinearMeasurement& linear : measurement.linears) {
    weights += static_cast<double>(linear.in) * static_cast<double>(linear.out);
  }
  const double budget = std::floor(bits_per_weight * weights);
  double low = 1e-30, high = 1e6;  // of the price; more bits at `low`
  Solution fits = solve(measurement, high);
  const Solution most = solve(measurement, low);
  if (static_cast<double>(fits.bits) > budget) {
    fail(ErrorCode::kInvalidArgument,
         "{} bits per weight cannot be reached: this model takes {:.3f} to {:.3f}", bits_per_weight,
         static_cast<double>(fits.bits) / weights, static_cast<double>(most.bits) / weights);
  }
  double bound = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < 200; ++i) {
    const double price = std::sqrt(low * high);
    Solution solution = solve(measurement, price);
    const double excess = static_cast<double>(solution.bits) - budget;
    bound = std::max(bound, solution.loss + price * excess);
    if (excess <= 0.0) {
      high = price;
      fits = std::move(solution);
    } else {
      low = price;
    }
    if (high / low < 1.0 + 1e-9) break;
  }
  BitPlan plan;
  for (std::size_t i = 0; i < fits.choices.size(); ++i) {
    plan.linears.push_back(
        {measurement.linears[i].key, std::move(fits.choices[i].groups), fits.choices[i].loss});
  }
  plan.bits_per_weight = static_cast<double>(fits.bits) / weights;
  plan.predicted_kl = fits.loss;
  plan.bound = std::max(0.0, bound);
  return plan;
}

}  // namespace bl
