#pragma once
#include <string>

#include "base/json_fwd.h"

namespace bl::ollama {

// Translate the bodies of requests to Ollama's routes into bodies of OpenAI's form. Options that
// concern the loading of a model (num_ctx, num_gpu, …) are left out, as the server decides on them.
// They throw RequestError for fields of the wrong type and for what cannot be done.
//
// /api/chat → a chat.
OrderedJson chat_body(const OrderedJson& body);
// /api/generate → a chat of one turn, which follows the tokens in the request's "context".
OrderedJson generate_chat_body(const OrderedJson& body);
// /api/generate with raw: true → a completion.
OrderedJson raw_body(const OrderedJson& body);

// The model that a request names: "model", or "name" as older clients have it.
std::string model_of(const OrderedJson& body);
// Whether a request for an answer only asks for the model to be loaded, as it has no messages or no
// prompt.
bool asks_for_loading(const OrderedJson& body, bool is_chat);
// Ollama streams where a request does not say otherwise.
bool is_streamed(const OrderedJson& body);

}  // namespace bl::ollama
