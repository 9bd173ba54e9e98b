#include "backend/cuda/gemm/launch_plan.h"

#include <charconv>
#include <set>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace bl::cuda {
namespace {

// Returns the compute capability in "cc90", or −1 if the name is not that of a plan.
int capability_of(std::string_view name) {
  int value = -1;
  if (!name.starts_with("cc")) return value;
  const auto [end, error] = std::from_chars(name.data() + 2, name.data() + name.size(), value);
  return error == std::errc() && end == name.data() + name.size() ? value : -1;
}

}  // namespace

LaunchPlan parse_launch_plan(std::string_view text, std::string_view what) {
  const Json json = parse_json(text, what);
  if (!json.is_object()) fail(ErrorCode::kInvalidFile, "{}: should be an object", what);
  LaunchPlan plan;
  std::set<std::string> known;
  plan.visit([&](const char* name, std::int64_t& value, std::int64_t least, std::int64_t most) {
    known.insert(name);
    const auto found = json.find(name);
    const bool whole = found != json.end() && found->is_number_integer();
    value = whole ? found->get<std::int64_t>() : least - 1;
    if (value < least || value > most) {
      fail(ErrorCode::kInvalidFile, "{}: {} should be a number of tokens in {} … {}", what, name,
           least, most);
    }
  });
  for (const auto& [name, value] : json.items()) {
    if (!known.contains(name)) fail(ErrorCode::kInvalidFile, "{}: unknown member {}", what, name);
  }
  return plan;
}

LaunchPlan find_launch_plan(std::span<const EmbeddedDocument> plans, int compute_capability) {
  int best = -1;
  LaunchPlan plan;
  for (const EmbeddedDocument& document : plans) {
    const int capability = capability_of(document.name);
    if (capability <= best || capability > compute_capability) continue;
    best = capability;
    plan = parse_launch_plan(document.text, document.name);
  }
  return plan;
}

std::vector<LaunchChoice> choices_of(LaunchPlan plan) {
  std::vector<LaunchChoice> choices;
  plan.visit([&](const char* name, std::int64_t& value, std::int64_t least, std::int64_t most) {
    choices.push_back({name, value, least, most});
  });
  return choices;
}

void set_choice(LaunchPlan& plan, std::string_view name, std::int64_t from) {
  bool known = false;
  plan.visit([&](std::string_view of, std::int64_t& value, std::int64_t least, std::int64_t most) {
    if (of != name) return;
    known = true;
    if (from < least || from > most) {
      fail(ErrorCode::kInvalidArgument, "{}: {} is not in {} … {}", name, from, least, most);
    }
    value = from;
  });
  if (!known) fail(ErrorCode::kInvalidArgument, "there is no launch choice {}", name);
}

}  // namespace bl::cuda
