// Any bytes as a measurement.json, ours and the reference's: bits are planned with it, whose groups
// cover every linear and can be written, or there is an error of one line.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "convert/bit_plan.h"
#include "convert/measurement.h"
#include "convert/reference_measurement.h"

namespace {

using namespace bl;

void check(const GroupList& groups, std::int64_t in) {
  std::int64_t slots = 0;
  for (const SlotGroup& group : groups) {
    // The last group of a linear may be cut.
    BL_CHECK(is_writable_group(group.bits, group.slots));
    slots += group.slots;
  }
  BL_CHECK(slots == in);
}

void plan_own(const Json& json) {
  const ErrorMeasurement measurement = measurement_from_json(json, "measurement.json");
  std::int64_t inputs = 0;
  for (const LinearMeasurement& linear : measurement.linears) {
    if (linear.out < 32 || linear.out > 4096 || linear.out % 32 != 0) return;
    inputs += linear.in;
  }
  if (measurement.linears.empty() || inputs == 0 || inputs > 8192) return;
  const BitPlan plan = plan_bits(measurement, 4.0);
  BL_CHECK(plan.linears.size() == measurement.linears.size());
  for (std::size_t i = 0; i < plan.linears.size(); ++i) {
    check(plan.linears[i].groups, measurement.linears[i].in);
  }
}

void read_reference(const Json& json) {
  const PlannedMatrix linears[] = {
      {.key = "a.q_proj", .in = 64, .out = 64, .reference = "model.layers.0.self_attn.q_proj"},
      {.key = "a.up_proj", .in = 64, .out = 96, .reference = "model.layers.0.mlp.up_proj"}};
  static_cast<void>(reference_measurement_from_json(json, linears, "measurement.json"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& use : {plan_own, read_reference}) {
    try {
      use(parse_json(text, "measurement.json"));
    } catch (const Error& error) {
      BL_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
    }
  }
  return 0;
}
