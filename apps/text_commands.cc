// tokenize, detokenize: commands that need no weights.

#include <fmt/format.h>

#include "base/json.h"
#include "command.h"
#include "engine/model_text.h"
#include "json_lines.h"
#include "results.h"
#include "text_options.h"

namespace bl {
namespace {

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

}  // namespace bl
