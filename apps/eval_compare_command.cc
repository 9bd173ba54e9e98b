// eval compare: how far several models are from one base model, against their sizes.

#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/pending_folder.h"
#include "base/terminal.h"
#include "command.h"
#include "engine/open_model.h"
#include "eval_distance.h"
#include "quality_plot.h"
#include "results.h"
#include "usage_error.h"
#include "weight_bytes.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

struct CompareOptions {
  std::vector<std::string> models;
  std::string base;
  EvalText text;
  ModelOptions model;  // what all models are run with
  std::string plot;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v.group("Models");
    v(models, {"models", "DIR…", "the models to compare, such as one model at several rates"});
    v(base, {"--base", "DIR", "the model to compare with, such as the unquantized one"});
    text.visit(v);
    v.group("Result");
    v(plot, {"--plot", "FILE.svg", "also draw quality against size"});
    v(json, {"--json", "", "print JSON instead of a table"});
    v.group("Machine");
    v(model.backend, {"--backend", "NAME", "where to compute: auto, cpu, ref or cuda[:N]"});
    v(model.threads, {"--threads", "N", "CPU threads", "physical cores"});
    v(model.context, {"--ctx", "N", "tokens per row", "2048"});
    v(model.cache, {"--cache", "TYPE", cache_help(), "fp16; ref: fp32"});
    v(model.archs, {"--archs", "DIR", "folder of architecture files to use instead", "built in"});
  }
};

struct ComparedModel {
  std::string folder;
  std::uint64_t bytes = 0;  // of its weight files
  Distance distance;
};

std::string name_of_model(const std::string& folder) {
  return normalized_folder(folder).filename().string();
}

std::unique_ptr<ModelSession> load(const CompareOptions& options, const std::string& folder) {
  ModelOptions model = options.model;
  model.model = folder;
  return load_session(options.text.session_options(model), CacheCheck::kSkip);
}

void check(const CompareOptions& options) {
  if (options.models.empty()) fail_usage("the models to compare are missing: eval compare DIR…");
  if (options.base.empty()) fail_usage("--base DIR is missing: the model to compare with");
  for (const std::string& folder : options.models) {
    if (!fs::exists(folder)) fail(ErrorCode::kNotFound, "there is no {}", folder);
  }
  if (options.plot.empty()) return;
  if (fs::is_directory(options.plot) ||
      !fs::is_directory(fs::absolute(options.plot).parent_path())) {
    fail_usage("--plot: {} should be a file in an existing folder", options.plot);
  }
}

std::string table_of(const std::vector<ComparedModel>& models) {
  std::string text = fmt::format("{:<40} {:>12} {:>14} {:>8} {:>12} {:>12}\n", "model", "size",
                                 "KL divergence", "top-1", "perplexity", "of the base");
  for (const ComparedModel& model : models) {
    const Distance& distance = model.distance;
    text += fmt::format("{:<40} {:>12} {:>14.6f} {:>8.4f} {:>12.4f} {:>12.4f}\n",
                        name_of_model(model.folder), human_bytes(static_cast<double>(model.bytes)),
                        distance.mean_kld(), distance.top_share(), distance.surprise.perplexity(),
                        distance.base_surprise.perplexity());
  }
  return text;
}

Json json_of(const std::vector<ComparedModel>& models) {
  Json list = Json::array();
  for (const ComparedModel& model : models) {
    Json entry = model.distance.json();
    entry["model"] = model.folder;
    entry["bytes"] = model.bytes;
    entry["tokens"] = model.distance.positions;
    list.push_back(std::move(entry));
  }
  return {{"models", std::move(list)}};
}

void draw(const CompareOptions& options, const std::vector<ComparedModel>& models) {
  std::vector<QualityPoint> points;
  for (const ComparedModel& model : models) {
    points.push_back(
        {name_of_model(model.folder), static_cast<double>(model.bytes), model.distance.mean_kld()});
  }
  write_file_atomically(options.plot,
                        quality_plot("KL divergence from " + name_of_model(options.base), points));
  log_info("plot: {}", options.plot);
}

// One model beside the base is in memory at a time.
void eval_compare(CompareOptions& options) {
  check(options);
  const std::unique_ptr<ModelSession> base = load(options, options.base);
  const EvalRows rows = read_rows(options.text, row_tokens(options.model), *base);
  std::vector<ComparedModel> models;
  for (const std::string& folder : options.models) {
    const std::unique_ptr<ModelSession> model = load(options, folder);
    models.push_back({folder, weight_bytes(folder), sum_of(distances_of({*base, *model}, rows))});
    log_info("{}: KL divergence {:.6f}", folder, models.back().distance.mean_kld());
  }
  if (options.json) {
    write_json(json_of(models));
  } else {
    write_result(table_of(models));
  }
  if (!options.plot.empty()) draw(options, models);
}

}  // namespace

Command eval_compare_command() {
  return make_command<CompareOptions>(
      {"eval compare",
       "DIR… --base DIR --text FILE [--rows N] [--plot FILE.svg]",
       "Compare several models with a base model, quality against size",
       {{"Three rates of one model, as a table and a plot",
         "bitloom eval compare DIR-3.0bpw DIR-4.0bpw DIR-5.0bpw --base DIR --text test.txt --plot "
         "rates.svg"}}},
      eval_compare);
}

}  // namespace bl
