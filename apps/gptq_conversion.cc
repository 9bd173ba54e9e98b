#include "gptq_conversion.h"

#include "base/log.h"
#include "base/pending_folder.h"
#include "companion_files.h"
#include "convert/gptq_converter.h"
#include "convert_rates.h"
#include "convert_results.h"
#include "usage_error.h"
#include "weight_bytes.h"
#include "written_models.h"

namespace bl {
namespace {

constexpr std::int64_t kDefaultGptqGroup = 128;

int width_of(const ConvertOptions& options) {
  const std::vector<double> rates = listed_rates(options);
  if (rates.size() != 1 || rates[0] != static_cast<int>(rates[0])) {
    fail_usage("-b: GPTQ has one whole width for all linears; give -b 2, 3, 4 or 8");
  }
  return static_cast<int>(rates[0]);
}

GptqLayout layout_of(const ConvertOptions& options) {
  return {.bits = width_of(options),
          .group_size = options.group_size.value_or(kDefaultGptqGroup),
          .symmetric = !options.asym,
          .act_order = options.desc_act,
          .natural_order = options.natural_order,
          .v2 = options.format == "gptq_v2",
          .min_max = options.min_max};
}

// GPTQModel 2.2.0, with which transformers reads GPTQ, was tried on files of every kind.
void warn_of_readers(const GptqLayout& layout) {
  if (layout.v2 || (layout.symmetric && layout.bits != 3)) return;
  log_warning(
      "GPTQModel and transformers {} of format gptq; AutoGPTQ and ExLlamaV2 read them. For the "
      "former give --format gptq_v2",
      layout.symmetric ? "misread files with 3 bits" : "refuse files with free zero points");
}

}  // namespace

void check_gptq_options(const ConvertOptions& options) {
  const bool for_rates = !options.measurement.empty() || !options.output_measurement.empty() ||
                         options.target_size.bytes > 0 || options.vram.bytes > 0;
  if (for_rates) fail_usage("-m, -om, --target-size and --vram go with EXL2 only");
  if (!options.fold.empty() && options.fold != "none") {
    fail_usage("--fold goes with EXL2 only; GPTQ models are made without folds, so leave it out");
  }
  if (options.head_bits || options.measure_rows || options.sensitivity_tokens) {
    fail_usage(
        "-hb, -mr and --sensitivity_tokens go with EXL2 only; GPTQ leaves the head as it is and "
        "measures nothing, so leave them out");
  }
  if (options.desc_act && options.natural_order) {
    fail_usage("--desc_act and --natural_order exclude each other");
  }
  check_gptq_layout(layout_of(options));
}

void rehearse_gptq(const GptqConversion& conversion) {
  const GptqConvertArgs args{.job = conversion.job, .layout = layout_of(conversion.options)};
  const GptqConverter converter(args);
}

void convert_to_gptq(const GptqConversion& conversion) {
  const ConvertOptions& options = conversion.options;
  const GptqConvertArgs args{.job = conversion.job, .layout = layout_of(options)};
  warn_of_readers(args.layout);
  GptqConverter converter(args);
  converter.quantize();
  ConvertResults results(options);
  if (is_written(options, conversion.target, args.layout.bits)) {
    results.add(converter.report(weight_bytes(conversion.target)), conversion.target);
    return results.finish();
  }
  PendingFolder pending(conversion.target, options.force);
  ConvertReport report = converter.write(pending.path(), shard_bytes_of(options));
  write_companions(conversion.model, pending.path());
  put_result_in_place(options, pending, conversion.target, args.layout.bits);
  results.add(std::move(report), conversion.target);
  results.finish();
}

}  // namespace bl
