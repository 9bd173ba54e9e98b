#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "http/raw_client.h"
#include "http_answer.h"
#include "server/api_server.h"

namespace bl::test {

struct SocketAnswer : HttpAnswer {
  using HttpAnswer::HttpAnswer;

  bool says(std::string_view text) const { return body.find(text) != std::string::npos; }
  // The value of a field of the head; empty where there is none.
  std::string field(const std::string& name) const;
  // The JSON documents behind "data: ", in order; "[DONE]" is left out.
  std::vector<Json> data() const;
};

// "POST PATH" with a body; `fields` are whole lines.
std::string post_text(const std::string& path, const std::string& body,
                      const std::string& fields = "");
std::string get_text(const std::string& path, const std::string& fields = "");

bool becomes_true(const std::function<bool()>& condition);

// A whole server on a free port with a tiny model.
class ServerFixture : public testing::Test {
 protected:
  void open(server::ApiServer::Options options = {}, EngineOptions engine = {});
  // Without a model: as while one is loaded.
  void open_empty(server::ApiServer::Options options = {});
  void set_model(EngineOptions engine = {});

  SocketAnswer ask(const std::string& request);
  SocketAnswer post(const std::string& path, const std::string& body,
                    const std::string& fields = "") {
    return ask(post_text(path, body, fields));
  }
  SocketAnswer get(const std::string& path, const std::string& fields = "") {
    return ask(get_text(path, fields));
  }
  EngineStats stats() { return model_->engine().settled_stats(); }
  std::uint16_t port() const { return server_->port(); }
  Engine& engine() { return model_->engine(); }

  std::int64_t sequences_ = 2;  // that run at once; set it before open()
  std::optional<server::ApiServer> server_;
  std::shared_ptr<server::ServedModel> model_;
};

// A request that runs beside those of the server, given to its engine directly. `on_token` runs on
// the engine's thread for each of its tokens, so it can slow the engine down or stop it.
RequestHandle run_beside(Engine& engine, std::function<void()> on_token);

}  // namespace bl::test
