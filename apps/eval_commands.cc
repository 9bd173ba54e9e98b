// eval ppl, eval kld: how well a model predicts a text, and how far it is from another model.

#include <algorithm>
#include <array>
#include <memory>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "command.h"
#include "engine/cache_loss.h"
#include "eval_distance.h"
#include "lora_options.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

struct EvalOptions {
  ModelOptions model;
  LoraOptions lora;
  EvalText text;
  bool json = false;

  EvalOptions() {
    model.context_help = "tokens per row";
    model.context_default = "2048";
  }
  template <class V>
  void visit(V&& v) {
    text.visit(v);
    v(json, {"--json", "", "print JSON, which is also the default"});
    model.visit(v);
    lora.visit(v);
  }
  SessionOptions session_options() const { return text.session_options(model); }
  EvalRows read_rows(const ModelSession& session) const {
    return bl::read_rows(text, row_tokens(model), session);
  }
};

// What the chosen cache type does to the scores of attention, for the report; null where none was
// chosen or nothing is lost.
Json cache_loss_of(ModelSession& session, const SessionOptions& options) {
  if (!options.cache || !may_lose(options.cache->k)) return nullptr;
  const std::array types{options.cache->k};
  return measure_cache_loss(session, types).front().score;
}

void eval_ppl(EvalOptions& options) {
  SessionOptions session_options = options.session_options();
  options.lora.plan(session_options);
  const std::unique_ptr<ModelSession> session = load_session(session_options, CacheCheck::kSkip);
  const Json cache_loss = cache_loss_of(*session, session_options);
  const EvalRows rows = options.read_rows(*session);
  const std::int64_t length = rows.length();
  RowReader reader(*session, options.lora.load(*session));
  EvalThreads threads(*session);
  Progress progress("eval", rows.tokens(), Progress::Unit::kTokens);
  Surprise total;
  Json row_list = Json::array();
  for (const std::vector<std::int32_t>& ids : rows.rows) {
    reader.start(ids);
    Surprise of_row;
    for (std::int64_t first = 0; first < length; first += session->step_tokens()) {
      check_interrupt();
      const std::int64_t count = std::min(session->step_tokens(), length - first);
      of_row.add(reader.next(count), ids, first, threads);
      progress.advance(count);
    }
    total.add(of_row);
    row_list.push_back(of_row.perplexity());
  }
  log_info("perplexity {:.4f} over {} tokens ({} rows{})", total.perplexity(), total.tokens,
           rows.rows.size(), bos_note(rows, options.text));
  write_json({{"ppl", total.perplexity()},
              {"tokens", total.tokens},
              {"rows", std::move(row_list)},
              {"bos", rows.with_bos},
              {"cache_loss", cache_loss}});
}

struct KldOptions {
  EvalOptions eval;
  std::string base;
  std::string base_cache;

  template <class V>
  void visit(V&& v) {
    v.group("Base");
    v(base, {"--base", "DIR", "the model to compare with, such as the unquantized one"});
    v(base_cache, {"--base-cache", "TYPE", "KV cache type of that model", "as --cache"});
    eval.visit(v);
  }
};

void eval_kld(KldOptions& options) {
  const EvalOptions& eval = options.eval;
  if (options.base.empty()) fail_usage("--base DIR is missing: the model to compare with");
  SessionOptions session_options = eval.session_options();
  eval.lora.plan(session_options);
  const std::unique_ptr<ModelSession> session = load_session(session_options, CacheCheck::kSkip);
  const Json cache_loss = cache_loss_of(*session, session_options);
  session_options.model = options.base;
  if (!options.base_cache.empty()) session_options.cache = cache_types_of(options.base_cache);
  session_options.adapter_bytes = 0;
  const std::unique_ptr<ModelSession> base = load_session(session_options, CacheCheck::kSkip);
  const EvalRows rows = eval.read_rows(*session);
  const std::vector<Distance> distances =
      distances_of({*base, *session, eval.lora.load(*session)}, rows);
  const Distance total = sum_of(distances);
  Json row_list = Json::array();
  for (const Distance& row : distances) row_list.push_back(row.json());
  Json document = total.json();
  document["tokens"] = total.positions;
  document["rows"] = std::move(row_list);
  document["bos"] = rows.with_bos;
  document["cache_loss"] = cache_loss;
  log_info(
      "KL divergence {:.6f}, top-1 agreement {:.4f}, perplexity {:.4f}, base perplexity {:.4f} ({} "
      "rows{})",
      document["kld"].get<double>(), document["top1"].get<double>(), document["ppl"].get<double>(),
      document["base_ppl"].get<double>(), rows.rows.size(), bos_note(rows, eval.text));
  write_json(document);
}

}  // namespace

Command eval_ppl_command() {
  return make_command<EvalOptions>(
      {"eval ppl",
       "-m DIR --text FILE [--rows N] [--ctx N]",
       "Measure the perplexity of a text",
       {{"Perplexity over the first 20 rows of 2048 tokens",
         "bitloom eval ppl -m DIR --text test.txt --rows 20"},
        {"With 4-bit keys and values", "bitloom eval ppl -m DIR --text test.txt --cache q4"}}},
      eval_ppl);
}

Command eval_kld_command() {
  return make_command<KldOptions>(
      {"eval kld",
       "-m DIR --base DIR --text FILE [--rows N] [--ctx N]",
       "Compare with a base model: KL divergence, top-1 agreement, perplexities",
       {{"How far a quantized model is from the one that it was made of",
         "bitloom eval kld -m QUANTIZED --base ORIGINAL --text test.txt --rows 20"},
        {"What a quantized cache alone costs",
         "bitloom eval kld -m DIR --base DIR --cache q4 --base-cache fp16 --text test.txt"}}},
      eval_kld);
}

}  // namespace bl
