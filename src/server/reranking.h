#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace bl::server {

// A request to order documents by how well they fit a query.
struct RerankRequest {
  std::string query{};
  std::vector<std::string> documents{};
  std::int64_t most = 0;      // documents in the answer at most
  bool repeats_them = false;  // the answer has their texts, too
  bool is_list = false;       // as Text Embeddings Inference has it, whose answer is a bare list

  // Reads the body that most clients send ("documents") or of Text Embeddings Inference's
  // ("texts"). Throws RequestError.
  static RerankRequest read(const OrderedJson& body);
  // The query and then the documents, as a list of texts.
  OrderedJson texts() const;
  // The answer, best first. `vectors`: of texts(), each of length 1; the score of a document is the
  // cosine of the angle between its vector and the query's. `tokens`: of texts().
  Json answer(const std::vector<std::vector<float>>& vectors, const std::string& model,
              std::int64_t tokens) const;
};

}  // namespace bl::server
