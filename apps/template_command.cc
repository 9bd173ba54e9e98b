// template: renders a chat template; with --parse it reads what a model answered to the prompt.

#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "command.h"
#include "json_lines.h"
#include "results.h"
#include "text_options.h"
#include "toolcall/answer_parser.h"
#include "toolcall/detect_format.h"
#include "usage_error.h"

namespace bl {
namespace {

struct TemplateOptions {
  TextOptions text;
  std::string file;
  bool json_lines = false;
  bool parse = false;
  std::string answer_format;
  std::string reasoning = "deepseek";

  template <class V>
  void visit(V&& v) {
    text.visit(v);
    v.group("Template");
    v(file, {"--template", "FILE", "a template file to use instead of the model's"});
    v(json_lines, {"--jsonl", "", "read one document per line, write one JSON object for each"});
    v.group("Answers");
    v(parse,
      {"--parse", "",
       "read the answer in \"text\" (or in \"pieces\", a list) of each line as a server would: "
       "content, reasoning and tool calls"});
    v(answer_format,
      {"--answer-format", "NAME", "how answers are written, instead of what the template shows"});
    v(reasoning, {"--reasoning-format", "NAME",
                  "deepseek: reasoning is apart from content; none: it stays in the content"});
  }
};

// Where the template comes from: a file, the model, or a file together with the model's special
// tokens.
class TemplateSource {
 public:
  explicit TemplateSource(const TemplateOptions& options) {
    if (!options.text.model.empty()) model_ = options.text.open();
    if (options.file.empty()) return;
    own_ = std::make_unique<ChatTemplate>(read_file(options.file, 16 << 20), options.file);
  }

  std::string render(OrderedJson variables) const {
    if (!variables.is_object())
      fail(ErrorCode::kInvalidArgument, "the document should be a JSON object");
    std::optional<std::int64_t> now;
    if (const auto at = variables.find("now"); at != variables.end()) {
      if (!at->is_number()) fail(ErrorCode::kInvalidArgument, "\"now\" should be Unix seconds");
      now = at->get<std::int64_t>();
      variables.erase("now");
    }
    if (!own_) return model_->render(std::move(variables), now);
    if (model_) {
      for (const auto& [name, token] : model_->tokenizer().special_tokens()) {
        if (!variables.contains(name)) variables[name] = token;
      }
    }
    return own_->render(variables, now);
  }

  // The text of the template that is rendered with tools or without.
  const std::string& source(bool has_tools) const {
    return (own_ ? *own_ : model_->chat_template(has_tools)).source();
  }

 private:
  std::optional<ModelText> model_;
  std::unique_ptr<ChatTemplate> own_;
};

// Reads answers to prompts of one template.
class AnswerReading {
 public:
  AnswerReading(const TemplateSource& source, const TemplateOptions& options)
      : source_(source), separate_(options.reasoning == "deepseek") {
    if (!separate_ && options.reasoning != "none") {
      fail_usage("--reasoning-format should be deepseek or none, not \"{}\"", options.reasoning);
    }
    if (!options.answer_format.empty()) format_ = named_answer_format(options.answer_format);
  }

  // `request`: template variables, and the answer as "text" or "pieces".
  Json read(OrderedJson request) {
    if (!request.is_object()) fail(ErrorCode::kInvalidArgument, "the line should be a JSON object");
    const std::vector<std::string> pieces = take_pieces(request);
    const auto tools_at = request.find("tools");
    const ToolSet tools(
        tools_at == request.end() ? Json() : Json(parse_json(json_text(*tools_at), "tools")));
    request["add_generation_prompt"] = false;
    const std::string without = rendered(request).value_or(std::string());
    request["add_generation_prompt"] = true;
    // A prompt that the template refuses has an answer all the same.
    const std::string prompt = rendered(request).value_or(std::string());
    const AnswerFormat& format = find_format(request, !tools.empty());

    AnswerOptions options;
    options.start = find_answer_start(format, prompt, generation_tail(prompt, without));
    options.separate_reasoning = separate_;
    AnswerParser parser(format, tools, std::move(options));
    ParsedAnswer answer;
    for (const std::string& piece : pieces) answer.add(parser.feed(piece));
    answer.add(parser.finish());
    return answer_json(answer);
  }

 private:
  static std::vector<std::string> take_pieces(OrderedJson& request) {
    std::vector<std::string> pieces;
    const auto text = request.find("text");
    const auto list = request.find("pieces");
    if ((text == request.end()) == (list == request.end())) {
      fail(ErrorCode::kInvalidArgument, "a line needs \"text\" or \"pieces\", and not both");
    }
    if (text != request.end()) {
      if (!text->is_string()) fail(ErrorCode::kInvalidArgument, "\"text\" should be a string");
      pieces.push_back(text->get<std::string>());
      request.erase("text");
      return pieces;
    }
    if (!list->is_array()) fail(ErrorCode::kInvalidArgument, "\"pieces\" should be a list");
    for (const OrderedJson& piece : *list) {
      if (!piece.is_string()) {
        fail(ErrorCode::kInvalidArgument, "\"pieces\" should hold strings alone");
      }
      pieces.push_back(piece.get<std::string>());
    }
    request.erase("pieces");
    return pieces;
  }

  std::optional<std::string> rendered(const OrderedJson& variables) const {
    try {
      return source_.render(variables);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // The format is found out once; the template's special tokens come from the first request.
  const AnswerFormat& find_format(const OrderedJson& request, bool has_tools) {
    if (format_) return *format_;
    const std::string& source = source_.source(has_tools);
    const auto known = found_.find(source);
    if (known != found_.end()) return known->second;
    OrderedJson tokens = OrderedJson::object();
    for (const auto& [key, value] : request.items()) {
      if (value.is_string() && key.ends_with("_token")) tokens[key] = value;
    }
    const auto render = [&](const OrderedJson& variables) {
      OrderedJson all = tokens;
      all.update(variables);
      all["now"] = 0;
      return rendered(all);
    };
    return found_.emplace(source, detect_answer_format({source, render})).first->second;
  }

  static Json answer_json(const ParsedAnswer& answer) {
    const auto text_or_null = [](const std::string& text) {
      return text.empty() ? Json() : Json(text);
    };
    Json calls = Json::array();
    for (const ParsedCall& call : answer.calls) {
      calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
    }
    return {{"content", text_or_null(answer.content)},
            {"reasoning_content", text_or_null(answer.reasoning)},
            {"tool_calls", std::move(calls)}};
  }

  const TemplateSource& source_;
  const bool separate_;
  std::optional<AnswerFormat> format_;
  std::map<std::string, AnswerFormat> found_;  // by the template's text
};

void render_template(TemplateOptions& options) {
  if (options.text.model.empty() && options.file.empty()) {
    fail_usage("template: -m DIR or --template FILE is missing");
  }
  const TemplateSource source(options);
  if (options.parse) {
    AnswerReading reading(source, options);
    for_each_input_line([&](std::string_view line) {
      Json answer;
      try {
        answer = reading.read(parse_ordered_json(line, "line"));
      } catch (const Error& error) {
        answer = {{"error", error.what()}};
      }
      write_json_line(answer);
    });
    return;
  }
  if (!options.json_lines) {
    const std::string document{std::istreambuf_iterator<char>(std::cin), {}};
    write_result(source.render(parse_ordered_json(document, "standard input")));
    return;
  }
  for_each_input_line([&](std::string_view line) {
    OrderedJson variables = parse_ordered_json(line, "document");
    Json answer;
    try {
      answer["text"] = source.render(std::move(variables));
    } catch (const Error& error) {
      answer["error"] = error.what();
    }
    write_json_line(answer);
  });
}

}  // namespace

Command template_command() {
  return make_command<TemplateOptions>(
      {"template",
       "(-m DIR | --template FILE) < IN.json",
       "Render a chat template: JSON variables in, text out; --parse reads answers",
       {{"The prompt that a conversation becomes",
         "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
         "\"add_generation_prompt\": true}' |\n    bitloom template -m DIR"},
        {"A template of your own, one document per line",
         "cat chats.jsonl | bitloom template --template my.jinja --jsonl"},
        {"What a server makes of the model's outputs",
         "cat outputs.jsonl | bitloom template -m DIR --parse"}}},
      render_template);
}

}  // namespace bl
