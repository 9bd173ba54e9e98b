#include "server/model_lookup.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "api/request_error.h"
#include "server/error_shape.h"
#include "server/model_folder.h"

namespace bl::server {

ModelInfo info_named(const ServerState& state, const std::string& name) {
  std::optional<ModelInfo> any;
  for (ModelInfo& info : state.registry().list()) {
    for (const std::string& each : info.names) {
      if (same_model_name(each, name)) return std::move(info);
      if (each == "*") any = info;
    }
  }
  if (any) return *std::move(any);
  throw HttpError(404, "model_not_found",
                  fmt::format("the model '{}' does not exist here; /v1/models lists those that do",
                              name.substr(0, 200)));
}

NamedFolder::Item template_named(const ServerState& state, const std::string& name,
                                 const char* field) {
  const auto item = state.folders().templates.find(name);
  if (!item) {
    openai::fail_at(ErrorCode::kInvalidArgument, field,
                    "there is no template '{}'; /v1/templates lists those that there are",
                    name.substr(0, 200));
  }
  return *item;
}

}  // namespace bl::server
