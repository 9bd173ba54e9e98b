#include "convert/reference_measurement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/whole_number.h"
#include "convert/reference_options.h"

namespace bl {
namespace {

constexpr int kFirstPower = 15, kLastPower = 35;  // tenths

// What a block with attention and MLP side by side is called.
constexpr std::string_view kParallel = ".parallel_decoder";

// By the names that the reference has for them, which the experts of a layer share.
using Shapes = std::multimap<std::string, const PlannedMatrix*>;

// The groups of a linear with `in` slots under one option.
GroupList read_groups(const Json& linear, std::int64_t in, const std::string& where) {
  std::vector<int> widths;
  for (const Json& bits : linear.at("bits")) {
    widths.push_back(static_cast<int>(std::clamp<std::int64_t>(whole_number(bits), 0, 99)));
  }
  const auto shares = linear.at("bits_prop").get<std::vector<double>>();
  Mix mix;
  for (std::size_t i = 0; i < widths.size() && i < shares.size(); ++i) {
    const std::int64_t size = whole_number(linear.at("group_size").at(std::to_string(widths[i])));
    const bool falls = i == 0 || widths[i] < widths[i - 1];
    if (!is_writable_group(widths[i], size) || !falls || !(shares[i] >= 0.0 && shares[i] <= 1.0)) {
      fail(ErrorCode::kInvalidFile, "{}: {} bits in groups of {} for a share of {} cannot be",
           where, widths[i], size, shares[i]);
    }
    mix.push_back({widths[i], shares[i], static_cast<std::int32_t>(size)});
  }
  GroupList groups = groups_of(mix, in).groups;
  std::int64_t rest = in;
  for (const SlotGroup& group : groups) rest -= group.slots;
  if (rest != 0) {
    fail(ErrorCode::kInvalidFile, "{}: the option says nothing of {} of {} inputs", where, rest,
         in);
  }
  return groups;
}

ModuleOption option_of(const std::string& module, const Json& entry, const Shapes& shapes,
                       const std::string& what) {
  ModuleOption option;
  const auto accuracy = entry.at("accuracy").get<double>();
  if (!(accuracy <= 1.0)) {
    fail(ErrorCode::kInvalidFile, "{}: {} has the accuracy {}", what, module, accuracy);
  }
  option.error = 1.0 - accuracy;
  for (const auto& [name, linear] : entry.items()) {
    if (!linear.is_object()) continue;
    const auto [first, end] = shapes.equal_range(module + "." + name);
    if (first == end) {
      fail(ErrorCode::kInvalidFile, "{} is of another model: this one has no {}.{}", what, module,
           name);
    }
    for (auto at = first; at != end; ++at) {
      const PlannedMatrix& matrix = *at->second;
      GroupList groups = read_groups(linear, matrix.in, what + ": " + matrix.key);
      option.bits += stored_bits(groups, matrix.in, matrix.out);
      option.groups[matrix.key] = std::move(groups);
    }
  }
  return option;
}

// Every option of a module must say something of the same linears.
void check_module(const std::string& module, const std::vector<ModuleOption>& options,
                  const std::string& what) {
  for (const ModuleOption& option : options) {
    const bool same = std::equal(option.groups.begin(), option.groups.end(),
                                 options[0].groups.begin(), options[0].groups.end(),
                                 [](const auto& a, const auto& b) { return a.first == b.first; });
    if (!same || option.groups.empty()) {
      fail(ErrorCode::kInvalidFile, "{}: the options of {} are of different linears", what, module);
    }
  }
}

void check_complete(const ReferenceMeasurement& measurement, const Shapes& shapes,
                    const std::string& what) {
  std::size_t known = 0;
  for (const auto& options : measurement.modules) known += options[0].groups.size();
  if (known == shapes.size()) return;
  fail(ErrorCode::kInvalidFile, "{} is of another model: it knows {} linears, and this one has {}",
       what, known, shapes.size());
}

// One option of each module, by its place.
struct Selection {
  std::vector<std::size_t> chosen;
  double bits = 0.0;
};

Selection select(const ReferenceMeasurement& measurement, double power, double price) {
  Selection selection;
  for (const auto& options : measurement.modules) {
    double least = std::numeric_limits<double>::infinity();
    std::size_t best = 0;
    for (std::size_t i = 0; i < options.size(); ++i) {
      const double sum =
          std::pow(options[i].error, power) + price * static_cast<double>(options[i].bits);
      if (sum < least) {
        least = sum;
        best = i;
      }
    }
    selection.chosen.push_back(best);
    selection.bits += static_cast<double>(options[best].bits);
  }
  return selection;
}

// Takes better options for single modules while the budget lasts, the largest gain per bit first.
void spend_rest(const ReferenceMeasurement& measurement, double power, double budget,
                Selection& selection) {
  while (true) {
    double most = 0.0;
    std::size_t module = 0, better = 0;
    for (std::size_t m = 0; m < measurement.modules.size(); ++m) {
      const auto& options = measurement.modules[m];
      const ModuleOption& now = options[selection.chosen[m]];
      for (std::size_t i = 0; i < options.size(); ++i) {
        const auto more = static_cast<double>(options[i].bits - now.bits);
        const double gain = std::pow(now.error, power) - std::pow(options[i].error, power);
        if (gain <= 0.0 || selection.bits + more > budget) continue;
        const double rate = gain / std::max(more, 1.0);
        if (rate > most) {
          most = rate;
          module = m;
          better = i;
        }
      }
    }
    if (most == 0.0) return;
    const auto& options = measurement.modules[module];
    selection.bits +=
        static_cast<double>(options[better].bits - options[selection.chosen[module]].bits);
    selection.chosen[module] = better;
  }
}

Selection solve_power(const ReferenceMeasurement& measurement, double power, double budget) {
  double low = 1e-40, high = 1e6;  // of the price; more bits at `low`
  Selection fits = select(measurement, power, high);
  for (int i = 0; i < 200; ++i) {
    const double price = std::sqrt(low * high);
    Selection selection = select(measurement, power, price);
    if (selection.bits <= budget) {
      high = price;
      fits = std::move(selection);
    } else {
      low = price;
    }
  }
  spend_rest(measurement, power, budget, fits);
  return fits;
}

double largest_error(const ReferenceMeasurement& measurement, const Selection& selection) {
  double largest = 0.0;
  for (std::size_t m = 0; m < selection.chosen.size(); ++m) {
    largest = std::max(largest, measurement.modules[m][selection.chosen[m]].error);
  }
  return largest;
}

BitPlan plan_of(const ReferenceMeasurement& measurement, const Selection& selection) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  BitPlan plan;
  for (std::size_t m = 0; m < selection.chosen.size(); ++m) {
    for (const auto& [key, groups] : measurement.modules[m][selection.chosen[m]].groups) {
      plan.linears.push_back({key, groups, kUnknown});
    }
  }
  plan.bits_per_weight = selection.bits / measurement.weights;
  plan.predicted_kl = plan.bound = kUnknown;
  return plan;
}

}  // namespace

bool is_reference_measurement(const Json& json) {
  return json.is_object() && !json.contains("format") && json.contains("measurement") &&
         json.at("measurement").is_object();
}

ReferenceMeasurement reference_measurement_from_json(const Json& json,
                                                     std::span<const PlannedMatrix> linears,
                                                     const std::string& what) {
  ReferenceMeasurement result;
  Shapes shapes;
  for (const PlannedMatrix& matrix : linears) {
    if (!matrix.groups.empty()) continue;
    shapes.emplace(matrix.reference.empty() ? matrix.key : matrix.reference, &matrix);
    result.weights += static_cast<double>(matrix.in) * static_cast<double>(matrix.out);
  }
  const auto add = [&](const std::string& module, const Json& entries) {
    std::vector<ModuleOption> options;
    for (const Json& entry : entries) options.push_back(option_of(module, entry, shapes, what));
    if (options.empty()) fail(ErrorCode::kInvalidFile, "{}: {} has no options", what, module);
    check_module(module, options, what);
    result.modules.push_back(std::move(options));
  };
  try {
    for (const auto& [module, entries] : json.at("measurement").items()) {
      if (entries.is_null()) continue;  // norms and the head
      if (module.ends_with(kParallel)) {
        const std::string layer = module.substr(0, module.size() - kParallel.size());
        add(layer + ".self_attn", entries.at("attn"));
        add(layer + ".mlp", entries.at("mlp"));
      } else {
        add(module, entries);
      }
    }
  } catch (const Json::exception& error) {
    fail(ErrorCode::kInvalidFile, "{} is not a measurement: {}", what, error.what());
  }
  check_complete(result, shapes, what);
  return result;
}

RateRange reachable_rates(const ReferenceMeasurement& measurement) {
  double least = 0.0, most = 0.0;
  for (const auto& options : measurement.modules) {
    const auto [low, high] =
        std::minmax_element(options.begin(), options.end(),
                            [](const auto& a, const auto& b) { return a.bits < b.bits; });
    least += static_cast<double>(low->bits);
    most += static_cast<double>(high->bits);
  }
  const auto rounded = [&](double bits) {
    return std::ceil(bits / measurement.weights * 1000.0) / 1000.0;
  };
  return {rounded(least), rounded(most)};
}

BitPlan plan_bits(const ReferenceMeasurement& measurement, double bits_per_weight) {
  const double budget = std::floor(bits_per_weight * measurement.weights);
  std::optional<Selection> best;
  for (int tenths = kFirstPower; tenths <= kLastPower; ++tenths) {
    Selection selection = solve_power(measurement, 0.1 * tenths, budget);
    if (selection.bits > budget) {
      const RateRange range = reachable_rates(measurement);
      fail(ErrorCode::kInvalidArgument,
           "{} bits per weight cannot be reached: the options of this measurement take {:.3f} to "
           "{:.3f}",
           bits_per_weight, range.least, range.most);
    }
    if (!best || largest_error(measurement, selection) < largest_error(measurement, *best)) {
      best = std::move(selection);
    }
  }
  return plan_of(measurement, *best);
}

}  // namespace bl
