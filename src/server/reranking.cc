#include "server/reranking.h"

#include <algorithm>
#include <numeric>

#include "api/request_error.h"
#include "api/request_fields.h"
#include "base/check.h"
#include "server/request_body.h"

namespace bl::server {
namespace {

std::vector<std::string> read_documents(const OrderedJson* list) {
  std::vector<std::string> documents;
  if (list != nullptr && list->is_array()) {
    for (const OrderedJson& each : *list) {
      const OrderedJson* text = each.is_object() ? openai::given(each, "text") : &each;
      if (text == nullptr || !text->is_string()) break;
      documents.push_back(text->get<std::string>());
    }
  }
  if (list == nullptr || documents.empty() || documents.size() != list->size()) {
    openai::fail_at(ErrorCode::kInvalidArgument, "documents",
                    "documents should be a list of texts with at least one");
  }
  return documents;
}

}  // namespace

RerankRequest RerankRequest::read(const OrderedJson& body) {
  RerankRequest request;
  request.query = needed_text(body, "query");
  const OrderedJson* list = openai::given(body, "documents");
  request.is_list = list == nullptr;
  if (request.is_list) list = openai::given(body, "texts");
  request.documents = read_documents(list);
  request.most = count_in(body, "top_n", std::ssize(request.documents));
  if (request.most < 1) {
    openai::fail_at(ErrorCode::kInvalidArgument, "top_n", "top_n should be 1 or more");
  }
  const char* repeats = request.is_list ? "return_text" : "return_documents";
  request.repeats_them = openai::read_flag(body, repeats, false);
  return request;
}

OrderedJson RerankRequest::texts() const {
  OrderedJson texts = OrderedJson::array({query});
  for (const std::string& document : documents) texts.push_back(document);
  return texts;
}

Json RerankRequest::answer(const std::vector<std::vector<float>>& vectors, const std::string& model,
                           std::int64_t tokens) const {
  BL_CHECK(vectors.size() == documents.size() + 1);
  struct Scored {
    std::size_t index;
    double score;
  };
  std::vector<Scored> order;
  const std::vector<float>& asked = vectors.front();
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::vector<float>& own = vectors[i + 1];
    order.push_back({i, std::inner_product(asked.begin(), asked.end(), own.begin(), 0.0)});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(most)));
  Json results = Json::array();
  for (const Scored& each : order) {
    Json result{{"index", each.index}, {is_list ? "score" : "relevance_score", each.score}};
    const std::string& text = documents[each.index];
    if (repeats_them && is_list) result["text"] = text;
    if (repeats_them && !is_list) result["document"] = {{"text", text}};
    results.push_back(std::move(result));
  }
  if (is_list) return results;
  return {{"object", "list"},
          {"model", model},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}},
          {"results", std::move(results)}};
}

}  // namespace bl::server
