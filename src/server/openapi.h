#pragma once
#include "base/json_fwd.h"
#include "server/router.h"

namespace bl::server {

// The OpenAPI 3.1 document of the routes. Paths, methods, keys, summaries and the shapes of errors
// come from the router; the bodies of requests and answers from openapi/bodies.json, whose entries
// are "METHOD PATTERN".
Json openapi_document(const Router& router);

// The entries of openapi/bodies.json.
const Json& openapi_bodies();

}  // namespace bl::server
