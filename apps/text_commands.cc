// tokenize, detokenize, template: commands that need no weights.

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "command.h"
#include "engine/model_text.h"
#include "engine/open_model.h"
#include "json_lines.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

struct TextOptions {
  std::string model;
  std::string archs;

  template <class V>
  void visit(V&& v) {
    v.group("Model");
    v(model, {"-m,--model", "DIR", "model folder or .gguf file"});
    v(archs,
      {"--archs", "DIR", "folder of architecture files to use instead of the built-in ones"});
  }
  ModelText open() const {
    if (model.empty()) fail_usage("-m DIR is missing: the model folder or .gguf file");
    return ModelText(load_tokenizer(model, archs), model);
  }
};

// Returns the member `key` of a request. Throws kInvalidArgument if it is missing.
const Json& member(const Json& request, const char* key) {
  if (!request.is_object()) fail(ErrorCode::kInvalidArgument, "the line should be a JSON object");
  const auto at = request.find(key);
  if (at == request.end()) fail(ErrorCode::kInvalidArgument, "\"{}\" is missing", key);
  return *at;
}

bool flag(const Json& request, const char* key, bool fallback) {
  const auto at = request.find(key);
  if (at == request.end()) return fallback;
  if (!at->is_boolean()) fail(ErrorCode::kInvalidArgument, "\"{}\" should be true or false", key);
  return at->get<bool>();
}

std::vector<std::int32_t> ids_of(const Json& request, int vocab) {
  const Json& list = member(request, "ids");
  if (!list.is_array()) fail(ErrorCode::kInvalidArgument, "\"ids\" should be an array");
  std::vector<std::int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.is_number_float() || id < 0 || id >= vocab) {
      fail(ErrorCode::kInvalidArgument, "ids[{}] is {}, but should be a token id in 0 … {}",
           ids.size(), json_text(id), vocab - 1);
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

void tokenize(TextOptions& options) {
  const ModelText text = options.open();
  for_each_input_line([&](std::string_view line) {
    const Json request = parse_json(line, "request");
    const Json& wanted = member(request, "text");
    if (!wanted.is_string()) fail(ErrorCode::kInvalidArgument, "\"text\" should be a string");
    const EncodeOptions how{flag(request, "special", true)};
    const std::vector<std::int32_t> ids =
        text.tokenizer().encode(wanted.get_ref<const std::string&>(), how);
    write_result(fmt::format("{{\"ids\": [{}]}}\n", fmt::join(ids, ", ")));
  });
}

void detokenize(TextOptions& options) {
  const ModelText text = options.open();
  for_each_input_line([&](std::string_view line) {
    const Json request = parse_json(line, "request");
    const std::vector<std::int32_t> ids = ids_of(request, text.tokenizer().vocab_size());
    write_json_line({{"text", text.tokenizer().decode(ids, flag(request, "skip_special", false))}});
  });
}

struct TemplateOptions {
  TextOptions text;
  std::string file;
  bool json_lines = false;

  template <class V>
  void visit(V&& v) {
    text.visit(v);
    v.group("Template");
    v(file, {"--template", "FILE", "a template file to use instead of the model's"});
    v(json_lines, {"--jsonl", "", "read one document per line, write one JSON object for each"});
  }
};

// Where the template comes from: a file, the model, or a file together with the model's special
// tokens.
struct TemplateSource {
  std::optional<ModelText> model;
  std::unique_ptr<ChatTemplate> own;
};

std::string render(const TemplateSource& source, OrderedJson variables) {
  if (!variables.is_object())
    fail(ErrorCode::kInvalidArgument, "the document should be a JSON object");
  std::optional<std::int64_t> now;
  if (const auto at = variables.find("now"); at != variables.end()) {
    if (!at->is_number()) fail(ErrorCode::kInvalidArgument, "\"now\" should be Unix seconds");
    now = at->get<std::int64_t>();
    variables.erase("now");
  }
  if (!source.own) return source.model->render(std::move(variables), now);
  if (source.model) {
    for (const auto& [name, token] : source.model->tokenizer().special_tokens()) {
      if (!variables.contains(name)) variables[name] = token;
    }
  }
  return source.own->render(variables, now);
}

void render_template(TemplateOptions& options) {
  if (options.text.model.empty() && options.file.empty()) {
    fail_usage("template: -m DIR or --template FILE is missing");
  }
  TemplateSource source;
  if (!options.text.model.empty()) source.model = options.text.open();
  if (!options.file.empty()) {
    source.own = std::make_unique<ChatTemplate>(read_file(options.file, 16 << 20), options.file);
  }
  if (!options.json_lines) {
    const std::string document{std::istreambuf_iterator<char>(std::cin), {}};
    write_result(render(source, parse_ordered_json(document, "standard input")));
    return;
  }
  for_each_input_line([&](std::string_view line) {
    OrderedJson variables = parse_ordered_json(line, "document");
    Json answer;
    try {
      answer["text"] = render(source, std::move(variables));
    } catch (const Error& error) {
      answer["error"] = error.what();
    }
    write_json_line(answer);
  });
}

}  // namespace

Command tokenize_command() {
  return make_command<TextOptions>(
      {"tokenize",
       "-m DIR < IN.jsonl",
       "Convert text to token ids: JSONL {\"text\", \"special\"} in, {\"ids\"} out",
       {{"Token ids of a text", R"(echo '{"text": "Hello world"}' | bitloom tokenize -m DIR)"}}},
      tokenize);
}

Command detokenize_command() {
  return make_command<TextOptions>(
      {"detokenize",
       "-m DIR < IN.jsonl",
       "Convert token ids to text: JSONL {\"ids\", \"skip_special\"} in, {\"text\"} out",
       {{"Text of token ids", R"(echo '{"ids": [1, 2, 3]}' | bitloom detokenize -m DIR)"}}},
      detokenize);
}

Command template_command() {
  return make_command<TemplateOptions>(
      {"template",
       "(-m DIR | --template FILE) < IN.json",
       "Render a chat template: JSON variables in, text out",
       {{"The prompt that a conversation becomes",
         "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
         "\"add_generation_prompt\": true}' |\n    bitloom template -m DIR"},
        {"A template of your own, one document per line",
         "cat chats.jsonl | bitloom template --template my.jinja --jsonl"}}},
      render_template);
}

}  // namespace bl
