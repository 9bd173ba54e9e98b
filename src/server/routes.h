#pragma once
#include "server/router.h"
#include "server/server_state.h"

namespace bl::server {

// Each adds the routes of one API. `state` outlives the router.
void add_openai_routes(Router& router, ServerState& state);        // /v1/chat/completions, …
void add_responses_routes(Router& router, ServerState& state);     // /v1/responses
void add_anthropic_routes(Router& router, ServerState& state);     // /v1/messages, …
void add_ollama_routes(Router& router, ServerState& state);        // /api/chat, /api/generate
void add_ollama_model_routes(Router& router, ServerState& state);  // /api/tags, /api/show, …
void add_request_routes(Router& router, ServerState& state);       // /v1/requests/{id}/…
void add_model_routes(Router& router, ServerState& state);    // /v1/models, /v1/model/load, …
void add_admin_routes(Router& router, ServerState& state);    // templates, presets, tokens
void add_adapter_routes(Router& router, ServerState& state);  // /v1/lora/load, /lora-adapters, …
void add_embedding_routes(Router& router, ServerState& state);  // embeddings of all APIs, rerank
void add_status_routes(Router& router, ServerState& state);     // /health

}  // namespace bl::server
