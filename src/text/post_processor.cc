#include "text/post_processor.h"

#include "base/error.h"
#include "base/json.h"
#include "text/vocabulary.h"

namespace bl {
namespace {

constexpr std::size_t kMaxItems = 1024;

std::int32_t checked_id(const Json& value, const ComponentReader& reader, const char* key) {
  if (!value.is_number_integer() || value < 0 || value > Vocabulary::kMaxId) {
    reader.wrong(key, "token ids from 0 to 16777215");
  }
  return value.get<std::int32_t>();
}

// Reads a token with its id, such as ["[SEP]", 102].
std::int32_t token_pair(const ComponentReader& reader, const char* key) {
  const Json& pair = reader.at(key);
  if (!pair.is_array() || pair.size() != 2) reader.wrong(key, "[token, id]");
  return checked_id(pair[1], reader, key);
}

}  // namespace

PostProcessor::PostProcessor(const ComponentReader& reader) : PostProcessor() { read(reader, 0); }

PostProcessor::PostProcessor(std::vector<std::int32_t> before,
                             const std::vector<std::int32_t>& behind)
    : items_(std::move(before)) {
  items_.push_back(kText);
  items_.insert(items_.end(), behind.begin(), behind.end());
}

void PostProcessor::read(const ComponentReader& reader, int depth) {
  const std::string type = reader.type();
  if (type == "ByteLevel") return;  // it changes only offsets
  if (type == "TemplateProcessing") {
    read_template(reader);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    surround({token_pair(reader, "cls"), kText, token_pair(reader, "sep")});
  } else if (type == "Sequence") {
    reader.check_nesting("processors", depth);
    for (const ComponentReader& step : reader.children("processors")) read(step, depth + 1);
  } else {
    fail(ErrorCode::kUnsupported, "{}: post-processor type '{}' is not known", reader.where(),
         type);
  }
}

void PostProcessor::read_template(const ComponentReader& reader) {
  std::vector<std::int32_t> row;
  for (const ComponentReader& item : reader.children("single")) {
    if (item.has("Sequence")) {
      if (item.child("Sequence").string("id") != "A") item.wrong("Sequence", "the sequence A");
      row.push_back(kText);
      continue;
    }
    const std::string name = item.child("SpecialToken").string("id");
    const ComponentReader known = reader.child("special_tokens");
    if (!known.has(name.c_str())) reader.wrong("special_tokens", "an entry for '" + name + "'");
    const ComponentReader token = known.child(name.c_str());
    const Json& ids = token.at("ids");
    if (!ids.is_array()) token.wrong("ids", "a list of token ids");
    for (const Json& id : ids) row.push_back(checked_id(id, token, "ids"));
  }
  surround(row);
}

void PostProcessor::surround(const std::vector<std::int32_t>& row) {
  std::vector<std::int32_t> out;
  for (const std::int32_t item : row) {
    if (item == kText) {
      out.insert(out.end(), items_.begin(), items_.end());
    } else {
      out.push_back(item);
    }
    if (out.size() > kMaxItems) {
      fail(ErrorCode::kInvalidFile, "post_processor: it puts more than {} tokens around a text",
           kMaxItems);
    }
  }
  items_ = std::move(out);
}

std::vector<std::int32_t> PostProcessor::apply(std::vector<std::int32_t> ids,
                                               bool add_special) const {
  if (items_.size() == 1 && items_[0] == kText) return ids;
  std::vector<std::int32_t> out;
  out.reserve(ids.size() + items_.size());
  for (const std::int32_t item : items_) {
    if (item == kText) {
      out.insert(out.end(), ids.begin(), ids.end());
    } else if (add_special) {
      out.push_back(item);
    }
  }
  return out;
}

}  // namespace bl
