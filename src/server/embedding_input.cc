#include "server/embedding_input.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "api/request_error.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace bl::server {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t kMostTexts = 2048;  // as OpenAI

bool is_id(const OrderedJson& value) {
  return value.is_number_integer() && value.get<double>() >= 0 && value.get<double>() <= INT32_MAX;
}

class InputReader {
 public:
  InputReader(const char* field, const Tokenizer& tokenizer)
      : field_(field), tokenizer_(tokenizer) {}

  EmbeddingInput read(const OrderedJson& input) const {
    EmbeddingInput result;
    // A list with a bare id is one text.
    const bool is_list_of_texts =
        input.is_array() &&
        std::none_of(input.begin(), input.end(), [](const auto& each) { return each.is_number(); });
    if (!is_list_of_texts) {
      result.texts.push_back(one(input));
      return result;
    }
    if (input.empty()) fail_here("is an empty list");
    if (input.size() > kMostTexts) fail_here("has more than 2048 texts");
    for (const OrderedJson& each : input) result.texts.push_back(one(each));
    return result;
  }

 private:
  [[noreturn]] void fail_here(const char* what) const {
    openai::fail_at(ErrorCode::kInvalidArgument, field_,
                    "{} {}; it should be a text, a list of token ids, or a list of those", field_,
                    what);
  }

  Ids one(const OrderedJson& value) const {
    if (value.is_string()) return encoded(value.get_ref<const std::string&>());
    if (value.is_array()) return mixed(value);
    if (value.is_object()) return encoded(text_of(value));
    fail_here("has another type");
  }

  Ids encoded(const std::string& text) const {
    Ids ids = tokenizer_.encode(text, {.add_special = true, .parse_special = false});
    if (!ids.empty()) return ids;
    std::optional<int> around = tokenizer_.bos_id();
    if (!around) around = tokenizer_.eos_id();
    if (!around) fail_here("has a text without any token");
    return {*around};
  }

  // Ids and texts one after another; nothing is put around them.
  Ids mixed(const OrderedJson& list) const {
    Ids ids;
    for (const OrderedJson& each : list) {
      if (each.is_string()) {
        const Ids more = tokenizer_.encode(each.get_ref<const std::string&>(),
                                           {.add_special = false, .parse_special = false});
        ids.insert(ids.end(), more.begin(), more.end());
      } else if (is_id(each)) {
        ids.push_back(each.get<std::int32_t>());
      } else {
        fail_here("has something in a list of token ids that is none");
      }
    }
    if (ids.empty()) fail_here("has an empty list of token ids");
    return ids;
  }

  std::string text_of(const OrderedJson& object) const {
    if (const auto text = object.find("prompt_string"); text != object.end()) {
      if (text->is_string()) return text->get<std::string>();
    } else if (const auto parts = object.find("content");
               parts != object.end() && parts->is_array()) {
      std::string joined;
      for (const OrderedJson& part : *parts) joined += text_of_part(part);
      return joined;
    }
    fail_here("has an object without prompt_string or content");
  }

  std::string text_of_part(const OrderedJson& part) const {
    const bool is_text = part.is_object() && part.contains("type") && part["type"] == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) fail_here("has a part that is not a text");
    return part["text"].get<std::string>();
  }

  const char* field_;
  const Tokenizer& tokenizer_;
};

}  // namespace

std::int64_t EmbeddingInput::tokens() const {
  return std::accumulate(texts.begin(), texts.end(), std::int64_t{0},
                         [](std::int64_t sum, const Ids& ids) { return sum + std::ssize(ids); });
}

EmbeddingInput read_embedding_input(const OrderedJson& input, const char* field,
                                    const Tokenizer& tokenizer) {
  return InputReader(field, tokenizer).read(input);
}

}  // namespace bl::server
