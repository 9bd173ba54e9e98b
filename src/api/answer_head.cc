#include "api/answer_head.h"

#include <utility>

#include "api/usage_total.h"
#include "base/json.h"

namespace bl::openai {
namespace {

// Clients tell by it whether answers with the same seed may differ.
constexpr const char* kFingerprint = "bitloom-" BL_VERSION;

}  // namespace

Json head_json(const AnswerHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", kFingerprint}};
}

Json ChunkFrame::chunk(Json choice) const {
  Json chunk = head_json(head, object);
  chunk["choices"] = Json::array({std::move(choice)});
  if (include_usage) chunk["usage"] = nullptr;
  return chunk;
}

Json ChunkFrame::usage_chunk(const UsageTotal& usage) const {
  Json chunk = head_json(head, object);
  chunk["choices"] = Json::array();
  chunk["usage"] = usage.json();
  return chunk;
}

}  // namespace bl::openai
