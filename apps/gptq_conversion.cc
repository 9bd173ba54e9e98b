#include "gptq_conversion.h"

#include "base/json.h"
#include "base/pending_folder.h"
#include "base/terminal.h"
#include "companion_files.h"
#include "convert/gptq_converter.h"
#include "convert_rates.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

int width_of(const ConvertOptions& options) {
  const std::vector<double> rates = listed_rates(options);
  if (rates.size() != 1 || rates[0] != static_cast<int>(rates[0])) {
    fail_usage("-b: GPTQ has one whole width for all linears; give -b 2, 3, 4 or 8");
  }
  return static_cast<int>(rates[0]);
}

GptqLayout layout_of(const ConvertOptions& options) {
  return {.bits = width_of(options),
          .group_size = options.group_size,
          .symmetric = !options.asym,
          .act_order = options.desc_act,
          .natural_order = options.natural_order,
          .v2 = options.format == "gptq_v2",
          .min_max = options.min_max};
}

void print_report(const ConvertOptions& options, const GptqReport& report) {
  if (options.json) return write_json(to_json(report));
  std::string text = fmt::format("{:<44} {:>7} {:>12}\n", "linear", "bits", "rel. error");
  for (const LinearReport& linear : report.linears) {
    text +=
        fmt::format("{:<44} {:>7.3f} {:>12.3e}\n", linear.key, linear.bits, linear.relative_error);
  }
  text += fmt::format("{:.4f} bits per weight, {} in {}\n", report.bits_per_weight,
                      human_bytes(static_cast<double>(report.bytes)), options.out);
  write_result(text);
}

}  // namespace

void check_gptq_options(const ConvertOptions& options) {
  const bool for_rates = !options.measurement.empty() || !options.output_measurement.empty() ||
                         options.target_size.bytes > 0 || options.vram.bytes > 0;
  if (for_rates || !options.report.empty()) {
    fail_usage("-m, -om, --target-size, --vram and --report go with EXL2 only");
  }
  if (options.desc_act && options.natural_order) {
    fail_usage("--desc_act and --natural_order exclude each other");
  }
  check_gptq_layout(layout_of(options));
}

void convert_to_gptq(const GptqConversion& conversion) {
  const ConvertOptions& options = conversion.options;
  const GptqConvertArgs args{.backend = conversion.backend,
                             .files = conversion.model.files,
                             .archs = options.archs,
                             .calibration = conversion.calibration,
                             .work = options.work,
                             .restart = options.no_resume,
                             .layout = layout_of(options),
                             .quantize = {.damping = options.damping,
                                          .sweeps = static_cast<int>(options.sweeps),
                                          .correction = options.correction},
                             .source = conversion.source,
                             .progress = conversion.progress};
  GptqConverter converter(args);
  converter.quantize();
  PendingFolder pending(conversion.target);
  const GptqReport report = converter.write(pending.path(), shard_bytes_of(options));
  write_companions(conversion.model, pending.path());
  pending.put_in_place();
  print_report(options, report);
}

}  // namespace bl
