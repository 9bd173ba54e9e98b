// batch: a file of requests to a file of answers, many at once.

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "batch_file.h"
#include "batch_run.h"
#include "cache/kv_cache.h"
#include "command.h"
#include "constraint_options.h"
#include "engine/engine.h"
#include "lora_options.h"
#include "model_options.h"
#include "preset_option.h"
#include "speculation_flags.h"
#include "usage_error.h"

namespace bl {
namespace {

// The cache holds this many tokens for each sequence, unless --ctx asks for more.
constexpr std::int64_t kUsualTokens = 2048;
constexpr std::int64_t kUsualSequences = 16;

struct BatchOptions {
  ModelOptions model;
  SpeculationFlags speculation;
  LoraOptions lora;
  std::string input;
  std::string output;
  std::int64_t sequences = kUsualSequences;
  ConstraintOptions constraint;
  PresetOption preset;

  template <class V>
  void visit(V&& v) {
    v.group("Batch");
    v(input, {"input", "IN.jsonl", "requests in OpenAI's batch format"});
    v(output, {"-o,--out", "OUT.jsonl", "answers; another run continues after the last one"});
    v(sequences, {"-b,--batch", "N", "sequences at once; cfg_scale takes two for each answer"});
    constraint.visit(v);
    v.group(
        "Sampling, where a request says nothing (else generation_config.json, then temperature 1)");
    preset.visit(v);
    speculation.visit(v);
    model.visit(v);
    lora.visit(v);
  }
};

void batch(BatchOptions& options) {
  if (options.input.empty()) fail_usage("batch: IN.jsonl is missing: the file of requests");
  if (options.output.empty()) fail_usage("-o OUT.jsonl is missing: the file for the answers");
  if (options.sequences < 1 || options.sequences > 1024) {
    fail_usage("-b: {} is not in 1 … 1024", options.sequences);
  }
  // Whatever can be wrong with the command line or the files is found before the model loads.
  options.constraint.spec();
  SessionOptions session_options = options.model.session_options();
  options.speculation.check();
  options.lora.plan(session_options);
  options.preset.load();
  const std::int64_t total = check_batch_input(options.input);
  std::error_code none;  // the output need not exist yet
  if (std::filesystem::equivalent(options.input, options.output, none)) {
    fail_usage("-o {} is the file of the requests; the answers need a file of their own",
               options.output);
  }
  BatchOutput output(options.output);
  session_options.sequences = options.sequences;
  // With few sequences at once, there is still room for long ones.
  session_options.pages = static_cast<std::int32_t>(std::max(options.sequences, kUsualSequences)) *
                          KvCache::pages_for(std::max(kUsualTokens, options.model.context));
  EngineOptions engine_options;
  engine_options.requests = 1 << 20;
  engine_options.speculation = options.speculation.load(options.model, session_options);
  Engine engine(load_session(session_options), std::move(engine_options));
  BatchRun::Work work{options.input, output, total, 2 * options.sequences, {}};
  work.otherwise = {options.constraint.spec(), options.preset.load(), options.lora.load(engine)};
  BatchRun(engine, engine.session(), std::move(work)).run();
  const EngineStats stats = engine.settled_stats();
  const std::string guesses = describe_speculation(stats.drafted_tokens, stats.accepted_tokens);
  if (!guesses.empty()) log_info("{}", guesses);
}

}  // namespace

Command batch_command() {
  return make_command<BatchOptions>(
      {"batch",
       "IN.jsonl -o OUT.jsonl -m DIR [-b N]",
       "Answer a file of requests; another run continues where this one stopped",
       {{"Answer every line of in.jsonl; run it again to continue after an interruption",
         "bitloom batch in.jsonl -o out.jsonl -m DIR"},
        {"Compute up to 32 requests in one step",
         "bitloom batch in.jsonl -o out.jsonl -m DIR -b 32"}}},
      batch);
}

}  // namespace bl
