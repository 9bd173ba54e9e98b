#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "command.h"
#include "generation_options.h"
#include "lora_options.h"
#include "model_options.h"
#include "prefix_file_flags.h"
#include "results.h"
#include "speculation_flags.h"
#include "template_flags.h"
#include "transcript.h"
#include "usage_error.h"

namespace bl {
namespace {

struct RunOptions {
  ModelOptions model;
  LoraOptions lora;
  GenerationOptions generation;
  SpeculationFlags speculation;
  PrefixFileFlags prefix;
  TemplateFlags chat_template;
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  bool chat = false;

  template <class V>
  void visit(V&& v) {
    v.group("Prompt (read from standard input if neither -p nor -f is given)");
    v(prompt, {"-p,--prompt", "TEXT", "the prompt"});
    v(file, {"-f,--file", "FILE", "a file that contains the prompt"});
    v(chat, {"--chat", "", "wrap the prompt as one user turn with the chat template"});
    chat_template.visit(v);
    generation.visit(v);
    speculation.visit(v);
    prefix.visit(v);
    model.visit(v);
    lora.visit(v);
  }
};

std::string read_prompt(const RunOptions& options) {
  if (options.prompt && options.file)
    fail_usage("run: -p and -f exclude each other; give only one");
  if (options.prompt) return *options.prompt;
  if (options.file) return read_file(*options.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

std::vector<std::int32_t> encode_prompt(const ModelSession& session, const std::string& prompt,
                                        const RunOptions& options) {
  if (!options.chat) return session.tokenizer().encode(prompt, {});
  Transcript turn;
  turn.add_user(prompt);
  return session.text().encode_chat(turn.messages(), options.chat_template.resolve(session.text()));
}

void run(RunOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  SessionOptions session_options = options.model.session_options();
  options.lora.plan(session_options);
  options.speculation.check();
  options.prefix.check();
  options.chat_template.plan(session_options);
  if (options.chat_template.any() && !options.chat) {
    fail_usage("run: --template, --template-vars and --reasoning have no effect without --chat");
  }
  // Check the flags before the model is loaded.
  const Request probe = options.generation.request(SamplingParams{});
  session_options.sequences = probe.sampling.cfg_scale != 1 ? 2 : 1;
  const std::string prompt = read_prompt(options);
  EngineOptions engine_options;
  engine_options.speculation = options.speculation.load(options.model, session_options);
  Engine engine(load_session(session_options), std::move(engine_options));
  Request request = options.generation.request(engine.session().defaults().sampling);
  request.prompt = encode_prompt(engine.session(), prompt, options);
  request.continues_prompt = !options.chat;
  request.adapters = options.lora.load(engine);
  options.prefix.check_text(request);
  options.prefix.load(engine);
  const Request asked = request;

  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  const bool greedy = request.sampling.greedy();
  const std::uint64_t seed = request.sampling.seed;
  std::unique_ptr<Progress> progress;
  double first_text = 0;
  const Answer answer = answer_request(engine, std::move(request), [&](const Event& event) {
    if (event.text.empty()) {
      if (event.prompt_done == 0) return;
      if (!progress) {
        progress = std::make_unique<Progress>("prompt", prompt_tokens, Progress::Unit::kTokens);
      }
      progress->update(event.prompt_done);
      return;
    }
    progress.reset();
    if (first_text == 0) {
      first_text = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    write_result(event.text);
    flush_results();
  });
  progress.reset();
  write_result("\n");
  flush_results();
  if (greedy) {
    log_info("{}, first text after {:.2f} s", describe(answer), first_text);
  } else {
    log_info("{}, first text after {:.2f} s, seed {}", describe(answer), first_text, seed);
  }
  if (answer.reason == FinishReason::kCancelled) fail(ErrorCode::kCancelled, "interrupted");
  options.prefix.save(engine, asked);
}

}  // namespace

Command run_command() {
  return make_command<RunOptions>(
      {"run",
       "-m DIR [-p TEXT | -f FILE | < TEXT] [-n N] [options]",
       "Complete a prompt, streaming the text to standard output",
       {{"Continue a text", R"(bitloom run -m DIR -p "Once upon a time" -n 100)"},
        {"Ask a model that was trained to chat; always choose the likeliest token",
         R"(bitloom run -m DIR --chat --greedy -p "Why is the sky blue?")"},
        {"Read the prompt from a file, and answer with JSON of a given form",
         R"(bitloom run -m DIR --chat -f prompt.txt --json-schema '{"type": "object"}')"}}},
      run);
}

}  // namespace bl
