#include <algorithm>
#include <array>
#include <iostream>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/terminal.h"
#include "command.h"
#include "generation_options.h"
#include "line_editor.h"
#include "lora_options.h"
#include "model_options.h"
#include "prefix_file_flags.h"
#include "results.h"
#include "speculation_flags.h"
#include "template_flags.h"
#include "transcript.h"

namespace bl {
namespace {

struct ChatOptions {
  ModelOptions model;
  LoraOptions lora;
  GenerationOptions generation;
  SpeculationFlags speculation;
  PrefixFileFlags prefix;
  TemplateFlags chat_template;
  std::string system;

  template <class V>
  void visit(V&& v) {
    v.group("Conversation");
    v(system, {"--system", "TEXT", "system prompt, placed before the first turn", "none"});
    chat_template.visit(v);
    generation.visit(v);
    speculation.visit(v);
    prefix.visit(v);
    model.visit(v);
    lora.visit(v);
  }
};

void note(std::string_view text) {
  const std::string line = colored(Stream::kStderr, Color::kDim, text) + "\n";
  std::cerr << line << std::flush;
}

class Chat {
 public:
  Chat(Engine& engine, const ChatOptions& options)
      : engine_(engine),
        request_(options.generation.request(engine.session().defaults().sampling)),
        variables_(options.chat_template.resolve(engine.session().text())) {
    transcript_.set_system(options.system);
    request_.continues_prompt = false;
    request_.adapters = options.lora.load(engine);
  }

  void loop();
  // The conversation so far, as a request that would continue it.
  Request conversation() const;

 private:
  struct SlashCommand {
    const char* name;
    const char* help;
    void (Chat::*run)(const std::string& argument);
  };
  static const std::array<SlashCommand, 10>& slash_commands();

  std::vector<std::int32_t> prompt() const {
    return engine_.session().text().encode_chat(transcript_.messages(), variables_);
  }
  void answer();
  void handle(const std::string& entry);
  void handle_command(const std::string& entry);

  void help(const std::string&);
  void clear(const std::string&);
  void undo(const std::string&);
  void regenerate(const std::string&);
  void save(const std::string& path);
  void load(const std::string& path);
  void system(const std::string& text);
  void set(const std::string& text);
  void stats(const std::string&);
  void quit(const std::string&) { done_ = true; }

  Engine& engine_;
  Request request_;
  OrderedJson variables_;  // of the chat template
  Transcript transcript_;
  std::optional<Answer> last_;
  std::uint64_t answers_ = 0;
  bool done_ = false;
};

const std::array<Chat::SlashCommand, 10>& Chat::slash_commands() {
  static const std::array<SlashCommand, 10> kCommands{{
      {"/help", "list these commands", &Chat::help},
      {"/clear", "forget the conversation", &Chat::clear},
      {"/undo", "remove the last question and its answer", &Chat::undo},
      {"/regen", "answer the last question again", &Chat::regenerate},
      {"/save", "FILE: write the conversation as JSON", &Chat::save},
      {"/load", "FILE: continue a saved conversation", &Chat::load},
      {"/system", "[TEXT]: show or replace the system prompt", &Chat::system},
      {"/set", "[KEY VALUE]: show or change sampling settings", &Chat::set},
      {"/stats", "tokens and speed of the last answer, use of the context", &Chat::stats},
      {"/quit", "leave (also Ctrl-D)", &Chat::quit},
  }};
  return kCommands;
}

void Chat::loop() {
  std::vector<std::string> names;
  for (const SlashCommand& command : slash_commands()) names.emplace_back(command.name);
  LineEditor editor(state_file("chat_history"), names);
  if (editor.is_interactive() && !is_quiet()) {
    note(
        "/help lists the commands. To write several lines, end each with \\ or put the text in "
        "\"\"\". Ctrl-C stops an answer.");
  }
  while (!done_ && !interrupted()) {
    const std::optional<std::string> entry = editor.read_entry();
    if (!entry) break;
    if (entry->find_first_not_of(" \n\t") == entry->npos) continue;
    try {
      handle(*entry);
    } catch (const Error& error) {
      // A script learns from the exit status that an answer is missing; a mistyped command is only
      // reported.
      if (!editor.is_interactive() && entry->front() != '/') throw;
      clear_interrupt();
      std::cerr << colored(Stream::kStderr, Color::kRed, error.what()) << "\n" << std::flush;
    }
  }
}

Request Chat::conversation() const {
  if (!last_)
    fail(ErrorCode::kInvalidArgument,
         "--save-prefix: there is no answer yet, so there is nothing to save");
  Request request = request_;
  request.prompt = prompt();
  return request;
}

void Chat::handle(const std::string& entry) {
  if (entry.front() == '/') {
    handle_command(entry);
    return;
  }
  transcript_.add_user(entry);
  try {
    answer();
  } catch (const Error&) {
    transcript_.undo();
    throw;
  }
}

void Chat::handle_command(const std::string& entry) {
  const auto space = entry.find(' ');
  const std::string name = entry.substr(0, space);
  std::string argument = space == entry.npos ? std::string() : entry.substr(space + 1);
  argument.erase(0, std::min(argument.find_first_not_of(' '), argument.size()));
  std::vector<std::string> names;
  for (const SlashCommand& command : slash_commands()) {
    names.emplace_back(command.name);
    if (command.name == name) return (this->*command.run)(argument);
  }
  const std::string near = nearest_name(name, names);
  fail(ErrorCode::kInvalidArgument, "{} is not a command{}; /help lists them", name,
       near.empty() ? "" : " (did you mean " + near + "?)");
}

void Chat::answer() {
  request_.prompt = prompt();
  Request request = request_;
  // Change the seed, so that answering the same question again gives a different answer.
  request.sampling.seed += answers_++;
  last_ = answer_request(engine_, std::move(request), [](const Event& event) {
    write_result(event.text);
    flush_results();
  });
  clear_interrupt();
  write_result("\n");
  flush_results();
  transcript_.add_answer(last_->text);
  if (!is_quiet()) {
    note(fmt::format(
        "[{} tokens, {:.1f} tok/s{}]", last_->usage.generated_tokens, last_->usage.decode_rate(),
        last_->reason == FinishReason::kEndToken ? std::string()
                                                 : fmt::format(", {}", name_of(last_->reason))));
  }
}

void Chat::help(const std::string&) {
  for (const SlashCommand& command : slash_commands()) {
    note(fmt::format("{:<8} {}", command.name, command.help));
  }
}

void Chat::clear(const std::string&) {
  transcript_.clear();
  note("the conversation is forgotten");
}

void Chat::undo(const std::string&) {
  note(transcript_.undo() ? "removed the last question and its answer"
                          : "there is nothing to undo");
}

void Chat::regenerate(const std::string&) {
  if (!transcript_.drop_answer()) {
    note("there is no question to answer again");
    return;
  }
  answer();
}

void Chat::save(const std::string& path) {
  if (path.empty()) fail(ErrorCode::kInvalidArgument, "/save needs a file name");
  transcript_.save(path);
  note(fmt::format("saved to {}", path));
}

void Chat::load(const std::string& path) {
  if (path.empty()) fail(ErrorCode::kInvalidArgument, "/load needs a file name");
  transcript_.load(path);
  for (const Transcript::Turn& turn : transcript_.turns()) {
    write_result(turn.is_user ? colored(Stream::kStdout, Color::kGreen, "> " + turn.text) + "\n"
                              : turn.text + "\n");
  }
  flush_results();
}

void Chat::system(const std::string& text) {
  if (text.empty()) {
    note(transcript_.system().empty() ? "there is no system prompt" : transcript_.system());
    return;
  }
  transcript_.set_system(text == "none" ? std::string() : text);
  note("set; it applies from the next answer on");
}

// Prints name, value and help of every field.
struct SettingsPrinter {
  template <class T>
  void operator()(T& field, const OptionField& about) const {
    note(fmt::format("{:<20} {:<10} {}", option_key(about), show_value(field), about.help));
  }
};

void Chat::set(const std::string& text) {
  if (text.empty()) {
    request_.sampling.visit(SettingsPrinter{});
    note(fmt::format("{:<20} {:<10} {}", "max_tokens", request_.sampling.max_tokens,
                     "tokens per answer; 0: as many as the context length allows"));
    return;
  }
  const auto space = text.find_first_of(" =");
  const std::string key = text.substr(0, space);
  const std::string value = space == text.npos ? std::string() : text.substr(space + 1);
  if (key == "max_tokens") {
    parse_value(value, request_.sampling.max_tokens);
    return;
  }
  SamplingParams changed = request_.sampling;
  if (!set_option(changed, key, value)) {
    const std::string near = nearest_name(key, option_keys(changed));
    fail(ErrorCode::kInvalidArgument, "{} is not a setting{}; /set lists them", key,
         near.empty() ? "" : " (did you mean " + near + "?)");
  }
  validate(changed);
  request_.sampling = changed;
}

void Chat::stats(const std::string&) {
  if (!last_) {
    note("there is no answer yet");
    return;
  }
  note(describe(*last_));
  const std::int64_t used = last_->usage.prompt_tokens + last_->usage.generated_tokens;
  note(fmt::format("context {} of {} tokens", used, engine_.context()));
}

void chat(ChatOptions& options) {
  SessionOptions session_options = options.model.session_options();
  options.lora.plan(session_options);
  options.prefix.check();
  options.chat_template.plan(session_options);
  const Request probed = options.generation.request(SamplingParams{});
  session_options.sequences = probed.sampling.cfg_scale != 1 ? 2 : 1;
  EngineOptions engine_options;
  engine_options.speculation = options.speculation.load(options.model, session_options);
  Engine engine(load_session(session_options), std::move(engine_options));
  Transcript probe;  // so that a model without a usable template fails before the first question
  probe.add_user("?");
  const ModelText& text = engine.session().text();
  text.encode_chat(probe.messages(), options.chat_template.resolve(text));
  options.prefix.load(engine);
  Chat chat(engine, options);
  chat.loop();
  if (!options.prefix.to.empty()) options.prefix.save(engine, chat.conversation());
}

}  // namespace

Command chat_command() {
  return make_command<ChatOptions>(
      {"chat",
       "-m DIR [--system TEXT] [options]",
       "Talk with a model in the terminal",
       {{"Talk; /help lists what can be done in the conversation", "bitloom chat -m DIR"},
        {"With instructions, and a cache of half the size",
         R"(bitloom chat -m DIR --system "Answer in one sentence." --cache q8)"}}},
      chat);
}

}  // namespace bl
