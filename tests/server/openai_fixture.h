#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "../http/raw_client.h"
#include "calling_model.h"
#include "http_answer.h"
#include "server/api_server.h"

namespace bl::test {

// A server with the model of calling_model.h, for tests of OpenAI's routes over sockets.
class OpenAiServer : public testing::Test {
 protected:
  void open(server::AccessOptions access = {}) {
    server_.emplace(server::ApiServer::Options{.http = {.port = 0}, .access = std::move(access)});
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    model_ = make_calling_model((std::string("openai-") + test->name()).c_str());
    server_->state().set_model(model_);
    server_->start();
  }
  HttpAnswer ask(const std::string& request) {
    RawClient client(server_->port());
    client.send(request);
    return read_whole_answer(client);
  }
  HttpAnswer post(const std::string& path, const std::string& body, const std::string& key = {}) {
    return ask(http_request("POST", path, body,
                            key.empty() ? "" : "Authorization: Bearer " + key + "\r\n"));
  }
  // `more`: further members of the body.
  HttpAnswer chat(const std::string& more) {
    return post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"hi"}])" + more + "}");
  }
  HttpAnswer complete(const std::string& members) {
    return post("/v1/completions", "{" + members + "}");
  }

  std::optional<server::ApiServer> server_;
  std::shared_ptr<server::ServedModel> model_;
};

}  // namespace bl::test
