#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/request_fields.h"
#include "base/json.h"
#include "engine/request.h"
#include "server/served_model.h"

namespace bl::server {

// The body of a request to Kobold's generate routes.
struct KoboldRequest {
  std::shared_ptr<ServedModel> model;
  openai::RequestFields fields;
  std::vector<std::int32_t> prompt;
  std::string genkey;
  bool trim_stop = true;  // the answer ends before the stop string
  bool render_special = false;

  // Reads a body. A prompt that is too long loses its beginning, as Kobold's clients expect; the
  // memory in front of it stays. Throws RequestError and HttpError.
  static KoboldRequest read(const OrderedJson& body, std::shared_ptr<ServedModel> model);
  Request engine_request() const;
};

// Tokens of an answer where a request does not say, and the most that the clients' sliders offer.
constexpr std::int64_t kKoboldMaxLength = 512;

}  // namespace bl::server
