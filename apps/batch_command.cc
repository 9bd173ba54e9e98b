// batch: a file of requests to a file of answers, many at once.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <list>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "batch_file.h"
#include "batch_request.h"
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

// Tokens that the cache holds for each sequence unless --ctx asks for more.
constexpr std::int64_t kUsualTokens = 2048;

struct BatchOptions {
  ModelOptions model;
  SpeculationFlags speculation;
  LoraOptions lora;
  std::string input;
  std::string output;
  std::int64_t sequences = 16;
  ConstraintOptions constraint;
  PresetOption preset;

  template <class V>
  void visit(V&& v) {
    v.group("Batch");
    v(input, {"input", "IN.jsonl", "requests in OpenAI's batch format"});
    v(output, {"-o,--out", "OUT.jsonl", "answers; run again, it goes on behind the last one"});
    v(sequences, {"-b,--batch", "N", "sequences at once"});
    constraint.visit(v);
    speculation.visit(v);
    preset.visit(v);
    model.visit(v);
    lora.visit(v);
  }
};

// A line whose answer is being made.
struct OpenLine {
  OpenLine(BatchRequest from, std::int64_t line_number)
      : request(std::move(from)), number(line_number) {}
  BatchRequest request;
  std::int64_t number;
  std::vector<RequestHandle> handles;
  std::vector<std::vector<Answer>> answers;
};

class Batch {
 public:
  Batch(Engine& engine, const BatchOptions& options, std::int64_t total)
      : engine_(engine),
        options_(options),
        input_(options.input),
        output_(options.output),
        adapters_(options.lora.load(engine)),
        constraint_(options.constraint.spec()),
        preset_(options.preset.load()),
        progress_("batch", total, Progress::Unit::kItems) {
    if (output_.done() > 0) log_info("{} answers are there already", output_.done());
    progress_.update(output_.done());
  }

  void run() {
    bool more = true;
    while (more || !open_.empty()) {
      check_interrupt();
      // Enough for the next step to find work when answers end.
      while (more && static_cast<std::int64_t>(open_.size()) < 2 * options_.sequences) {
        more = start_next();
      }
      collect();
    }
    log_info("{} answers, {} of them errors", answered_, failed_);
    const EngineStats stats = engine_.stats();
    const std::string guesses = describe_speculation(stats.drafted_tokens, stats.accepted_tokens);
    if (!guesses.empty()) log_info("{}", guesses);
  }

 private:
  // False at the end of the input.
  bool start_next() {
    const std::optional<std::string> line = input_.next();
    if (!line) return false;
    const std::string what = fmt::format("{}: request {}", options_.input, ++number_);
    const OrderedJson document = parse_ordered_json(*line, what);
    const auto id = document.at("custom_id").get<std::string>();
    if (output_.is_done(id)) return true;
    // What is wrong with a request is its answer.
    try {
      OpenLine open(
          BatchRequest(document, engine_.session(), constraint_, preset_ ? &*preset_ : nullptr),
          number_);
      for (Request& request : open.request.requests()) {
        const std::int64_t choices = request.sampling.n;
        request.adapters = adapters_;
        open.handles.push_back(engine_.submit(std::move(request)));
        // Behind submit(), which has looked at the number.
        open.answers.emplace_back(static_cast<std::size_t>(choices));
      }
      open_.push_back(std::move(open));
    } catch (const Error& error) {
      write(id, BatchRequest::failure(id, number_, error));
      ++failed_;
    }
    return true;
  }

  // Takes what has come; waits a little when that is nothing.
  void collect() {
    bool moved = false;
    for (auto line = open_.begin(); line != open_.end();) {
      bool over = true;
      for (std::size_t i = 0; i < line->handles.size(); ++i) {
        moved = take(line->handles[i], line->answers[i], std::chrono::milliseconds(0)) || moved;
        over = over && line->handles[i].over();
      }
      if (over) finish(*line);
      line = over ? open_.erase(line) : std::next(line);
      moved = moved || over;
    }
    if (moved || open_.empty()) return;
    OpenLine& first = open_.front();
    for (std::size_t i = 0; i < first.handles.size(); ++i) {
      if (first.handles[i].over()) continue;
      take(first.handles[i], first.answers[i], std::chrono::milliseconds(20));
      return;
    }
  }

  static bool take(RequestHandle& handle, std::vector<Answer>& answers,
                   std::chrono::milliseconds most) {
    bool moved = false;
    while (std::optional<Event> event = handle.next(most)) {
      answers[static_cast<std::size_t>(event->choice)].add(std::move(*event));
      moved = true;
      most = std::chrono::milliseconds(0);
    }
    return moved;
  }

  void finish(const OpenLine& line) {
    const std::string& id = line.request.custom_id();
    try {
      write(id, line.request.response(line.answers, line.number, engine_.tokenizer()));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIo) throw;
      write(id, BatchRequest::failure(id, line.number, error));
      ++failed_;
    }
  }

  void write(const std::string& id, const Json& answer) {
    output_.write(id, answer);
    ++answered_;
    progress_.update(output_.done());
  }

  Engine& engine_;
  const BatchOptions& options_;
  BatchInput input_;
  BatchOutput output_;
  std::vector<AdapterChoice> adapters_;
  ConstraintSpec constraint_;  // of lines that ask for none
  std::optional<SamplingPreset> preset_;
  Progress progress_;
  std::list<OpenLine> open_;
  std::int64_t number_ = 0;
  std::int64_t answered_ = 0;
  std::int64_t failed_ = 0;
};

void batch(BatchOptions& options) {
  if (options.input.empty()) fail_usage("batch: IN.jsonl is missing: the requests");
  if (options.output.empty()) fail_usage("-o OUT.jsonl is missing: where the answers go");
  if (options.sequences < 1 || options.sequences > 1024) {
    fail_usage("-b: {} is not in 1 … 1024", options.sequences);
  }
  options.constraint.spec();  // wrong flags show before the model loads
  SessionOptions session_options = options.model.session_options();
  options.speculation.check();
  options.lora.plan(session_options);
  options.preset.load();  // a wrong one shows before the model loads
  const std::int64_t total = check_batch_input(options.input);
  std::error_code none;  // the output may not be there yet
  if (std::filesystem::equivalent(options.input, options.output, none)) {
    fail_usage("-o {}: is the file of the requests; the answers need one of their own",
               options.output);
  }
  session_options.sequences = options.sequences;
  session_options.pages = static_cast<std::int32_t>(options.sequences) *
                          KvCache::pages_for(std::max(kUsualTokens, options.model.context));
  EngineOptions engine_options;
  engine_options.requests = 1 << 20;
  engine_options.speculation = options.speculation.load(options.model, session_options);
  Engine engine(load_session(session_options), std::move(engine_options));
  Batch(engine, options, total).run();
}

}  // namespace

Command batch_command() {
  return make_command<BatchOptions>(
      {"batch", "IN.jsonl -o OUT.jsonl -m DIR [-b N]",
       "Answer a file of requests; run again after a stop, it goes on where it was"},
      batch);
}

}  // namespace bl
